"""Engines: what an engine is, and a folder for each."""
