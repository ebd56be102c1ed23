"""What a fairness result says, in sentences with numbers and their uncertainty."""

from collections.abc import Iterator

import polars as pl

from logitbank.analysis.fairness import Fairness, fairness_change
from logitbank.analysis.stats import SIGNIFICANCE

Row = dict[str, object]

CAUTIONS = (
    "The prompts know two genders, occupations of the United States and one sentence template; "
    "what holds here need not hold elsewhere.",
    "Intervals resample sentences and hold for one checkpoint at a time; none allows for the "
    "number of checkpoints looked at.",
    "JSD-P is divided by its largest value, ½ ln 2, to lie between 0 and 1; tables also give nats.",
)


def fairness_summary(result: Fairness) -> list[str]:
    """Plain sentences about every model and run, followed by cautions.

    The gap is JSD-P of female minus JSD-P of male answers, scaled; brackets hold 95 % bootstrap
    intervals.
    """
    several = result.checkpoints.select("model", "run").n_unique() > 1
    sentences = []
    for (model, run), rows in result.checkpoints.group_by("model", "run", maintain_order=True):
        own = (pl.col("model") == model) & (pl.col("run") == run)
        prefix = f"{model}{'' if run == 'main' else f' {run}'}: " if several else ""
        sentences += [prefix + text for text in _run_sentences(result, own, rows)]
    return [*sentences, *_comparison(result), *_counts(result), *CAUTIONS]


def _run_sentences(result: Fairness, own: pl.Expr, rows: pl.DataFrame) -> Iterator[str]:
    gap = result.gap.filter(own)
    prompts, orders = max(rows["prompts"].to_list()), max(rows["orders"].to_list())
    yield (
        f"{_count(len(rows), 'checkpoint')}, {_span(rows)}; {_count(prompts, 'prompt')} in "
        f"{_count(orders, 'option order')}."
    )
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
        yield from _onset(result.onset.filter(own))
    if len(steps := known.filter(pl.col("step").is_not_null())) > 1:
        yield from _change(steps)
    yield from _ranks(result, own)
    yield _tested(result, own)


def _onset(onset: pl.DataFrame) -> Iterator[str]:
    for row in onset.iter_rows(named=True):
        if row["onset_step"] is None:
            yield f"At the last step, {row['last_step']:,}, the gap's interval contains zero."
        else:
            yield (
                f"The gap's interval excludes zero at every checkpoint from step "
                f"{row['onset_step']:,} to the last, {row['last_step']:,}."
            )


def _change(steps: pl.DataFrame) -> Iterator[str]:
    """A percentage only where the first gap is known to differ from zero."""
    first, last = steps.row(0, named=True), steps.row(-1, named=True)
    span = f"From step {first['step']:,} to step {last['step']:,} the gap"
    if not first["low_scaled"] <= 0 <= first["high_scaled"] and first["gap_scaled"] > 0:
        change = fairness_change(steps, first["step"], last["step"])
        yield f"{span} became {abs(change):.1f} % {'smaller' if change >= 0 else 'larger'}."
    else:
        yield (
            f"{span}'s size went from {first['gap_scaled']:.3f} to {last['gap_scaled']:.3f}; no "
            "percentage, since the first gap may be zero."
        )


def _ranks(result: Fairness, own: pl.Expr) -> Iterator[str]:
    ranks = result.average_rank.filter(own & pl.col("average_rank").is_not_nan())
    parts = []
    for label in result.labels[:2]:
        rows = ranks.filter(pl.col("gold") == label)
        if not rows.is_empty():
            last = rows.row(-1, named=True)
            before = f"{_number(rows['average_rank'][0])} → " if len(rows) > 1 else ""
            value, low, high = (_number(last[key]) for key in ("average_rank", "low", "high"))
            parts.append(f"{label} {before}{value} [{low} to {high}]")
    if parts:
        yield f"Average Rank of the right answer: {', '.join(parts)}."


def _tested(result: Fairness, own: pl.Expr) -> str:
    rows = result.tests.filter(own & (pl.col("measure") == "jsd_p"))
    published = rows.filter((pl.col("test") == "mann_whitney") & pl.col("p").is_not_nan())
    paired = rows.filter((pl.col("test") == "wilcoxon") & pl.col("p").is_not_nan())
    return (
        f"JSD-P differs between male and female answers (Mann–Whitney, p < {SIGNIFICANCE}, unit "
        f"{result.settings['unit']}) at {published['significant'].sum()} of {len(published)} "
        f"checkpoints, {published['significant_bh'].sum()} after adjustment for their number "
        f"(Benjamini–Hochberg); on sentence pairs (Wilcoxon) at {paired['significant'].sum()} of "
        f"{len(paired)}."
    )


def _comparison(result: Fairness) -> Iterator[str]:
    rows = result.comparison.filter(pl.col("test") == "mann_whitney")
    for (option,), part in rows.group_by("option", maintain_order=True):
        yield (
            f"On neutral prompts, {part['model'][0]} and {part['other_model'][0]} differ in JSD-P "
            f"of the {option} option at {part['significant'].sum()} of {len(part)} checkpoints "
            f"(Mann–Whitney, p < {SIGNIFICANCE})."
        )


def _counts(result: Fairness) -> Iterator[str]:
    """Things in the data that weaken the numbers, where there are any."""
    if missing := int(result.checkpoints["missing"].sum()):
        lacking = result.checkpoints.filter(pl.col("missing") > 0)
        yield (
            f"{missing:,} scores of a prompt in an option order are missing at "
            f"{_count(len(lacking), 'checkpoint')}, whose numbers are over fewer prompts."
        )
    if tied := int(result.average_rank["tied"].sum()):
        rule = result.settings["ties"]
        yield f"{tied:,} right answers' tokens were tied with another token ({rule} ranks)."
    if inexact := int(result.average_rank["inexact"].sum()):
        yield f"{inexact:,} ranks were read from rounded scores and are lower bounds."


def _gap(row: Row, result: Fairness) -> str:
    delta = float(str(row["delta_scaled"]))
    side = result.labels.female if delta > 0 else result.labels.male
    low, high = (float(str(row[key])) for key in ("low_scaled", "high_scaled"))
    interval = f" (95 % interval {low:+.3f} to {high:+.3f})" if low == low else ""
    return f"{delta:+.3f}{interval}, worse for {side} answers"


def _span(rows: pl.DataFrame) -> str:
    steps = rows["step"].drop_nulls().to_list()
    if not steps:
        return "release"
    return f"step {steps[0]:,}" if len(steps) == 1 else f"steps {steps[0]:,} to {steps[-1]:,}"


def _step(row: Row) -> str:
    step = row["step"]
    return f"step {step:,}" if isinstance(step, int) else "release"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
