"""Fusions: several units that become one QNN op, by subject."""
