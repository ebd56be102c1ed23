"""On a GPU: its logits compared with the processor's in float32, and the time of a checkpoint.

`python -m bench gpu` runs the engines that are installed. Cases that would begin after `LIMIT_S`
are skipped with a note. A case that fails, or takes `CASE_S`, does not stop the others.
"""

import importlib.util
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bench.figures import Figure
from bench.models import series
from bench.one_run import whole_run
from logitbank.engine.backends.precision import AMPERE
from logitbank.store import Bank

LIMIT_S, CASE_S = 18 * 60, 5 * 60
TOLERANCE = 1e-3
"""Nats: differences of float32 from other orders of summation."""
SENTENCES = 3168
"""Of WinoBias; in five orders 15,840 prompts."""
CASES: tuple[tuple[str, str, str, float | None], ...] = (
    ("160m", "float32", "full", 2.0),
    ("160m", "float32", "hidden", 2.0),
    ("1b", "bfloat16", "full", None),
    ("160m", "bfloat16", "full", None),
)
"""Shape, compute dtype, storage level, and the target in seconds per checkpoint."""


def gpu_figures(tmp: Path) -> Iterator[Figure]:
    """All cases; a failed case is a figure with the reason."""
    import torch

    if not torch.cuda.is_available():
        sys.exit("No GPU is available to torch.")
    until, card = time.monotonic() + LIMIT_S, f"GPU ({torch.cuda.get_device_name()})"
    tf32 = torch.cuda.get_device_capability() >= AMPERE
    for engine in ("transformers", "vllm"):
        if engine == "vllm" and importlib.util.find_spec("vllm") is None:
            print("Skipped: vLLM is not installed.", flush=True)
            continue
        cases: dict[str, Callable[[str], Iterator[Figure]]] = {}
        for dtype in ("float32", *(["tf32"] if tf32 else []), "bfloat16"):
            cases[f"{card}: 70m, {engine} in {dtype}"] = partial(agreement, tmp, engine, dtype)
        for shape, dtype, keep, target in CASES:
            name = f"{card}: {shape}, {engine} in {dtype}, {keep} rows, WinoBias in five orders"
            cases[name] = partial(speed, tmp, shape, engine, dtype, keep, target)
        for name, case in cases.items():
            if time.monotonic() > until:
                print(f"Skipped for lack of time: {name}", flush=True)
                continue
            try:
                yield from case(name)
            except Exception as error:  # of any library: the other cases are measured anyway
                reason = (str(error).splitlines() or [type(error).__name__])[-1]
                yield Figure(f"{name}: failed", 0, "", "1", False, detail=reason[:300])


def agreement(tmp: Path, engine: str, dtype: str, name: str) -> Iterator[Figure]:
    """Rows of a GPU compared with those of the transformers engine on the processor."""
    suite, count = series(tmp, "70m", 2), 40
    options: dict[str, Any] = {"kind": "five_orders", "keep": "full", "dtype": "float32"}
    options |= {"canary_every": 0, "timeout_s": CASE_S}
    reference, path = tmp / "processor.zarr", tmp / f"{engine}-{dtype}.zarr"
    if not reference.exists():
        part, no_gpu = tmp / "processor.part", {"CUDA_VISIBLE_DEVICES": ""}
        whole_run(suite, part, count, engine="transformers", environment=no_gpu, **options)
        part.rename(reference)
    whole_run(suite, path, count, engine=engine, compute_dtype=dtype, **options)
    pairs = zip(Bank.open(path).deposits(), Bank.open(reference).deposits(), strict=True)
    worst = max(float(np.abs(a.logprobs() - b.logprobs()).max()) for a, b in pairs)
    bound = TOLERANCE if dtype == "float32" else None
    yield Figure(
        f"{name}: largest difference of a log-probability from float32 on the processor",
        worst,
        "nats",
        "" if bound is None else f"≤ {bound:g}",
        None if bound is None else worst <= bound,
    )


def speed(
    tmp: Path, shape: str, engine: str, dtype: str, keep: str, target: float | None, name: str
) -> Iterator[Figure]:
    """Whole runs through the command's own function, without the first checkpoint."""
    result = whole_run(
        series(tmp, shape, 3),
        tmp / f"speed-{shape}-{engine}-{dtype}-{keep}.zarr",
        SENTENCES,
        kind="five_orders",
        engine=engine,
        compute_dtype=dtype,
        keep=keep,
        timeout_s=CASE_S,
    )
    later = result["checkpoints"][1:]
    times = [checkpoint["seconds"] for checkpoint in later]
    value, tokens = float(np.median(times)), later[0]["tokens"]
    phases = ", ".join(f"{phase} {s:.1f} s" for phase, s in result["spent"].items())
    yield Figure(
        f"{name}: a checkpoint",
        value,
        "s",
        "" if target is None else f"≤ {target:g} s",
        None if target is None else value <= target,
        times,
        f"{tokens / value:,.0f} prompt tokens/s, shared ones counted; of 3: {phases}",
    )
