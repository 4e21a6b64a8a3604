"""Functions of positions."""
