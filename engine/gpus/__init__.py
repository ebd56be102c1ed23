"""What the GPUs of a machine are, and what is refused there before anything is loaded."""
