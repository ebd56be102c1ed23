"""What a fluctuation result says, in sentences with numbers."""

from collections.abc import Callable, Iterator
from functools import partial

import polars as pl

from logitbank.analysis.families.fluctuation.metric import Fluctuation
from logitbank.analysis.results.words import Summary
from logitbank.wording import counted, signed

CAUTIONS = (
    "“He” and “she” after two English templates stand for gender; other pronouns are not asked. A "
    "profession is one word or phrase among many that could name it.",
    "Neighbouring checkpoints are not independent draws: a coefficient of variation over them "
    "says how much a value wanders, not how uncertain it is.",
)
"""What the numbers do not say."""
NOTES = (
    "R compares the probabilities of the two pronouns in the whole vocabulary, however small both "
    "are; C says how small.",
    "Correlations are over professions, with n and a 95 % interval (Fisher) that takes them as a "
    "random sample, which they are not; fewer than ten professions give none.",
)
AGREEING = 0.8


def fluctuation_summary(result: Fluctuation) -> Summary:
    """Plain sentences about every model and verb, followed by counts and cautions."""
    sentences: list[str] = []
    for (model,), plateaus in result.plateaus.group_by("model", maintain_order=True):
        about = _About(result, pl.col("model") == model)
        sentences += [f"{model}: {text}" for text in _model_sentences(about, plateaus)]
        for (verb,), rows in plateaus.group_by("verb", maintain_order=True):
            of_verb = _About(result, (pl.col("model") == model) & (pl.col("verb") == verb))
            sentences += [f"{model}, “{verb}”: {text}" for text in _verb_sentences(of_verb, rows)]
    return Summary((*sentences, *_counts(result)), NOTES, CAUTIONS, tuple(_left_out(result)))


class _About:
    """The rows of a result's tables that a sentence is about."""

    def __init__(self, result: Fluctuation, of_verb: pl.Expr) -> None:
        self._tables = result.tables()
        self._own = of_verb

    def __getitem__(self, table: str) -> pl.DataFrame:
        return self._tables[table].filter(self._own)


def _model_sentences(about: _About, plateaus: pl.DataFrame) -> Iterator[str]:
    used = about["checkpoints"].filter("used")
    runs = plateaus["run"].n_unique()
    steps = used.unique(["run", "step"])
    each = steps.group_by("run").len()["len"]
    professions = about["professions"]["occupation"].n_unique()
    what = f"{counted(professions, 'profession')}" if professions else "the prior only"
    yield (
        f"{counted(runs, 'run')}, {_range(each, '{:,.0f}'.format)} checkpoints"
        f"{' each' if runs > 1 else ''}, steps {_range(used['step'], '{:,.0f}'.format)}; {what}."
    )
    for (start,), rows in plateaus.group_by("plateau", maintain_order=True):
        rule = {
            "given": "as given",
            "published": "the published start for these steps, since none was given",
        }
        rules = rows["rule"].unique(maintain_order=True).to_list()
        why = " and ".join(rule.get(r, f"{r}, since none was given") for r in rules)
        yield (
            f"a plateau starts at step {start:,} ({why}): "
            f"{_range(rows['checkpoints'], '{:,.0f}'.format)} checkpoints."
        )


def _verb_sentences(about: _About, plateaus: pl.DataFrame) -> Iterator[str]:
    starts = plateaus["plateau"].unique(maintain_order=True).to_list()
    for start in starts:
        when = f"from step {start:,} on, " if len(starts) > 1 else ""
        of_plateau = pl.col("plateau") == start
        priors = plateaus.filter(of_plateau)
        yield from _spread(about["spread"].filter(of_plateau), when)
        yield (
            f"{when}the prior's own R has a CV of {_range(priors['prior_cv'])} and a mean "
            f"certainty of {_range(priors['prior_certainty'])}{_over(priors)}."
        )
        yield from _correlations(about["correlations"].filter(of_plateau), when)
        yield from _runs(about["run_pairs"].filter(of_plateau), when)
    yield from _checkpoints(about["checkpoint_pairs"])


def _spread(spread: pl.DataFrame, when: str) -> Iterator[str]:
    parts = [
        f"of {name} lies between {rows['min'].sort()[0]:.3f} and {rows['max'].sort()[-1]:.3f} "
        f"(median {_range(rows['median'])})"
        for name in ("R", "N")
        if len(rows := spread.filter((pl.col("measure") == f"cv_{name.lower()}") & _SOME))
    ]
    if parts:
        yield f"{when}the CV {', that '.join(parts)}, over professions{_over(spread, ' and ')}."


_SOME = pl.col("n") > 0


