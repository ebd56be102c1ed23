"""How one extraction is spread: over workers here, and over runs elsewhere that share the bank."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Self

from logitbank.engine.pieces import Shard
from logitbank.engine.share import visible_devices
from logitbank.errors import UsageError


@dataclass(frozen=True, slots=True)
class Spread:
    """Workers of this run, its part of the whole, and when it has to have ended."""

    workers: int = 1
    shard: Shard | None = None
    stop_at: float | None = None
    """Seconds since 1970."""

    @classmethod
    def here(
        cls,
        *,
        workers: int | Literal["auto"] = 1,
        shard: str | None = None,
        environment: Mapping[str, str] = os.environ,
    ) -> Self:
        """What is asked for, completed by what the scheduler says.

        Raises
        ------
        UsageError
            A number of workers or a shard that cannot be.
        """
        count = max(1, len(visible_devices(environment))) if workers == "auto" else workers
        if not 1 <= count <= 1024:
            raise UsageError(f"{workers} workers are not possible; use 1 to 1024, or auto")
        end = environment.get("SLURM_JOB_END_TIME", "")
        return cls(
            count,
            Shard.from_slurm(environment) if shard is None else Shard.parse(shard),
            float(end) if end.isdecimal() else None,
        )
