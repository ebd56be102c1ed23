"""Frames from banks and files: batches, pieces, expressions."""
