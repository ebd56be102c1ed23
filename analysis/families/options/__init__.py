"""Shares and accuracy of options, for prompts that no family knows."""
