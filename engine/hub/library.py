"""Settings of huggingface_hub, for this process."""

import os
import sys
from pathlib import Path
from typing import Any

_TRUE = frozenset({"1", "ON", "YES", "TRUE"})


def offline() -> bool:
    """True where `HF_HUB_OFFLINE` forbids the network."""
    from huggingface_hub import constants

    forbidden = os.environ.get("HF_HUB_OFFLINE", "").upper() in _TRUE
    return forbidden or constants.HF_HUB_OFFLINE


def timeout_s() -> float:
    from huggingface_hub import constants

    return float(constants.HF_HUB_DOWNLOAD_TIMEOUT)


def disable_telemetry() -> None:
    os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
    # The library reads the variable once, when it is imported.
    if constants := sys.modules.get("huggingface_hub.constants"):
        constants.HF_HUB_DISABLE_TELEMETRY = True  # type: ignore[attr-defined]


def cache_from_environment() -> Path | None:
    if cache := os.environ.get("HF_HUB_CACHE"):
        return Path(cache).expanduser()
    if home := os.environ.get("HF_HOME"):
        return Path(home).expanduser() / "hub"
    return None


def quiet_bar() -> type[Any]:
    """A progress bar that shows nothing: the terminal shows ours."""
    from tqdm import tqdm

    class QuietBar(tqdm):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **{**kwargs, "disable": True})

    return QuietBar
