"""Run the benchmarks: `python -m bench [NAME ...]`; without names, all but those on demand.

`--out FOLDER` writes the JSON there and leaves the page as it is, for a rented machine.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from bench.errors import errors_page
from bench.extraction import bare, hidden, sharing, swap
from bench.figures import Figure, content_of, markdown, save, saved
from bench.gpu import ENGINES, gpu_figures
from bench.models import public_data
from bench.offline import command_help, fairness, info, report
from bench.small import nothing_to_do, one_step_over_http
from bench.store import rows

ROOT = Path(__file__).parents[1]
Benchmark = Callable[[Path], Iterator[Figure]]

BENCHMARKS: dict[str, Benchmark] = {
    "help": command_help,
    "fairness": fairness,
    "report": report,
    "info": info,
    "nothing": nothing_to_do,
    "http": one_step_over_http,
    "rows": rows,
    "bare": bare,
    "sharing": sharing,
    "hidden": hidden,
    "swap": swap,
}
ON_DEMAND: dict[str, Benchmark] = {
    "gpu": gpu_figures,
    **{f"gpu-{engine}": partial(gpu_figures, engines=(engine,)) for engine in ENGINES},
}
"""Run only by name, because they need a GPU."""

ERRORS = "errors"
"""On demand as well: it measures rates of wrong findings and prints them."""


def main(names: list[str], out: Path | None = None) -> None:
    known = BENCHMARKS | ON_DEMAND
    if unknown := set(names) - {*known, ERRORS}:
        sys.exit(f"Unknown benchmark {unknown.pop()!r}. Benchmarks: {', '.join([*known, ERRORS])}.")
    if not names:
        public_data()
    if ERRORS in names:
        print(errors_page())
        names = [name for name in names if name != ERRORS]
        if not names:
            return
    found: list[Figure] = []
    started = datetime.now(UTC)
    path = (out or ROOT / "bench" / "results") / f"{started:%Y-%m-%d-%H%M}.json"
    page = ROOT / "docs" / "benchmarks.md"
    with tempfile.TemporaryDirectory(prefix="logitbank-bench-") as tmp:
        for name in names or BENCHMARKS:
            for figure in known[name](Path(tmp)):
                print(figure.line(), flush=True)
                found.append(figure)
                save(content_of(found, started), path)  # after each, as a run may be stopped
            if out is None:
                page.write_text(markdown(saved(path.parent)))
    print(f"written to {path}" + ("" if out else f" and {page}"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench")
    help_names = f"{', '.join(BENCHMARKS)}; on demand: {', '.join([*ON_DEMAND, ERRORS])}"
    parser.add_argument("names", nargs="*", metavar="NAME", help=help_names)
    parser.add_argument("--out", type=Path, help="folder for the JSON, in place of the page")
    given = parser.parse_args()
    main(given.names, given.out)
