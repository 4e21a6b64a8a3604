"""Weights that do not come from a product of queries and keys."""
