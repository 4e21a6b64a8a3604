"""Softmax over blocks that a learned sort brings together."""
