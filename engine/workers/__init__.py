"""Processes that run a plan, and their events."""
