"""The findings of distances: where training changes the distribution most, and how runs differ."""

from collections.abc import Iterator

import polars as pl

from logitbank.analysis.families.distance import FAMILY
from logitbank.analysis.families.distance.metric import Distances
from logitbank.analysis.finding import Finding
from logitbank.analysis.results.series import Curve, about, by_series, size, subject
from logitbank.wording import step_name

N = size("items", "clusters")


def findings(result: Distances) -> list[Finding]:
    """The largest change of all runs, then each model and run."""
    table = result.measures
    found = [each for name, rows in by_series(table) for each in _series(name, rows)]
    steps = table.filter(measure="js_previous")
    if steps.is_empty():  # no run has two checkpoints
        row = table.filter(measure="entropy").row(-1, named=True)
        text = f"Entropy is {row['value']:.3f} nats at {step_name(row['step'])}."
        return [Finding(text=text, **about(row, "distance")), *found]
    row = steps.row(int(steps["value"].arg_max() or 0), named=True)
    text = (
        f"{subject(row, table)} changes most at {step_name(row['step'])}: the divergence from the "
        f"checkpoint before is {row['value']:.3g} of at most 0.693 nats."
    )
    return [Finding(text=text, **about(row, "distance")), *found]


def _series(name: str, rows: pl.DataFrame) -> Iterator[Finding]:
    texts = {measure.name: (measure.text, measure.form) for measure in FAMILY.measures}
    curves = {
        part: Curve(of_part, "value", f"{name}{text}", N, form, "distance")
        for part, (text, form) in texts.items()
        if len(of_part := rows.filter(measure=part))
    }
    yield curves["entropy"].now()
    yield from curves["entropy"].change()
    if previous := curves.get("js_previous"):
        top = previous.rows.sort("value", maintain_order=True).row(-1, named=True)
        yield previous.at(top, ", largest")
        yield previous.now()
    if runs := curves.get("kl_runs"):
        low = runs.rows.sort("value", maintain_order=True).row(0, named=True)
        if low["step"] != runs.last["step"]:
            yield runs.at(low, ", lowest")
        yield runs.now()
