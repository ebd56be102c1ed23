"""One checkpoint and one query set: its rows, scores and tables."""
