"""What a fairness result says, in sentences with numbers and their uncertainty."""

from collections.abc import Iterator

import polars as pl

from logitbank.analysis.families.fairness.message import compared
from logitbank.analysis.families.fairness.metric import Fairness
from logitbank.analysis.families.fairness.significance import MANN_WHITNEY, WILCOXON
from logitbank.analysis.results.changes import NOTE, change_sentences
from logitbank.analysis.results.words import UNTRAINED, Summary
from logitbank.analysis.stats.bootstrap import FEWEST_CLUSTERS
from logitbank.analysis.stats.shares import too_few
from logitbank.analysis.stats.significance import SIGNIFICANCE
from logitbank.wording import counted, number, signed, step_name

Row = dict[str, object]

CAUTIONS = (
    "WinoBias knows two genders; people who are neither are not in it. Its 40 occupations and "
    "their proportions are those of the United States, its sentences are made by hand from two "
    "templates, and it is asked with one wording of a question that names the options.",
    "Whether an occupation counts as stereotypical comes from labour statistics, not from what "
    "the model was trained on.",
)
"""What the numbers do not say."""
UNIT = (
    "Δ is JSD-P of female answers minus that of male ones, divided by ½ ln 2, the largest JSD-P; "
    "tables also give nats."
)
INTERVALS = (
    "Intervals (95 %) resample {} and hold for one checkpoint at a time; none allows for the "
    "number of checkpoints looked at."
)
RESAMPLED = {
    "sentences": "sentences, with the occupations fixed: they say nothing of other occupations,",
    "sentences and occupations": "sentences and occupations, each independently of the other,",
}


ONE_RUN = (
    "A test over sentences asks whether Δ is zero for this model, which it is not for untrained "
    "weights either; whether another training run would have the same gap, one run cannot say."
)


WEAK_UNITS = {
    "seed": "; means of few order seeds can hardly reach that p",
    "prompt_order": (
        "; invalid as a test, since it counts the orders of one prompt as independent: without a "
        "difference 10 to 23 % of such tests have p < 0.01"
    ),
}


def fairness_summary(result: Fairness) -> Summary:
    """Plain sentences about every model and run, followed by cautions.

    The gap Δ is JSD-P of female minus JSD-P of male answers, scaled; brackets hold 95 % bootstrap
    intervals.
    """
    several = result.checkpoints.select("model", "run").n_unique() > 1
    sentences = []
    for (model, run), rows in result.checkpoints.group_by("model", "run", maintain_order=True):
        of_run = (pl.col("model") == model) & (pl.col("run") == run)
        prefix = f"{model}{'' if run == 'main' else f' {run}'}: " if several else ""
        sentences += [prefix + text for text in _run_sentences(result, of_run, rows)]
    findings = (*sentences, *_comparison(result), *_counts(result))
    resampled = INTERVALS.format(RESAMPLED[str(result.settings["resampled"])])
    notes = (UNIT, resampled, ONE_RUN, NOTE) if result.settings["bootstrap"] else (UNIT, NOTE)
    return Summary(findings, notes, CAUTIONS, tuple(_missing(result)))


def _run_sentences(result: Fairness, of_run: pl.Expr, rows: pl.DataFrame) -> Iterator[str]:
    gap = result.gap.filter(of_run)
    prompts, orders = max(rows["prompts"].to_list()), max(rows["orders"].to_list())
    seeds = "" if orders == 1 else f", {orders} order seeds"
    yield f"{counted(len(rows), 'checkpoint')}, {_span(rows)}; {counted(prompts, 'prompt')}{seeds}."
    known = gap.filter(pl.col("gap_scaled").is_not_nan())
    if known.is_empty():
        yield "There is no gap to give: no prompt has a male answer, or none has a female one."
        return
    last = known.row(-1, named=True)
    if len(known) > 1:
        yield _largest(known, result)
    if not _largest_at_last(known):
        yield f"At {step_name(last['step'])} the gap is {_gap(last, result)}."
    if result.settings["bootstrap"]:
        yield from _few(known)
    changes = result.change_points.filter(of_run)
    if len(changes) and changes["last_step"][0] != gap["step"][0]:
        first_step = int(gap["step"].drop_nulls()[0])
        yield from change_sentences(changes, "mean Δ", signed, first_step=first_step)
    if len(steps := known.filter(pl.col("step").is_not_null())) > 1:
        yield from _from_first(result, of_run, steps)
    yield from _ranks(result, of_run)
    yield _tested(result, of_run)
    yield from _untrained(result, of_run)


