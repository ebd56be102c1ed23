"""What a fairness result says, in sentences with numbers and their uncertainty."""

from collections.abc import Iterator

import polars as pl

from logitbank.analysis.fairness import Fairness, fairness_change
from logitbank.analysis.stats import SIGNIFICANCE
from logitbank.store.wording import counted

Row = dict[str, object]

CAUTIONS = (
    "The labels know two genders; WinoBias has occupations of the United States and one wording of "
    "its question. What holds here need not hold elsewhere.",
    "Δ is JSD-P of female answers minus that of male ones, divided by ½ ln 2, the largest JSD-P; "
    "tables also give nats.",
)
INTERVALS = (
    "Intervals (95 %) resample sentences and hold for one checkpoint at a time; none allows for "
    "the number of checkpoints looked at."
)


def fairness_summary(result: Fairness) -> list[str]:
    """Plain sentences about every model and run, followed by cautions.

    The gap Δ is JSD-P of female minus JSD-P of male answers, scaled; brackets hold 95 % bootstrap
    intervals.
    """
    several = result.checkpoints.select("model", "run").n_unique() > 1
    sentences = []
    for (model, run), rows in result.checkpoints.group_by("model", "run", maintain_order=True):
        own = (pl.col("model") == model) & (pl.col("run") == run)
        prefix = f"{model}{'' if run == 'main' else f' {run}'}: " if several else ""
        sentences += [prefix + text for text in _run_sentences(result, own, rows)]
    cautions = [*CAUTIONS, INTERVALS] if result.settings["bootstrap"] else CAUTIONS
    return [*sentences, *_comparison(result), *_counts(result), *cautions]


def change_sentence(gap: pl.DataFrame, before: int, after: int) -> str:
    """The fairness change between two steps of one model and run, from its rows of `gap`."""
    percent = fairness_change(gap, before, after)
    if percent != percent:
        return f"The gap at step {before:,} is zero, so no fairness change can be given from it."
    size = "smaller" if percent >= 0 else "larger"
    return (
        f"From step {before:,} to step {after:,} the gap became {abs(percent):.1f} % {size}: a "
        f"fairness change of {percent:+.1f} %."
    ).replace("-", "−")


def _run_sentences(result: Fairness, own: pl.Expr, rows: pl.DataFrame) -> Iterator[str]:
    gap = result.gap.filter(own)
    prompts, orders = max(rows["prompts"].to_list()), max(rows["orders"].to_list())
    seeds = "" if orders == 1 else f", {orders} order seeds"
    yield f"{counted(len(rows), 'checkpoint')}, {_span(rows)}; {counted(prompts, 'prompt')}{seeds}."
    known = gap.filter(pl.col("gap_scaled").is_not_nan())
    if known.is_empty():
        yield "There is no gap to give: no prompt has a male answer, or none has a female one."
        return
    largest = known.row(int(known["gap_scaled"].arg_max() or 0), named=True)
    last = known.row(-1, named=True)
    if len(known) > 1:
        yield f"The gap is largest at {_step(largest)}: {_gap(largest, result)}."
    yield f"At {_step(last)} the gap is {_gap(last, result)}."
    if result.settings["bootstrap"]:
        yield from _onset(result.onset.filter(own), gap)
    if len(steps := known.filter(pl.col("step").is_not_null())) > 1:
        yield _change(steps)
    yield from _ranks(result, own)
    yield _tested(result, own)


def _onset(onset: pl.DataFrame, gap: pl.DataFrame) -> Iterator[str]:
    for row in onset.iter_rows(named=True):
        if row["onset_step"] is not None:
            earlier = gap.filter(pl.col("step") < row["onset_step"])
            apart = earlier.filter((pl.col("low_scaled") > 0) | (pl.col("high_scaled") < 0))
            before = f"; before that, at {len(apart)} of {len(earlier)}" if len(earlier) else ""
            yield (
                f"The gap's interval excludes zero at every checkpoint from step "
                f"{row['onset_step']:,} to the last, {row['last_step']:,}{before}."
            )
        elif gap.filter(pl.col("step") == row["last_step"])["low_scaled"].is_not_nan().all():
            yield f"At the last step, {row['last_step']:,}, the gap's interval contains zero."


def _change(steps: pl.DataFrame) -> str:
    """From the first to the last step; a percentage only where the first gap is surely not zero."""
    first, last = steps.row(0, named=True), steps.row(-1, named=True)
    turned = first["delta_scaled"] * last["delta_scaled"] < 0
    reversed_ = " It is the other way round." if turned else ""
    if first["low_scaled"] > 0 or first["high_scaled"] < 0:
        return change_sentence(steps, first["step"], last["step"]) + reversed_
    why = (
        "; no percentage, since the first gap may be zero"
        if first["low_scaled"] == first["low_scaled"]
        else ""
    )
    return (
        f"From step {first['step']:,} to step {last['step']:,} the gap's size went from "
        f"{first['gap_scaled']:.3f} to {last['gap_scaled']:.3f}{why}.{reversed_}"
    )


