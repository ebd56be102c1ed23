"""What a trade-off says, in sentences with numbers and their uncertainty."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import polars as pl

from logitbank.analysis.families.tradeoff.curves import NORMAL, RESAMPLED
from logitbank.analysis.families.tradeoff.metric import TradeOff
from logitbank.analysis.results.changes import NOTE, change_sentences
from logitbank.analysis.results.words import UNTRAINED, Summary
from logitbank.wording import counted, number, signed

Row = Mapping[str, Any]
_points = partial(signed, form=",.1f")

CAUTIONS = (
    "The curve joins checkpoints that exist; it does not say what training for fairness would "
    "reach.",
    "A checkpoint chosen for its gap looks fairer here than it will elsewhere: it was the "
    "smallest of several measured ones. Among 154 checkpoints whose gap only fluctuates, such a "
    "choice promises 6 to 16 % more fairness; look at the checkpoints beside it.",
)
"""What the numbers do not say."""
KINDS = {
    RESAMPLED: "items resampled, the same ones at every checkpoint",
    NORMAL: "normal, from the standard errors given, checkpoints taken as independent",
    None: "none, as there is no standard error",
}


def tradeoff_summary(result: TradeOff) -> Summary:
    """Plain sentences about every model and run, followed by how the intervals were made."""
    runs = result.tradeoff.select("model", "run").unique(maintain_order=True).rows()
    sentences = []
    for model, run in runs:
        of_run = (pl.col("model") == model) & (pl.col("run") == run)
        prefix = f"{model}{'' if run == 'main' else f' {run}'}: " if len(runs) > 1 else ""
        sentences += [prefix + text for text in _run_sentences(result, of_run)]
    kinds = [result.settings[f"{side}_interval"] for side in ("performance", "gap")]
    how = (
        f"Intervals (95 %): performance – {KINDS.get(str(kinds[0]), KINDS[None])}; gap – "
        f"{KINDS.get(str(kinds[1]), KINDS[None])}."
    )
    return Summary(tuple(sentences), (how, NOTE), CAUTIONS, tuple(_left_out(result.settings)))


def _left_out(settings: Mapping[str, Any]) -> Iterator[str]:
    """Checkpoints that one of the two sides lacks."""
    metric, gap = settings["metric"], settings["gap"]
    for one, other, side in ((metric, gap, "performance"), (gap, metric, "gap")):
        if count := settings[f"{side}_alone"]:
            verb = "has" if count == 1 else "have"
            yield f"Left out: {counted(count, 'checkpoint')} {verb} {one} and not {other}."


def pair_sentence(row: Row, settings: Mapping[str, Any]) -> str:
    """The change between two checkpoints, from a row of `pairs`."""
    cost = performance_change(row, settings)
    if why := no_percentage(row):
        return (
            f"From step {row['before']:,} to step {row['after']:,}: {_gap_change(row)} {cost}; no "
            f"percentage, since {why}."
        )
    fairness = f"fairness {_points(row['fairness_change'])} %"
    if row["fairness_low"] == row["fairness_low"]:
        low, high = _points(row["fairness_low"]), _points(row["fairness_high"])
        fairness += f" (95 % interval {low} to {high})"
    return f"From step {row['before']:,} to step {row['after']:,}: {fairness} {cost}."


def no_percentage(row: Row) -> str:
    """Why there is no percentage of the gap before; nothing where there is one."""
    if row["before"] == UNTRAINED:
        return "step 0 is the untrained model"
    if row["fairness_change"] != row["fairness_change"]:
        return "the gap before is zero"
    return "the gap before may be zero" if row["before_may_be_zero"] else ""


def _gap_change(row: Row) -> str:
    before, after = abs(row["delta_before"]), abs(row["delta_after"])
    side = "larger" if after > before else "smaller"
    return f"gap becomes {number(abs(after - before))} {side} ({number(before)} → {number(after)})"


def performance_change(row: Row, settings: Mapping[str, Any]) -> str:
    change = row["performance_change"]
    better = settings["higher_is_better"]
    text = _points(change if better else -change)  # as the metric moves
    if row["performance_low"] == row["performance_low"]:
        bounds = (row["performance_low"], row["performance_high"])
        low, high = bounds if better else (-bounds[1], -bounds[0])
        interval = f" ({_points(low)} to {_points(high)})"
    else:
        interval = ""
    unit = "points of " if settings["unit"] == "points" else ""
    return f"{'for' if change < 0 else 'with'} {text} {unit}{settings['metric']}{interval}"


def _run_sentences(result: TradeOff, of_run: pl.Expr) -> Iterator[str]:
    table, settings = result.tradeoff.filter(of_run), result.settings
    for row in result.pairs.filter(of_run).iter_rows(named=True):
        yield pair_sentence(row, settings)
        if not no_percentage(row):
            yield f"Between the two the {_gap_change(row)}."
    front = table.filter("on_front")
    steps = table["step"].to_list()
    where = f"steps {steps[0]:,} to {steps[-1]:,}" if len(steps) > 1 else f"step {steps[0]:,}"
    beaten = "" if len(front) < len(steps) else "; none is beaten by another"
    yield (
        f"{counted(len(steps), 'checkpoint')} with both {settings['metric']} and "
        f"{settings['gap']}, {where}; on the Pareto front: "
        f"{_steps(front['step'].to_list())}{beaten}."
    )
    choices = result.choices.filter(of_run)
    for at, row in enumerate(choices.iter_rows(named=True)):
        yield _choice(row, settings, first=at == 0)
    for curve, name in (("performance", settings["metric"]), ("delta", settings["gap"])):
        rows = result.change_points.filter(of_run, curve=curve)
        yield from change_sentences(rows, str(name), number, first_step=steps[0])


def _choice(row: Row, settings: Mapping[str, Any], *, first: bool) -> str:
    best = (
        f"The best {settings['metric']} is {number(row['best_performance'])} at step "
        f"{row['best_step']:,}, with a gap of {number(row['gap_at_best'])}. "
        if first
        else ""
    )
    point = "point" if row["give_up"] == 1 else "points"
    allowance = f"{row['give_up']:g}" + (f" {point}" if settings["unit"] == "points" else "")
    if row["step"] == row["best_step"]:
        text = (
            f"Giving up at most {allowance}, no checkpoint has a smaller gap than that one "
            f"({searched(row)})."
        )
    else:
        text = (
            f"Giving up at most {allowance}, the smallest gap ({searched(row)}) is "
            f"{number(row['gap'])}, at step {row['step']:,}, where {settings['metric']} is "
            f"{number(row['performance'])}"
        )
        text += f": {number(row['gap_at_best'] - row['gap'])} smaller{beside(row)}."
    share = row["chosen_share"]
    if share == share:
        text += f" It is chosen in {_percent(share)} of the resamples."
    return best + text


def searched(row: Row) -> str:
    """Among how many checkpoints a choice was made."""
    return f"{counted(row['searched'], 'checkpoint')} searched"


def beside(row: Row) -> str:
    """The gaps of the checkpoints before and after the chosen one, where there are such."""
    gaps = [
        f"{number(row[name])} {where}"
        for name, where in (("gap_before", "before"), ("gap_after", "after"))
        if row[name] == row[name]
    ]
    return f"; the checkpoints beside it have {' and '.join(gaps)} it" if gaps else ""


def _steps(steps: list[int]) -> str:
    shown = ", ".join(f"{step:,}" for step in steps[:8])
    more = f" and {len(steps) - 8} more" if len(steps) > 8 else ""
    return f"step{'s' if len(steps) > 1 else ''} {shown}{more}"


def _percent(share: float) -> str:
    """Never 0 or 100 for what is neither."""
    if 0 < share < 0.01:
        return "less than 1 %"
    return "more than 99 %" if 0.99 < share < 1 else f"{100 * share:.0f} %"
