"""Architectures: shape, exact count of parameters, FLOPs, framework-neutral weights, and how a model may be cut."""
