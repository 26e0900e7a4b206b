"""The training workload: the loop and its batches."""
