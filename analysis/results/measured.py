"""What every family has unless it names its own: the table of measures, findings and a chart."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import polars as pl

from logitbank.analysis.charts.chart import Chart, sample_size, titled
from logitbank.analysis.charts.curves import curves, stacked
from logitbank.analysis.charts.measure import Measure as Axis
from logitbank.analysis.charts.steps import StepAxis
from logitbank.analysis.family import Family
from logitbank.analysis.finding import Finding, formatted
from logitbank.analysis.frames.expressions import same_as
from logitbank.analysis.frames.prompt_sums import CHECKPOINT
from logitbank.analysis.results.series import Curve, Row, about, by_series, size
from logitbank.analysis.results.tables import Result
from logitbank.analysis.stats.measure import Measure
from logitbank.analysis.stats.summary import ALL
from logitbank.wording import step_name

N = size("items", "clusters")


@dataclass(frozen=True, slots=True)
class Measured(Result):
    """The measures of a family at every checkpoint."""

    measures: pl.DataFrame
    """As `summarise` returns them."""
    further: Mapping[str, pl.DataFrame] = field(default_factory=dict)
    """The family's own tables."""

    def tables(self) -> dict[str, pl.DataFrame]:
        """The table of measures, then the family's own."""
        return {"measures": self.measures, **self.further}


def groups_of(table: pl.DataFrame) -> list[str]:
    """The columns of groups of a table of measures."""
    return table.columns[len(CHECKPOINT) : table.columns.index("measure")]


def overall(table: pl.DataFrame) -> pl.DataFrame:
    """The rows of all groups together; of groups that are not, all rows."""
    whole = table.filter(pl.all_horizontal(pl.col(groups_of(table)) == ALL))
    return whole if len(whole) else table


def findings(family: Family, result: Measured) -> list[Finding]:
    """The first measure, then each measure of each model and run, and its extreme groups."""
    known = result.measures.filter(pl.col("value").is_not_nan())
    if known.is_empty():
        return [Finding(text=f"There is no item of {family.title} with a score.")]
    table = overall(known)
    first = next(each for each in family.measures if each.key in table["measure"])
    row = table.filter(measure=first.key).row(-1, named=True)
    value = formatted(row["value"], first.form)
    headline = f"{words_for(first)} is {value} at {step_name(row['step'])}."
    found = [Finding(text=headline, **about(row, "measures"))]
    order = pl.Enum([measure.key for measure in family.measures])
    keys = ["measure", *groups_of(table)]
    for prefix, rows in by_series(table):
        by_measure = rows.sort(pl.col("measure").cast(order), maintain_order=True)
        for part in by_measure.partition_by(keys, maintain_order=True):
            found += _series(family, part, prefix)
            if len(known) > len(table):
                found += _extreme_groups(family, known, part.row(-1, named=True), prefix)
    return found


def _series(family: Family, rows: pl.DataFrame, prefix: str) -> Iterator[Finding]:
    last = rows.row(-1, named=True)
    names = [str(last[name]) for name in groups_of(rows) if last[name] != ALL]
    measure, what = _named(family, last, prefix)
    what += "".join(f", {name}" for name in names)
    value = Curve(rows, "value", what, N, measure.form, "measures")
    yield value.now()
    if measure.link is None:
        yield from value.change()


def _extreme_groups(
    family: Family, table: pl.DataFrame, last: Row, prefix: str
) -> Iterator[Finding]:
    """The groups with the lowest and the highest value of a measure at the last checkpoint."""
    groups = groups_of(table)
    own = table.filter(
        same_as(last, (*CHECKPOINT, "measure")), *(pl.col(name) != ALL for name in groups)
    ).sort("value", maintain_order=True)
    measure, what = _named(family, last, prefix)
    for end, at in (("lowest", 0), ("highest", -1)) if len(own) > 1 else ():
        row = own.row(at, named=True)
        name = ", ".join(f"{group} {row[group]}" for group in groups)
        curve = Curve(own, "value", what, N, measure.form, "measures")
        yield curve.at(row, f", {end}: {name},")


def _named(family: Family, row: Row, prefix: str) -> tuple[Measure, str]:
    """The measure of a row, and the words for it."""
    measure = next(each for each in family.measures if each.key == row["measure"])
    return measure, f"{prefix}{words_for(measure)}"


def words_for(measure: Measure) -> str:
    """A measure in a sentence or on an axis, with its group."""
    return ", ".join(filter(None, (measure.text or measure.name, measure.group)))


def charts(family: Family, result: Measured) -> dict[str, Chart]:
    """One curve for each measure, above each other."""
    table = result.measures.filter(pl.col("value").is_not_nan())
    if table.is_empty():
        return {}
    groups = groups_of(table)
    table = table.with_columns(group=pl.concat_str([*groups, pl.lit("")], separator=" "))
    axis = StepAxis(table["step"].to_list())
    group = "group" if groups else None
    panels = [
        curves(rows, axis, Axis("value", words_for(each)), group=group)
        for each in family.measures
        if len(rows := table.filter(measure=each.key))
    ]
    chart = stacked(*panels) if len(panels) > 1 else panels[0]
    caption = (
        f"{family.title} over training. Bands: 95% confidence intervals. "
        f"{sample_size(table['items'], 'item')}."
    )
    return {"measures": titled(chart, family.title, caption, axis=axis)}
