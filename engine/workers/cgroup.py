"""What Linux says of processes that it killed for lack of memory in this process's group."""

import re
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_FILES = (("memory.events", "memory.max"), ("memory.oom_control", "memory.limit_in_bytes"))
"""Files of the second and the first version of control groups: the kills, and the limit."""


class MemoryKills(NamedTuple):
    """What was killed in a control group, such as a SLURM job's."""

    processes: int
    """Processes that were killed so far, by its own limit or the machine's."""
    limit: int | None
    """Bytes that its processes may have together; None where only the machine's memory ends."""


def memory_kills(
    *, process: Path = Path("/proc/self"), root: Path = Path("/sys/fs/cgroup")
) -> MemoryKills | None:
    """None where the system does not tell."""
    with suppress(OSError):
        for line in (process / "cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers not in ("", "memory"):
                continue
            folder = root / controllers / path.strip("/")
            for events, limit in _FILES:
                if (folder / events).is_file():
                    text = (folder / events).read_text()
                    count = re.search(r"^oom_kill (\d+)$", text, re.M)
                    return MemoryKills(int(count[1]) if count else 0, _limit(folder / limit))
    return None


def _limit(file: Path) -> int | None:
    with suppress(OSError, ValueError):  # "max", in the second version
        value = int(file.read_text())
        return value if value < 2**60 else None  # as much as "max", in the first
    return None
