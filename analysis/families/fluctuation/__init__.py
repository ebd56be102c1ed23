"""Fluctuation: how pronoun scores of professions move between checkpoints."""
