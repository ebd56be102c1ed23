"""What a StereoSet result says, in sentences with numbers and their uncertainty."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import polars as pl

from logitbank.analysis.families.stereoset.blocks import OVERALL, TASKS
from logitbank.analysis.families.stereoset.metric import StereoSet
from logitbank.analysis.families.stereoset.scores import BOTH, CAUSAL, KEYS, PLAIN
from logitbank.analysis.families.stereoset.tables import MANY_TIES
from logitbank.analysis.results.words import UNTRAINED, Summary
from logitbank.analysis.stats.shares import too_few
from logitbank.wording import counted, signed

SERIES = [name for name in KEYS if name not in ("run_seed", "step")]
CAUTIONS = (
    "StereoSet was written by crowd workers in the United States; many of its examples are "
    "disputed, and what is a stereotype there need not be one elsewhere. Translations keep the "
    "categories of the original.",
    "50 as a stereotype score is an average and can hide terms with opposite preferences, whose "
    "spread is ss_sd. Ties count against the stereotype; look at the table of ties.",
)
"""What the numbers do not say."""
INTERVALS = (
    "Brackets hold 95 % intervals. They resample target terms and hold for one checkpoint at a "
    "time; a domain of few terms has rough ones."
)
Row = dict[str, Any]
_points = partial(signed, form=".2f")


def stereoset_summary(result: StereoSet) -> Summary:
    """Plain sentences about every model, run, language and condition, followed by cautions.

    Numbers are `term_macro` over all domains; brackets hold 95 % bootstrap intervals.
    """
    sentences, left_out = [], []
    for rows in result.tasks.partition_by(SERIES, maintain_order=True):
        about = _About(result, rows.row(0, named=True))
        sentences += [f"{about.name}: {text}" for text in _series_sentences(about, rows)]
        left_out += [f"{about.name}: {text}" for text in _missing(rows)]
    notes = (INTERVALS,) if result.settings["bootstrap"] else ()
    return Summary(tuple(sentences), notes, CAUTIONS, tuple(left_out))


def series_name(row: Row) -> str:
    """The model, and whatever is not usual about the rest."""
    usual = ("main", "", PLAIN, "reference")
    parts = [str(row[name]) for name in SERIES[1:] if row[name] not in usual]
    return ", ".join([str(row["model"]), *parts])


class _About:
    """The rows of a result's tables that a sentence is about."""

    def __init__(self, result: StereoSet, head: Row) -> None:
        self._tables = result.tables()
        self._own = pl.all_horizontal(pl.col(name) == head[name] for name in SERIES)
        self.name, self.condition = series_name(head), head["condition"]
        self.resampled = bool(result.settings["bootstrap"])

    def __getitem__(self, table: str) -> pl.DataFrame:
        """Over all domains, where the table has domains."""
        rows = self._tables[table].filter(self._own)
        by_domain = "domain" in rows.columns and "term" not in rows.columns
        return rows.filter(pl.col("domain") == OVERALL) if by_domain else rows


def _series_sentences(about: _About, tasks: pl.DataFrame) -> Iterator[str]:
    scores = about["scores"]
    checkpoints = scores.unique("step", maintain_order=True)
    if len(checkpoints) > 1:
        yield f"{counted(len(checkpoints), 'checkpoint')}, {_span(checkpoints['step'])}."
    for (task,), rows in scores.group_by("task", maintain_order=True):
        yield _level(rows, str(task), about.resampled)
    yield from _course(scores)
    baseline = about["baseline"] if about.resampled else about["baseline"].clear()
    for (task,), rows in baseline.group_by("task", maintain_order=True):
        yield from _from_first(rows, str(task))
    for (task,), rows in about["differences"].group_by("task", maintain_order=True):
        yield _difference(rows, str(task), about.condition)
    yield from _skipped(tasks)
    for (task,), rows in about["ties"].group_by("task", maintain_order=True):
        yield from _ties(rows, str(task))


def _level(rows: pl.DataFrame, task: str, resampled: bool) -> str:
    """The last checkpoint's measures."""
    row = rows.row(-1, named=True)
    what = f"{_task(task)}{_at(rows, row['step'])}"
    if row["examples"] == 0:
        return f"{what}: no example has all three scores."
    measures = ", ".join(
        f"{label} {_value(row[name], row[f'{name}_low'], row[f'{name}_high'], '{:.1f}'.format)}"
        for name, label in (("icat", "iCAT"), ("lms", "lms"), ("ss", "ss"))
    )
    low, high = row["ss_low"], row["ss_high"]
    side = ""
    if low == low:
        side = "; the interval of ss contains 50"
        if low > 50 or high < 50:
            side = f"; {'stereotypes' if low > 50 else 'anti-stereotypes'} are preferred"
    elif resampled:
        side = f"; {too_few(row['terms'], 'term')}"
    return (
        f"{what}: {measures}, over {counted(row['examples'], 'example')} "
        f"of {counted(row['terms'], 'term')}{side}."
    )


