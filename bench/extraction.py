"""Scoring into a bank, against bare vLLM; what sharing, hidden states and a swap give and cost."""

import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from bench.base import Base
from bench.contenders import Contender
from bench.figures import Figure
from bench.models import series
from bench.one_run import whole_run
from logitbank.engine.backends.protocol import EngineSettings
from logitbank.engine.workers.worker_process import worker_environment


def bare(tmp: Path, *, base: Base | None = None) -> Iterator[Figure]:
    name, common = "70M, full float16 bank on disk, against bare vLLM", {"tmp": tmp, "base": base}
    yield against(f"{name}, 38 tokens", 0.95, "bare_vllm", count=512, **common)
    yield against(f"{name}, 110 tokens", 1, "bare_vllm", count=192, prompts="long", **common)


def sharing(tmp: Path, *, base: Base | None = None) -> Iterator[Figure]:
    """240 sentences of WinoBias, each a prompt in five orders of its options."""
    name = "70M, WinoBias in five orders, against each prompt alone"
    yield against(
        *(name, 2.5, "each_alone"), tmp=tmp, count=240, prompts="five_orders", rounds=3, base=base
    )


def hidden(tmp: Path, *, base: Base | None = None) -> Iterator[Figure]:
    """The same run at both levels: space on disk, and speed against bare vLLM."""
    yield _space(tmp)
    yield against(
        "70M, hidden states kept, against bare vLLM, 38 tokens", 0.97, "bare_vllm",
        tmp=tmp, count=512, keep="hidden", base=base,
    )  # fmt: skip


def swap(tmp: Path, *, checkpoints: int = 8, count: int = 512, rounds: int = 5) -> Iterator[Figure]:
    """One worker that runs checkpoints one after the other; each is digested, proved and sealed.

    Bare vLLM runs the same prompts before and after each run.
    """
    folder = series(tmp, "70m", checkpoints)
    bare = Contender(
        "bare_vllm", tmp / "bare.log", checkpoint=folder / "step0", count=count, prompts="plain"
    )
    ratios: list[float] = []
    swaps: list[float] = []
    spent: dict[str, float] = {}
    try:
        bare.round()
        for _ in range(rounds):
            before = bare.round()
            path = tmp / f"{time.time_ns()}.zarr"
            spent = whole_run(folder, path, count, workers=1, canary_every=0)["spent"]
            expected = spent["load"] + checkpoints * (before + bare.round()) / 2
            ratios.append(sum(spent.values()) / expected)
            swaps.append(spent["swap"] / checkpoints)
    finally:
        bare.close()
    value = median(ratios)
    detail = ", ".join(f"{phase} {seconds:.1f} s" for phase, seconds in spent.items())
    yield Figure(
        f"70M, {checkpoints} checkpoints into a bank, against one load and {checkpoints} times bare"
        " vLLM, 38 tokens",
        *(value, "×", "≤ 1.03 ×", value <= 1.03, ratios),
        f"{count} prompts; the last run: {detail}",
    )
    yield Figure(
        "70M, swap of weights, digest and proof included, a checkpoint",
        *(median(swaps), "s"),
        rounds=swaps,
        detail=f"{checkpoints} checkpoints",
    )


def start(tmp: Path, *, rounds: int = 3, base: Base | None = None) -> Iterator[Figure]:
    """Processor seconds of a small run with reference checks, over those without, by engine."""
    prompts = tmp / "start.jsonl"
    rows = (
        {"id": i, "text": f"{i} people said that", "options": [" he", " she"]} for i in range(56)
    )
    prompts.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    arguments = ["--suite", series(tmp, "toy", 3), "--prompts", prompts]
    for engine in ("transformers", "vllm"):
        measured: list[tuple[float, ...]] = []
        for turn in range(rounds):
            codes = (None,) if base is None else (None, base)
            pairs = {}
            for code in codes if turn % 2 else codes[::-1]:
                options = [*arguments, "--engine", engine, "--canary-every"]
                pairs[code] = [
                    _processor_seconds(code, "extract", tmp / f"{time.time_ns()}", *options, every)
                    for every in ("0", "10")
                ]
            measured.append(tuple(part for code in codes for part in pairs[code]))
        plain, checked, *earlier = (median(column) for column in zip(*measured, strict=True))
        ratio, before = checked / plain, [earlier[1] / earlier[0]] if earlier else []
        yield Figure(
            f"{engine}, 3 checkpoints × 56 prompts of a toy: processor time with reference checks"
            " over those without",
            *(ratio, "×", "≤ 1.2 ×", ratio <= 1.2, [pair[1] / pair[0] for pair in measured]),
            f"{checked:.1f} s against {plain:.1f} s",
            *((before[0], base.revision) if base is not None else ()),
        )


