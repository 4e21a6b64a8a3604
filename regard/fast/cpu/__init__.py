"""Replacements for CPUs: tiles that stay in cache, and backward passes by hand."""
