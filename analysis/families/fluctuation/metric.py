"""Fluctuation of pronoun ratios in masked models during pre-training.

Frames in, frames out: scores of “he” and “she” at the mask become ratios, their coefficients of
variation over a plateau of training, and correlations. After arXiv 2211.14639; every departure is
said where it happens.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from logitbank.analysis.families.fluctuation.examples import trajectory_table
from logitbank.analysis.families.fluctuation.frequencies import frequency_vectors
from logitbank.analysis.families.fluctuation.plateaus import measures, plateaus_of
from logitbank.analysis.families.fluctuation.scores import as_scores, asked_professions
from logitbank.analysis.families.fluctuation.series import series_of
from logitbank.analysis.families.fluctuation.tables import (
    checkpoint_pair_table,
    checkpoint_table,
    correlation_table,
    frequency_table,
    plateau_table,
    profession_table,
    run_pair_table,
    spread_table,
)
from logitbank.analysis.frames.batches import Scan, frames_of
from logitbank.analysis.frames.expressions import Floats
from logitbank.analysis.results.tables import Result

MOST_FREQUENT = 20
"""Professions in the table `frequent`, for each case."""


@dataclass(frozen=True, slots=True)
class Fluctuation(Result):
    """What `fluctuation_metric` found: tidy tables.

    R = P(he) / P(she), N = R · P(she | prior) / P(he | prior), C = P(he) + P(she), with P the
    softmax over the whole vocabulary. A CV is the population deviation (ddof 0) over the plateau's
    checkpoints divided by their mean. `plateau` is the training step asked for; the plateau's
    checkpoints are those from the first step at or after it. Correlations are Pearson's, over
    professions; `n` counts those with finite values, `excluded` the others.
    """

    checkpoints: pl.DataFrame
    """Professions at each checkpoint; `missing` those that the model was asked, or that the series
    has elsewhere."""
    plateaus: pl.DataFrame
    """Where each begins, and the prior's own CV and mean certainty."""
    spread: pl.DataFrame
    """Smallest, largest, mean and median of each measure over professions."""
    correlations: pl.DataFrame
    """Certainty and corpus frequency against the CV of R and of N."""
    run_pairs: pl.DataFrame
    """Every two runs of a model: correlation of the professions' mean R, and of their mean N."""
    frequent: pl.DataFrame
    """The most frequent professions in each case; no rows without frequencies."""
    professions: pl.DataFrame
    """certainty = mean C, mean and CV of R and N. `missing` and `she_zero` count the plateau's
    checkpoints without a score, which makes all of them NaN, and with P(she) = 0, which makes a
    mean infinite and a CV NaN. `frequency_<case>` where frequencies are given."""
    checkpoint_pairs: pl.DataFrame
    """Every two checkpoints of a series: correlation of the rows of R, which is that of N."""
    trajectories: pl.DataFrame
    """Scores over training of the prior and of a few professions."""
    frequencies: pl.DataFrame
    """All professions by their corpus frequency in each case."""
    settings: Mapping[str, str | int]
    """Choices and counts: prior rows with “an”, which are not used, and rows that were twice."""


def fluctuation_metric(
    frame: Scan,
    *,
    plateaus: Sequence[int] | None = None,
    frequencies: pl.DataFrame | None = None,
    professions: Sequence[str] | None = None,
    expected: pl.DataFrame | None = None,
) -> Fluctuation:
    """Every fluctuation table of the scores in a frame. All arithmetic is float64.

    A public release (null step) is in `checkpoints` and `trajectories` and in no statistic. A
    profession without a score at one of a plateau's checkpoints has NaN there and is left out of
    correlations and spreads, which count it. A checkpoint without any profession is no row.

    Parameters
    ----------
    frame
        `Bank.scan("professions")`, a table in the published format, or scores of both as
        `as_scores` gives them. Or several such frames, each of checkpoints of its own, as `batches`
        gives them: of those that were read, the scores alone are held.
    plateaus
        Training steps from which on to measure, each beside the others. By default one: half of
        the model's last step, which is the published start of RoBERTa and of MultiBERTs.
    frequencies
        Columns occupation, case and frequency, as `corpus_frequencies` gives them.
    professions
        Those whose trajectories to show, with article or without; by default the ones of largest
        and of smallest CV of R.
    expected
        What each model was asked: columns model, verb, occupation, prior, as `expected_rows` gives
        them. Without it, all that is known is the frame: a profession or a verb without a score at
        any checkpoint in it is not counted as missing.

    Raises
    ------
    UsageError
        Columns, scores or arguments that do not fit; the message names what would.

    References
    ----------
    arXiv 2211.14639, §3 and App. A–D. Ours: the default plateau, which names no model, and the
    treatment of missing scores.

    Examples
    --------
    R is 1 and 3 over the two checkpoints, and N twice that, since the prior's ratio is 1/2.

    >>> rows = [
    ...     (pronoun, score, job, f"[MASK] is {job}.", "bert", 0, step)
    ...     for step, values in ((0, (0.2, 0.2, 0.1, 0.2)), (10, (0.6, 0.2, 0.1, 0.2)))
    ...     for (job, pronoun), score in zip(
    ...         [(j, p) for j in ("a cook", "a [MASK]") for p in ("he", "she")], values
    ...     )
    ... ]
    >>> names = ["pronoun", "score", "occupation", "template", "model", "seed", "checkpoint"]
    >>> found = fluctuation_metric(pl.DataFrame(rows, names, orient="row"), plateaus=[0])
    >>> found.professions.select(pl.col("mean_r", "mean_n", "cv_r", "cv_n").round(12)).row(0)
    (2.0, 4.0, 0.5, 0.5)
    """
    expected_professions = None if expected is None else asked_professions(expected)
    scores = series_of(map(as_scores, frames_of(frame)), expected_professions)
    spans = plateaus_of(scores.series, plateaus)
    measured = [measures(plateau) for plateau in spans]
    cases: Mapping[str, Floats] = (
        {} if frequencies is None else frequency_vectors(scores.occupations, frequencies)
    )
    ranked = frequency_table(scores.occupations, cases)
    return Fluctuation(
        checkpoints=checkpoint_table(scores),
        plateaus=plateau_table(spans),
        spread=spread_table(spans, measured),
        correlations=correlation_table(spans, measured, cases),
        run_pairs=run_pair_table(spans, measured),
        frequent=ranked.filter(pl.col("rank") <= MOST_FREQUENT),
        professions=profession_table(spans, measured, scores.occupations, cases),
        checkpoint_pairs=checkpoint_pair_table(scores.series),
        trajectories=trajectory_table(scores, spans, measured, professions),
        frequencies=ranked,
        settings={"an_priors": scores.an_priors, "merged_rows": scores.merged},
    )
