"""How many workers run, which shard they run, and which part of the machine each worker uses."""

import os
import re
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import takewhile
from typing import Self

from logitbank.engine.plan.sharding import Shard
from logitbank.errors import UsageError


@dataclass(frozen=True, slots=True)
class ParallelConfig:
    """Workers of a run, its shard, and the end of its job."""

    workers: int = 1
    """Number of worker processes; on a Ray cluster, 0 stands for as many as fit."""
    shard: Shard | None = None
    job_end: float | None = None
    """Seconds since 1970; None without a limit."""
    ray: str | None = None
    """Address of the Ray cluster of the workers; None for this machine."""

    @classmethod
    def detect(
        cls,
        *,
        workers: int | str | None = None,
        shard: str | None = None,
        ray: str | None = None,
        environment: Mapping[str, str] = os.environ,
    ) -> Self:
        """Complete the options by the GPUs of this machine and the variables of SLURM.

        The end of a job is read from `SLURM_JOB_END_TIME`, which SLURM sets from 22.05.9 on.

        Raises
        ------
        UsageError
            The number of workers or the shard is invalid.
        """
        if workers is None:
            workers = 1 if ray is None else "auto"
        if workers == "auto":
            count = max(1, len(visible_devices(environment))) if ray is None else 0
        elif re.fullmatch("[0-9]{1,4}", text := str(workers)) and 1 <= int(text) <= 1024:
            count = int(text)
        else:
            raise UsageError(f"--workers {workers!r} is invalid: use 1 to 1024, or auto.")
        end_time = environment.get("SLURM_JOB_END_TIME", "")
        # An end in the past is that of another job, in which this one was submitted.
        has_end = end_time.isdecimal() and int(end_time) > time.time()
        return cls(
            count,
            Shard.from_slurm(environment) if shard is None else Shard.parse(shard),
            float(end_time) if has_end else None,
            ray,
        )


_DEVICE = re.compile(r"\d+|(GPU|MIG)-.+")


@dataclass(frozen=True, slots=True)
class MachinePart:
    """The part of this machine that worker `index` of `count` uses."""

    index: int = 0
    count: int = 1

    def environment(self) -> dict[str, str]:
        """Variables that select the GPU and the number of threads of the worker."""
        if self.count == 1:
            return emptiest_gpu(os.environ)
        variables = {"OMP_NUM_THREADS": str(max(1, len(available_cores()) // self.count))}
        if devices := visible_devices(os.environ):
            variables["CUDA_VISIBLE_DEVICES"] = devices[self.index % len(devices)]
        return variables

    def cores(self) -> set[int]:
        """Cores to which the worker is bound; empty for no binding."""
        if self.count == 1 or visible_devices(os.environ):
            return set()
        cores = available_cores() if hasattr(os, "sched_setaffinity") else []
        return set(cores[self.index * len(cores) // self.count :][: len(cores) // self.count])


ALONE = MachinePart()


def available_cores() -> list[int]:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


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
