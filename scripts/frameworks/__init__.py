"""Adaptors, one module a framework; imported by the name that a study gives."""