def _largest(gap: pl.DataFrame, result: Fairness) -> str:
    """Where the gap is largest, unless it is the same everywhere."""
    if _same_everywhere(gap):
        size = gap["gap_scaled"][0]
        return f"The gap is {size:.3f}, to three decimals, at all {len(gap)} checkpoints."
    largest = gap.row(int(gap["gap_scaled"].arg_max() or 0), named=True)
    end = ", the last" if _largest_at_last(gap) else ""
    return f"The gap is largest at {step_name(largest['step'])}{end}: {_gap(largest, result)}."


def _largest_at_last(gap: pl.DataFrame) -> bool:
    """Whether the last checkpoint's gap is told where the largest is."""
    return not _same_everywhere(gap) and gap["gap_scaled"].arg_max() == len(gap) - 1


def _same_everywhere(gap: pl.DataFrame) -> bool:
    """Whether the gap reads the same at every checkpoint."""
    sizes = gap["gap_scaled"]
    return not any(compared(sizes[0], size) for size in sizes)


def _few(gap: pl.DataFrame) -> Iterator[str]:
    few = gap.filter(pl.col("sentences") < FEWEST_CLUSTERS)
    if len(few):
        least = int(str(few["sentences"].min()))
        where = "" if len(few) == len(gap) else f" at {counted(len(few), 'checkpoint')}"
        yield f"The gap has {too_few(least, 'sentence')}{where}."


def _from_first(result: Fairness, of_run: pl.Expr, steps: pl.DataFrame) -> Iterator[str]:
    """The last step against the first, in the unit of the gap and in pairs."""
    first, last = steps["step"][0], steps["step"][-1]
    (row,) = result.tests.filter(
        of_run, pl.col("measure") == "jsd_p", pl.col("test") == MANN_WHITNEY, pl.col("step") == last
    ).iter_rows(named=True)
    sizes = dict(steps.select("step", "gap_scaled").iter_rows())
    low, high = row["from_baseline_low"], row["from_baseline_high"]
    ends = f" (95 % interval {signed(low)} to {signed(high)}, in pairs)" if low == low else ""
    moved = compared(sizes[first], sizes[last])
    than = f"{moved} than" if moved else "to three decimals the same as"
    untrained = ", the untrained model" if first == UNTRAINED else ""
    change = row["from_baseline"]  # NaN where the run's first step has no gap
    delta = f"; Δ moved by {signed(change)}{ends}" if change == change else ""
    yield (
        f"At step {last:,} the gap is {than} at step {first:,}{untrained}: {sizes[first]:.3f} → "
        f"{sizes[last]:.3f}{delta}."
    )


def _ranks(result: Fairness, of_run: pl.Expr) -> Iterator[str]:
    gendered = result.average_rank.filter(
        of_run & pl.col("gold").is_in(result.labels[:2]) & pl.col("average_rank").is_not_nan()
    )
    wide = gendered.partition_by("run", "step", maintain_order=True)
    both = [rows for rows in wide if len(rows) == gendered["gold"].n_unique()]
    if not both:
        return
    first, last = (rows.row(0, named=True) for rows in (both[0], both[-1]))
    when = (
        f"from {step_name(first['step'])} to {step_name(last['step'])}"
        if len(both) > 1
        else f"at {step_name(last['step'])}"
    )
    # The interval of the mean of such skewed ranks is too short to be said.
    for column, name in (
        ("average_rank", "Average Rank"),
        ("geometric_rank", "Geometric mean rank"),
    ):
        before = dict(both[0].select("gold", column).iter_rows())
        parts = []
        for row in both[-1].iter_rows(named=True):
            start = f"{number(before[row['gold']])} → " if len(both) > 1 else ""
            low, high = row["geometric_low"], row["geometric_high"]
            known = column == "geometric_rank" and low == low
            interval = f" [{number(low)} to {number(high)}]" if known else ""
            parts.append(f"{row['gold']} {start}{number(row[column])}{interval}")
        yield f"{name} of the right answer {when}: {', '.join(parts)}."


