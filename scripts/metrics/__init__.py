"""Metrics: pure functions from records to the columns of measurements.csv (formulas: DESIGN.md, "Metrics")."""
