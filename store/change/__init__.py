"""Banks made of banks: merged, shrunk, rescored, described."""
