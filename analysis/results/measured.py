"""What every family has unless it names its own: the table of measures, findings and a chart."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from types import MappingProxyType
from typing import Literal, NamedTuple

import altair as alt
import polars as pl

from logitbank.analysis.charts.chart import Chart, sample_size, titled
from logitbank.analysis.charts.curves import (
    SERIES,
    at_checkpoint,
    change_caption,
    change_points,
    curves,
    dots,
    drawn_checkpoint,
    horizontal,
    interval_caption,
    stacked,
    with_gaps,
    with_series,
)
from logitbank.analysis.charts.measure import Measure as Axis
from logitbank.analysis.charts.steps import StepAxis
from logitbank.analysis.charts.theme import color_map
from logitbank.analysis.family import Family
from logitbank.analysis.finding import Finding, formatted, signed
from logitbank.analysis.frames.expressions import same_as
from logitbank.analysis.frames.items import Items
from logitbank.analysis.frames.prompt_sums import CHECKPOINT
from logitbank.analysis.frames.reader import Scores
from logitbank.analysis.results.curve import change_table, courses_of
from logitbank.analysis.results.series import (
    Curve,
    Row,
    about,
    by_series,
    change_findings,
    course_text,
    extremes,
    figure_name,
    series_name,
    size,
)
from logitbank.analysis.results.tables import Result
from logitbank.analysis.stats.measure import Measure
from logitbank.analysis.stats.summary import ALL, measures_table
from logitbank.analysis.stats.views import groups_of
from logitbank.store.format.schema import folder_name
from logitbank.wording import counted, step_name

CURVES = 8
"""The most curves of a plot, unless groups have no whole."""
ROUNDING = 1e-6
"""A change of fewer half widths of its interval is that of a sum in another order."""
LABEL = "label"
"""The column with the groups of a row, as charts name them."""
APART = SETS, OPTION = "prompt_set", "option"
"""Groups that are never together and have charts of their own: prompt sets, and single options.
Measures of whole prompts have no option."""


@dataclass(frozen=True, slots=True)
class Measured(Result):
    """The measures of a family at every checkpoint."""

    measures: pl.DataFrame
    """As `summarise` returns them."""
    change_points: pl.DataFrame
    """Change points of the first measure of all groups, by model and run."""
    further: Mapping[str, pl.DataFrame] = field(default_factory=dict)
    """The family's views and own tables."""

    def tables(self) -> dict[str, pl.DataFrame]:
        """The tables of measures and change points, then the family's own."""
        return {
            "measures": self.measures, "change_points": self.change_points, **self.further
        }  # fmt: skip


def measure(family: Family, scores: Scores, items: Items | None = None) -> Measured:
    """The measures of a family, its views and its own tables, of one prompt set's scores.

    `items` are by default those of the family.

    Raises
    ------
    LogitbankError
        What the family's `items` refuses.
    """
    if items is None:
        assert family.items is not None
        items = family.items(scores)
    return of_items(family, items, family.tables(scores, items) if family.tables else {})


def of_items(
    family: Family,
    items: Items,
    tables: Mapping[str, pl.DataFrame],
    *,
    further: Sequence[Measure] = (),
    within: Sequence[str] = (),
) -> Measured:
    """The measures of items, the views of a family, and its own tables.

    `further` measures are in the tables only. Items of different groups of `within` stay apart.
    """
    table = measures_table(items, [*family.measures, *further], within=within)
    return of_table(family, table, tables)


def of_table(
    family: Family, table: pl.DataFrame, tables: Mapping[str, pl.DataFrame] = MappingProxyType({})
) -> Measured:
    """A table of measures with the views of a family and its own tables."""
    views = {name: view.of(table) for name, view in family.views.items()}
    return Measured(table, changes_of(table, family.measures[0]), {**views, **tables})


def overall(table: pl.DataFrame) -> pl.DataFrame:
    """The rows of all groups together; of groups that are not, all rows."""
    for name in groups_of(table):
        if name not in APART and ALL in table[name]:
            table = table.filter(pl.col(name) == ALL)
    return table


