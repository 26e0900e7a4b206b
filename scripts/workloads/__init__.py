"""What a cell runs, and what every rank of any workload has: its meeting, its exchange folder, its limits."""
