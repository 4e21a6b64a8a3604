"""Attention through feature maps, linear in the length."""
