"""Weights and configs of a checkpoint."""
