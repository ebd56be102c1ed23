"""The GPUs of this machine, as nvidia-smi lists them. Imports no torch."""

import re
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import takewhile
from typing import NamedTuple

_DEVICE = re.compile(r"\d+|(GPU|MIG)-.+")
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


def visible_devices(environment: Mapping[str, str]) -> list[str]:
    """Names of the GPUs that this process may use, without creating a CUDA context.

    CUDA reads `CUDA_VISIBLE_DEVICES` up to the first entry that names no device. Some schedulers
    set an empty text or `NoDevFiles` for a job without a GPU.

    Examples
    --------
    >>> visible_devices({"CUDA_VISIBLE_DEVICES": "2,GPU-7b,-1,3"})
    ['2', 'GPU-7b']
    """
    named = environment.get("CUDA_VISIBLE_DEVICES")
    if named is None:
        return list(listed_devices(nvidia_smi("--list-gpus")))
    return list(takewhile(_DEVICE.fullmatch, (name.strip() for name in named.split(","))))


def emptiest_gpu(environment: Mapping[str, str]) -> dict[str, str]:
    """Variables that select the GPU with most free memory, which plans expect for one worker.

    Empty if the user selects a GPU, or if there is no choice. GPUs are named by their UUIDs,
    because CUDA may number them in another order than nvidia-smi.
    """
    names = visible_devices(environment)
    is_chosen = "CUDA_VISIBLE_DEVICES" in environment
    if is_chosen or len(names) < 2 or any(map(is_divided, names)):
        return {}
    lines = run_nvidia_smi("--query-gpu=memory.free,uuid", "--format=csv,noheader,nounits")
    pairs = [line.split(", ") for line in lines.splitlines()]
    free = {uuid: int(mib) for mib, uuid in pairs if mib.isdecimal()}
    return {"CUDA_VISIBLE_DEVICES": max(free, key=free.__getitem__)} if free else {}


@cache  # Each call may take a second, and the GPUs of a machine do not change.
def nvidia_smi(*options: str) -> str:
    """As `run_nvidia_smi`, remembered."""
    return run_nvidia_smi(*options)


def run_nvidia_smi(*options: str) -> str:
    """The output of nvidia-smi; empty if it is not installed or fails."""
    command = ["nvidia-smi", *options]
    try:
        process = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return process.stdout


def is_divided(device: str) -> bool:
    """Whether a name of a GPU is that of a part of a divided one (MIG)."""
    return device.startswith("MIG-")


def listed_devices(listing: str) -> tuple[str, ...]:
    """Names for `CUDA_VISIBLE_DEVICES` from the output of `nvidia-smi --list-gpus`.

    A GPU that is divided into MIG devices is replaced by these.

    Examples
    --------
    >>> divided = ["GPU 0: A (UUID: GPU-1)", "  MIG 3g  Device 0: (UUID: MIG-2)"]
    >>> listed_devices("\\n".join([*divided, "GPU 1: A (UUID: GPU-3)"]))
    ('MIG-2', '1')
    """
    names: dict[str, list[str]] = {}
    for gpu, part in re.findall(r"^GPU (\d+):|\(UUID: (MIG-[^)]+)\)", listing, re.M):
        if gpu:
            names[gpu] = []
        elif names:
            names[[*names][-1]].append(part)
    return tuple(name for gpu, parts in names.items() for name in parts or [gpu])
