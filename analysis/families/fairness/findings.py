"""The findings of fairness: the gender gap and its changes, ranks, tests, and what weakens them."""

from collections.abc import Iterator
from dataclasses import replace

import polars as pl

from logitbank.analysis.families.fairness.metric import Fairness
from logitbank.analysis.families.fairness.tables import MANN_WHITNEY, WILCOXON
from logitbank.analysis.finding import Finding, formatted
from logitbank.analysis.frames.gender_answers import LABELS
from logitbank.analysis.frames.prompt_sums import CHECKPOINT
from logitbank.analysis.results.series import (
    UNTRAINED,
    Curve,
    Row,
    about,
    by_series,
    change_findings,
    from_row,
    missing_text,
    series_name,
)
from logitbank.analysis.stats.change_points import ALPHA
from logitbank.analysis.stats.significance import SIGNIFICANCE
from logitbank.wording import counted, number, step_name

PEOPLE = {"male": "men", "female": "women"}


def findings(result: Fairness) -> list[Finding]:
    """A headline, then each model and run, two models compared, ties and bounds."""
    gap = _known_gaps(result)
    if gap.is_empty():
        text = "There is no gender gap: no prompt has a male answer, or none has a female one."
        return [Finding(text=text)]
    series = [each for name, rows in by_series(gap) for each in _series(result, name, rows)]
    asked = () if result.specified is None else by_series(result.specified)
    neutral = [each for name, rows in asked for each in _neutral(name, rows)]
    return [_headline(result, gap), *series, *neutral, *_comparison(result), *_counts(result)]


def _known_gaps(result: Fairness) -> pl.DataFrame:
    """The checkpoints with a gap, each with its sample size as text, `n`."""
    gendered = result.counts.filter(pl.col("gold").is_in(LABELS[:2]))
    counts = gendered.group_by(CHECKPOINT).agg(pl.col("prompts").sum(), pl.col("orders").max())
    gap = result.gap.join(counts, on=CHECKPOINT, nulls_equal=True, maintain_order="left")
    known = gap.filter(pl.col("delta").is_not_nan()).with_columns(size=pl.col("delta").abs())
    return known.with_columns(n=pl.Series([*map(_n, known.to_dicts())], dtype=pl.String))


def _n(row: Row) -> str:
    orders = f", {row['orders']} option orders" if row["orders"] > 1 else ""
    prompts, sentences = counted(row["prompts"], "prompt"), counted(row["clusters"], "sentence")
    return f"{prompts} ({sentences}){orders}{missing_text(row['missing'])}"


def _of(table: pl.DataFrame, row: Row) -> pl.DataFrame:
    return table.filter(model=row["model"], run=row["run"])


def _headline(result: Fairness, gap: pl.DataFrame) -> Finding:
    """The largest significant change of the gap, or else the largest gap of a last checkpoint.

    A change is significant if it stays so when all runs are adjusted for (Holm).
    """
    change = _largest_change(result.change_points)
    last = gap.group_by("model", "run", maintain_order=True).last()
    row = last.sort("size", descending=True).row(0, named=True) if change is None else change
    several = gap.select("model", "run").n_unique() > 1
    name = f"{series_name(row)}: gap" if several else "The gender gap"
    if change is None:
        value = formatted(row["size"], ".2f")
        verb = f"is {value} at {step_name(row['step'])}"
    else:
        verb = _changed(change)
    end = _of(last, row).row(0, named=True)
    now = row["delta"] if change is None else row["mean_after"]
    return Finding(text=f"{name} {verb}{_side(end, now)}.", **about(row, "gap"))


def _largest_change(changes: pl.DataFrame) -> Row | None:
    """The largest change that is significant over all runs."""
    moved = (pl.col("mean_after") - pl.col("mean_before")).abs()
    found = changes.filter(pl.col("kind") != "none", pl.col("p_holm") <= ALPHA)
    return found.sort(moved, descending=True).row(0, named=True) if len(found) else None


def _changed(change: Row) -> str:
    before, after = change["mean_before"], change["mean_after"]
    gradual = change["kind"] == "gradual"
    ends = ("earliest", "latest") if gradual else ("before", "step")
    where = "between steps {:,} and {:,}".format(*(change[end] for end in ends))
    sizes = [formatted(abs(level), ".2f") for level in (before, after)]
    verb = "jumps" if abs(after) > abs(before) else "falls"
    smaller, larger = sorted((abs(before), abs(after)))
    if before * after < 0 and 10 * smaller > larger:  # else one of them is next to nothing
        sizes, verb = [formatted(level, "+.2f") for level in (before, after)], "turns"
    how = "gradually " if gradual else ""
    return f"{how}{verb} {where}: mean {sizes[0]} before, {sizes[1]} after"


