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
from bench.gpu import PARTS, on_a_gpu
from bench.models import public_data
from bench.offline import command_help, fairness, info, nothing_to_do, one_step_over_http, report
from bench.rows import rows

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
"""About a quarter of an hour on two cores."""
GPU = "gpu"
"""On demand: all parts that need a GPU, which also have names of their own."""
ERRORS = "errors"
"""On demand: it measures error rates of findings and prints them."""


def main(names: list[str], out: Path | None = None) -> None:
    names = [part for name in names for part in (PARTS if name == GPU else [name])]
    known = BENCHMARKS | {name: partial(on_a_gpu, part) for name, part in PARTS.items()}
    if unknown := set(names) - {*known, ERRORS}:
        sys.exit(
            f"Unknown benchmark {unknown.pop()!r}. Benchmarks: {', '.join([*known, GPU, ERRORS])}."
        )
    if names == [ERRORS]:
        print(errors_page())
        return
    public_data()
    figures: list[Figure] = []
    started = datetime.now(UTC)
    # Several parts may begin in one minute.
    name = "-".join([f"{started:%Y-%m-%d-%H%M%S}", *names])
    path = (out or ROOT / "bench" / "results") / f"{name}.json"
    with tempfile.TemporaryDirectory(prefix="logitbank-bench-") as tmp:
        for name in names or BENCHMARKS:
            for figure in known[name](Path(tmp)):
                print(figure.line(), flush=True)
                figures.append(figure)
                save(content_of(figures, started), path)  # after each, as a run may be stopped
    print(f"Results: {path}")
    if out is None:
        (ROOT / "docs" / "benchmarks.md").write_text(markdown(saved(path.parent)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench")
    help_names = f"{', '.join(BENCHMARKS)}; on demand: {GPU} or {', '.join(PARTS)}; {ERRORS}"
    parser.add_argument("names", nargs="*", metavar="NAME", help=help_names)
    parser.add_argument("--out", type=Path, help="folder for the JSON, in place of the page")
    arguments = parser.parse_args()
    main(arguments.names, arguments.out)
