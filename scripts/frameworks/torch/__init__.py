"""What the adaptors that are built on PyTorch share."""
