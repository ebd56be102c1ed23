"""The findings of any prompt set: accuracy first, else option probabilities, else ranks."""

from collections.abc import Iterator, Mapping

import polars as pl

from logitbank.analysis.families.options import Score
from logitbank.analysis.families.options.metric import OptionScores
from logitbank.analysis.finding import Finding, formatted
from logitbank.analysis.results.series import (
    Curve,
    Row,
    about,
    by_series,
    change_findings,
    figure_name,
    series_name,
    size,
)
from logitbank.wording import counted, step_name

KEYS = ("model", "run", "prompt_set")
MEANINGS: Mapping[Score, str] = {
    "sum": (
        "The probability of an option is the product over its tokens; it is normalized over the "
        "options of a prompt. Options of more tokens are less probable."
    ),
    "token": "The score of an option is its mean log-probability per token.",
    "byte": "The score of an option is its log-probability divided by its UTF-8 bytes.",
    "character": "The score of an option is its log-probability divided by its characters.",
}
"""How option probabilities are computed."""
OF_SCORES = "Option probabilities are exp of the scores, normalized over the options of a prompt."
MEASURES = {
    "probability": ("Probability of the correct answer", ".3g"),
    "rank": ("Mean rank of the correct answer", ",.1f"),
    "entropy": ("Entropy (nats)", ".2f"),
    "top1_agreement": ("Top-1 agreement with the last checkpoint", ".1%"),
}
"""Names and formats of the measures."""
SHOWN = 3
"""Options of a series that have a finding."""


def score_notes(result: OptionScores) -> Iterator[str]:
    """How options were compared, and what was not read."""
    yield MEANINGS[result.score]
    if result.score != "sum":
        yield OF_SCORES
    if not result.entropy:
        yield "Entropy needs full rows, which were not read: `logitbank analyze options BANK`."


def findings(result: OptionScores) -> list[Finding]:
    """A headline, then each prompt set, model and run, then what could not be measured."""
    found: list[Finding] = []
    sets = result.checkpoints["prompt_set"].unique(maintain_order=True)
    for name in sets:
        of_set = result.checkpoints.filter(prompt_set=name)
        where = f"{name}, " if len(sets) > 1 else ""
        for prefix, rows in by_series(of_set):
            found += _series(result, f"{prefix}{where}", rows.row(-1, named=True))
    return [*_headline(found), *_misplaced(result.neighbours), *found, *_limits(result)]


def _misplaced(table: pl.DataFrame) -> Iterator[Finding]:
    """Checkpoints that are nearer to a distant step than to their neighbours."""
    several = table["prompt_set"].n_unique() > 1
    for row in table.filter("misplaced").iter_rows(named=True):
        where = f"{row['prompt_set']}, " if several else ""
        noun = "vocabulary row" if row["basis"] == "rows" else "prompt"
        nearer = min(row[side] for side in ("previous", "next") if row[side] is not None)
        yield Finding(
            text=f"{where}{series_name(row)} {step_name(row['step'])} may be another checkpoint: "
            f"it is nearest to {step_name(row['nearest_step'])}, Jensen–Shannon divergence (nats)",
            value=row["nearest"], n=counted(row["compared"], noun), form=".3g",
            baseline=f"{formatted(nearer, '.3g')} to the nearer neighbour", **about(row),
        )  # fmt: skip


def _headline(found: list[Finding]) -> Iterator[Finding]:
    """The first of the measures that readers know: accuracy, else options, else ranks."""
    for figure in ("accuracy", "option_probability", "curves"):
        for each in found:
            if each.figure.partition("-")[0] == figure and each.value is not None:
                before, _, when = each.baseline.partition(" at ")
                value = f"{before} → {each.number}" if when else each.number
                what, _, last = each.text.rpartition(" at ")
                span = f"from {when} to {last}" if when else f"at {last}"
                text = f"{what} {value} {span}"
                yield Finding(
                    text=text, low=each.low, high=each.high, n=each.n, figure=each.figure,
                    form=each.form, series=each.series,
                )  # fmt: skip
                return


def _series(result: OptionScores, prefix: str, series: Row) -> Iterator[Finding]:
    own = {key: series[key] for key in KEYS}
    several = result.checkpoints["prompt_set"].n_unique() > 1
    figures = {
        name: figure_name(name, series["prompt_set"], several)
        for name in ("accuracy", "option_probability", "curves")
    }
    answers = result.answers.filter(**own).drop_nulls("accuracy")
    yield from _first_and_last(
        answers, "accuracy", f"{prefix}Accuracy", form=".1%", figure=figures["accuracy"]
    )
    yield from _options(result.shares.filter(**own), prefix, figures["option_probability"])
    curves = result.curves.filter(**own).drop_nulls("value")
    for measure, (name, form) in MEASURES.items():
        rows = curves.filter(measure=measure)
        if measure == "top1_agreement":  # the last one's with itself is 1
            rows = rows.head(1) if len(rows) > 1 else rows.clear()
        if measure != "probability" or answers.is_empty():
            yield from _first_and_last(
                rows, "value", f"{prefix}{name}", form=form, figure=figures["curves"]
            )
    yield from change_findings(
        result.change_points.filter(**own).drop_nulls("kind"), f"{prefix}Accuracy", form="+.1%",
        **about(series, figures["accuracy"]),
    )  # fmt: skip


def _options(shares: pl.DataFrame, prefix: str, figure: str) -> Iterator[Finding]:
    """The most probable options of the last checkpoint."""
    known = shares.drop_nulls("option_probability")
    if known.is_empty():
        return
    last = known.filter(pl.col("step").eq_missing(pl.lit(known["step"][-1], pl.Int64)))
    most = last.sort("option_probability", descending=True, maintain_order=True).head(SHOWN)
    for option in most["option"]:
        yield from _first_and_last(
            known.filter(option=option), "option_probability",
            f"{prefix}Option probability of “{option.strip()}”", form=".3f", figure=figure,
        )  # fmt: skip


def _first_and_last(
    rows: pl.DataFrame, column: str, what: str, *, form: str, figure: str
) -> Iterator[Finding]:
    """The value at the last checkpoint, with that at the first as its baseline."""
    if len(rows):
        n = size("prompts", "sentences")
        yield Curve(rows, column, what, n, form, figure).from_first()


def _limits(result: OptionScores) -> Iterator[Finding]:
    if tied := int(result.answers["tied"].sum()):
        yield Finding(text=f"Ties for the largest option probability: {tied:,} (count as wrong).")
    rows = result.checkpoints
    without = rows.filter(~pl.col("full_rows")).select(pl.struct("model", "run", "step").n_unique())
    if result.entropy and (count := without.item()):
        yield Finding(text=f"Entropy needs full rows, which {counted(count, 'checkpoint')} lack.")
    unanswered = rows.filter(answered=0)["prompt_set"].unique().sort().to_list()
    if unanswered:
        yield Finding(text=f"No correct answer is named in {', '.join(unanswered)}.")
