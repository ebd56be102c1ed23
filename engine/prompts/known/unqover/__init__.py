"""The prompt sets of UnQover."""
