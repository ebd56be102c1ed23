"""Frames from banks and files: batches, dense arrays, sums over tokens, expressions."""
