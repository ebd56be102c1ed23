"""One checkpoint and one query set: its rows and scores."""
