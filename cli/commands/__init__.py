"""The commands, but those of `analyze`."""
