"""Softmax over dense, biased, relative and scored logits."""
