"""One whole extraction in a process of its own; what it did goes to standard output as JSON.

`python -m bench.one_run REQUEST`, a JSON object: `suites`, `bank`, `count`, `kind`, and further
arguments of `logitbank.extract`.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.workload import workload
from logitbank.engine.extract import extract
from logitbank.engine.workers.events import CheckpointDone, Event


def whole_run(
    suite: Path,
    bank: Path,
    count: int,
    *,
    kind: str = "plain",
    engine: str = "vllm",
    environment: Mapping[str, str] | None = None,
    timeout_s: float | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Run it in another process; see `one_run` for the result.

    Raises
    ------
    RuntimeError
        It fails, or takes longer than `timeout_s`.
    """
    request = {"suites": str(suite), "bank": str(bank), "count": count, "kind": kind}
    request |= {"engine": engine, **options}
    command = [sys.executable, "-m", "bench.one_run", json.dumps(request)]
    env = os.environ | (environment or {})
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, env=env, timeout=timeout_s, check=True
        )
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"The run took longer than {timeout_s:g} s.") from error
    except subprocess.CalledProcessError as error:
        raise RuntimeError(error.stderr.strip() or f"The run ended with {error}.") from error
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def one_run(request: dict[str, Any]) -> dict[str, Any]:
    """`seconds` in all, `rows`, `spent` by phase, and `checkpoints`.

    Each of these has `seconds`, `tokens`, `spent`, and `at`, the time of its end.

    Raises
    ------
    RuntimeError
        A checkpoint fails.
    """
    prompts = workload(request.pop("count"), request.pop("kind"))
    checkpoints: list[dict[str, Any]] = []

    def on_event(event: Event) -> None:
        if isinstance(event, CheckpointDone):
            done = {"seconds": event.seconds, "tokens": event.tokens, "at": time.perf_counter()}
            checkpoints.append(done | {"spent": {**event.spent}})

    summary = extract(request.pop("bank"), prompts=prompts, on_event=on_event, **request)
    if not summary.complete:
        raise RuntimeError("; ".join(failure.message for failure in summary.failed))
    return {
        "seconds": summary.seconds,
        "rows": summary.rows,
        "spent": summary.spent,
        "checkpoints": checkpoints,
    }


if __name__ == "__main__":
    try:
        json.dump(one_run(json.loads(sys.argv[1])), sys.stdout)
    except RuntimeError as error:
        sys.exit(str(error))
