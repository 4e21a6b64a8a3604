"""Softmax over fewer keys: projected or compressed."""
