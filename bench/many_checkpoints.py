"""Many checkpoints in one run, against loading once and scoring bare."""

import time
from pathlib import Path
from statistics import median

from bench.contender import Contender
from bench.figures import Figure
from bench.models import series
from bench.one_run import whole_run


def many_checkpoints(tmp: Path, *, checkpoints: int = 8, count: int = 2000) -> list[Figure]:
    """One `extract` from start to end, everything counted, over one load + n × bare scoring."""
    folder = series(tmp, "70m", checkpoints)
    bare = Contender("bare_vllm", tmp / "bare.log", checkpoint=folder / "step0", count=count)
    before = [bare.round() for _ in range(2)]
    start = time.perf_counter()
    whole_run(folder, tmp / f"{time.time_ns()}.zarr", count)
    took = time.perf_counter() - start
    scoring = median([*before, *(bare.round() for _ in range(2))])
    bare.close()
    ideal = bare.setup_s + checkpoints * scoring
    fresh = checkpoints * (bare.setup_s + scoring)
    name = f"70M, {checkpoints} checkpoints × {count:,} prompts in one run"
    detail = f"{took:.0f} s; load {bare.setup_s:.1f} s, bare scoring {scoring:.1f} s"
    return [
        Figure(
            f"{name}, against one load + {checkpoints} × bare scoring",
            took / ideal,
            "× the time",
            "≤ 1.2 ×",
            took / ideal <= 1.2,
            detail=detail,
        ),
        Figure(f"{name}, against {checkpoints} fresh bare runs", took / fresh, "× the time"),
    ]
