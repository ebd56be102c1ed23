"""What every family has unless it names its own: the table of measures, findings and a chart."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

from logitbank.analysis.charts.chart import Chart, sample_size, titled
from logitbank.analysis.charts.curves import curves, stacked
from logitbank.analysis.charts.measure import Measure as Axis
from logitbank.analysis.charts.steps import StepAxis
from logitbank.analysis.family import Family
from logitbank.analysis.finding import Finding, formatted
from logitbank.analysis.results.series import Curve, about, by_series, size
from logitbank.analysis.results.tables import Result
from logitbank.wording import step_name


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


def findings(family: Family, result: Measured) -> list[Finding]:
    """The first measure, then each measure of each model and run."""
    table = result.measures.filter(pl.col("value").is_not_nan())
    if table.is_empty():
        return [Finding(text=f"There is no item of {family.title} with a score.")]
    row = table.filter(measure=pl.first("measure")).row(-1, named=True)
    first = family.measures[0]
    value = formatted(row["value"], first.form)
    headline = f"{first.text or first.name} is {value} at {step_name(row['step'])}."
    found = [Finding(text=headline, **about(row, "measures"))]
    groups = table.columns[3 : table.columns.index("measure")]
    for prefix, rows in by_series(table):
        for part in rows.partition_by(*groups, "measure", maintain_order=True):
            found += _series(family, part, groups, prefix)
    return found


def _series(
    family: Family, rows: pl.DataFrame, groups: Sequence[str], prefix: str
) -> Iterator[Finding]:
    last = rows.row(-1, named=True)
    measure = next(each for each in family.measures if each.key == last["measure"])
    names = [str(last[name]) for name in groups] + [measure.group] * bool(measure.group)
    what = f"{prefix}{measure.text or measure.name}" + "".join(f", {name}" for name in names)
    value = Curve(rows, "value", what, size("items", "clusters"), measure.form, "measures")
    yield value.now()
    if measure.link is None:
        yield from value.change()


def charts(family: Family, result: Measured) -> dict[str, Chart]:
    """One curve for each measure, above each other."""
    table = result.measures.filter(pl.col("value").is_not_nan())
    if table.is_empty():
        return {}
    groups = table.columns[3 : table.columns.index("measure")]
    table = table.with_columns(group=pl.concat_str([*groups, pl.lit("")], separator=" "))
    axis = StepAxis(table["step"].to_list())
    group = "group" if groups else None
    panels = [
        curves(rows, axis, Axis("value", each.text or each.name), group=group)
        for each in family.measures
        if len(rows := table.filter(measure=each.key))
    ]
    chart = stacked(*panels) if len(panels) > 1 else panels[0]
    caption = (
        f"{family.title} over training. Bands: 95% confidence intervals. "
        f"{sample_size(table['items'], 'item')}."
    )
    return {"measures": titled(chart, family.title, caption, axis=axis)}
