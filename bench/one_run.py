"""One whole extraction in a process of its own; what it did goes to standard output as JSON.

`python -m bench.one_run REQUEST`, a JSON object: `suite`, `bank`, `count`, `kind`, and further
arguments of `logitbank.extract`.
"""

import json
import os
import subprocess
import sys
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
    """Run it: `seconds` in all, `spent` by phase, and `seconds` and `tokens` of each checkpoint.

    Raises
    ------
    RuntimeError
        It fails, or takes longer than `timeout_s`.
    """
    request = {"suite": str(suite), "bank": str(bank), "count": count, "kind": kind}
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


def main(text: str) -> None:
    request = json.loads(text)
    prompts = workload(request.pop("count"), request.pop("kind"))
    checkpoints: list[dict[str, float]] = []

    def on_event(event: Event) -> None:
        if isinstance(event, CheckpointDone):
            checkpoints.append({"seconds": event.seconds, "tokens": event.tokens})

    summary = extract(request.pop("bank"), prompts=prompts, on_event=on_event, **request)
    if not summary.complete:
        sys.exit("; ".join(failure.message for failure in summary.failed))
    result = {"seconds": summary.seconds, "spent": summary.spent, "checkpoints": checkpoints}
    json.dump(result, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
