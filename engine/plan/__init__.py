"""What is run, where and in which order: decided before anything starts."""
