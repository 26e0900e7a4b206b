"""Start the ranks of a cell, watch them, and judge their end."""
