"""Prompt sets that users bring: JSON Lines, CSV and Parquet."""

from logitbank.engine.prompts.files.load import load_prompts

__all__ = ["load_prompts"]
