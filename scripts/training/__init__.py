"""What runs inside a training process: the one loop, the shared model, weights and batches, the torch engine."""
