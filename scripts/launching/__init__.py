"""Start one process per GPU, watch over them, and turn what they leave into a record or a reason."""
