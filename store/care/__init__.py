"""Verify and repair banks."""
