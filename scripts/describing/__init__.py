"""A draft of a cluster's system file, from what Slurm says of itself."""
