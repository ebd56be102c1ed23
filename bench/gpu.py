"""Figures of a GPU in parts: `python -m bench gpu-reference …`, or `gpu` for all of them.

Each part is meant to end in 8 minutes. Cases that would begin after `LIMIT_S` are skipped with a
note. A case that fails does not stop the others. Tests run every part on a CPU in a tiny size.
"""

import importlib.util
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np

from bench.extraction import CONTEXTS
from bench.figures import Figure
from bench.gpu_kernels import attention_error, ceilings, reduction
from bench.models import series
from bench.one_run import whole_run
from logitbank.engine.backends.gpus import run_nvidia_smi
from logitbank.engine.backends.precision import AMPERE
from logitbank.store import Bank

LIMIT_S, PART_S = 7 * 60, 8 * 60
"""Seconds until which a case of a part may begin, and at which one is stopped."""
TOLERANCE = 1e-3
"""Nats: differences of float32 from other orders of summation."""
SENTENCES = 3168
"""Of WinoBias; in five orders 15,840 prompts."""
ENGINES = ("transformers", "vllm")


@dataclass(frozen=True, slots=True)
class Size:
    """What the parts run."""

    reference: str = "70m"
    small: str = "160m"
    large: str = "1b"
    largest: str = "6.9b"
    sentences: int = SENTENCES
    sample: int = 40
    """Sentences where only values or loads count."""
    dtypes: tuple[str, ...] = ("float32", "tf32", "bfloat16")
    engines: tuple[str, ...] = ENGINES


TINY = Size(*4 * ("least",), sentences=4, sample=2, dtypes=("float32",), engines=ENGINES[:1])
"""For tests on a CPU."""
Case = Callable[[str], Iterator[Figure]]


@dataclass(slots=True)
class Part:
    """Runs the cases of one part on one card."""

    tmp: Path
    size: Size = field(default_factory=Size)
    start: float = field(default_factory=time.monotonic)

    def figures(self, cases: dict[str, Case]) -> Iterator[Figure]:
        """The figures of named cases; a failed case is a figure with the reason."""
        print(f"{card_name()}: {len(cases)} cases", flush=True)
        for name, case in cases.items():
            if time.monotonic() > self.start + LIMIT_S:
                print(f"Skipped for lack of time: {name}", flush=True)
                continue
            try:
                yield from case(f"GPU ({card_name()}): {name}")
            except Exception as error:  # of any library: the other cases are measured anyway
                reason = (str(error).splitlines() or [type(error).__name__])[-1]
                failed = f"GPU ({card_name()}): {name}: failed"
                yield Figure(failed, 0, "", "1", False, detail=reason[:300])

    def run(
        self, shape: str, steps: int, bank: Path, sentences: int, **options: Any
    ) -> dict[str, Any]:
        """A whole run of WinoBias in five orders; `peak` is added to its result."""
        with MemoryPeak() as peak:
            result = whole_run(
                *(series(self.tmp, shape, steps), bank, sentences),
                kind="five_orders",
                timeout_s=self.start + PART_S - time.monotonic(),
                **options,
            )
        expected = CONTEXTS if sentences == SENTENCES else None
        if expected is not None and result["rows"] != steps * expected:
            raise RuntimeError(f"{result['rows']:,} rows were run, not {steps} × {expected:,}.")
        return result | {"peak": peak.gigabytes}


def reference(tmp: Path, size: Size | None = None) -> Iterator[Figure]:
    """Values: engines against plain transformers and the CPU, reduction, attention, determinism."""
    part = Part(tmp, size or Size())
    cases: dict[str, Case] = {}
    for engine in _engines(part):
        name = f"{part.size.small}, {engine}: the reference check"
        cases[name] = partial(_reference_check, part, engine)
        for dtype in _dtypes(part):
            name = f"{part.size.reference}, {engine} in {dtype}"
            cases[name] = partial(_agreement, part, engine, dtype)
        name = f"{part.size.reference}, {engine} with --deterministic"
        cases[name] = partial(_deterministic, part, engine)
    cases["reduction"] = reduction
    cases["attention in float32"] = attention_error
    yield from part.figures(cases)


def speed_of_transformers(tmp: Path, size: Size | None = None) -> Iterator[Figure]:
    """Seconds per checkpoint of the transformers engine, also of two on one card."""
    part = Part(tmp, size or Size())
    yield from part.figures(_speed_cases(part, "transformers", target=2.0))


def speed_of_vllm(tmp: Path, size: Size | None = None) -> Iterator[Figure]:
    """Seconds per checkpoint of the vLLM engine, also of two on one card."""
    part = Part(tmp, size or Size())
    if (engine := part.size.engines[-1]) not in _engines(part):
        print("Skipped: vLLM is not installed.", flush=True)
        return
    yield from part.figures(_speed_cases(part, engine, target=None))


