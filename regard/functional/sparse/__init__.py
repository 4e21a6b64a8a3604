"""Softmax over the pairs that a pattern names."""
