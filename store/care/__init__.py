"""Verify and repair banks, and check logs of runs."""
