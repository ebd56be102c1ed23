"""Prompts a second over sizes and lengths, of both engines, as shares of the machine's limit."""

from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from bench.contender import Contender
from bench.figures import Figure
from bench.limits import measured
from bench.models import SHAPES, series
from logitbank.engine.backends.protocol import EngineSettings
from logitbank.engine.workers.worker_process import worker_environment

POINTS = (
    *(("14m", 30), ("70m", 30), ("160m", 30), ("410m", 30)),
    *(("70m", 9), ("70m", 90), ("70m", 400)),
    *(("bert-base", 9), ("bert-base", 30), ("bert-base", 90)),
)
"""Shape, and words of each prompt: 9, 30, 90 and 400 are 12, 38, 110 and 512 tokens."""
WORK = 2.5e11
"""Operations of a round, so that it takes a few seconds on a hundred GFLOP/s."""
LEAST, MOST = 16, 512
"""Prompts of a round."""
OURS = {"vllm": ("bank", {"engine": "vllm"}), "transformers": ("bank", {"engine": "transformers"})}
CAUSAL = OURS | {
    "bare vLLM": ("bare_vllm", {}),
    "plain transformers": ("transformers_loop", {}),
    "lm-evaluation-harness, transformers": ("harness", {}),
    "lm-evaluation-harness, vLLM": ("harness_vllm", {}),
}
MASKED = OURS | {"plain transformers": ("masked_loop", {})}


def sweep(tmp: Path) -> Iterator[Figure]:
    limits = measured(tmp)
    yield Figure("a float32 matrix product", limits.flops / 1e9, "GFLOP/s", detail=str(limits))
    for shape, words in POINTS:
        yield from _point(tmp, shape, words, limits.flops)


def _point(tmp: Path, shape: str, words: int, flops: float) -> Iterator[Figure]:
    sizes, masked = SHAPES[shape], shape.startswith("bert")
    body = 12 * sizes.layers * sizes.width**2
    tokens = round(words * 1.27)
    # Every contender needs the head at one position only, with BERT's own layer before it.
    head = sizes.width * (30_522 + sizes.width) if masked else sizes.width * 50_304
    prompt = 2 * (body * tokens + head)
    count = max(LEAST, min(MOST, int(WORK / prompt)))
    checkpoint = series(tmp, shape, 8 if shape == "70m" else 1) / "step0"
    for name, (kind, request) in (MASKED if masked else CAUSAL).items():
        number = count if "harness" not in kind else max(8, count // 4)
        own: dict[str, Any] = {"folder": tmp} if kind == "bank" else {}
        contender = Contender(
            kind,
            tmp / f"{kind}.log",
            environment=worker_environment(EngineSettings("vllm")) if own else {},
            checkpoint=checkpoint,
            count=number,
            prompts="masked" if masked else "plain",
            words=words,
            **request,
            **own,
        )
        try:
            contender.round()
            rates = [number / contender.round() for _ in range(2)]
        finally:
            contender.close()
        yield Figure(
            f"{shape}, {tokens} tokens, {name}",
            median(rates),
            "prompts/s",
            rounds=rates,
            detail=f"{median(rates) * prompt / flops:.0%} of the matrix product's rate;"
            f" {number} prompts",
        )
