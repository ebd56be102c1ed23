"""When the SLURM job that this process runs in will end."""

import os
import subprocess
import time
from collections.abc import Mapping

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
