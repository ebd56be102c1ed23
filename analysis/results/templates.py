"""Prompts in several templates: the mean of a measure over templates, and how far these agree.

A template is a wording that is drawn from many, as a sentence is: a mean over items and templates
has the uncertainty of both.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from logitbank.analysis.family import Family
from logitbank.analysis.finding import Finding, formatted, signed
from logitbank.analysis.frames.batches import NoRowsError
from logitbank.analysis.frames.codes import numbers_among
from logitbank.analysis.frames.expressions import same_as
from logitbank.analysis.frames.items import Items
from logitbank.analysis.frames.prompt_sums import CHECKPOINT, CHECKPOINT_SCHEMA
from logitbank.analysis.frames.reader import Scores
from logitbank.analysis.results.measured import item_of, words_for
from logitbank.analysis.results.series import Row, about, missing_text, series_name
from logitbank.analysis.stats.measure import Measure
from logitbank.analysis.stats.runs_mean import measure_mean
from logitbank.analysis.stats.summary import ALL, Branch, Design, last_of_runs, summarise
from logitbank.store.steps import Step
from logitbank.wording import counted, step_name

COLUMN = "template"
"""The column of prompts that names their template."""
MOST = 100
"""Most templates of a prompt set; a column of more has a text of each prompt."""
FEWEST_TEMPLATES = 4
"""Minimum number of templates of an interval: that of three contains the truth in 92.7 %."""
_KEYS = [*CHECKPOINT, "prompts"]
TEMPLATES = {
    **CHECKPOINT_SCHEMA,
    **dict.fromkeys(("prompts", "score", "template"), pl.String),
    **dict.fromkeys(("value", "low", "high", "sd"), pl.Float64),
    **dict.fromkeys(("templates", "items", "clusters", "missing"), pl.Int64),
}  # fmt: skip


def template_tables(
    family: Family, scores: Scores, steps: Collection[Step]
) -> dict[str, pl.DataFrame]:
    """`templates`: the family's first measure in each template, and its mean over them (`all`).

    Of the last checkpoint of each model and run among `steps`. The interval of the mean is over
    items and templates, and `sd` is the deviation between templates. None for prompts without two
    templates, and for a measure that is exp of a mean. Scores are read again, those of each
    template by itself: an item of all may be a mean over templates. Nor for templates that are the
    clusters of items, as in BBQ: each is a question of its own, and every interval is over them.
    """
    if family.measures[0].link:
        return {}
    found = list[pl.DataFrame]()
    for name in scores.sets:
        own = scores.of(name)
        parts = _items(family, replace(own, steps=steps)) if COLUMN in own.columns else {}
        if len(parts) > 1:
            found.append(_table(parts, family.measures[0], name))
    found = [table for table in found if len(table)]
    return {"templates": pl.concat(found)} if found else {}


def _items(family: Family, scores: Scores) -> dict[str, Items]:
    """The items of each template at the last checkpoint of each model and run."""
    assert family.items is not None
    rows = scores.expected_rows(["prompt_id", COLUMN]).drop_nulls(COLUMN)
    if scores.models is not None:
        rows = rows.filter(pl.col("model").is_in(scores.models))
    names = rows[COLUMN].unique().sort().cast(pl.String).to_list()
    parts: dict[str, Items] = {}
    if not 1 < len(names) <= MOST:
        return parts
    for name in names:
        own = rows.filter(pl.col(COLUMN).cast(pl.String) == name)["model"].unique().sort()
        of_template = replace(scores, models=own.to_list(), where=(COLUMN, frozenset([name])))
        try:
            items = family.items(of_template)
        except NoRowsError:
            continue
        items = items.pooled(*items.groups)
        if len(items.checkpoints) and {*items.axes["cluster"]} != {name}:
            parts[name] = items.at(last_of_runs(items))
    return parts


def _table(parts: Mapping[str, Items], measure: Measure, prompts: str) -> pl.DataFrame:
    """Rows of `TEMPLATES` of one prompt set, the mean of each checkpoint first."""
    own = pl.concat([
        summarise(items, [measure], changes=False).with_columns(template=pl.lit(name))
        for name, items in parts.items()
    ]).filter(pl.col("value").is_not_nan())  # fmt: skip
    rows = list[dict[str, Any]]()
    places = own.select(CHECKPOINT).unique().sort(CHECKPOINT, nulls_last=True)
    for place in places.iter_rows(named=True):
        of_place = own.filter(same_as(place, CHECKPOINT))
        names = of_place["template"].to_list()
        if len(names) < 2:
            continue
        common = {**place, "prompts": prompts, "score": measure.name}
        several = [_of_template(parts[name], place, measure) for name in names]
        sums = {name: of_place[name].sum() for name in ("items", "missing")}
        rows.append({**common, "template": ALL, **templates_mean(several, measure), **sums})
        rows += [
            {**common, **row, "templates": 1}
            for row in of_place.select(
                "template", "value", "low", "high", "items", "clusters", "missing"
            ).iter_rows(named=True)
        ]
    return pl.DataFrame(rows, TEMPLATES)


class Template(NamedTuple):
    """A measure of the items of one template at one checkpoint."""

    score: Branch
    """Its value (1,), and what each cluster adds to its error, (1, k)."""
    clusters: list[str]
    """k names."""
    degrees: float
    """Degrees of freedom of the error."""


def _of_template(items: Items, place: Row, measure: Measure) -> Template:
    row = items.checkpoints.with_row_index("at").filter(same_as(place, CHECKPOINT))["at"]
    items = items.at(row.to_numpy().astype(np.int64)).chosen(Design(items.axes, measure).which)
    known = np.flatnonzero(~np.isnan(items.values[0]))
    axes, values = items.axes[known], measure.scale * items.values[:, known]
    design = Design(axes, measure)
    return Template(
        design.influences(values), axes["cluster"].unique().sort().to_list(), design.degrees
    )


def templates_mean(templates: Sequence[Template], measure: Measure) -> dict[str, Any]:
    """`value`, `low`, `high`, `sd`, `templates` and `clusters` of the mean over templates."""
    score, clusters = together(templates)
    degrees = min(each.degrees for each in templates)
    found = measure_mean(measure, score, degrees_of_examples=degrees)
    enough = len(templates) >= FEWEST_TEMPLATES
    low, high = (found.low, found.high) if enough else (float("nan"), float("nan"))
    return {
        "value": found.value, "low": low, "high": high,
        "sd": float(score.value.std(ddof=1)), "templates": len(templates), "clusters": clusters,
    }  # fmt: skip


def together(templates: Sequence[Template]) -> tuple[Branch, int]:
    """Values (r,) and influences (r, k) of templates, and the number k of their clusters.

    A cluster that a template lacks adds nothing to its error: templates may have the same sentences
    or others.
    """
    names = sorted({name for each in templates for name in each.clusters})
    added = np.zeros((len(templates), len(names)))
    for at, each in enumerate(templates):
        added[at, numbers_among(pl.Series(each.clusters, dtype=pl.String), names)] = (
            each.score.influence[0]
        )
    return Branch(np.concatenate([each.score.value for each in templates]), added), len(names)


def template_findings(family: Family, tables: Mapping[str, pl.DataFrame]) -> Iterator[Finding]:
    """The mean over templates of each model, and pairs of models whose order they change."""
    if "templates" not in tables:
        return
    table, measure = tables["templates"], family.measures[0]
    several = table["prompts"].n_unique() > 1
    name = words_for(measure)
    models = table.select("model", "run").n_unique()
    for row in table.filter(template=ALL).iter_rows(named=True):
        where = f", {row['prompts']}" if several else ""
        of_model = f"{series_name(row)}: " if models > 1 else ""
        few = row["templates"] < FEWEST_TEMPLATES
        sd = formatted(row["sd"], measure.form.lstrip("+"))
        apart = (
            f"interval: needs {FEWEST_TEMPLATES} templates"
            if few
            else f"standard deviation between templates {sd}"
        )
        yield Finding(
            text=f"{of_model}{name}, mean over templates{where} at {step_name(row['step'])}",
            value=row["value"], low=row["low"], high=row["high"], form=measure.form,
            n=_sample(row, table, item_of(family, measure.key)),
            note=apart, **about(row),
        )  # fmt: skip
    for part in table.partition_by("prompts", maintain_order=True):
        where = f" of {part['prompts'][0]}" if several else ""
        yield from _order(part.filter(pl.col("template") != ALL), name, measure.form, where)


def _sample(row: Row, table: pl.DataFrame, noun: str) -> str:
    """The templates and items of a mean."""
    each = table.filter(same_as(row, _KEYS), pl.col("template") != ALL)
    templates = counted(row["templates"], "template")
    sizes = each.select("items", "missing").unique().rows()
    if len(sizes) == 1:
        ((items, missing),) = sizes
        in_each = f"{missing_text(missing)} in each" if missing else ""
        return f"{templates} × {counted(items, noun)}{in_each}"
    return f"{counted(row['items'], noun)} in {templates}{missing_text(row['missing'])}"


def _order(table: pl.DataFrame, name: str, form: str, where: str) -> Iterator[Finding]:
    """How many pairs of models change their order between templates, and which one most."""
    series = [
        (part.row(0, named=True), dict(part.select("template", "value").rows()))
        for part in table.partition_by(CHECKPOINT, maintain_order=True)
    ]
    pairs, changed = 0, []
    for (one, values), (other, others) in combinations(series, 2):
        if one["model"] == other["model"]:
            continue
        moves = {each: values[each] - others[each] for each in values if each in others}
        pairs += len(moves) > 1
        if moves and min(moves.values()) < 0 < max(moves.values()):
            changed.append((one, other, moves))
    if not changed:
        return
    one, other, moves = max(
        changed, key=lambda each: min(max(each[2].values()), -min(each[2].values()))
    )
    ends = (max(moves, key=moves.__getitem__), min(moves, key=moves.__getitem__))
    shown = " and ".join(f"{formatted(moves[end], signed(form))} in template {end}" for end in ends)
    of = f"{len(changed):,} of {counted(pairs, 'pair')} of models" if pairs > 1 else "both models"
    yield Finding(
        text=f"{name}{where}: the order of {of} changes between templates. "
        f"{series_name(one)} minus {series_name(other)} is {shown}."
    )  # fmt: skip
