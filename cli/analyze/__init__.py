"""The commands of `analyze`."""
