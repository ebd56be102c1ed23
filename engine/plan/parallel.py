"""One worker's share of a machine: its GPU, or its part of the processor's cores."""

import os
import re
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import takewhile
from typing import Literal, Self

from logitbank.engine.plan.sharding import Shard
from logitbank.errors import UsageError


@dataclass(frozen=True, slots=True)
class ParallelConfig:
    """Workers of this run, its part of the whole, and when it has to have ended."""

    workers: int = 1
    """On a Ray cluster, 0 for as many as it has room for."""
    shard: Shard | None = None
    stop_at: float | None = None
    """Seconds since 1970."""
    ray: str | None = None
    """Address of the Ray cluster that the workers run on; None where they run here."""

    @classmethod
    def here(
        cls,
        *,
        workers: int | Literal["auto"] | None = None,
        shard: str | None = None,
        ray: str | None = None,
        environment: Mapping[str, str] = os.environ,
    ) -> Self:
        """What is asked for, completed by what the scheduler says.

        Raises
        ------
        UsageError
            A number of workers or a shard that cannot be.
        """
        if workers is None:
            workers = 1 if ray is None else "auto"
        if workers == "auto":
            count = max(1, len(visible_devices(environment))) if ray is None else 0
        else:
            count = workers
        if not (1 <= count <= 1024 or (workers == "auto" and ray is not None)):
            raise UsageError(f"{workers} workers are not possible; use 1 to 1024, or auto")
        return cls(
            count,
            Shard.from_slurm(environment) if shard is None else Shard.parse(shard),
            job_end(environment),
            ray,
        )


ANSWERS_S = 10.0
"""How long a controller that is busy may take to answer; most do in a tenth of a second."""


def job_end(environment: Mapping[str, str]) -> float | None:
    """Seconds since 1970; None outside a job, and where its end is not limited or not told."""
    # It is set from SLURM 22.05.9 on or so; older ones are asked by `squeue`.
    end_time = environment.get("SLURM_JOB_END_TIME", "")
    if end_time.isdecimal() and int(end_time) > time.time():
        return float(end_time)
    # One that has passed is another job's, in which this one was submitted, or none.
    end = _end_by_squeue(environment) if environment.get("SLURM_JOB_ID") else None
    return end if end is not None and end > time.time() else None


def _end_by_squeue(environment: Mapping[str, str]) -> float | None:
    # By its number alone, one task of an array stands for all of them.
    array, task = (environment.get(f"SLURM_ARRAY_{name}") for name in ("JOB_ID", "TASK_ID"))
    job = f"{array}_{task}" if array and task else environment["SLURM_JOB_ID"]
    try:
        answer = subprocess.run(
            ["squeue", "--noheader", f"--jobs={job}", "--format=%e"],
            capture_output=True,
            text=True,
            timeout=ANSWERS_S,
            check=True,
            env={**os.environ, **environment, "SLURM_TIME_FORMAT": "standard"},
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return parsed(answer.stdout)


def parsed(text: str) -> float | None:
    """Seconds since 1970 of a time as `squeue` prints it, in this machine's time zone.

    Examples
    --------
    >>> parsed("N/A") is parsed("NONE") is parsed("") is None
    True
    >>> parsed("2026-11-22T10:00:00") - parsed("2026-11-22T09:59:00")
    60.0
    """
    try:
        return time.mktime(time.strptime(text.strip(), "%Y-%m-%dT%H:%M:%S"))
    except (ValueError, OverflowError):
        return None


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
            return {"CUDA_VISIBLE_DEVICES": devices[self.index % len(devices)]} | threads
        return threads

    def cores(self) -> set[int]:
        """Cores of its own; none where it has the machine, or a GPU, or too few cores are there."""
        if self.count == 1 or visible_devices(os.environ):
            return set()
        cores = available_cores() if hasattr(os, "sched_setaffinity") else []
        return set(cores[self.index * len(cores) // self.count :][: len(cores) // self.count])


ALONE = Share()


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