def _correlations(correlations: pl.DataFrame, when: str) -> Iterator[str]:
    known = correlations.filter(pl.col("r").is_not_nan())
    for (x, case), rows in known.group_by("x", "case", maintain_order=True):
        what = f"corpus frequency ({case})" if x == "frequency" else str(x)
        parts = [
            f"r = {_r(part)} for {str(y)[-1].upper()}"
            for (y,), part in rows.group_by("y", maintain_order=True)
        ]
        n = _range(rows["n"], "{:,.0f}".format)
        yield (
            f"{when}{what} and CV correlate with {', '.join(parts)} (n = {n} professions)"
            f"{_over(rows)}."
        )


def _runs(pairs: pl.DataFrame, when: str) -> Iterator[str]:
    known = pairs.filter(pl.col("r").is_not_nan())
    parts = [
        f"r = {_r(rows)} in {str(measure)[-1].upper()} ({counted(len(rows), 'pair')})"
        for (measure,), rows in known.group_by("measure", maintain_order=True)
    ]
    if parts:
        n = _range(known["n"], "{:,.0f}".format)
        yield (
            f"{when}runs, averaged over the plateau, correlate with {', '.join(parts)}; n = {n} "
            "professions."
        )


def _checkpoints(pairs: pl.DataFrame) -> Iterator[str]:
    known = pairs.filter(pl.col("r").is_not_nan())
    if len(known):
        high = int((known["r"] > AGREEING).sum())
        yield (
            f"{high:,} of {counted(len(known), 'pair')} of checkpoints correlate in R above "
            f"{AGREEING}; r = {_signed_range(known['r'])} in all."
        )


def _left_out(result: Fluctuation) -> Iterator[str]:
    keys = ["model", "run", "verb", "occupation"]
    professions = result.professions
    if incomplete := len(professions.filter(pl.col("missing") > 0).unique(keys)):
        yield (
            f"{counted(incomplete, 'time')} "
            "a profession lacks a score at a checkpoint of a plateau; its "
            "statistics there are NaN, and correlations leave it out."
        )
    checkpoints = result.checkpoints.filter(pl.col("step").is_not_null())
    if absent := len(checkpoints.filter(~pl.col("used"))):
        yield (
            f"{counted(absent, 'time')} "
            "a run has no profession at a step for which it has the prior or "
            "another verb, or which another run of its model has; the numbers are over the "
            "checkpoints that are there."
        )


def _counts(result: Fluctuation) -> Iterator[str]:
    """Things in the data that weaken the numbers, where there are any."""
    keys = ["model", "run", "verb", "occupation"]
    professions = result.professions
    if zero := len(professions.filter(pl.col("she_zero") > 0).unique(keys)):
        yield (
            f"{counted(zero, 'time')} "
            "P(she) is 0 for a profession at a checkpoint of a plateau; its R is "
            "infinite, and correlations leave it out."
        )
    checkpoints = result.checkpoints.filter(pl.col("step").is_not_null())
    undefined = result.correlations.filter(pl.col("r").is_nan() & (pl.col("n") > 1))
    if len(undefined):
        yield (
            f"{counted(len(undefined), 'correlation')} with a CV are undefined, since one side is "
            "constant."
        )
    if (lengths := result.plateaus["checkpoints"]).n_unique() > 1:
        yield (
            f"Plateaus have {_range(lengths, '{:,.0f}'.format)} checkpoints. Their CVs cannot be "
            "compared: a value that wanders has a larger CV over a longer plateau."
        )
    if twice := result.settings["merged_rows"]:
        yield f"{twice:,} rows repeat another exactly and count once."
    if an := result.settings["an_priors"]:
        yield f"{an:,} prior rows with “an” are not used: the prior has “a” for all professions."
    if len(result.checkpoints) > len(checkpoints):
        yield "The public release is shown in trajectories and is in no statistic."


def _range(values: pl.Series, form: Callable[[float], str] = "{:.3f}".format) -> str:
    """One value, or the least and the largest; NaN where there is none."""
    known = values.drop_nulls().cast(pl.Float64).drop_nans()
    if known.is_empty():
        return "NaN"
    low, high = form(known.sort()[0]), form(known.sort()[-1])
    return low if low == high else f"{low} to {high}"


def _r(rows: pl.DataFrame) -> str:
    """One correlation with its interval, or the least and the largest of several."""
    low, high = rows["low"][0], rows["high"][0]
    if len(rows) > 1 or low != low:
        return _signed_range(rows["r"])
    ends = " to ".join(signed(end, ".2f") for end in (low, high))
    return f"{signed(rows['r'][0], '.2f')} [{ends}]"


def _signed_range(values: pl.Series) -> str:
    return _range(values, partial(signed, form=".2f"))


def _over(rows: pl.DataFrame, joint: str = " over ") -> str:
    runs = rows["run"].n_unique()
    return f"{joint}{runs} runs" if runs > 1 else ""
