"""Prompt sets that come with the product, one module each."""
