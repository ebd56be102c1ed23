"""Banks at a URL: reading, caching."""
