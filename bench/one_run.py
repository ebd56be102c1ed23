"""One whole extraction, as its users start it: what it did goes to standard output as JSON.

`python -m bench.one_run REQUEST`, a JSON object: `suite`, `bank`, `count`, `kind`, and whatever
else `logitbank.extract` takes.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.workload import Kind, workload
from logitbank.engine.extract import extract
from logitbank.engine.workers.events import CheckpointDone, Event, WeightsLoaded


def whole_run(
    suite: Path,
    bank: Path,
    count: int,
    *,
    kind: Kind = "plain",
    engine: str = "vllm",
    cores: str = "",
    environment: Mapping[str, str] | None = None,
    timeout_s: float | None = None,
    **options: Any,
) -> dict[str, Any]:
    """What a run in a process of its own says; `cores` pins it, as taskset writes them.

    `seconds` of all, `spent` by phase, and of each checkpoint when its weights were `loaded` and it
    was `done` (Unix times), its `seconds` and `tokens`.

    Raises
    ------
    RuntimeError
        It fails, or takes longer than `timeout_s`; says why.
    """
    request = {
        "suite": str(suite),
        "bank": str(bank),
        "count": count,
        "kind": kind,
        "engine": engine,
        **options,
    }
    pinned = ["taskset", "-c", cores] if cores else []
    env = os.environ | (environment or {})
    command = [*pinned, sys.executable, "-m", "bench.one_run", json.dumps(request)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, env=env, timeout=timeout_s, check=True
        )
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"the run took longer than {timeout_s:g} s") from error
    except subprocess.CalledProcessError as error:
        raise RuntimeError(error.stderr.strip() or f"the run ended with {error}") from error
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main(request: str) -> None:
    asked = json.loads(request)
    prompts = workload(asked.pop("count"), asked.pop("kind"))
    loaded: list[float] = []
    checkpoints: list[dict[str, float]] = []

    def on_event(event: Event) -> None:
        if isinstance(event, WeightsLoaded):
            loaded.append(time.time())
        elif isinstance(event, CheckpointDone):
            checkpoints.append(
                {
                    "loaded": loaded[len(checkpoints)],
                    "done": time.time(),
                    "seconds": event.seconds,
                    "tokens": event.tokens,
                }
            )

    summary = extract(asked.pop("bank"), prompts=prompts, on_event=on_event, **asked)
    if not summary.complete:
        sys.exit("; ".join(failure.message for failure in summary.failed))
    found = {"seconds": summary.seconds, "spent": summary.spent, "checkpoints": checkpoints}
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
