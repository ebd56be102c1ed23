"""Processes that run a plan, and what they tell."""
