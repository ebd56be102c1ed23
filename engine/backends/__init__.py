"""Engines: what an engine is, and the two that run."""
