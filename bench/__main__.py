"""Run the benchmarks: `python -m bench [NAME ...]`; without names, all but those on demand.

`--out FOLDER` writes the JSON there, and no page: what was run on a machine that is given back.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from bench.debias import debias_figures
from bench.extraction import against
from bench.figures import Figure, content_of, markdown, save, saved
from bench.gpu import ENGINES, gpu_figures
from bench.growth import growth
from bench.little import little
from bench.many import many
from bench.many_checkpoints import many_checkpoints
from bench.offline import command_help, fairness_tables, fluctuation_tables
from bench.precision import precision
from bench.report import report_figures
from bench.rows import rows_figures
from bench.run_costs import run_costs
from bench.sharing import sharing
from bench.sizes import sizes
from bench.states import states_figures
from bench.stereoset import stereoset_tables
from bench.store import codec_figures, store_figures
from bench.sweep import sweep

ROOT = Path(__file__).parents[1]
Benchmark = Callable[[Path], Iterator[Figure]]


def bare(tmp: Path) -> Iterator[Figure]:
    name = "70M, full float16 bank on disk, against bare vLLM"
    yield against(f"{name}, 38 tokens", 0.85, "bare_vllm", tmp=tmp, shape="70m", count=512)
    yield against(
        f"{name}, 110 tokens", 0.95, "bare_vllm", tmp=tmp, shape="70m", count=192, prompts="long"
    )
    yield against(
        "toy, against bare vLLM", None, "bare_vllm", tmp=tmp, shape="toy", count=2048, rounds=3
    )


def logprobs(tmp: Path) -> Iterator[Figure]:
    for shape, form, count, theirs, target in (
        ("toy", "dict", 2048, 64, 100),
        ("toy", "flat", 2048, 128, None),
        ("70m", "dict", 512, 64, None),
        ("70m", "flat", 512, 128, None),
    ):
        yield against(
            f"{shape}, against vLLM's `logprobs=-1`, {form} form", target, "bare_vllm",
            tmp=tmp, shape=shape, count=count, their_count=theirs, rounds=3, logprobs=form,
        )  # fmt: skip


def peers(tmp: Path) -> Iterator[Figure]:
    for name, kind, theirs, target in (
        ("lm-evaluation-harness, same prompts and options", "harness", 128, 5),
        ("a plain batched transformers loop", "transformers_loop", 256, None),
    ):
        yield against(
            f"70M, against {name}", target, kind,
            tmp=tmp, shape="70m", count=512, their_count=theirs, rounds=3,
        )  # fmt: skip


def masked(tmp: Path) -> Iterator[Figure]:
    for shape, target in (("bert-base", 1.2), ("bert-toy", None)):
        yield against(
            f"{shape}, professions, against a plain batched transformers loop", target,
            "masked_loop", tmp=tmp, shape=shape, count=512, prompts="masked", rounds=5,
        )  # fmt: skip


def sentences(tmp: Path) -> Iterator[Figure]:
    yield against(
        "70M, every token of StereoSet's sentences, against a loop over sentences", 3,
        "sentence_loop", tmp=tmp, shape="70m", count=512, their_count=256, rounds=5,
        prompts="sentences",
    )  # fmt: skip


BENCHMARKS: dict[str, Benchmark] = {
    "help": lambda _: iter([command_help()]),
    "fairness": lambda tmp: iter(fairness_tables(tmp)),
    "many": many,
    "little": little,
    "fluctuation": lambda _: iter(fluctuation_tables()),
    "stereoset": lambda _: iter(stereoset_tables()),
    "bare": bare,
    "checkpoints": lambda tmp: iter(many_checkpoints(tmp)),
    "peers": peers,
    "logprobs": logprobs,
    "masked": masked,
    "sentences": sentences,
    "sharing": sharing,
    "run": run_costs,
    "sweep": sweep,
    "growth": growth,
    "sizes": sizes,
    "store": store_figures,
    "rows": rows_figures,
    "states": states_figures,
    "report": lambda tmp: iter(report_figures(tmp)),
    "debias": debias_figures,
    "codecs": codec_figures,
    "precision": precision,
    "gpu": gpu_figures,
    **{f"gpu-{engine}": partial(gpu_figures, engines=(engine,)) for engine in ENGINES},
}
ON_DEMAND = ("precision", *(name for name in BENCHMARKS if name.startswith("gpu")))
"""Not run where no benchmark is named: they need what not every machine has."""


def main(names: list[str], out: Path | None = None) -> None:
    if unknown := set(names) - set(BENCHMARKS):
        sys.exit(f"no benchmark is called {unknown.pop()!r}; there are {', '.join(BENCHMARKS)}")
    found: list[Figure] = []
    started = datetime.now(UTC)
    path = (out or ROOT / "bench" / "results") / f"{started:%Y-%m-%d-%H%M}.json"
    page = ROOT / "docs" / "benchmarks.md"
    with tempfile.TemporaryDirectory(prefix="logitbank-bench-") as tmp:
        for name in names or [n for n in BENCHMARKS if n not in ON_DEMAND]:
            for figure in BENCHMARKS[name](Path(tmp)):
                print(figure.line(), flush=True)
                found.append(figure)
                save(content_of(found, started), path)  # a run takes an hour, and may be stopped
            if out is None:
                page.write_text(markdown(saved(path.parent)))
    print(f"written to {path}" + ("" if out else f" and {page}"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHMARKS))
    parser.add_argument("--out", type=Path, help="folder for the JSON, in place of the page")
    given = parser.parse_args()
    main(given.names, given.out)