def _tested(result: Fairness, of_run: pl.Expr) -> str:
    rows = result.tests.filter(of_run & (pl.col("measure") == "jsd_p"))
    published = rows.filter((pl.col("test") == MANN_WHITNEY) & pl.col("p").is_not_nan())
    paired = rows.filter((pl.col("test") == WILCOXON) & pl.col("p").is_not_nan())
    unit = result.settings["unit"]
    few = WEAK_UNITS.get(str(unit), "")
    return (
        f"JSD-P differs between male and female answers at {published['significant'].sum()} of "
        f"{counted(len(published), 'checkpoint')} (Mann–Whitney, p < {SIGNIFICANCE}, unit "
        f"{unit}{few}). Ours beside it: {published['significant_bh'].sum()} after adjustment for "
        f"the number of checkpoints (Benjamini–Hochberg); {paired['significant_bh'].sum()} of "
        f"{len(paired)} on pairs of sentences (Wilcoxon, adjusted likewise)."
    )


def _untrained(result: Fairness, of_run: pl.Expr) -> Iterator[str]:
    """What the same test says of the first checkpoint, and how large the difference is."""
    rows = result.tests.filter(
        of_run,
        pl.col("measure") == "jsd_p",
        pl.col("test") == MANN_WHITNEY,
        pl.col("p").is_not_nan(),
    )
    if len(rows) < 2:
        return
    first, last = rows.row(0, named=True), rows.row(-1, named=True)
    model = ", the untrained model" if first["step"] == UNTRAINED else ""
    effects = [signed(row["rank_biserial"], ".2f") for row in (first, last)]
    yield (
        f"Mann–Whitney at {step_name(first['step'])}{model}: p = {first['p']:.2g}, rank-biserial "
        f"correlation {effects[0]} (−1 to 1, positive where JSD-P is greater for "
        f"{result.labels.female} answers), against {effects[1]} at {step_name(last['step'])}."
    )


def _comparison(result: Fairness) -> Iterator[str]:
    rows = result.comparison.filter((pl.col("test") == MANN_WHITNEY) & pl.col("p").is_not_nan())
    for (option,), part in rows.group_by("option", maintain_order=True):
        yield (
            f"On neutral prompts, {part['model'][0]} and {part['other_model'][0]} differ in JSD-P "
            f"of the {option} option at {part['significant'].sum()} of "
            f"{counted(len(part), 'checkpoint')} (Mann–Whitney, p < {SIGNIFICANCE}; "
            f"{part['significant_bh'].sum()} after adjustment for their number, ours)."
        )


def _missing(result: Fairness) -> Iterator[str]:
    if missing := int(result.checkpoints["missing"].sum()):
        incomplete = result.checkpoints.filter(pl.col("missing") > 0)
        yield (
            f"{missing:,} scores of a prompt under an order seed are missing at "
            f"{counted(len(incomplete), 'checkpoint')}, whose numbers are over what is there."
        )


def _counts(result: Fairness) -> Iterator[str]:
    """Things in the data that weaken the numbers, where there are any."""
    if tied := int(result.average_rank["tied"].sum()):
        rule = result.settings["ties"]
        yield (
            f"{counted(tied, 'time')} "
            "(checkpoint, prompt and order seed) the right answer shared its logit "
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
    value, directed = f"Δ = {signed(delta)}", float(f"{delta:.3f}") != 0
    if low == low:
        value += f" (95 % interval {signed(low)} to {signed(high)})"
        directed = directed and (low > 0 or high < 0)
    return f"{value}, worse for {side} answers" if directed else value


def _span(rows: pl.DataFrame) -> str:
    steps = rows["step"].drop_nulls().to_list()
    release = ["the release"] if rows["step"].null_count() else []
    if not steps:
        return release[0]
    named = f"step {steps[0]:,}" if len(steps) == 1 else f"steps {steps[0]:,} to {steps[-1]:,}"
    return " and ".join([named, *release])
