"""Trajectories of a few professions, for the eye: those asked for, or those of extreme CV."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import polars as pl

from logitbank.analysis.families.fluctuation.cells import PRIOR
from logitbank.analysis.families.fluctuation.frequencies import bare
from logitbank.analysis.families.fluctuation.plateaus import Measures, Plateau
from logitbank.analysis.families.fluctuation.scores import PRONOUNS
from logitbank.analysis.families.fluctuation.series import Scores, Series
from logitbank.analysis.frames.expressions import Floats
from logitbank.errors import UsageError

_LABELS = ("model", "run", "verb", "role", "occupation", "pronoun")


class _Part(NamedTuple):
    labels: tuple[str, ...]
    steps: list[int | None]
    scores: Floats
    largest: float


Example = tuple[str, int]
"""Its role (`prior`, `largest cv_r`, `smallest cv_r` or `chosen`) and its column; −1: the prior."""


def trajectory_table(
    scores: Scores,
    plateaus: Sequence[Plateau],
    of_plateaus: Sequence[Measures],
    chosen: Sequence[str] | None,
) -> pl.DataFrame:
    """P(he) and P(she) over training, of the prior and of a few professions of every series.

    `relative` is the score divided by the largest of its pronoun over the training steps; a
    release, whose step is null, is divided by the same. By default the professions whose CV of R
    over the first plateau is the largest and the smallest.

    Raises
    ------
    UsageError
        A chosen profession that is not there.
    """
    columns = None if chosen is None else _columns(scores.occupations, chosen)
    first: dict[int, Measures] = {}
    for plateau, measured in zip(plateaus, of_plateaus, strict=True):
        first.setdefault(id(plateau.series), measured)
    parts = [
        part
        for series in scores.series
        for example in _examples(series, first[id(series)], columns)
        for part in _trajectory(series, example, scores.occupations)
    ]
    lengths = [len(part.steps) for part in parts]
    labels = pl.DataFrame([part.labels for part in parts], schema=_LABELS, orient="row")
    values = pl.DataFrame(
        {
            "step": pl.Series([step for part in parts for step in part.steps], dtype=pl.Int64),
            "score": np.concatenate([part.scores for part in parts]),
            "relative": np.concatenate([part.scores / part.largest for part in parts]),
        }
    )
    table = labels[np.repeat(np.arange(len(parts)), lengths)].hstack(values)
    return table.select(*_LABELS[:3], "step", *_LABELS[3:], "score", "relative")


def _examples(
    series: Series, measured: Measures, chosen: Sequence[int] | None
) -> Iterator[Example]:
    yield "prior", -1
    if chosen is not None:
        yield from (("chosen", at) for at in chosen if series.present[at])
        return
    finite = np.flatnonzero(np.isfinite(measured.cv_r) & series.present)
    if len(finite):
        cv = measured.cv_r[finite]
        yield "largest cv_r", int(finite[cv.argmax()])
        if len(finite) > 1:
            yield "smallest cv_r", int(finite[cv.argmin()])


def _trajectory(series: Series, example: Example, occupations: pl.Series) -> Iterator[_Part]:
    role, at = example
    scores: Floats = series.prior if at < 0 else series.scores[:, at]
    steps: list[int | None] = list(series.steps.tolist())
    released = series.release is not None and not np.isnan(series.release[at, 0])
    if series.release is not None and released:
        scores = np.vstack([scores, series.release[at]])
        steps.append(None)
    occupation = PRIOR if at < 0 else occupations[at]
    for column, pronoun in enumerate(PRONOUNS):
        # Not zero: a pronoun without any probability has no relative score.
        trained = scores[: len(series.steps), column]
        largest = np.fmax.reduce(trained, initial=0.0) or np.nan
        labels = (series.model, series.run, series.verb, role, occupation, pronoun)
        yield _Part(labels, steps, scores[:, column], float(largest))


def _columns(occupations: pl.Series, chosen: Sequence[str]) -> list[int]:
    """Columns of professions by name, with article or without."""
    plain = pl.DataFrame({"o": occupations}).select(bare(pl.col("o"))).to_series().to_list()
    parts = []
    for name in dict.fromkeys(chosen):
        wanted = pl.select(bare(pl.lit(name))).item()
        if wanted not in plain:
            some = ", ".join(map(repr, occupations.head(3))) or "none"
            raise UsageError(f"no profession is {name!r}; there are {len(plain)}, such as {some}")
        parts.append(plain.index(wanted))
    return parts