def _processor_seconds(code: Base | None, *words: object) -> float:
    """Processor seconds of a command and of all processes that it starts and waits for."""
    run = "from logitbank.cli.main import main; main()"
    environment = None if code is None else code.environment()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-c", run, *map(str, words)]
    subprocess.run(command, env=environment, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


CONTEXTS = 11_369
"""Distinct contexts of WinoBias in five orders."""


def _space(tmp: Path, *, count: int = 512) -> Figure:
    """Bytes of a row at either level, from a run of `count` prompts, and those of the LM head."""
    folder, full, states = series(tmp, "70m", 8), tmp / "full.zarr", tmp / "hidden.zarr"
    whole_run(folder, full, count, steps="0", keep="full", dtype="float16")
    whole_run(folder, states, count, steps="0", keep="hidden")
    rows = _bytes(full, "logprobs") / count * CONTEXTS
    kept = _bytes(states, "hidden") / count * CONTEXTS + _bytes(states, "heads")
    return Figure(
        f"70M, {CONTEXTS:,} contexts of a checkpoint: size of full rows over hidden states",
        *(rows / kept, "×", "≥ 8 ×", rows / kept >= 8),
        detail=f"{rows / 1e6:.0f} MB in float16 against {kept / 1e6:.0f} MB in float32, LM head"
        f" included; from {count} contexts",
    )


def _bytes(bank: Path, folder: str) -> int:
    files = [path for path in bank.rglob(f"{folder}/**/*") if path.is_file()]
    return sum(path.stat().st_size for path in files)


def against(
    name: str,
    target: float,
    kind: str,
    *,
    tmp: Path,
    count: int,
    prompts: str = "plain",
    rounds: int = 7,
    keep: str | None = None,
    base: Base | None = None,
) -> Figure:
    """Prompts per second into a bank, over those of contender `kind`; also those of `base`.

    They take turns in going first, because the second of a pair finds a warmer machine. The first
    round warms all of them up.
    """
    request = {"checkpoint": series(tmp, "70m", 8) / "step0", "count": count, "prompts": prompts}
    contenders = [Contender(kind, tmp / f"{kind}.log", **request)]
    for code in (None,) if base is None else (None, base):
        folder = tmp / f"bank-{len(contenders)}"
        folder.mkdir(exist_ok=True)
        contenders.append(
            Contender(
                "bank",
                folder / "bank.log",
                environment=worker_environment(EngineSettings("vllm")),  # as workers are started
                base=code,
                folder=folder,
                keep=keep,
                **request,
            )
        )
    rows: list[list[float]] = []
    try:
        for turn in range(rounds + 1):
            in_turn = contenders if turn % 2 else contenders[::-1]
            seconds = {contender: contender.round() for contender in in_turn}
            rows.append([seconds[contender] for contender in contenders])
    finally:
        for contender in contenders:
            contender.close()
    ratios = [[other / own for own in owns] for other, *owns in rows[1:]]
    value, *earlier = (median(column) for column in zip(*ratios, strict=True))
    other, own, *_ = (median(column) for column in zip(*rows[1:], strict=True))
    return Figure(
        *(name, value, "×", f"≥ {target:g} ×", value >= target, [own for own, *_ in ratios]),
        f"{count} prompts: {own:.2f} s against {other:.2f} s",
        *((earlier[0], base.revision) if base is not None else ()),
    )
