"""One worker's share of a machine: its GPUs, or its part of the processor's cores."""

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Share:
    """Worker `index` of `count` on this machine."""

    index: int = 0
    count: int = 1

    def environment(self) -> dict[str, str]:
        """Its GPU, where there are any; else how many threads its cores are for."""
        if self.count == 1:
            return {}
        devices = visible_devices(os.environ)
        if devices:
            return {"CUDA_VISIBLE_DEVICES": devices[self.index % len(devices)]}
        cores = self.cores()
        return {"OMP_NUM_THREADS": str(len(cores))} if cores else {}

    def cores(self) -> set[int]:
        """Cores of its own; none where it has the machine, or a GPU, or too few cores are there."""
        if self.count == 1 or visible_devices(os.environ):
            return set()
        cores = sorted(os.sched_getaffinity(0))
        return set(cores[self.index * len(cores) // self.count :][: len(cores) // self.count])


ALONE = Share()


def visible_devices(environment: Mapping[str, str]) -> list[str]:
    """Names of the GPUs that this process may use, without making CUDA's context here."""
    named = environment.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [name.strip() for name in named.split(",") if name.strip() not in ("", "-1")]
    try:
        listed = subprocess.run(
            ["nvidia-smi", "--list-gpus"], capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return [str(i) for i in range(len(listed.stdout.splitlines()))]
