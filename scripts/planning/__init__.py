"""Study files become cells: expansion, checks, estimates, and what a plan prints."""
