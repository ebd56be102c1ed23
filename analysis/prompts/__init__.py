"""Single prompts through training, and the scores of a prompt set."""
