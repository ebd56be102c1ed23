"""What a card gives: its logits beside the processor's in float32, and the time of a checkpoint.

`python -m bench gpu` on a machine with one. It runs what is installed there: both engines, or the
transformers engine alone; `gpu-transformers` and `gpu-vllm` are
one of them. A case that would begin after `LIMIT_S` is left out, and said; one that fails, or takes
`CASE_S`, costs no other its figures.
"""

import importlib.util
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bench.figures import DONE, Figure
from bench.models import DATA, series
from bench.one_run import whole_run
from logitbank.engine.backends.precision import AMPERE
from logitbank.engine.backends.protocol import EngineName
from logitbank.store import Bank

ENGINES: tuple[EngineName, ...] = ("transformers", "vllm")
LIMIT_S, CASE_S = 18 * 60, 5 * 60
TOLERANCE = 1e-3
"""Nats: what a card's float32 may differ by, in sums of another order."""
SENTENCES = 3168
"""Of WinoBias; in five orders 15,840 prompts."""
Case = tuple[str, str, str, float | None]
CASES: tuple[Case, ...] = (
    *(("160m", "float32", keep, 2.0) for keep in ("full", "hidden")),
    ("1b", "bfloat16", "full", None),
    ("160m", "bfloat16", "full", None),
)
"""Shape, dtype of the engine, keep level, and at most so many seconds a checkpoint."""
HIDDEN = {"CUDA_VISIBLE_DEVICES": ""}
_QUERY = "timestamp,utilization.gpu,memory.used"


def gpu_figures(tmp: Path, engines: Sequence[EngineName] = ENGINES) -> Iterator[Figure]:
    """Cases of one engine after those of the other; one that fails is a figure that says so."""
    import torch

    if not torch.cuda.is_available():
        sys.exit("no GPU is here that torch can use; `python -m bench gpu` measures one")
    if not DATA.is_dir():
        sys.exit(f"WinoBias is not at {DATA.resolve()}; name its folder in LOGITBANK_DATA")
    until, name = time.monotonic() + LIMIT_S, torch.cuda.get_device_name()
    for engine in engines:
        if engine == "vllm" and importlib.util.find_spec("vllm") is None:
            print("left out, as vLLM is not installed: its cases", flush=True)
            continue
        tf32 = torch.cuda.get_device_capability() >= AMPERE
        for what, case in cases(tmp, engine, name=name, tf32=tf32):
            if time.monotonic() > until:
                print(f"left out for lack of time: {what}", flush=True)
                continue
            yield from told(f"{name}, {what}", case)


def cases(
    tmp: Path, engine: EngineName, *, name: str, tf32: bool
) -> Iterator[tuple[str, Callable[[], Iterator[Figure]]]]:
    """What is measured of an engine: how a message calls it, and what gives its figures."""
    for dtype in ("float32", *(["tf32"] if tf32 else []), "bfloat16"):
        yield (
            f"agreement, {engine}, {dtype}",
            partial(agreement, tmp, engine, dtype, name=name),
        )
    for shape, dtype, keep, most in CASES:
        yield (
            f"speed, {shape}, {engine}, {dtype}, {keep}",
            partial(speed, tmp, shape, engine, dtype, keep, most, name=name),
        )


def told(what: str, case: Callable[[], Iterator[Figure]]) -> Iterator[Figure]:
    """The figures of a case and that it is done, or one that says why there are none."""
    done = f"{what}{DONE}"
    try:
        yield from case()
        yield Figure(done, 1, "of 1", "1", True)
    except Exception as error:  # of any library: what comes after it is measured all the same
        print(f"{what}: {error}", file=sys.stderr, flush=True)
        reason = (str(error).splitlines() or [type(error).__name__])[-1]
        yield Figure(done, 0, "of 1", "1", False, detail=reason[:300])


