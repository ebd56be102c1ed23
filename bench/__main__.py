"""Run the benchmarks: `python -m bench [NAME ...]`; without names, all of them."""

import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from bench.extraction import against
from bench.figures import Figure, markdown, save
from bench.many_checkpoints import many_checkpoints
from bench.offline import command_help, fairness_tables

ROOT = Path(__file__).parents[1]
Benchmark = Callable[[Path], list[Figure]]


def bare(tmp: Path) -> list[Figure]:
    name = "70M, full float16 bank on disk, against bare vLLM"
    return [
        against(f"{name}, 38 tokens", 0.85, "bare_vllm", tmp=tmp, shape="70m", count=1024),
        against(
            f"{name}, 110 tokens", 0.95, "bare_vllm",
            tmp=tmp, shape="70m", count=256, long=True,
        ),
        against("toy, against bare vLLM", None, "bare_vllm", tmp=tmp, shape="toy", count=2048),
    ]  # fmt: skip


def logprobs(tmp: Path) -> list[Figure]:
    def one(shape: str, form: str, count: int, theirs: int, target: float | None = None) -> Figure:
        return against(
            f"{shape}, against vLLM's `logprobs=-1`, {form} form", target, "bare_vllm",
            tmp=tmp, shape=shape, count=count, their_count=theirs, rounds=5, logprobs=form,
        )  # fmt: skip

    return [
        one("toy", "dict", 2048, 64, 100),
        one("toy", "flat", 2048, 128),
        one("70m", "dict", 512, 64),
        one("70m", "flat", 512, 128),
    ]


def peers(tmp: Path) -> list[Figure]:
    return [
        against(
            "70M, against lm-evaluation-harness, same prompts and options", 5, "harness",
            tmp=tmp, shape="70m", count=512, their_count=128, rounds=5,
        ),
        against(
            "70M, against a plain batched transformers loop", None, "transformers_loop",
            tmp=tmp, shape="70m", count=512, their_count=256, rounds=5,
        ),
    ]  # fmt: skip


BENCHMARKS: dict[str, Benchmark] = {
    "bare": bare,
    "logprobs": logprobs,
    "peers": peers,
    "checkpoints": many_checkpoints,
    "fairness": fairness_tables,
    "help": lambda _: [command_help()],
}


def main(names: list[str]) -> None:
    if unknown := set(names) - set(BENCHMARKS):
        sys.exit(f"no benchmark is called {unknown.pop()!r}; there are {', '.join(BENCHMARKS)}")
    found: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="logitbank-bench-") as tmp:
        for name in names or BENCHMARKS:
            for figure in BENCHMARKS[name](Path(tmp)):
                print(
                    f"{figure.name}: {figure.value:.3g} {figure.unit} {figure.detail}", flush=True
                )
                found.append(figure)
    path = save(found, ROOT / "bench" / "results")
    print(f"written to {path.relative_to(ROOT)}")
    if not names:
        page = ROOT / "docs" / "benchmarks.md"
        page.write_text(markdown(json.loads(path.read_text())))
        print(f"and {page.relative_to(ROOT)}")


if __name__ == "__main__":
    main(sys.argv[1:])
