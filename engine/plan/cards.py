"""The GPUs of this machine: what they can run, and whether a model fits into their memory."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from logitbank.engine.backends.gpu_memory import cache_bytes, token_bytes, weight_bytes
from logitbank.engine.backends.protocol import EngineSettings
from logitbank.engine.plan.parallel import is_divided, run_nvidia_smi, visible_devices
from logitbank.engine.weights.config import ModelConfig
from logitbank.errors import DeviceError

_FIELDS = "--query-gpu=compute_cap,memory.free"
_MIB = 2**20


class Card(NamedTuple):
    """A GPU as its driver describes it."""

    capability: tuple[int, int]
    """Compute capability, such as 9.0 of an H100."""
    free: int | None
    """Free memory in bytes; None for a part of a divided GPU, whose own memory is not listed."""


def listed_cards(environment: Mapping[str, str]) -> tuple[Card, ...]:
    """All GPUs that nvidia-smi lists, if this process may use any; empty if it fails.

    CUDA may number GPUs in another order than nvidia-smi, so none is left out by its number.
    """
    if not (names := visible_devices(environment)):
        return ()
    divided = any(is_divided(name) for name in names)
    cards = []
    for line in run_nvidia_smi(_FIELDS, "--format=csv,noheader,nounits").splitlines():
        capability, _, free = line.partition(", ")
        major, _, minor = capability.partition(".")
        if major.isdecimal() and minor.isdecimal() and free.isdecimal():
            known = None if divided else int(free) * _MIB
            cards.append(Card((int(major), int(minor)), known))
    return tuple(cards)


def free_memory(cards: Sequence[Card], engines: int) -> int | None:
    """Bytes of one engine, if `engines` share the emptiest card; None if that is unknown."""
    known = [card.free for card in cards if card.free is not None]
    return max(known) // engines if known else None


def check_memory(settings: EngineSettings, folder: Path, config: ModelConfig) -> None:
    """Refuse a model that does not fit; `folder` is that of a checkpoint.

    Raises
    ------
    DeviceError
        The model does not fit into the memory of the settings.
    """
    if (free := settings.gpu_memory) is None:
        return
    weights = weight_bytes(folder, settings.compute_dtype)
    if settings.engine == "transformers":
        if weights.total > free:
            raise DeviceError(
                f"The GPU has {free / 1e9:.1f} GB of free memory for each engine, and the weights"
                f" take {weights.total / 1e9:.1f} GB. Use --compute-dtype bfloat16, fewer"
                " --workers, or a larger GPU."
            )
    elif settings.task == "masked" or config.attention is not None:
        one = token_bytes(settings, config.attention)
        cache_bytes(settings, one, on_gpu=True, free=free, weights=weights)
