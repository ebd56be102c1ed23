"""The most memory that a process has held."""

from pathlib import Path


def peak_mb() -> float:
    """MB at this process's peak.

    By the kernel's mark of the process itself: what `getrusage` says of one begins at the size of
    the process that started it, which was 0.36 GB in one run of a benchmark and 0.94 in another.
    """
    status = Path("/proc/self/status").read_text()
    (kib,) = (int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
    return kib * 1024 / 1e6
