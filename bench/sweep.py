"""Prompts a second over sizes and lengths, of both engines, as shares of the machine's limit."""

from collections.abc import Iterator
from pathlib import Path
from statistics import median

from bench.contender import Contender
from bench.figures import Figure
from bench.limits import measured
from bench.models import SHAPES, series
from logitbank.engine.backend import EngineSettings
from logitbank.engine.worker_process import worker_environment

POINTS = (
    *(("14m", 30), ("70m", 30), ("160m", 30), ("410m", 30)),
    *(("70m", 9), ("70m", 90), ("70m", 400)),
)
"""Shape, and words of each prompt: 12, 38, 110 and 512 tokens."""
WORK = 6e12
"""Operations of a round, so that a point takes some ten seconds on a hundred GFLOP/s."""
CONTENDERS = {
    "vllm": ("bank", {"engine": "vllm"}),
    "transformers": ("bank", {"engine": "transformers"}),
    "bare vLLM": ("bare_vllm", {}),
    "plain transformers": ("transformers_loop", {}),
    "lm-evaluation-harness, transformers": ("harness", {}),
    "lm-evaluation-harness, vLLM": ("harness_vllm", {}),
}


def sweep(tmp: Path) -> Iterator[Figure]:
    limits = measured(tmp)
    yield Figure("a float32 matrix product", limits.flops / 1e9, "GFLOP/s", detail=str(limits))
    for shape, words in POINTS:
        yield from _point(tmp, shape, words, limits.flops)


def _point(tmp: Path, shape: str, words: int, flops: float) -> Iterator[Figure]:
    sizes = SHAPES[shape]
    body = 12 * sizes.layers * sizes.width**2
    tokens = round(words * 1.27)
    prompt = 2 * (body * tokens + sizes.width * 50_304)  # the head at one position
    count = max(8, min(512, int(WORK / prompt)))
    checkpoint = series(tmp, shape, 1 if shape != "70m" else 8) / "step0"
    for name, (kind, request) in CONTENDERS.items():
        own = {"folder": tmp} if kind == "bank" else {}
        contender = Contender(
            kind,
            tmp / f"{kind}.log",
            environment=worker_environment(EngineSettings("vllm")) if own else {},
            checkpoint=checkpoint,
            count=count if "harness" not in kind else max(8, count // 4),
            long=False,
            words=words,
            **request,
            **own,
        )
        try:
            contender.round()
            seconds = [contender.round() for _ in range(3)]
        finally:
            contender.close()
        number = count if "harness" not in kind else max(8, count // 4)
        rate = number / median(seconds)
        yield Figure(
            f"{shape}, {tokens} tokens, {name}",
            rate,
            "prompts/s",
            rounds=[number / s for s in seconds],
            detail=f"{rate * prompt / flops:.0%} of the matrix product's rate; {number} prompts",
        )
