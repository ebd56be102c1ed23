"""One whole extraction, as its users start it: `python -m bench.one_run SUITE BANK COUNT`."""

import sys

from bench.workload import workload
from logitbank.engine.extract import extract


def main(suite: str, bank: str, count: str) -> None:
    summary = extract(bank, suite=suite, prompts=workload(int(count)), engine="vllm")
    if not summary.complete:
        sys.exit("; ".join(failure.message for failure in summary.failed))


if __name__ == "__main__":
    main(*sys.argv[1:])
