"""One whole extraction, as its users start it: what it did goes to standard output as JSON.

`python -m bench.one_run SUITE BANK COUNT [WORKERS]`.
"""

import json
import sys

from bench.workload import workload
from logitbank.engine.extract import extract


def main(suite: str, bank: str, count: str, workers: str = "1") -> None:
    summary = extract(
        bank, suite=suite, prompts=workload(int(count)), engine="vllm", workers=int(workers)
    )
    if not summary.complete:
        sys.exit("; ".join(failure.message for failure in summary.failed))
    json.dump({"seconds": summary.seconds, "spent": summary.spent}, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
