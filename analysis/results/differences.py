"""Which of many models differ, from each other and from no effect, at their last checkpoints."""

from collections.abc import Collection, Iterator, Mapping

import numpy as np
import polars as pl

from logitbank.analysis.family import Family
from logitbank.analysis.finding import Finding, formatted, signed
from logitbank.analysis.frames.items import Items
from logitbank.analysis.results.measured import item_of, words_for
from logitbank.analysis.results.series import series_name
from logitbank.analysis.stats.significance import holm
from logitbank.analysis.stats.summary import (
    EPSILON,
    Design,
    last_of_runs,
    reference_p,
    summarise,
)
from logitbank.store.steps import Step
from logitbank.wording import counted

LEVEL = 0.05
"""Largest adjusted p value of two models that differ."""
SCHEMA = {
    **dict.fromkeys(("prompts", "score", "model", "run", "other_model", "other_run"), pl.String),
    **dict.fromkeys(("difference", "low", "high", "p", "p_holm"), pl.Float64),
    "items": pl.Int64,
}


def model_differences(
    family: Family, items: Mapping[str, Items], steps: Collection[Step]
) -> dict[str, pl.DataFrame]:
    """`model_differences`: the first measure of each model and run minus that of each later one.

    Over common items of each prompt set, at the last checkpoint among `steps`. `p` is that of a
    paired t test with clusters as units, `p_holm` adjusted for all pairs of a prompt set. A row
    without another model has the difference from the measure's reference, if it has one, and is
    adjusted for all models.
    """
    found = [_of_set(family, name, each.at_steps(steps)) for name, each in items.items()]
    known = [table for table in found if table is not None]
    return {"model_differences": pl.concat(known)} if known else {}


def _of_set(family: Family, prompts: str, items: Items) -> pl.DataFrame | None:
    measure = family.measures[0]
    items = items.pooled(*items.groups).at(last_of_runs(items))
    design = Design(items.axes, measure)
    if len(items.checkpoints) < 2 or not len(design.which):
        return None
    from scipy.special import stdtr

    parts = []
    for at in range(len(items.checkpoints) - 1):
        rest = items.values[at + 1 :]
        _, moved = design.estimates(rest, np.zeros(len(rest), np.int64), items.values[[at]])
        with np.errstate(invalid="ignore", divide="ignore"):
            t = np.where(moved.error > EPSILON, np.abs(moved.value / moved.error), np.nan)
        p = np.where(np.abs(moved.value) <= EPSILON, 1.0, 2 * stdtr(moved.degrees, -t))
        ends = (-measure.scale * moved.low, -measure.scale * moved.high)
        own = items.checkpoints.row(at, named=True)
        others = items.checkpoints[at + 1 :]
        parts.append(
            pl.DataFrame({
                "model": [own["model"]] * len(rest), "run": own["run"],
                "other_model": others["model"], "other_run": others["run"],
                "difference": -measure.scale * moved.value,
                "low": np.minimum(*ends), "high": np.maximum(*ends), "p": p, "items": moved.items,
            })
        )  # fmt: skip
    tables = [pl.concat(parts)]
    if measure.reference is not None:
        now = summarise(items, [measure], changes=False)
        apart = pl.col("value", "low", "high") - measure.reference
        alone = now.select("model", "run", apart, "items").rename({"value": "difference"})
        p = reference_p(design.estimates(items.values)[0], measure)
        tables.append(alone.with_columns(p=pl.Series(p)))
    found = pl.concat(
        [each.with_columns(p_holm=holm(each["p"].fill_nan(None))) for each in tables],
        how="diagonal",
    )
    named = found.with_columns(prompts=pl.lit(prompts), score=pl.lit(measure.key))
    return named.select(pl.col(name).cast(dtype) for name, dtype in SCHEMA.items())


def difference_findings(family: Family, table: pl.DataFrame) -> Iterator[Finding]:
    """The largest difference of two models in each prompt set, and how many differ, also from the
    reference.
    """
    parts = table.partition_by("prompts", maintain_order=True)
    for part in parts:
        where = f" of {part['prompts'][0]}" if len(parts) > 1 else ""
        yield _finding(family, part, where)


def _finding(family: Family, table: pl.DataFrame, where: str) -> Finding:
    measure = family.measures[0]
    alone = table.filter(pl.col("other_model").is_null())
    table = table.filter(pl.col("other_model").is_not_null())
    sizes = table["difference"].abs().fill_nan(-1.0)
    row = table.row(int(sizes.arg_max() or 0), named=True)
    one = series_name(row)
    other = series_name({"model": row["other_model"], "run": row["other_run"]})
    name, pairs = words_for(measure), counted(len(table), "pair")
    differ, apart = (int((each["p_holm"] <= LEVEL).sum()) for each in (table, alone))
    from_reference = ""
    if measure.reference is not None and len(alone):
        value = formatted(measure.reference, measure.form.lstrip("+"))
        from_reference = f"{apart:,} of {len(alone):,} models and runs differ from {value}; "
    p = (
        "none"
        if row["p_holm"] is None or row["p_holm"] != row["p_holm"]
        else f"{row['p_holm']:.2g}"
    )
    return Finding(
        text=(
            f"{name}{where}: {from_reference}{differ:,} of {pairs} of models differ "
            f"(adjusted p ≤ {LEVEL}). Largest difference, {one} minus {other}"
        ),
        value=row["difference"], low=row["low"], high=row["high"],
        form=signed(measure.form),
        n=counted(row["items"], item_of(family, measure.key)), note=f"paired, adjusted p = {p}",
    )  # fmt: skip
