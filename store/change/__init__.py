"""Merge, shrink, rescore and describe banks."""
