"""The format of a bank: names, layouts, commits, shards."""
