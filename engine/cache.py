"""The folder of files that are downloaded or generated once, for all runs of a user."""

import os
from pathlib import Path


def user_cache(name: str) -> Path:
    """The folder of this name in `logitbank` in `XDG_CACHE_HOME`, or in `~/.cache`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "logitbank" / name


def offline() -> bool:
    """Whether `HF_HUB_OFFLINE` or `TRANSFORMERS_OFFLINE` forbids the network."""
    value = os.environ.get("HF_HUB_OFFLINE") or os.environ.get("TRANSFORMERS_OFFLINE") or ""
    return value.upper() in {"1", "ON", "YES", "TRUE"}
