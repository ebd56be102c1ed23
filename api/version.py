"""The version of logitbank. A test compares it with pyproject.toml."""

__version__ = "0.1.0"
