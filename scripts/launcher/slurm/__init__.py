"""Slurm: its queue, its words, and the jobs of cells."""
