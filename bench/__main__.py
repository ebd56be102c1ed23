"""Run the benchmarks: `python -m bench [NAME ...]`; without names, all but those on demand.

`--out FOLDER` writes the JSON there and leaves the page as it is, for a rented machine.
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.base import checked_out, last_release
from bench.distances import distances
from bench.errors import errors_page
from bench.extraction import bare, hidden, sharing, start, swap
from bench.figures import Figure, content_of, markdown, save, saved
from bench.gpu import PARTS, on_a_gpu
from bench.models import public_data
from bench.offline import (
    command_help,
    fairness,
    info,
    large,
    nothing_to_do,
    one_step_over_http,
    report,
)
from bench.rows import rows

ROOT = Path(__file__).parents[1]
Benchmark = Callable[..., Iterator[Figure]]

BENCHMARKS: dict[str, Benchmark] = {
    "help": command_help,
    "fairness": fairness,
    "large": large,
    "report": report,
    "info": info,
    "nothing": nothing_to_do,
    "http": one_step_over_http,
    "rows": rows,
    "distances": distances,
    "bare": bare,
    "sharing": sharing,
    "hidden": hidden,
    "swap": swap,
    "start": start,
}
"""About half an hour on two cores, and as long again for the code of the last release."""
COMPARED = (
    "help",
    "fairness",
    "large",
    "report",
    "info",
    "nothing",
    "bare",
    "sharing",
    "hidden",
    "start",
)
"""Figures that are also measured with the code of the last release."""
GPU = "gpu"
"""On demand: all parts that need a GPU, which also have names of their own."""
ERRORS = "errors"
"""On demand: it measures error rates of findings and prints them."""


def main(names: list[str], out: Path | None = None, base: str | None = None) -> None:
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
    revision = last_release() if base is None else base
    if not revision:
        print("There is no release yet to compare with; --base REVISION compares with another.")
    with ExitStack() as stack:
        tmp = Path(stack.enter_context(TemporaryDirectory(prefix="logitbank-bench-")))
        earlier = stack.enter_context(checked_out(revision, tmp)) if revision else None
        for name in names or BENCHMARKS:
            compared = {"base": earlier} if name in COMPARED else {}
            for figure in known[name](tmp, **compared):
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
    parser.add_argument(
        "--base", metavar="REVISION", help="revision to compare with; by default the last tag"
    )
    arguments = parser.parse_args()
    main(arguments.names, arguments.out, arguments.base)
