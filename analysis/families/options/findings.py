"""The findings of any prompt set: accuracy first, else option probabilities, else ranks."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from math import isclose, nan, sqrt
from operator import attrgetter, itemgetter
from statistics import fmean
from typing import NamedTuple

import polars as pl

from logitbank.analysis.families.options import Score
from logitbank.analysis.families.options.metric import OptionScores
from logitbank.analysis.families.options.tables import OTHERS
from logitbank.analysis.finding import Finding, formatted
from logitbank.analysis.frames.expressions import same_as
from logitbank.analysis.results.series import (
    Curve,
    Row,
    about,
    by_seeds,
    by_series,
    change_findings,
    course_text,
    extremes,
    figure_name,
    missing_text,
    series_name,
    size,
)
from logitbank.store.steps import without_seed
from logitbank.wording import counted, step_name

KEYS = ("model", "run", "prompt_set")
MEANINGS: Mapping[Score, str] = {
    "sum": (
        "The probability of an option is the product over its tokens; it is normalized over the "
        "options of a prompt. Options of more tokens are less probable."
    ),
    "token": "The score of an option is its mean log-probability per token.",
    "character": "The score of an option is its log-probability divided by its characters.",
}
"""How option probabilities are computed."""
OF_SCORES = "Option probabilities are exp of the scores, normalized over the options of a prompt."
MEASURES = {
    "probability": ("Probability of the correct answer (whole vocabulary)", ".3g"),
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
    first = _headline(result)
    groups = [each for name in sets for each in _groups(result.groups.filter(prompt_set=name))]
    return [
        *groups,
        *([first] if first else []),
        *found,
        *_limits(result),
    ]


def _groups(table: pl.DataFrame) -> Iterator[Finding]:
    """Differences of groups at the last checkpoint, the largest first, and their changes."""
    differences = table.filter(pl.col("minus") != "", pl.col("value").is_not_nan())
    form, score = ("+.1%", "accuracy") if "accuracy" in differences["score"] else (
        "+.3f", "option_probability"
    )  # fmt: skip
    for prefix, rows in by_series(differences.filter(score=score)):
        parts = rows.partition_by("option", "group", maintain_order=True)
        parts = sorted(parts, key=lambda part: -abs(part["value"][-1]))
        if score == "option_probability" and parts[0]["minus"][0] != OTHERS:
            parts = [part for part in parts if part["value"][-1] > 0] or parts[:1]
        for part in parts[:SHOWN]:
            last = part.row(-1, named=True)
            what = "Accuracy" if score == "accuracy" else f"P(“{last['option'].strip()}”)"
            what = f"{prefix}{what}, {last['group']} minus {last['minus']}"
            difference = Curve(part, "value", what, _sides(table), form, "groups")
            yield replace(difference.now(), note=_values(table, last, form.lstrip("+")))
            yield from difference.change()


def _values(table: pl.DataFrame, row: Row, form: str) -> str:
    """The values of the groups of a difference; of one, if it is subtracted from all others."""
    keys = ("model", "run", "step", "score", "option")
    sides = [row["group"], row["minus"]]
    own = table.filter(same_as(row, keys), pl.col("group").is_in(sides), minus="")
    values = own.select("group", "value").rows()
    return " and ".join(f"{group} {formatted(value, form)}" for group, value in values)


def _sides(table: pl.DataFrame) -> Callable[[Row], str]:
    """The numbers of prompts of a difference."""
    own = table.filter(minus="")

    def text(row: Row) -> str:
        keys = ("model", "run", "step", "score", "option")
        prompts = dict(own.filter(same_as(row, keys)).select("group", "prompts").rows())
        first = prompts.pop(row["group"])
        others = f"{sum(prompts.values()):,} {row['minus']}"
        return f"{first:,} {row['group']} and {others}{missing_text(row['missing'])}"

    return text


class _Move(NamedTuple):
    """A number of a run, or of seeds, at the first and last checkpoints and extremes between."""

    finding: Finding
    """The words for it in a sentence."""
    change: float
    surprise: float
    """The change in half widths of its interval; 0 without one."""
    rise: float
    """The change to the first extreme, or to the last checkpoint."""


def _headline(result: OptionScores) -> Finding | None:
    """The number that changes most for its interval, over all runs of a model, in one sentence.

    Accuracy comes before option probabilities that change as much, and those before ranks.
    """
    parts = [
        ("accuracy", result.answers, "accuracy", [], "Accuracy", ".1%"),
        ("option_probability", result.shares, "option_probability", ["option"], "", ".3f"),
    ]
    for measure in ("probability", "rank"):
        rows = result.curves.filter(measure=measure)
        parts.append(("curves", rows, "value", [], *MEASURES[measure]))
    moves = []
    for figure, table, column, keys, what, form in parts:
        known = table.drop_nulls(column).filter(pl.col(column).is_not_nan())
        for part in known.partition_by("prompt_set", *keys, maintain_order=True):
            name = what or f"Option probability of “{part['option'][0].strip()}”"
            moves += [_move(runs, column, name, form, figure, result) for runs in by_seeds(part)]
    shown = [move for move in moves if "→" in move.finding.text] or moves
    if not shown:
        return None
    best = max(shown, key=lambda move: (move.surprise, move.change))
    # One of two options mirrors the other up to rounding: the one that rises first is shown.
    alike = [
        move
        for move in shown
        if isclose(move.surprise, best.surprise, rel_tol=1e-6)
        and isclose(move.change, best.change, rel_tol=1e-6)
    ]
    mirrors = (move for move in alike if move.finding.figure == alike[0].finding.figure)
    return max(mirrors, key=attrgetter("rise")).finding


def _move(
    runs: Sequence[pl.DataFrame],
    column: str,
    what: str,
    form: str,
    figure: str,
    result: OptionScores,
) -> _Move:
    """The mean of a run, or over seeds, at the first and the last checkpoint and between them.

    The interval is that of one run.
    """
    ends = [[part.row(at, named=True) for part in runs] for at in (0, -1)]
    first, last = ends[0][0], ends[1][0]
    same_steps = all({*part["step"]} == {*runs[0]["step"]} for part in runs)
    places = ends
    if same_steps:
        places = [[*rows] for rows in zip(*(part.rows(named=True) for part in runs), strict=True)]
    course = pl.DataFrame([_mean_row(rows, column) for rows in places])
    inner = extremes(course, "value") if same_steps else []
    points = [course.row(0, named=True), *inner, course.row(-1, named=True)]
    moved = [_moved(*pair) for pair in pairwise(points)]
    sets, models = (result.checkpoints[name].n_unique() for name in ("prompt_set", "model"))
    trainings = [*by_seeds(result.checkpoints.filter(model=first["model"]))]
    prefix = f"{first['model']}: " if models > 1 else ""
    if len(trainings) > 1:
        variant = without_seed(first["run"])
        run = first["run"] if len(runs) == 1 or not variant else variant
        prefix = f"{series_name({'model': first['model'], 'run': run})}: "
    prefix += f"{first['prompt_set']}, " if sets > 1 else ""
    value = course_text(points[0], inner, points[-1], "value", form)
    steps = f"from {step_name(first['step'])} to {step_name(last['step'])}"
    if all(len(part) == 1 for part in runs):
        steps, value = f"at {step_name(last['step'])}", formatted(points[-1]["value"], form)
    elif not same_steps:
        steps = "from the first to the last checkpoint"
    found = Finding(
        text=f"{prefix}{what} {value} {steps}", form=form, n=size("prompts", "sentences")(last),
        figure=figure_name(figure, first["prompt_set"], sets > 1),
    )  # fmt: skip
    if len(runs) > 1:
        found = replace(found, text=f"{found.text}, mean of {len(runs)} seeds")
    else:
        series = (last["model"], last["run"])
        found = replace(found, low=last.get("low"), high=last.get("high"), series=series)
    change, surprise = max(moved, key=itemgetter(1))
    return _Move(found, change, surprise, points[1]["value"] - points[0]["value"])


def _moved(one: Row, other: Row) -> tuple[float, float]:
    """The difference of two checkpoints, and in half widths of its interval; 0 without one."""
    change = abs(other["value"] - one["value"])
    half = sqrt(sum((row["high"] - row["low"]) ** 2 for row in (one, other))) / 2
    return change, change / half if half > 0 else 0.0


def _mean_row(rows: Sequence[Row], column: str) -> Row:
    """The mean of a number over runs at a checkpoint, with the interval of independent ones."""
    value, half = fmean(row[column] for row in rows), _half_width(rows)
    return {"step": rows[0]["step"], "value": value, "low": value - half, "high": value + half}


def _half_width(rows: Sequence[Row]) -> float:
    """Half the width of the intervals of some rows, or of the mean of independent ones."""
    widths = [nan if row.get("low") is None else row["high"] - row["low"] for row in rows]
    return sqrt(sum(width**2 for width in widths)) / (2 * len(rows))


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
        result.change_points.filter(**own), f"{prefix}Accuracy", form="+.1%",
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
