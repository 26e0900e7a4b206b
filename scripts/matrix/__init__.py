"""Study files -> cells: pure functions that start nothing and write nothing."""
