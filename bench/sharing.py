"""What prompts share: beginnings that are run once, and several options after one text."""

from collections.abc import Iterator
from pathlib import Path

from bench.extraction import against
from bench.figures import Figure

HARNESSES = {
    "harness": "lm-evaluation-harness on transformers",
    "harness_vllm": "lm-evaluation-harness on vLLM",
}


def sharing(tmp: Path, *, shape: str = "70m", count: int = 240) -> Iterator[Figure]:
    """`count` sentences of WinoBias in five orders; a twelfth as many prompts with options."""
    orders = f"{shape.upper()}, WinoBias in five orders, against"
    options = f"{shape.upper()}, four options of 5 to 20 tokens, against"
    yield against(
        f"{orders} each prompt alone", 2.6, "each_alone",
        tmp=tmp, shape=shape, count=count, rounds=3, prompts="five_orders",
    )  # fmt: skip
    for kind, name in HARNESSES.items():
        yield against(
            f"{orders} {name}", 7, kind,
            tmp=tmp, shape=shape, count=count // 4, rounds=3, prompts="five_orders",
        )  # fmt: skip
    for kind, name in HARNESSES.items():
        yield against(
            f"{options} {name}", 4, kind,
            tmp=tmp, shape=shape, count=count // 12, rounds=3, prompts="options",
        )  # fmt: skip
