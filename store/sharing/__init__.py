"""Banks sent to where others read them, and fetched."""
