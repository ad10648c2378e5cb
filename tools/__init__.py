"""Tools for who works on hexforge."""
