"""Find, read and set aside the records of a study's cells."""
