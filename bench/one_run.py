"""One whole extraction, as its users start it: what it did goes to standard output as JSON.

`python -m bench.one_run SUITE BANK COUNT [WORKERS]`.
"""

import json
import subprocess
import sys
from pathlib import Path

from bench.workload import workload
from logitbank.engine.extract import extract


def whole_run(
    suite: Path, bank: Path, count: int, *, workers: int = 1, cores: str = ""
) -> dict[str, object]:
    """What a run in a process of its own says; `cores` pins it, as taskset writes them."""
    words = map(str, (suite, bank, count, workers))
    pinned = ["taskset", "-c", cores] if cores else []
    command = [*pinned, sys.executable, "-m", "bench.one_run", *words]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    found: dict[str, object] = json.loads(done.stdout)
    return found


def main(suite: str, bank: str, count: str, workers: str = "1") -> None:
    summary = extract(
        bank, suite=suite, prompts=workload(int(count)), engine="vllm", workers=int(workers)
    )
    if not summary.complete:
        sys.exit("; ".join(failure.message for failure in summary.failed))
    json.dump({"seconds": summary.seconds, "spent": summary.spent}, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
