"""The plan: checkpoints, places and order are decided before anything starts."""