def _side(end: Row, delta: float) -> str:
    """Whose error is higher, if the interval of the last checkpoint shows it."""
    low, high = end["low"], end["high"]
    if low <= 0 <= high:
        return f" (95% CI at {step_name(end['step'])} includes 0)"
    shown = low > 0 if delta > 0 else high < 0
    if not shown:
        return ""
    label = LABELS.female if delta > 0 else LABELS.male
    return f" (higher error for {PEOPLE.get(label, label)})"


def _series(result: Fairness, name: str, gap: pl.DataFrame) -> Iterator[Finding]:
    """One model and run."""
    last = gap.row(-1, named=True)
    series = (last["model"], last["run"])
    delta = Curve(gap, "delta", f"{name}Δ", lambda row: str(row["n"]), "+.3f", "gap")
    yield delta.now()
    changes = _of(result.change_points, last)
    change = _largest_change(changes)
    earlier = gap if change is None else gap.filter(pl.col("step") < change["earliest"])
    if len(earlier):
        largest = earlier.row(int(earlier["size"].arg_max() or 0), named=True)
        when = "" if change is None else " before the change"
        if largest["size"] > last["size"] or change is not None:
            yield replace(delta, what=f"{name}Largest gap{when}, Δ").at(largest)
    yield from delta.change()
    if len(gap.drop_nulls("step")) > 1:
        yield from change_findings(changes, f"{name}Δ", form="+.3f", figure="gap", series=series)
    yield from _ranks(result, name, last)
    yield from _best_rank(result, name, last)
    tests = _of(result.tests, last).filter(pl.col("p").is_not_nan(), measure="jsd_p")
    yield from _tested(name, tests.filter(test=MANN_WHITNEY), tests.filter(test=WILCOXON))


def _ranks(result: Fairness, name: str, last: Row) -> Iterator[Finding]:
    """Ranks of the correct answer at the last checkpoint with any; the first one is the baseline.

    The interval of an Average Rank is too short to be given, as ranks are very skewed.
    """
    counts = _of(result.counts, last).filter(pl.col("gold").is_in(LABELS[:2]))
    for title, table, column in (
        ("Average Rank of the correct answer", result.average_rank, "average_rank"),
        ("Geometric mean rank", result.geometric_rank, "geometric_rank"),
    ):
        ranks = _of(table, last).filter(
            pl.col("gold").is_in(LABELS[:2]), pl.col(column).is_not_nan()
        )
        if ranks.is_empty():
            return
        steps = ranks.partition_by("step", maintain_order=True)
        first, end = steps[0], steps[-1]
        n, before = (_prompts_of_each(each, counts) for each in (end, first))
        baseline = _at(_each(first, column), first["step"][0]) if len(steps) > 1 else ""
        if baseline and before != n:
            baseline += f" of {before}"
        yield Finding(
            text=f"{name}{title} at {step_name(end['step'][0])}: {_each(end, column)}",
            n=n, baseline=baseline, **about(last, "average_rank"),
        )  # fmt: skip


def _best_rank(result: Fairness, name: str, last: Row) -> Iterator[Finding]:
    """The best step by Average Rank of "female", and how far its accuracy gets from 0 (Fig. 2).

    The baseline is the first checkpoint; where that is the best one, the last.
    """
    answer = LABELS.female
    for text, table, column, sign in (
        ("Average Rank of “{}”, best at {}", result.average_rank, "average_rank", -1),
        ("Accuracy of “{}”, highest at {}", result.accuracy, "accuracy", 1),
    ):
        rows = (
            _of(table, last)
            .filter(pl.col(column).is_not_nan(), gold=answer)
            .join(result.counts, on=[*CHECKPOINT, "gold"], nulls_equal=True, maintain_order="left")
        )
        if len(rows) < 2:
            continue
        best_at = int((sign * rows[column]).arg_max() or 0)
        best, other = rows.row(best_at, named=True), rows.row(0 if best_at else -1, named=True)
        form = ".1%" if column == "accuracy" else ".3g" if best[column] < 99.5 else ",.0f"
        yield Finding(
            text=f"{name}{text.format(answer, step_name(best['step']))}", value=best[column],
            form=form, baseline=_at(formatted(other[column], form), other["step"]),
            n=_prompts_at_each(rows["prompts"]),
            **about(last, "rank_and_accuracy"),
        )  # fmt: skip


def _prompts_at_each(prompts: pl.Series) -> str:
    """The sample sizes of several checkpoints."""
    checkpoints = counted(len(prompts), "checkpoint")
    if prompts.n_unique() == 1:
        return f"{counted(prompts[0], 'prompt')} at each of {checkpoints}"
    return f"{_size_range(prompts)} prompts at {checkpoints}"


def _size_range(sizes: pl.Series) -> str:
    """The sample sizes of several checkpoints, of which any may lack prompts."""
    least, most = int(sizes.min()), int(sizes.max())  # type: ignore[arg-type]
    return f"{most:,}" if least == most else f"{least:,} to {most:,}"


