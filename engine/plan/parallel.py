"""How many workers run, which shard they run, and which part of the machine each worker uses."""

import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from logitbank.engine.backends.gpus import emptiest_gpu, visible_devices
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
