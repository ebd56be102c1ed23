"""Single prompts: their scores, movements and differences."""
