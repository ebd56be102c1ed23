"""What a run costs beside the model: CPU time, waiting, and what several workers gain."""

from collections.abc import Iterator
from pathlib import Path
from statistics import median

from bench.contender import Contender
from bench.figures import Figure
from bench.models import series
from bench.one_run import whole_run
from logitbank.engine.backends.protocol import EngineSettings
from logitbank.engine.workers.worker_process import worker_environment


def run_costs(
    tmp: Path, *, shape: str = "70m", checkpoints: int = 8, count: int = 2000
) -> Iterator[Figure]:
    for tokens, target, number in ((38, 0.12, count // 4), (110, 0.05, count // 10)):
        yield _outside(tmp, shape, tokens, target, number)
    yield from _waiting(tmp, shape, checkpoints, count)
    yield _workers(tmp, shape, checkpoints, count)


def _outside(tmp: Path, shape: str, tokens: int, target: float, count: int) -> Figure:
    contender = Contender(
        "outside_model",
        tmp / "outside.log",
        environment=worker_environment(EngineSettings("vllm")),
        checkpoint=series(tmp, shape, 8) / "step0",
        count=count,
        prompts="long" if tokens > 100 else "plain",
        folder=tmp,
    )
    shares = [contender.round() for _ in range(5)]
    contender.close()
    value = median(shares)
    name = f"{shape}, CPU time outside the model, {tokens} tokens"
    return Figure(
        name, value, "of all", f"< {target:g}", value < target, shares, f"{count} prompts"
    )


def _waiting(tmp: Path, shape: str, checkpoints: int, count: int) -> Iterator[Figure]:
    folder = series(tmp, shape, checkpoints)
    spent = whole_run(folder, tmp / "waiting.zarr", count, workers=1)["spent"]
    total = sum(spent.values())
    detail = ", ".join(f"{phase} {s:.1f} s ({s / total:.1%})" for phase, s in spent.items())
    share = spent.get("wait", 0.0) / total
    name = f"{shape}, {checkpoints} checkpoints × {count:,} prompts"
    yield Figure(
        f"{name}, waiting between checkpoints",
        share,
        "of all",
        "< 0.03",
        share < 0.03,
        detail=detail,
    )


def _workers(tmp: Path, shape: str, checkpoints: int, count: int) -> Figure:
    """Wall time of whole runs, which last minutes; the engines' start is in both."""
    folder = series(tmp, shape, checkpoints)
    seconds = [
        float(str(whole_run(folder, tmp / f"{name}.zarr", count, **how)["seconds"]))
        for name, how in (("two", {"workers": 2}), ("one", {"workers": 1, "cores": "0"}))
    ]
    value = seconds[1] / seconds[0]
    return Figure(
        f"{shape}, two workers on two cores, against one worker pinned to one",
        value, "×", "≥ 1.6 ×", value >= 1.6,
        detail=f"{checkpoints} checkpoints × {count:,} prompts: {seconds[0]:.0f} s against"
        f" {seconds[1]:.0f} s",
    )  # fmt: skip
