"""Objects on a disk: written durably, read against their digests."""
