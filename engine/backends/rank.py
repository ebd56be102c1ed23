"""Which of the processes that hold one model together this one is."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

GLOO_INTERFACE, NCCL_INTERFACE = "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"
LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"
_INDEX, _MEETING = "LOGITBANK_RANK", "LOGITBANK_MEETING"


@dataclass(frozen=True, slots=True)
class Rank:
    """One of the processes of a worker, each with a device of its own; 0 has the bank."""

    index: int
    meeting: Path
    """Folder where they find each other, with one link for each to the same file."""

    @classmethod
    def of(cls, environment: Mapping[str, str] = os.environ) -> Self:
        """The rank that the environment names; the only one where it names none."""
        return cls(int(environment.get(_INDEX, "0")), Path(environment.get(_MEETING, "")))

    def environment(self) -> dict[str, str]:
        """What its process needs set before it opens its engine."""
        # All ranks are on this machine, so none of them listens on a network.
        local = {name: os.environ.get(name, LOOPBACK) for name in (GLOO_INTERFACE, NCCL_INTERFACE)}
        return {_INDEX: str(self.index), _MEETING: str(self.meeting)} | local

    @property
    def place(self) -> Path:
        """Its own name of the file where all of them meet."""
        return self.meeting / f"rank-{self.index}"
