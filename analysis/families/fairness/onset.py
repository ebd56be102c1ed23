"""When the gap between genders changes its level, and how sure that is."""

import numpy as np
import polars as pl

from logitbank.analysis.families.fairness.baseline import draws_of
from logitbank.analysis.frames.expressions import scaled
from logitbank.analysis.stats.bootstrap import FEWEST_CLUSTERS
from logitbank.analysis.stats.change_points import (
    WANDERING,
    ChangePoint,
    change_places,
    change_point,
)

SCHEMA = {
    "model": pl.String,
    "run": pl.String,
    "onset_step": pl.Int64,
    "sign": pl.Int64,
    "p": pl.Float64,
    "place": pl.Int64,
    "earliest": pl.Int64,
    "latest": pl.Int64,
    "delta_before": pl.Float64,
    "delta_after": pl.Float64,
    "p_order": pl.Float64,
    "bic_over_line": pl.Float64,
    "checkpoints": pl.Int64,
    "last_step": pl.Int64,
}


def onset_table(gap: pl.DataFrame, *, seed: int = 0) -> pl.DataFrame:
    """Per run: the first step of the gap's new level, from `change_point` over the steps.

    `place` is where one change of level fits Δ best, `onset_step` the same where `p`, the change's
    `p_wander`, is at most 0.05: neighbouring checkpoints resemble each other, and a gap wanders on
    neutral text too. `sign` is +1 where Δ rises. From `earliest` to `latest` are the steps of
    either 95 % set: that of the posterior, and that of the places in curves from resampled
    sentences, the same ones at every checkpoint. Levels are scaled. A release is left out; fewer
    than six steps, or a constant gap, give nulls.

    Parameters
    ----------
    gap
        The table of that name with the column `draws`.
    """
    rows = []
    steps = gap.filter(pl.col("step").is_not_null())
    for (model, run), part in steps.group_by("model", "run", maintain_order=True):
        values = part["delta_nats"].to_numpy()
        change = change_point(values, seed=seed)
        row = {"model": model, "run": run, "checkpoints": len(part), "last_step": part["step"][-1]}
        if change is not None:
            row |= _told(change, part)
        rows.append(row)
    return pl.DataFrame(rows, schema=SCHEMA)


def _told(change: ChangePoint, part: pl.DataFrame) -> dict[str, object]:
    steps = part["step"].to_list()
    first, last = _places(change, part)
    certain = change.p_wander <= WANDERING
    return {
        "onset_step": steps[change.at] if certain else None,
        "sign": int(np.sign(change.mean_after - change.mean_before)) if certain else None,
        "p": change.p_wander,
        "place": steps[change.at],
        "earliest": steps[first],
        "latest": steps[last],
        "delta_before": float(scaled(change.mean_before)),
        "delta_after": float(scaled(change.mean_after)),
        "p_order": change.p,
        "bic_over_line": change.bic_over_line,
    }


def _places(change: ChangePoint, part: pl.DataFrame) -> tuple[int, int]:
    """The posterior's set, widened to that of resampled sentences where there are enough."""
    draws = draws_of(part)
    known = draws[np.isfinite(draws).all(axis=1)]
    sentences = part["sentences"].min()
    if not len(known) or not isinstance(sentences, int) or sentences < FEWEST_CLUSTERS:
        return change.first, change.last
    # Of whole places, those that 2.5 % of the resamples lie on or beyond.
    ordered = np.sort(change_places(known))
    tail = int(0.025 * len(ordered))
    return min(change.first, int(ordered[tail])), max(change.last, int(ordered[-1 - tail]))
