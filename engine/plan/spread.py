"""How one extraction is spread: over workers, and over runs elsewhere that share the bank."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Self

from logitbank.engine.plan.pieces import Shard
from logitbank.engine.plan.share import visible_devices
from logitbank.engine.slurm import job_end
from logitbank.errors import UsageError


@dataclass(frozen=True, slots=True)
class Spread:
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
