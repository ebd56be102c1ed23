"""The version of logitbank, which pyproject.toml says too and a test compares."""

__version__ = "0.1.0"
