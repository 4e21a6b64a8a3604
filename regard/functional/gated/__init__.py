"""Gated attention units."""
