"""Shared parts with parameters."""
