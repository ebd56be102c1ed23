"""Prompts: values, files, tokens."""
