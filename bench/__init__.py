"""Measured ratios of the product against what its users would run instead. `make bench`."""