def of_each_group(table: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """The rows of single groups, by the column of these; other columns are of all together.

    Of columns that are only there in combination, the rows of their combinations.
    """
    groups = [name for name in groups_of(table) if name not in APART and ALL in table[name]]
    found = {
        name: table.filter(
            *(pl.col(each) != ALL if each == name else pl.col(each) == ALL for each in groups)
        )
        for name in groups
    }
    found = {name: rows for name, rows in found.items() if len(rows)}
    if found or not groups:
        return found
    joint = table.filter(pl.col(name) != ALL for name in groups)
    return {", ".join(groups): joint} if len(joint) else {}


def findings(family: Family, result: Measured) -> list[Finding]:
    """The first measure, then each measure of each model and run, and its extreme groups.

    Measures that are not the family's are in tables only.
    """
    known = _known(family, result)
    if known.is_empty():
        return [Finding(text=f"There is no {family.item} of {family.title} with a score.")]
    table = overall(known)
    found = [_headline(family, table)]
    order = pl.Enum([measure.key for measure in family.measures])
    keys = ["measure", *groups_of(table)]
    for prefix, rows in by_series(table):
        by_measure = rows.sort(f"^{SETS}$", pl.col("measure").cast(order), maintain_order=True)
        for part in by_measure.partition_by(keys, maintain_order=True):
            found += _series(family, part, prefix)
            found += _undefined(family, result.measures, part.row(-1, named=True), prefix)
            if part["measure"][0] == family.measures[0].key:
                found += _shifts(family, result.change_points, part.row(-1, named=True), prefix)
            if len(known) > len(table):
                found += _extreme_groups(family, known, part.row(-1, named=True), prefix)
    return found


def _known(family: Family, result: Measured) -> pl.DataFrame:
    """The values of the measures of a family, with the prompt set if there are several."""
    return _own(family, result).filter(pl.col("value").is_not_nan())


def _drawn(family: Family, result: Measured) -> pl.DataFrame:
    """As `_known`, with the checkpoints at which a line has a gap."""
    table = _own(family, result)
    return with_gaps(table, "value", "measure", *groups_of(table))


def _own(family: Family, result: Measured) -> pl.DataFrame:
    """The rows of the measures of a family, with or without a value."""
    keys, table = [measure.key for measure in family.measures], result.measures
    if SETS in table.columns and table[SETS].n_unique() == 1:
        table = table.drop(SETS)
    return table.filter(pl.col("measure").is_in(keys))


def changes_of(table: pl.DataFrame, measure: Measure) -> pl.DataFrame:
    """The change points of a measure of all groups, for each model and run, and prompt set."""
    keys = ["model", "run", *({SETS} & {*table.columns})]
    rows = overall(table).filter(pl.col("value").is_not_nan(), measure=measure.key)
    if rows.select(*keys, "step").is_duplicated().any():  # groups that have no whole
        rows = rows.clear()
    return change_table(courses_of(rows, keys), keys)


def _headline(family: Family, table: pl.DataFrame) -> Finding:
    """The measure that changes most for its interval; if there is none, the first measure.

    The change is that from the first checkpoint to the last, or to an extreme between them.
    """
    keys = ["model", "run", *groups_of(table), "measure"]
    moves = [_move(part) for part in table.drop_nulls("step").partition_by(keys)]
    moved = [move for move in moves if move.surprise > ROUNDING]
    several = table.select("model", "run").n_unique() > 1
    if not moved:
        first = next(each for each in family.measures if each.key in table["measure"])
        rows = table.filter(measure=first.key)
        last = rows.row(-1, named=True)
        lasts = rows.filter(same_as(last, CHECKPOINT)).sort("value", maintain_order=True)
        lowest, highest = (lasts.row(at, named=True) for at in (0, -1))
        prefix = f"{series_name(last)}: " if several else ""
        _, what = _named(family, last, prefix, groups_of(table) if len(lasts) == 1 else ())
        values = [formatted(row["value"], first.form) for row in (lowest, highest)]
        value = values[0]
        if values[0] != values[1]:
            names = (group_words(row, groups_of(table)) for row in (lowest, highest))
            ends = [f"{text} ({name})" for text, name in zip(values, names, strict=True)]
            value = f"from {ends[0]} to {ends[1]}"
        return Finding(
            text=f"{what} is {value} at {step_name(last['step'])}.", **about(last, _figure(last))
        )
    # Of numbers that are equal up to rounding, such as those of two options, it is the first.
    rows, inner, _ = max(moved, key=lambda move: float(f"{move.surprise:.6g}"))
    first_row, row = (rows.row(at, named=True) for at in (0, -1))
    prefix = f"{series_name(row)}: " if several else ""
    measure, what = _named(family, row, prefix, groups_of(table))
    steps = f"from {step_name(row['baseline_step'])} to {step_name(row['step'])}"
    value = course_text(first_row, inner, row, measure.form)
    return Finding(text=f"{what} {value} {steps}.", **about(row, _figure(row)))


class _Move(NamedTuple):
    """A measure of a model, run and group over its training steps."""

    rows: pl.DataFrame
    inner: Sequence[Row]
    """The extremes between its ends."""
    surprise: float
    """The largest change from the first checkpoint, to an extreme or to the last one, in half
    widths of its interval; 0 without one."""


def _move(rows: pl.DataFrame) -> _Move:
    inner = extremes(rows, "value")
    found = 0.0
    for row in (*inner, rows.row(-1, named=True)) if len(rows) > 1 else ():
        half = (row["from_baseline_high"] - row["from_baseline_low"]) / 2
        found = max(found, abs(row["from_baseline"]) / half if half > 0 else 0.0)
    return _Move(rows, inner, found)


def _shifts(family: Family, changes: pl.DataFrame, last: Row, prefix: str) -> Iterator[Finding]:
    """The change points of the first measure of a model and run."""
    keys = ["model", "run", *({SETS} & {*last})]
    measure, what = _named(family, last, prefix, keys[2:])
    own = changes.filter(same_as(last, keys))
    yield from change_findings(own, what, form=signed(measure.form), **about(last, _figure(last)))


def _series(family: Family, rows: pl.DataFrame, prefix: str) -> Iterator[Finding]:
    last = rows.row(-1, named=True)
    measure, what = _named(family, last, prefix, groups_of(rows))
    facts = sample_of(family), measure.form, _figure(last), _reference(measure)
    value = Curve(rows, "value", what, *facts)
    yield value.now()
    if measure.link is None:
        yield from value.change()


def _undefined(family: Family, table: pl.DataFrame, last: Row, prefix: str) -> Iterator[Finding]:
    """The checkpoints at which a measure of a model and run is undefined, although it has items."""
    fixed = [name for name in groups_of(table) if name in last]
    own = table.filter(same_as(last, ("model", "run", "measure", *fixed)))
    steps = own.filter(pl.col("value").is_nan(), pl.col("items") > 0)["step"]
    if len(steps):
        _, what = _named(family, last, prefix, fixed)
        names = ", ".join(map(step_name, steps)) if len(steps) <= CURVES else "see the table"
        text = f"{what}: undefined at {len(steps)} of {counted(len(own), 'checkpoint')} ({names})."
        yield Finding(text=text, **about(last, _figure(last)))


def _extreme_groups(
    family: Family, table: pl.DataFrame, last: Row, prefix: str
) -> Iterator[Finding]:
    """The groups with the lowest and the highest value of a measure at the last checkpoint."""
    fixed = [name for name in groups_of(table) if name in APART or last[name] != ALL]
    table = table.filter(same_as(last, (*CHECKPOINT, "measure", *fixed)))
    measure, what = _named(family, last, prefix, fixed)
    for names, own in of_each_group(table).items():
        own = own.sort("value", maintain_order=True)
        for end, at in (("lowest", 0), ("highest", -1)) if own["value"].n_unique() > 1 else ():
            row = own.row(at, named=True)
            name = ", ".join(f"{group} {row[group]}" for group in names.split(", "))
            curve = Curve(own, "value", what, sample_of(family), measure.form, _figure(row))
            yield curve.at(row, f", {end}: {name},")


def _named(
    family: Family, row: Row, prefix: str, groups: Sequence[str] = ()
) -> tuple[Measure, str]:
    """The measure of a row, and the words for it and its groups."""
    measure = next(each for each in family.measures if each.key == row["measure"])
    names = group_words(row, groups)
    return measure, f"{prefix}{words_for(measure)}" + f", {names}" * bool(names)


def group_words(row: Row, groups: Sequence[str]) -> str:
    """The groups of a row that are not all together; the name of a column is before a number.

    >>> group_words({"category": "age", "type": "2", "split": "all"}, ["category", "type", "split"])
    'age, type 2'
    """
    known = {
        name: row[name] for name in groups if row[name] and (name in APART or row[name] != ALL)
    }
    return ", ".join(f"{name} {each}" if each.isdigit() else each for name, each in known.items())


def _figure(row: Row) -> str:
    """The chart that has a row."""
    kind = f"by_{OPTION}" if row.get(OPTION) else "measures"
    return figure_name(kind, row.get(SETS, ""), SETS in row)


def _reference(measure: Measure) -> str:
    """The value of no effect of a measure and what it means, if there is one."""
    if measure.reference is None:
        return ""
    percent = measure.form.endswith("%")
    fraction = percent and not measure.form.endswith("f%")
    value = f"{measure.reference * (100 if fraction else 1):g}" + "%" * percent
    return value + f" ({measure.meaning})" * bool(measure.meaning)


def sample_of(family: Family) -> Callable[[Row], str]:
    """The sample size of rows of measures."""

    def text(row: Row) -> str:
        if row["items"] is None:  # of a file
            return ""
        item = item_of(family, row["measure"])
        return size("items", "clusters", items=item, clusters=family.cluster)(row)

    return text


def item_of(family: Family, key: str) -> str:
    """What an item of a measure is called."""
    return next(each.item for each in family.measures if each.key == key) or family.item


def _samples(family: Family, table: pl.DataFrame) -> str:
    """The sample sizes of all measures of a table, for each kind of item."""
    known = table.drop_nulls("items").filter(pl.col("value").is_not_nan())
    if known.is_empty():  # of files
        return f"n = {counted(table.select(CHECKPOINT).n_unique(), 'checkpoint')}."
    items = {key: item_of(family, key) for key in known["measure"].unique(maintain_order=True)}
    sizes = (
        sample_size(known.filter(pl.col("measure").replace(items) == item)["items"], item)
        for item in dict.fromkeys(items.values())
    )
    return f"n = {', '.join(size.removeprefix('n = ') for size in sizes)}."


def words_for(measure: Measure, separator: str = ", ") -> str:
    """A measure in a sentence or on an axis, with its group."""
    return separator.join(filter(None, (measure.text or measure.name, measure.group)))


def _axis(measure: Measure) -> Axis:
    """The axis of a measure: logarithmic for a perplexity, from 0 to 1 or 100 if these limit it.

    The group of a measure is on a line of its own, as plots above each other are low.
    """
    words = words_for(measure, ",\n")
    if measure.link == "exp" or measure.ranks:
        return Axis("value", f"{words} (log scale)", scale="log", level=measure.reference)
    if measure.form.endswith("f%"):
        return Axis("value", f"{words} (%)", scale="percent")
    is_share = measure.share and not measure.minus and measure.form.endswith("%")
    scale: Literal["share", "zero", "linear"] = "linear"
    if measure.limits == (0, 1) or is_share:
        scale = "share"
    elif measure.limits == (0, inf):
        scale = "zero"
    return Axis("value", words, scale=scale, level=measure.reference)


def charts(family: Family, result: Measured) -> dict[str, Chart]:
    """A plot for each measure, above each other; of a single checkpoint, a row of dots.

    Without groups of items, measures of one name share a plot. Of more than `CURVES` groups, models
    and runs, and of several kinds of groups, these are of all groups together, and the first
    measure by group has a chart of its own, of one checkpoint. So have measures of single options,
    and each prompt set of several.
    """
    table, changes = _drawn(family, result), result.change_points
    # The order of names, and so their colours, does not depend on the values that are missing.
    order = {
        name: pl.Enum(result.measures[name].drop_nulls().unique(maintain_order=True))
        for name in ("measure", *groups_of(table))
    }
    places = [pl.col(name).cast(values) for name, values in order.items()]
    table = table.sort(places, maintain_order=True)
    if SETS not in table.columns:
        return _charts(family, table, changes)
    found = dict[str, Chart]()
    for own in table.partition_by(SETS, maintain_order=True):
        name = own[SETS][0]
        drawn = _charts(family, own.drop(SETS), changes.filter(pl.col(SETS) == name))
        found |= {figure_name(kind, name, True): chart for kind, chart in drawn.items()}
    return found


def _charts(family: Family, table: pl.DataFrame, changes: pl.DataFrame) -> dict[str, Chart]:
    """The charts of one prompt set."""
    if OPTION in table.columns:
        options = table.filter(pl.col(OPTION) != "")
        found = _charts(family, table.filter(pl.col(OPTION) == "").drop(OPTION), changes)
        if len(options):
            few = options.select("model", "run", *groups_of(options)).n_unique() <= CURVES
            options = options if few else overall(options)
            groups = [name for name in groups_of(options) if options[name].n_unique() > 1]
            found[f"by_{OPTION}"] = _over_training(family, options, groups, changes.clear())
        return found
    if table.is_empty():
        return {}
    groups = groups_of(table)
    by_group = of_each_group(table.filter(measure=family.measures[0].key))
    apart = [name for name in groups if ALL not in table[name]]
    few = table.select("model", "run", *groups).n_unique() <= CURVES
    if not by_group or (few and len(groups) - len(apart) == 1):
        return {"measures": _over_training(family, table, groups, changes)}
    whole = _over_training(family, overall(table), apart, changes)
    return {"measures": whole} | {
        f"by_{folder_name(name)}": _by_group(family, with_series(rows, *apart), name)
        for name, rows in by_group.items()
    }


def plots(
    family: Family, result: Measured, axis: StepAxis, palette: Sequence[str]
) -> Iterator[Chart]:
    """A plot over training for each measure of a family, in these colours: parts of a chart."""
    table = with_series(_drawn(family, result))
    drawn = [each for each in family.measures if each.key in table["measure"]]
    for rows, measure, group in _plots(table, drawn, groups_of(table)):
        names = rows[group or SERIES].unique().sort()
        yield _curves(rows, measure, group, axis, dict(zip(names, palette, strict=False)))


def _over_training(
    family: Family, table: pl.DataFrame, groups: Sequence[str], changes: pl.DataFrame
) -> Chart:
    drawn = [each for each in family.measures if each.key in table["measure"]]
    plots = [*_plots(with_series(table), drawn, groups)]
    levels = ", ".join(dict.fromkeys(filter(None, map(_reference, drawn))))
    axis = StepAxis(table["step"].to_list())
    only = table["step"].n_unique() == 1
    if only:
        when = f"at {step_name(table['step'][0])}"
        panels = [_dots(*plot) for plot in plots]
        chart: Chart = alt.vconcat(*panels, spacing=6).resolve_scale(color="shared")
    else:
        when = "over training"
        names = defaultdict[str, list[str]](list)
        for rows, _, group in plots:
            names[group or SERIES] += rows[group or SERIES].to_list()
        panels = [_curves(*plot, axis, color_map(names[plot[2] or SERIES])) for plot in plots]
        panels[0] = alt.layer(*change_points(changes, axis), panels[0])
        chart = stacked(*panels) if len(panels) > 1 else panels[0]
    dashed = "" if only else change_caption(changes)
    where = ", in the first plot" if len(plots) > 1 else ""
    caption = (
        f"{family.title} {when}.",
        interval_caption(table),
        levels and f"Dashed lines: {levels}.",
        dashed and f"Dashed{where}: {dashed}.",
        _samples(family, table),
    )
    text = " ".join(filter(None, caption))
    return titled(chart, family.title, text, axis=None if only else axis)


def _by_group(family: Family, rows: pl.DataFrame, name: str) -> Chart:
    """The first measure of each group, at one checkpoint."""
    measure = family.measures[0]
    table = rows.filter(pl.col("value").is_not_nan()).with_columns(_label(name.split(", "), ", "))
    words, level = words_for(measure), _reference(measure)
    tooltip = {name.capitalize(): LABEL, "Model": SERIES, words: "value", "Items": "items"}
    chart = at_checkpoint(
        table,
        lambda base: dots(
            base, table, _axis(measure), LABEL, tooltip=tooltip, reference=measure.reference
        ),
    )
    caption = (
        f"{words} by {name} at {step_name(drawn_checkpoint(table))}.",
        level and f"Dashed: {level}.",
        interval_caption(table, of_dots=True),
        f"{sample_size(table['items'], item_of(family, measure.key))} in a group.",
    )
    return titled(chart, f"{family.title} by {name}", " ".join(filter(None, caption)))


_Plot = tuple[pl.DataFrame, Measure, str | None]
"""Rows, their measure, and the column that colours stand for, if that is not the model and run."""


def _plots(
    table: pl.DataFrame, measures: Sequence[Measure], groups: Sequence[str]
) -> Iterator[_Plot]:
    """The plots of a chart. Without groups of items, measures of one name share one."""
    shared = defaultdict[str, list[Measure]](list)
    for each in measures:
        shared[each.key if groups else each.name].append(each)
    for measure, *others in shared.values():
        rows = table.filter(pl.col("measure").is_in([measure.key, *(each.key for each in others)]))
        name = pl.col("measure").str.strip_prefix(f"{measure.name}, ").alias(LABEL)
        about = replace(measure, group="") if others else measure
        named = rows.with_columns(_label(groups, " ") if groups else name)
        yield named, about, LABEL if groups or others else None


def _label(groups: Sequence[str], separator: str) -> pl.Expr:
    """The groups of a row in words: the name of their column is before a number."""
    words = (
        pl.when(pl.col(name).str.contains(r"^\d+$"))
        .then(pl.format("{} {}", pl.lit(name), pl.col(name)))
        .otherwise(pl.col(name))
        for name in groups
    )
    return pl.concat_str(words, separator=separator).alias(LABEL)


def _curves(
    rows: pl.DataFrame,
    measure: Measure,
    group: str | None,
    axis: StepAxis,
    colors: Mapping[str, str],
) -> Chart:
    plot: Chart = curves(rows, axis, _axis(measure), group=group, colors=colors)
    known = measure.reference is not None
    return alt.layer(horizontal(float(measure.reference or 0)), plot) if known else plot


def _dots(rows: pl.DataFrame, measure: Measure, group: str | None) -> Chart:
    """The values of groups at one checkpoint, or of models and runs."""
    rows = with_series(rows).with_columns(pl.col(pl.Float64).fill_nan(None))
    category, color = (group, SERIES) if group else (SERIES, "measure")
    shown = rows.select(*dict.fromkeys((category, color, SERIES, "value", "low", "high", "items")))
    tooltip = {"Model": SERIES, words_for(measure): "value", "Items": "items"}
    return dots(
        alt.Chart(shown), shown, _axis(measure), category, group=color, tooltip=tooltip,
        reference=measure.reference,
    )  # fmt: skip