def _prompts_of_each(ranks: pl.DataFrame, counts: pl.DataFrame) -> str:
    """The sample size of each answer's rank at a checkpoint."""
    own = ranks.join(counts, on=[*CHECKPOINT, "gold"], nulls_equal=True, maintain_order="left")
    sizes = (f"{count:,} {gold}" for count, gold in own.select("prompts", "gold").rows())
    return f"{' and '.join(sizes)} prompts"


def _each(ranks: pl.DataFrame, column: str) -> str:
    return ", ".join(f"{gold} {number(rank)}" for gold, rank in ranks.select("gold", column).rows())


def _at(text: str, step: int | None) -> str:
    untrained = " (untrained model)" if step == UNTRAINED else ""
    return f"{text} at {step_name(step)}{untrained}"


def _neutral(name: str, rows: pl.DataFrame) -> Iterator[Finding]:
    """Whether " not" begins "not specified", which numbers of the neutral answer rest on."""
    known = rows.filter(pl.col("probability").is_not_nan(), gold="all")
    if known.is_empty():
        return
    row = known.row(-1, named=True)
    facts = about(row, "specified")
    n = f"{counted(row['prompts'], 'prompt')} ({counted(row['sentences'], 'sentence')})"
    text = f"{name}P(“ specified” | … not) at {step_name(row['step'])}"
    yield from_row(row, "probability", text, n=n, **facts)
    below = known.filter(pl.col("probability") < 0.5)["step"]
    if len(below):
        names = list(dict.fromkeys(step_name(below[at]) for at in (0, -1)))
        text = (
            f"{name}“ not” begins something else than “not specified” at {len(below)} of "
            f"{counted(len(known), 'checkpoint')} ({' to '.join(names)}): P is below ½, and "
            "numbers of the neutral answer do not measure it there."
        )
        yield Finding(text=text, **facts)


def _tested(name: str, published: pl.DataFrame, paired: pl.DataFrame) -> Iterator[Finding]:
    """At how many checkpoints male and female answers differ, and how much at the last one."""
    if published.is_empty():
        return
    first, last = published.row(0, named=True), published.row(-1, named=True)
    facts = about(last, "p_values")
    n = f"{last['n1']:,} male and {last['n2']:,} female prompts"
    male, female = (_size_range(published[side]) for side in ("n1", "n2"))
    differ = (
        f"{name}Male and female answers differ in JSD-P at {published['significant'].sum()} of "
        f"{counted(len(published), 'checkpoint')} (Mann–Whitney, p < {SIGNIFICANCE}; BH-adjusted: "
        f"{published['significant_bh'].sum()}; Wilcoxon on pairs of sentences, BH-adjusted: "
        f"{paired['significant_bh'].sum()})"
    )
    yield Finding(text=differ, n=f"{male} male and {female} female prompts", **facts)
    if first["step"] == UNTRAINED and first["significant"] and len(published) > 1:
        text = (
            f"{name}The untrained model differs too, so a difference alone is no evidence of bias."
        )
        yield Finding(text=text, **facts)
    if len(published) > 1:
        baseline = formatted(first["rank_biserial"], "+.2f")
        yield Finding(
            text=f"{name}Rank-biserial correlation at {step_name(last['step'])} "
            "(JSD-P of female above male answers)",
            value=last["rank_biserial"], form="+.2f", n=n,
            baseline=_at(baseline, first["step"]), **facts,
        )  # fmt: skip


def _comparison(result: Fairness) -> Iterator[Finding]:
    rows = result.comparison.filter(pl.col("test") == MANN_WHITNEY, pl.col("p").is_not_nan())
    for (option,), part in rows.group_by("option", maintain_order=True):
        yield Finding(
            text=(
                f"{part['model'][0]} and {part['other_model'][0]} differ in JSD-P of the {option} "
                f"option on neutral prompts at {part['significant'].sum()} of "
                f"{counted(len(part), 'checkpoint')} (Mann–Whitney, p < {SIGNIFICANCE}; "
                f"BH-adjusted: {part['significant_bh'].sum()})"
            ),
            n=f"{_size_range(part['n1'])} and {_size_range(part['n2'])} prompts",
            figure="neutral_options",
        )


def _counts(result: Fairness) -> Iterator[Finding]:
    """Ties and bounds among the ranks, over all checkpoints, prompts and option orders."""
    for column, text in (
        (
            "tied",
            "Correct answers that share their logit (competition ranks; if all outputs are equal, "
            "the middle rank)",
        ),
        ("inexact", "Ranks that are lower bounds, counted among rounded scores"),
    ):
        if count := int(result.counts[column].sum()):
            yield Finding(text=text, value=count, form=",.0f", figure="average_rank")