def agreement(
    tmp: Path, engine: str, dtype: str, *, name: str, shape: str = "70m", count: int = 40
) -> Iterator[Figure]:
    """Float32 rows of an engine beside those of the transformers engine on the processor."""
    suite = series(tmp, shape, 2)
    options: dict[str, Any] = {
        "kind": "five_orders",
        "keep": "full",
        "dtype": "float32",
        "canary_every": 0,
        "timeout_s": CASE_S,
    }
    reference, path = tmp / f"processor-{shape}.zarr", tmp / f"{engine}-{dtype}-{shape}.zarr"
    if not reference.exists():
        part = reference.with_suffix(".part")
        whole_run(suite, part, count, engine="transformers", environment=HIDDEN, **options)
        part.rename(reference)
    whole_run(suite, path, count, engine=engine, compute_dtype=dtype, **options)
    differences, other_ranks, options_seen = [0.0], 0, 0
    banks = (Bank.open(path).deposits(), Bank.open(reference).deposits())
    for ours, theirs in zip(*banks, strict=True):
        gap = np.abs(ours.logprobs() - theirs.logprobs())
        differences.append(float(gap.max()))
        ranks = [
            d.scores().filter(kind="option").sort("query", "token").collect()["rank"].to_numpy()
            for d in (ours, theirs)
        ]
        other_ranks += int((ranks[0] != ranks[1]).sum())
        options_seen += len(ranks[0])
    about = f"{name}, {shape}, {engine} in {dtype}"
    bound = TOLERANCE if dtype == "float32" else None
    worst = max(differences)
    yield Figure(
        f"{about}: largest difference of a log-probability from float32 on the processor",
        worst,
        "nats",
        "" if bound is None else f"≤ {bound:g}",
        None if bound is None else worst <= bound,
        detail=f"{other_ranks:,} of {options_seen:,} ranks of options are others",
    )


def speed(
    tmp: Path,
    shape: str,
    engine: str,
    dtype: str,
    keep: str,
    most: float | None,
    *,
    name: str,
    sentences: int = SENTENCES,
    checkpoints: int = 3,
) -> Iterator[Figure]:
    """Whole runs through the command's own function; the first checkpoint pays for the start."""
    bank = tmp / f"speed-{shape}-{engine}-{dtype}-{keep}.zarr"
    with samples(tmp / "card.csv") as card:
        found = whole_run(
            series(tmp, shape, checkpoints), bank, sentences,
            kind="five_orders", engine=engine, compute_dtype=dtype, keep=keep,
            timeout_s=CASE_S,
        )  # fmt: skip
    later = found["checkpoints"][1:]
    times = [c["seconds"] for c in later]
    value, tokens = float(np.median(times)), later[0]["tokens"]
    about = f"{name}, {shape}, {engine} in {dtype}, {keep} rows, WinoBias in five orders"
    phases = ", ".join(f"{phase} {s:.1f} s" for phase, s in found["spent"].items())
    yield Figure(
        f"{about}: a checkpoint", value, "s",
        "" if most is None else f"≤ {most:g} s", None if most is None else value <= most, times,
        f"{tokens / value:,.0f} prompt tokens/s, shared ones counted; of {checkpoints}: {phases}",
    )  # fmt: skip
    busy = [s.busy for s in card() if any(c["loaded"] <= s.at <= c["done"] for c in later)]
    if busy:
        share = float(np.mean(busy))
        yield Figure(f"{about}: the card is busy", share, "of the time", "≥ 0.8", share >= 0.8)


@dataclass(frozen=True, slots=True)
class Sample:
    """What the driver says of the card at one moment."""

    at: float
    """Unix time."""
    busy: float
    """Share of the last moment in which some kernel ran."""


@contextmanager
def samples(log: Path) -> Iterator[Callable[[], list[Sample]]]:
    """Ask the driver four times a second, meanwhile; what it said is there afterwards.

    Nothing, where its program is not installed.
    """
    if shutil.which("nvidia-smi") is None:
        yield list
        return
    command = [
        "nvidia-smi",
        f"--query-gpu={_QUERY}",
        "--format=csv,noheader,nounits",
        "-lms",
        "250",
    ]
    with log.open("wb") as file:
        asking = subprocess.Popen(command, stdout=file)
        try:
            yield lambda: read_samples(log.read_text())
        finally:
            asking.terminate()
            asking.wait()


def read_samples(text: str) -> list[Sample]:
    """Lines such as `2026/11/23 14:30:01.250, 87, 4096`; the last may be cut."""
    found = []
    for line in text.splitlines():
        parts = line.split(", ")
        if len(parts) == 3 and parts[1].isdigit():
            stamp, _, fraction = parts[0].partition(".")
            at = time.mktime(time.strptime(stamp, "%Y/%m/%d %H:%M:%S")) + float(f"0.{fraction}")
            found.append(Sample(at, int(parts[1]) / 100))
    return found
