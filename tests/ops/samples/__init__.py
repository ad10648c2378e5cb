"""Samples, one module per op family, each with a list SAMPLES."""