def _course(scores: pl.DataFrame) -> Iterator[str]:
    """From the first to the last training step, and where iCAT is highest."""
    tasks = scores["task"].unique(maintain_order=True).to_list()
    task = BOTH if BOTH in tasks else tasks[0]
    known = scores.filter(
        (pl.col("task") == task) & pl.col("step").is_not_null() & pl.col("icat").is_not_nan()
    )
    if len(known) > 1:
        first, last = known.row(0, named=True), known.row(-1, named=True)
        best = known.row(int(known["icat"].arg_max() or 0), named=True)
        yield (
            f"from step {first['step']:,} to step {last['step']:,}, {_task(task)}: iCAT "
            f"{first['icat']:.1f} → {last['icat']:.1f}, lms {first['lms']:.1f} → "
            f"{last['lms']:.1f}, ss {first['ss']:.1f} → {last['ss']:.1f}; iCAT is highest at step "
            f"{best['step']:,}, {best['icat']:.1f}."
        )


def _from_first(rows: pl.DataFrame, task: str) -> Iterator[str]:
    """ss of the last step against the first, over the same terms."""
    steps = rows.filter(pl.col("step").is_not_null())
    if len(steps) < 2 or steps["common"][-1] == 0:
        return
    row = steps.row(-1, named=True)
    untrained = ", the untrained model" if row["baseline_step"] == UNTRAINED else ""
    low, high = (row[f"from_baseline_{end}"] for end in ("low", "high"))
    interval = too_few(row["common"], "term")
    if low == low:
        ends = f"{_points(low)} to {_points(high)}"
        interval = f"{ends}, in pairs of {counted(row['common'], 'term')}"
    yield (
        f"step {row['step']:,} against step {row['baseline_step']:,}{untrained}, {_task(task)}: "
        f"ss {_points(row['from_baseline'])} points ({interval})."
    )


def _difference(rows: pl.DataFrame, task: str, condition: str) -> str:
    row = rows.row(-1, named=True)
    if row["examples"] == 0:
        when = _at(rows, row["step"])
        return f"{condition} and {PLAIN}, {_task(task)}{when}: no example is in both."
    measures = ", ".join(
        f"{label} {_value(row[name], row[f'{name}_low'], row[f'{name}_high'], _points)}"
        for name, label in (("icat", "iCAT"), ("lms", "lms"), ("ss", "ss"))
    )
    return (
        f"{condition} minus {PLAIN}, {_task(task)}{_at(rows, row['step'])}: {measures}, on the "
        f"same {counted(row['examples'], 'example')}."
    )


def _skipped(tasks: pl.DataFrame) -> Iterator[str]:
    steps = tasks["step"].n_unique()
    for task in TASKS:
        rows = tasks.filter((pl.col("task") == task) & (pl.col("status") == "skipped"))
        if len(rows) and task != BOTH:
            where = "" if len(rows) == steps else f" at {counted(len(rows), 'checkpoint')}"
            yield f"{task} is skipped{where}: there are no scores of it, and so none of both."
    extension = tasks.filter(pl.col("task") == CAUSAL)
    if len(extension):
        yield (
            f"{CAUSAL} is an extension, the candidate's log-probability given its context; it is "
            "in no other number and cannot be compared with next-sentence scores."
        )


def _missing(tasks: pl.DataFrame) -> Iterator[str]:
    for (task,), rows in tasks.filter(pl.col("task") != BOTH).group_by("task", maintain_order=True):
        incomplete = rows.filter(pl.col("missing") > 0)
        if len(incomplete):
            yield (
                f"{task}: up to {counted(int(str(incomplete['missing'].max())), 'example')} "
                f"without all three scores at {counted(len(incomplete), 'checkpoint')}, whose "
                "numbers are over the others."
            )


def _ties(rows: pl.DataFrame, task: str) -> Iterator[str]:
    rates = pl.max_horizontal("ss_tie_rate", "lms_tie_rate")
    some = rows.filter(pl.col("ss_comparisons") > 0)
    many = some.filter(rates > MANY_TIES)
    if many.is_empty():
        return
    worst = many.row(int(many.select(rates).to_series().arg_max() or 0), named=True)
    yield (
        f"{_task(task)}{_at(rows, worst['step'])}: {worst['ss_tie_rate']:.1%} of the comparisons "
        f"with the anti-stereotype are ties, which count for it, and {worst['lms_tie_rate']:.1%} "
        "of those with the unrelated candidate, which count for that. Over the others ss is "
        f"{_untied(worst, 'ss')} and lms {_untied(worst, 'lms')}."
        + (f" {len(many)} of {len(some)} checkpoints have such ties." if len(some) > 1 else "")
    )


def _untied(row: Row, name: str) -> str:
    value, n = row[f"{name}_untied"], row[f"{name}_untied_comparisons"]
    return f"{value:.1f} ({counted(n, 'comparison')})" if n else "undefined"


def _value(value: float, low: float, high: float, form: Any) -> str:
    return f"{form(value)} [{form(low)} to {form(high)}]" if low == low else form(value)


def _task(task: str) -> str:
    return "both tasks" if task == BOTH else task


def _at(rows: pl.DataFrame, step: int | None) -> str:
    """When, for one of these rows; nothing where there is but one checkpoint without a step."""
    if step is None:
        return " of the release" if rows["step"].n_unique() > 1 else ""
    return f" at step {step:,}"


def _span(steps: pl.Series) -> str:
    known = steps.drop_nulls().sort().to_list()
    release = ["the release"] if steps.null_count() else []
    named = [f"step {known[0]:,}"] if len(known) == 1 else []
    if len(known) > 1:
        named = [f"steps {known[0]:,} to {known[-1]:,}"]
    return " and ".join([*named, *release])