def swap_of_weights(tmp: Path, size: Size | None = None) -> Iterator[Figure]:
    """Seconds of a swap, and whether logits after it are those of its checkpoint."""
    part = Part(tmp, size or Size())
    yield from part.figures(
        {
            f"{shape}, {engine}, swaps": partial(_swaps, part, shape, engine)
            for shape in (part.size.small, part.size.large)
            for engine in _engines(part)
        }
    )


def hardware_ceilings(tmp: Path, size: Size | None = None) -> Iterator[Figure]:
    """Products, copies, the disk and the reduction, without an engine."""
    part = Part(tmp, size or Size())
    large = part.size.largest == Size().largest
    yield from part.figures({"ceilings": partial(ceilings, tmp, large=large)})


def largest_model(tmp: Path, size: Size | None = None) -> Iterator[Figure]:
    """Pythia-6.9B's shapes in float32, two checkpoints."""
    part = Part(tmp, size or Size())
    shape, dtype = part.size.largest, "float32"
    yield from part.figures(
        {
            f"{shape}, {engine} in {dtype}": partial(
                _speed, part, shape, engine, dtype, "full", None, 1, steps=2
            )
            for engine in _engines(part)
        }
    )


PARTS: dict[str, Callable[..., Iterator[Figure]]] = {
    "gpu-reference": reference,
    "gpu-transformers": speed_of_transformers,
    "gpu-vllm": speed_of_vllm,
    "gpu-swap": swap_of_weights,
    "gpu-ceilings": hardware_ceilings,
    "gpu-6.9b": largest_model,
}
"""In the order in which they should run on a new card."""


def on_a_gpu(part: Callable[..., Iterator[Figure]], tmp: Path) -> Iterator[Figure]:
    """A part, if there is a GPU. Its models and banks are deleted; those of all take 65 GB."""
    import torch

    if not torch.cuda.is_available():
        sys.exit("No GPU is available to torch.")
    with tempfile.TemporaryDirectory(dir=tmp) as folder:
        yield from part(Path(folder))


def card_name() -> str:
    """Name of the GPU; of the processor where there is none."""
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else "none, on a CPU"


class MemoryPeak:
    """The largest used memory of any GPU while it is entered, by nvidia-smi, twice a second."""

    def __init__(self) -> None:
        self.gigabytes: float | None = None
        """None without nvidia-smi."""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            text = run_nvidia_smi("--query-gpu=memory.used", "--format=csv,noheader,nounits")
            used = [int(line) for line in text.split() if line.isdecimal()]
            if used:
                self.gigabytes = max(self.gigabytes or 0.0, max(used) * 2**20 / 1e9)
            if not text or self._over.wait(0.5):
                return


def _engines(part: Part) -> list[str]:
    installed = importlib.util.find_spec("vllm") is not None
    return [engine for engine in part.size.engines if engine != "vllm" or installed]


def _dtypes(part: Part) -> list[str]:
    import torch

    capability = torch.cuda.get_device_capability() if torch.cuda.is_available() else (0, 0)
    return [d for d in part.size.dtypes if d != "tf32" or capability >= AMPERE]


def _speed_cases(part: Part, engine: str, target: float | None) -> dict[str, Case]:
    """Shapes, dtypes, levels and two workers; the target is that of the small one in float32."""
    small, cases = part.size.small, dict[str, Case]()
    for shape, dtype, keep in (
        *((small, dtype, "full") for dtype in _dtypes(part)),
        (small, "float32", "hidden"),
        (small, "float32", "options"),
        (part.size.large, part.size.dtypes[-1], "full"),
    ):
        name = f"{shape}, {engine} in {dtype}, {keep} rows"
        bound = target if dtype == "float32" and shape == small else None
        cases[name] = partial(_speed, part, shape, engine, dtype, keep, bound, 1)
    for keep in ("full", "options"):
        name = f"{small}, {engine} in float32, {keep} rows, 2 workers on one card"
        cases[name] = partial(_speed, part, small, engine, "float32", keep, None, 2)
    return cases


def _speed(
    part: Part,
    shape: str,
    engine: str,
    dtype: str,
    keep: str,
    target: float | None,
    workers: int,
    name: str,
    *,
    steps: int | None = None,
) -> Iterator[Figure]:
    """Seconds between the ends of checkpoints, without the first one of each worker."""
    steps = 3 * workers if steps is None else steps
    bank = _new(part.tmp, "speed")
    result = part.run(
        shape,
        steps,
        bank,
        part.size.sentences,
        engine=engine,
        compute_dtype=dtype,
        keep=keep,
        workers=workers,
        canary_every=0 if steps == 2 else 50,
    )
    shutil.rmtree(bank, ignore_errors=True)
    ends = sorted(checkpoint["at"] for checkpoint in result["checkpoints"])
    value = (ends[-1] - ends[workers - 1]) / (steps - workers)
    later = result["checkpoints"][workers:]
    tokens = later[0]["tokens"]
    yield Figure(
        f"{name}, WinoBias in five orders: a checkpoint",
        value,
        "s",
        "" if target is None else f"≤ {target:g} s",
        None if target is None else value <= target,
        [checkpoint["seconds"] for checkpoint in later],
        f"{tokens / value:,.0f} prompt tokens/s, shared ones counted; {_phases(later)};"
        f" {_peak(result)}",
    )


