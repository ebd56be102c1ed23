"""The findings of a trade-off: what a smaller gap costs."""

from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from logitbank.analysis.families.tradeoff.metric import TradeOff
from logitbank.analysis.families.tradeoff.tables import PAIR, SMALLEST
from logitbank.analysis.finding import Finding, formatted
from logitbank.analysis.results import measured
from logitbank.analysis.results.series import (
    UNTRAINED,
    Row,
    about,
    by_series,
    from_row,
    series_name,
)
from logitbank.wording import counted, number

FIGURE = "tradeoff"


def findings(result: TradeOff) -> list[Finding]:
    """A headline, the pairs, both curves, and the checkpoints that only one of the two has."""
    parts = by_series(result.tradeoff)
    pairs = [each for name, rows in parts for each in _series(result, name, rows)]
    _, *curves = measured.findings(*result.common)
    return [_headline(result), *pairs, *curves, *_alone(result.settings)]


def _headline(result: TradeOff) -> Finding:
    """The pair, else the choice with the largest reduction."""
    metric = result.settings["metric"]
    several = result.tradeoff.select("model", "run").n_unique() > 1
    row = result.pairs.row(0, named=True)
    if row["choice"] == PAIR:
        text = (f"{series_name(row)}: " if several else "") + _exchange(row, metric)
    else:
        row = max(result.pairs.to_dicts(), key=lambda row: _gap(row, "before") - _gap(row, "after"))
        who = f"{series_name(row)}: gap" if several else "Gap"
        best, least = (number(_gap(row, end)) for end in ("before", "after"))
        text = (
            f"{who} {best} → {least} for {_change(row)} of {metric} "
            f"(step {row['before']:,} → {row['after']:,})."
        )
        if row["after"] == row["before"]:
            of_model = f"{series_name(row)}: within" if several else "Within"
            text = f"{of_model} {_loss(row)} of the best {metric}, no gap is below {best}."
    return Finding(text=text, **about(row, FIGURE))


def _gap(row: Row, end: str) -> float:
    """The gap before or after a pair."""
    return abs(float(row[f"delta_{end}"]))


def _exchange(row: Row, metric: object) -> str:
    """The cost of a pair's second step in performance, and its effect on the gap.

    What an interval does not show is no claim: it has the change and its interval.
    """
    points = row["performance_change"]
    before, after = (_gap(row, end) for end in ("before", "after"))
    share = formatted(abs(row["fairness_change"]) / 100, ".0%")
    gap = f"closes {share} of the gap" if after < before else f"widens the gap by {share}"
    if no_percentage(row):
        gap = "closes the gap" if after < before else "widens the gap"
    cost = f"{formatted(abs(points), ',.1f')} points of {metric}"
    cost = f"{'costs' if points < 0 else 'gains'} {cost}"
    if _includes_0(row, "performance"):
        ends = (formatted(row[f"performance_{end}"], "+,.1f") for end in ("low", "high"))
        cost = f"costs or gains {metric} (95% CI {' to '.join(ends)} points)"
    if _includes_0(row, "fairness") or row["before_may_be_zero"]:
        gap = "closes or widens the gap"
        if not no_percentage(row):
            ends = (formatted(row[f"fairness_{end}"] / 100, "+.0%") for end in ("low", "high"))
            gap = f"changes the gap by an uncertain share (95% CI {' to '.join(ends)} closed)"
    return (
        f"Step {row['after']:,} instead of {row['before']:,} {cost} and {gap} ({number(before)} → "
        f"{number(after)})."
    )


def _includes_0(row: Row, name: str) -> bool:
    """Whether the interval of a change includes no change."""
    return bool(row[f"{name}_low"] <= 0 <= row[f"{name}_high"])


def _series(result: TradeOff, name: str, rows: pl.DataFrame) -> Iterator[Finding]:
    own = result.pairs.filter(model=rows["model"][0], run=rows["run"][0])
    for row in own.filter(choice=PAIR).iter_rows(named=True):
        yield from _pair(row, name, result.settings)
    for row in own.filter(choice=SMALLEST).iter_rows(named=True):
        yield _choice(row, rows, name, result.settings)


def _pair(row: Row, name: str, settings: Mapping[str, Any]) -> Iterator[Finding]:
    steps = f"step {row['before']:,} → {row['after']:,}"
    facts = about(row, FIGURE)
    baseline = f"gap {number(_gap(row, 'before'))} at step {row['before']:,}"
    if why := no_percentage(row):
        yield Finding(
            text=f"{name}Change of the gap, {steps} (no percentage: {why})",
            value=_gap(row, "after") - _gap(row, "before"), form="+.3g",
            baseline=baseline, **facts,
        )  # fmt: skip
    else:
        value, low, high = (row[f"fairness_{end}"] / 100 for end in ("change", "low", "high"))
        yield Finding(
            text=f"{name}Fairness increase, {steps}", value=value, low=low, high=high,
            form="+.1%", baseline=baseline, **facts,
        )  # fmt: skip
    yield Finding(
        text=f"{name}Change of {settings['metric']} (percentage points), {steps}",
        value=row["performance_change"], low=row["performance_low"], high=row["performance_high"],
        form="+,.1f", **facts,
    )  # fmt: skip


def no_percentage(row: Row) -> str:
    """Why a change of the gap has no percentage; nothing if it has one."""
    if row["before"] == UNTRAINED:
        return "step 0 is the untrained model"
    if row["fairness_change"] != row["fairness_change"]:
        return "the gap before is zero"
    return "the gap before may be zero" if row["before_may_be_zero"] else ""


def _choice(row: Row, rows: pl.DataFrame, name: str, settings: Mapping[str, Any]) -> Finding:
    place = rows["step"].index_of(row["after"]) or 0
    chosen = rows.row(place, named=True)
    n = f"{counted(row['searched'], 'checkpoint')} searched"
    baseline = ""
    if row["after"] != row["before"]:
        beside = [at for at in (place - 1, place + 1) if 0 <= at < len(rows)]
        neighbours = map(number, rows["gap"].gather(beside))
        baseline = (
            f"{number(_gap(row, 'before'))} at step {row['before']:,}, the best; "
            f"{' and '.join(neighbours)} at the neighbouring checkpoints"
        )
    text = (
        f"{name}Smallest gap within {_loss(row)} of the best {settings['metric']} (step "
        f"{row['after']:,})"
    )
    return from_row(chosen, "gap", text, form=".3g", n=n, baseline=baseline, figure=FIGURE)


def _change(row: Row) -> str:
    return f"{formatted(row['performance_change'], '+,.1f')} points"


def _loss(row: Row) -> str:
    loss = f"{row['max_accuracy_loss']:g}"
    return f"{loss} point{'' if loss == '1' else 's'}"


def _alone(settings: Mapping[str, Any]) -> Iterator[Finding]:
    metric, gap = settings["metric"], settings["gap"]
    for one, other, side in ((metric, gap, "performance"), (gap, metric, "gap")):
        if count := settings[f"{side}_alone"]:
            verb = "has" if count == 1 else "have"
            yield Finding(
                text=f"{counted(count, 'checkpoint')} {verb} {one} but no {other}; not used."
            )
