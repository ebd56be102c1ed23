"""Heads of models: kept once under the digest of their content, and read by rows or whole."""
