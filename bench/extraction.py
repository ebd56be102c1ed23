"""Scoring with a bank against what its users would run instead."""

from pathlib import Path
from statistics import median

from bench.contender import Contender
from bench.figures import Figure
from bench.models import series
from bench.workload import Kind
from logitbank.engine.backends.protocol import EngineSettings
from logitbank.engine.workers.worker_process import worker_environment


def paired(
    ours: Contender, theirs: Contender, *, rounds: int, scale: float = 1.0
) -> tuple[list[float], str]:
    """Ratios of their seconds to ours, times `scale`; the first pair warms both up.

    The two take turns in going first, because the second of a pair finds a warmer machine.
    """
    ratios, seconds = [], []
    for i in range(rounds + 1):
        if i % 2:
            own, other = ours.round(), theirs.round()
        else:
            other, own = theirs.round(), ours.round()
        if i:
            ratios.append(other / own * scale)
            seconds.append((own, other))
    own, other = (median(column) for column in zip(*seconds, strict=True))
    return ratios, f"{own:.2f} s against {other:.2f} s"


def against(
    name: str,
    target: float | None,
    kind: str,
    *,
    tmp: Path,
    shape: str,
    count: int,
    their_count: int | None = None,
    prompts: Kind = "plain",
    rounds: int = 7,
    keep: str | None = None,
    **request: object,
) -> Figure:
    """Prompts per second of a full bank over those of contender `kind`."""
    model = series(tmp, shape, 1 if shape.startswith("bert") else 8) / "step0"
    theirs = Contender(
        kind,
        tmp / f"{kind}.log",
        checkpoint=model,
        count=their_count or count,
        prompts=prompts,
        **request,
    )
    ours = Contender(
        "bank",
        tmp / "bank.log",
        environment=worker_environment(EngineSettings("vllm")),  # as workers are started
        checkpoint=model,
        count=count,
        prompts=prompts,
        engine="auto",
        folder=tmp,
        keep=keep,
    )
    try:
        ratios, detail = paired(ours, theirs, rounds=rounds, scale=count / (their_count or count))
    finally:
        ours.close()
        theirs.close()
    value = median(ratios)
    counts = f"{count} prompts" if their_count is None else f"{count} and {their_count} prompts"
    return Figure(
        name,
        value,
        "×",
        "" if target is None else f"≥ {target:g} ×",
        None if target is None else value >= target,
        ratios,
        f"{counts}: {detail}",
    )
