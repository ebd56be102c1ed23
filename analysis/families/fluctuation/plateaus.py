"""Where the values of a series have settled, and what is measured there."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from logitbank.analysis.families.fluctuation.series import Series
from logitbank.analysis.frames.expressions import Floats
from logitbank.analysis.stats.correlation import variation
from logitbank.errors import UsageError

PUBLISHED = (
    [0, 10, 20, 40, *(100 * 2**i for i in range(8)), *range(20_000, 1_000_001, 20_000)],
    [*range(0, 200_001, 20_000), *range(300_000, 2_000_001, 100_000)],
)
"""Steps of RoBERTa (62) and MultiBERTs (29), whose plateaus are published as the second half."""


class Plateau(NamedTuple):
    """The last checkpoints of a series, from a training step on."""

    series: Series
    start: int
    """The step asked for."""
    k: int
    """Index of the first checkpoint at or after it."""
    rule: str
    """`given`, `published` or `half of the last step`."""

    @property
    def key(self) -> dict[str, object]:
        """Its columns in every table."""
        s = self.series
        return {"model": s.model, "run": s.run, "verb": s.verb, "plateau": self.start}


class Measures(NamedTuple):
    """Of each profession over a plateau, (t,) each; NaN where one of its scores is missing."""

    certainty: Floats
    mean_r: Floats
    mean_n: Floats
    cv_r: Floats
    cv_n: Floats


def plateaus_of(series: Sequence[Series], starts: Sequence[int] | None) -> list[Plateau]:
    """Every series with every plateau start.

    Without `starts`, one from half of the model's last step on. For the published lists of steps
    that is the published start, and is called so.

    Raises
    ------
    UsageError
        A start that leaves fewer than two checkpoints, or is negative.
    """
    last: dict[str, int] = {}
    for s in series:
        last[s.model] = max(last.get(s.model, 0), int(s.steps[-1]))
    plateaus = []
    for s in series:
        known = "published" if s.steps.tolist() in PUBLISHED else "half of the last step"
        half = (last[s.model] + 1) // 2
        for start in (half,) if starts is None else dict.fromkeys(starts):
            k = int(np.searchsorted(s.steps, start))
            _check_plateau(s, start, len(s.steps) - k)
            plateaus.append(Plateau(s, start, k, known if starts is None else "given"))
    return plateaus


def measures(plateau: Plateau) -> Measures:
    """CV and means of one plateau's professions, METRICS as in arXiv 2211.14639, §3."""
    s, k = plateau.series, plateau.k
    r, n = s.ratio[k:], s.normalised[k:]
    with np.errstate(invalid="ignore"):
        return Measures(
            s.certainty[k:].mean(axis=0), r.mean(axis=0), n.mean(axis=0), variation(r), variation(n)
        )


def _check_plateau(s: Series, start: int, left: int) -> None:
    if start < 0:
        raise UsageError(f"a plateau from step {start} is before training; steps start at 0")
    if left < 2:
        what = "no checkpoint" if left == 0 else "one checkpoint"
        raise UsageError(
            f"a plateau from step {start} leaves {what} of {s.name}, whose steps are "
            f"{s.steps[0]} to {s.steps[-1]} ({len(s.steps)} of them), and a CV needs two; start it "
            "earlier with --plateau"
        )