def _swaps(part: Part, shape: str, engine: str, name: str) -> Iterator[Figure]:
    """Two swaps, and the largest difference of rows from those of transformers alone."""
    count, rows = part.size.sample, {}
    for other in dict.fromkeys((engine, "transformers")):
        options = {"engine": other, "dtype": "float32", "canary_every": 0}
        path = _new(part.tmp, f"swap-{other}")
        result = part.run(shape, 3, path, count, **options)
        rows[other] = [deposit.logprobs() for deposit in Bank.open(path).deposits()]
        if other == engine:
            later = result["checkpoints"][1:]
            value = float(np.median([each["spent"].get("swap", 0.0) for each in later]))
            yield Figure(name, value, "s", detail=f"{_phases(later)}; {_peak(result)}")
    pairs = [*zip(rows[engine], rows["transformers"], strict=True)]
    worst = max(float(np.abs(a - b).max()) for a, b in pairs)
    equal = min(float(np.mean(a.argmax(1) == b.argmax(1))) for a, b in pairs)
    yield Figure(
        f"{name}: largest difference of a log-probability from transformers",
        *(worst, "nats", f"≤ {TOLERANCE:g}", worst <= TOLERANCE),
        detail=f"highest entry equal in {equal:.4f}; checkpoints differ by"
        f" {float(np.abs(rows[engine][0] - rows[engine][-1]).max()):.2g}",
    )


def _reference_check(part: Part, engine: str, name: str) -> Iterator[Figure]:
    path = _new(part.tmp, "check")
    part.run(part.size.small, 1, path, part.size.sample, engine=engine, canary_every=1)
    (deposit,) = Bank.open(path).deposits()
    value = deposit.spec.provenance["canary_difference"]
    assert isinstance(value, float)
    yield Figure(name, value, "logits", f"≤ {TOLERANCE:g}", value <= TOLERANCE)


def _agreement(part: Part, engine: str, dtype: str, name: str) -> Iterator[Figure]:
    """Rows compared with those of the transformers engine on the processor."""
    options: dict[str, Any] = {"keep": "full", "dtype": "float32", "canary_every": 0}
    path = part.tmp / f"processor-{part.size.reference}.zarr"
    shape, count = part.size.reference, part.size.sample
    if not path.exists():
        made, no_gpu = _new(part.tmp, "processor"), {"CUDA_VISIBLE_DEVICES": ""}
        part.run(shape, 2, made, count, engine="transformers", environment=no_gpu, **options)
        made.rename(path)
    own = _new(part.tmp, "agreement")
    part.run(shape, 2, own, count, engine=engine, compute_dtype=dtype, **options)
    worst = _difference(own, path)
    packed = [deposit.spec.provenance.get("packed") for deposit in Bank.open(own).deposits()]
    bound = TOLERANCE if dtype == "float32" else None
    yield Figure(
        f"{name}: largest difference of a log-probability from float32 on the processor",
        worst,
        "nats",
        "" if bound is None else f"≤ {bound:g}",
        None if bound is None else worst <= bound,
        detail="" if packed[0] is None else f"packed rows, or why not: {packed}",
    )


def _deterministic(part: Part, engine: str, name: str) -> Iterator[Figure]:
    """Two block sizes, compared bit for bit."""
    banks = []
    for block_rows in (1, 64):
        banks.append(_new(part.tmp, "deterministic"))
        part.run(
            *(part.size.reference, 1, banks[-1], part.size.sample),
            engine=engine,
            deterministic=True,
            block_rows=block_rows,
            keep="full",
            dtype="float32",
            canary_every=0,
        )
    one, other = ([d.logprobs() for d in Bank.open(bank).deposits()] for bank in banks)
    same = all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))
    detail = f"largest difference {_difference(*banks):.2g}"
    yield Figure(
        f"{name}: the same bits in blocks of 1 and 64", int(same), "", "1", same, [], detail
    )


def _difference(one: Path, other: Path) -> float:
    pairs = zip(Bank.open(one).deposits(), Bank.open(other).deposits(), strict=True)
    return max(float(np.abs(a.logprobs() - b.logprobs()).max()) for a, b in pairs)


def _phases(checkpoints: list[dict[str, Any]]) -> str:
    """Median seconds of each phase."""
    phases = dict.fromkeys(phase for each in checkpoints for phase in each["spent"])
    return ", ".join(
        f"{phase} {np.median([each['spent'].get(phase, 0.0) for each in checkpoints]):.2f} s"
        for phase in phases
    )


def _peak(result: dict[str, Any]) -> str:
    peak = result["peak"]
    return "memory unknown" if peak is None else f"at most {peak:.1f} GB used on the card"


def _new(tmp: Path, name: str) -> Path:
    return tmp / f"{name}-{time.time_ns()}.zarr"
