"""One worker's share of a machine: its GPU, or its part of the processor's cores."""

import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import takewhile

GPU_WORKERS = "LOGITBANK_GPU_WORKERS"
"""Tells a worker how many share its GPU, itself included, where others do."""
_THREADS = "OMP_NUM_THREADS"
_DEVICE = re.compile(r"\d+|(GPU|MIG)-.+")


@dataclass(frozen=True, slots=True)
class Share:
    """Worker `index` of `count` on this machine."""

    index: int = 0
    count: int = 1

    def environment(self) -> dict[str, str]:
        """Its GPU, where there is one, and how many threads its cores are for."""
        if self.count == 1:
            return {}
        # More workers than cores get one thread each, wherever that runs.
        threads = {_THREADS: str(max(1, len(available_cores()) // self.count))}
        devices = visible_devices(os.environ)
        if devices:
            own = self.index % len(devices)
            beside = len(range(own, self.count, len(devices)))
            shared = {GPU_WORKERS: str(beside)} if beside > 1 else {}
            return {"CUDA_VISIBLE_DEVICES": devices[own]} | shared | threads
        return threads

    def cores(self) -> set[int]:
        """Cores of its own; none where it has the machine, or a GPU, or too few cores are there."""
        if self.count == 1 or visible_devices(os.environ):
            return set()
        cores = available_cores() if hasattr(os, "sched_setaffinity") else []
        return set(cores[self.index * len(cores) // self.count :][: len(cores) // self.count])


ALONE = Share()


def own_threads() -> int:
    """How many threads this process is to use: its share of the cores, or all of them."""
    told = os.environ.get(_THREADS, "")
    return int(told) if told.isdecimal() and int(told) else len(available_cores())


def available_cores() -> list[int]:
    """Cores that this process may use; not every system tells."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def visible_devices(environment: Mapping[str, str]) -> list[str]:
    """Names of the GPUs that this process may use, without making CUDA's context here.

    CUDA reads `CUDA_VISIBLE_DEVICES` up to the first entry that names no device: none for an empty
    text or `NoDevFiles`, which some schedulers set where a job has no GPU.

    Examples
    --------
    >>> visible_devices({"CUDA_VISIBLE_DEVICES": "2,GPU-7b,-1,3"})
    ['2', 'GPU-7b']
    """
    named = environment.get("CUDA_VISIBLE_DEVICES")
    if named is None:
        return list(devices_of(nvidia_smi("--list-gpus")))
    return list(takewhile(_DEVICE.fullmatch, (name.strip() for name in named.split(","))))


@cache  # each call of the driver's tool may take a second, and GPUs stay where they are
def nvidia_smi(*options: str) -> str:
    """What the driver's own tool prints; nothing where there is no driver, or it fails."""
    command = ["nvidia-smi", *options]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return ended.stdout


def devices_of(listing: str) -> tuple[str, ...]:
    """Names for CUDA_VISIBLE_DEVICES from what `nvidia-smi --list-gpus` prints.

    A GPU that is divided is named by its parts, each of which is a device of its own.

    Examples
    --------
    >>> divided = ["GPU 0: A (UUID: GPU-1)", "  MIG 3g  Device 0: (UUID: MIG-2)"]
    >>> devices_of("\\n".join([*divided, "GPU 1: A (UUID: GPU-3)"]))
    ('MIG-2', '1')
    """
    parts_of: dict[str, list[str]] = {}
    for gpu, part in re.findall(r"^GPU (\d+):|\(UUID: (MIG-[^)]+)\)", listing, re.M):
        if gpu:
            parts_of[gpu] = []
        elif parts_of:
            parts_of[[*parts_of][-1]].append(part)
    return tuple(name for gpu, parts in parts_of.items() for name in parts or [gpu])