def _ranks(result: Fairness, own: pl.Expr) -> Iterator[str]:
    gendered = result.average_rank.filter(
        own & pl.col("gold").is_in(result.labels[:2]) & pl.col("average_rank").is_not_nan()
    )
    wide = gendered.partition_by("run", "step", maintain_order=True)
    both = [rows for rows in wide if len(rows) == gendered["gold"].n_unique()]
    if not both:
        return
    before = dict(both[0].select("gold", "average_rank").iter_rows())
    parts = []
    for row in both[-1].iter_rows(named=True):
        start = f"{_number(before[row['gold']])} → " if len(both) > 1 else ""
        value, low, high = (_number(row[key]) for key in ("average_rank", "low", "high"))
        interval = f" [{low} to {high}]" if result.settings["bootstrap"] else ""
        parts.append(f"{row['gold']} {start}{value}{interval}")
    first, last = (rows.row(0, named=True) for rows in (both[0], both[-1]))
    when = f"from {_step(first)} to {_step(last)}" if len(both) > 1 else f"at {_step(last)}"
    yield f"Average Rank of the right answer {when}: {', '.join(parts)}."


def _tested(result: Fairness, own: pl.Expr) -> str:
    rows = result.tests.filter(own & (pl.col("measure") == "jsd_p"))
    published = rows.filter((pl.col("test") == "mann_whitney") & pl.col("p").is_not_nan())
    paired = rows.filter((pl.col("test") == "wilcoxon") & pl.col("p").is_not_nan())
    unit = result.settings["unit"]
    few = "; means of few order seeds can hardly reach that p" if unit == "seed" else ""
    return (
        f"JSD-P differs between male and female answers at {published['significant'].sum()} of "
        f"{counted(len(published), 'checkpoint')} (Mann–Whitney, p < {SIGNIFICANCE}, unit "
        f"{unit}{few}). Ours beside it: {published['significant_bh'].sum()} after adjustment for "
        f"the number of checkpoints (Benjamini–Hochberg); {paired['significant'].sum()} of "
        f"{len(paired)} on pairs of sentences (Wilcoxon, not adjusted)."
    )


def _comparison(result: Fairness) -> Iterator[str]:
    rows = result.comparison.filter((pl.col("test") == "mann_whitney") & pl.col("p").is_not_nan())
    for (option,), part in rows.group_by("option", maintain_order=True):
        yield (
            f"On neutral prompts, {part['model'][0]} and {part['other_model'][0]} differ in JSD-P "
            f"of the {option} option at {part['significant'].sum()} of "
            f"{counted(len(part), 'checkpoint')} (Mann–Whitney, p < {SIGNIFICANCE}; "
            f"{part['significant_bh'].sum()} after adjustment for their number, ours)."
        )


def _counts(result: Fairness) -> Iterator[str]:
    """Things in the data that weaken the numbers, where there are any."""
    if missing := int(result.checkpoints["missing"].sum()):
        lacking = result.checkpoints.filter(pl.col("missing") > 0)
        yield (
            f"{missing:,} scores of a prompt under an order seed are missing at "
            f"{counted(len(lacking), 'checkpoint')}, whose numbers are over what is there."
        )
    if tied := int(result.average_rank["tied"].sum()):
        rule = result.settings["ties"]
        yield (
            f"{tied:,} times (checkpoint, prompt and order seed) the right answer shared its logit "
            f"with another token ({rule} ranks)."
        )
    if inexact := int(result.average_rank["inexact"].sum()):
        yield (
            f"{inexact:,} ranks were counted among rounded scores: the exact rank is there or up "
            "to the number of ties higher."
        )


def _gap(row: Row, result: Fairness) -> str:
    """Δ with its interval, and a direction where there is one."""
    delta, low, high = (
        float(str(row[key])) for key in ("delta_scaled", "low_scaled", "high_scaled")
    )
    side = result.labels.female if delta > 0 else result.labels.male
    value = f"Δ = {delta:+.3f}"
    if low == low:
        value += f" (95 % interval {low:+.3f} to {high:+.3f})"
        return f"{value}, worse for {side} answers" if low > 0 or high < 0 else value
    return f"{value}, worse for {side} answers" if delta else value


def _span(rows: pl.DataFrame) -> str:
    steps = rows["step"].drop_nulls().to_list()
    release = ["the release"] if rows["step"].null_count() else []
    if not steps:
        return release[0]
    named = f"step {steps[0]:,}" if len(steps) == 1 else f"steps {steps[0]:,} to {steps[-1]:,}"
    return " and ".join([named, *release])


def _step(row: Row) -> str:
    step = row["step"]
    return f"step {step:,}" if isinstance(step, int) else "release"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 99.5 else f"{value:.3g}"
