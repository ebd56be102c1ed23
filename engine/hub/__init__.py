"""The hub of models: listings, downloads and patience."""
