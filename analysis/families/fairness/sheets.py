"""The figures of fairness."""

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from logitbank.analysis.drawing.marks import add_change_point, add_level, add_marks, mark_panel
from logitbank.analysis.drawing.paper import COLOURS, PURPLE, WRITTEN
from logitbank.analysis.drawing.sheet import (
    Axis,
    Columns,
    Names,
    Note,
    Panel,
    Sheet,
    Trace,
    floats,
    told,
)
from logitbank.analysis.drawing.steps import Curve, add_curve, training_sheet
from logitbank.analysis.families.fairness.checks import FairnessLabels
from logitbank.analysis.families.fairness.metric import Fairness
from logitbank.analysis.results.words import UNTRAINED
from logitbank.analysis.stats.significance import SIGNIFICANCE
from logitbank.store.steps import in_order
from logitbank.wording import step_name

KEYS = ("model", "run")
TEST_LABELS = {
    "mann_whitney_p": "Mann–Whitney",
    "mann_whitney_p_bh": "adjusted (BH)",
    "wilcoxon_p": "Wilcoxon pairs",
}
BANDS = "± 1 SD between order seeds"
MARKS = (
    f"Filled marks: male against female, p < {SIGNIFICANCE}; the adjustment and the pairs are "
    "ours, beside the published Mann–Whitney test."
)
SPREAD = "± 1 SD"
ENDS = {"minus_sd": "low", "plus_sd": "high"}
"""What bands of these figures have in place of an interval's ends."""
Tables = Mapping[str, pl.DataFrame]
Parts = Sequence[tuple[str, pl.DataFrame]]


def fairness_sheets(result: Fairness, tables: Tables, names: Names) -> dict[str, Sheet]:
    """One of each kind, from its table."""
    draw = {
        "jsd_p": _jsd_p,
        "average_rank": _average_rank,
        "neutral_options": _neutral_options,
        "rank_and_accuracy": _rank_and_accuracy,
        "accuracy": _accuracy,
        "gap": _gap,
    }
    kinds = sorted(tables, key=lambda kind: kind != "gap")  # the gap first
    return {
        kind: draw[kind](tables[kind], names.parts(tables[kind], KEYS), result.labels)
        for kind in kinds
    }


def _jsd_p(table: pl.DataFrame, parts: Parts, labels: FairnessLabels) -> Sheet:
    panel = Panel(Axis("JSD-P, scaled to 0–1", from_zero=True))
    caption = (
        "The right option's part of the divergence between prediction and right answer, for "
        f"prompts whose answer is {labels.male} or {labels.female}; smaller is better. "
        f"{MARKS}"
    )
    return _by_answer(
        table, parts, labels, panel=panel, title="JSD-P per correct answer", caption=caption,
        label="JSD-P",
    )  # fmt: skip


def _average_rank(table: pl.DataFrame, parts: Parts, labels: FairnessLabels) -> Sheet:
    panel = Panel(Axis("Average Rank (1 is best)", log=True))
    caption = (
        f"Rank of the right answer's token in the vocabulary, mean over prompts; 1 is best. {MARKS}"
    )
    return _by_answer(
        table, parts, labels, panel=panel, title="Average Rank per correct answer",
        caption=caption, label="Average Rank",
    )  # fmt: skip


def _by_answer(
    table: pl.DataFrame,
    parts: Parts,
    labels: FairnessLabels,
    *,
    panel: Panel,
    title: str,
    caption: str,
    label: str,
) -> Sheet:
    """A curve for each right answer, and beneath them the tests of male against female."""
    sheet, places = training_sheet(
        title,
        caption,
        steps=table["step"].to_list(),
        series=[name for name, _ in parts],
        panels=[panel, mark_panel(list(TEST_LABELS.values()))],
        bands=BANDS,
    )
    for series, part in parts:
        for group, colour, rows in _groups(part.rename(ENDS), "gold", labels):
            curve = Curve(series, group, colour, rows, label, SPREAD, TEST_LABELS)
            add_curve(sheet, places, curve)
        checkpoints = part.unique("step", maintain_order=True)
        for at, (column, test) in enumerate(TEST_LABELS.items()):
            rows = checkpoints.select("step", p=column)
            add_marks(sheet, places, rows, at=at, series=series, name=test)
    return sheet


def _neutral_options(table: pl.DataFrame, parts: Parts, labels: FairnessLabels) -> Sheet:
    tested = table.filter(pl.col("mann_whitney_p").is_not_null())
    rows = [f"{label} option" for label in labels[:2]] if len(tested) else []
    sheet, places = training_sheet(
        "Gendered options on neutral prompts",
        f"JSD-P of the {labels.male} and the {labels.female} option where the answer is "
        f"“{labels.neutral}”: the probability that each takes away."
        + (" Filled marks: the two models differ, Mann–Whitney p < 0.01." if rows else ""),
        steps=table["step"].to_list(),
        series=[name for name, _ in parts],
        panels=[
            Panel(Axis("JSD-P, scaled to 0–1", from_zero=True)),
            *([mark_panel(rows)] if rows else []),
        ],
        bands=BANDS,
    )
    for series, part in parts:
        for group, colour, of_option in _groups(part.rename(ENDS), "option", labels):
            tests = {"mann_whitney_p": "two models, Mann–Whitney"}
            add_curve(
                sheet, places, Curve(series, group, colour, of_option, "JSD-P", SPREAD, tests)
            )
    # The comparison is of two models, in each run, and stands with the first of them.
    first = tested["model"][0] if rows else None
    for series, part in parts if rows else ():
        for at, label in enumerate(labels[:2]):
            of_option = part.filter(
                (pl.col("model") == first)
                & (pl.col("option") == label)
                & pl.col("mann_whitney_p").is_not_null()
            ).select("step", p="mann_whitney_p")
            if len(of_option):
                add_marks(
                    sheet, places, of_option, at=at, series=series, name=rows[at], group=label,
                    colour=COLOURS[at],
                )  # fmt: skip
    return sheet


def _accuracy(table: pl.DataFrame, parts: Parts, labels: FairnessLabels) -> Sheet:
    sheet, places = training_sheet(
        "Accuracy per correct answer",
        "Accuracy: the right answer's token is the only maximum of the whole vocabulary.",
        steps=table["step"].to_list(),
        series=[name for name, _ in parts],
        panels=[Panel(Axis("Accuracy", from_zero=True))],
    )
    for series, part in parts:
        values = part.with_columns(value="accuracy", low="accuracy", high="accuracy")
        for group, colour, rows in _groups(values, "gold", labels):
            add_curve(sheet, places, Curve(series, group, colour, rows, "Accuracy"))
    return sheet


def _gap(table: pl.DataFrame, parts: Parts, labels: FairnessLabels) -> Sheet:
    ends = pl.concat([table["low"], table["high"], table["value"]]).drop_nulls().drop_nans()
    low, high = min([0.0, *ends]), max([0.0, *ends])
    margin = 0.14 * (high - low) or 0.01  # room for both texts
    notes = [
        Note(f"↑ worse for {labels.female}", high + margin, colour=WRITTEN[1]),
        Note(f"↓ worse for {labels.male}", low - margin, colour=WRITTEN[0], above=True),
    ]
    known = bool((table["high"] > table["low"]).any())
    axis = Axis("Gap Δ, JSD-P scaled", ends=(low - margin, high + margin))
    sheet, places = training_sheet(
        "Gap between genders",
        f"JSD-P of {labels.female} answers minus JSD-P of {labels.male} answers."
        + (" Band: 95 % bootstrap interval over sentences." if known else "")
        + f" Dotted{', with a grey band' if known else ''}: the untrained model. Dashed: zero and "
        "the change points.",
        steps=table["step"].to_list(),
        series=[name for name, _ in parts],
        panels=[Panel(axis, rules=[("y", 0)], notes=notes)],
    )
    for series, part in parts:
        colour = sheet.colour(series) if len(parts) > 1 else PURPLE
        add_curve(sheet, places, Curve(series, "", colour, part, "Gap Δ"))
        if len(first := part.filter(step=UNTRAINED)):
            add_level(sheet, places, first, series=series, name="untrained")
        for change in part.drop_nulls("mean_after").iter_rows(named=True):
            add_change_point(sheet, places, part, change, series=series, colour=colour)
    return sheet


def _rank_and_accuracy(table: pl.DataFrame, parts: Parts, labels: FairnessLabels) -> Sheet:
    """A point for each answer, checkpoint by checkpoint, on the course of all of them."""
    steps = in_order(table["step"].to_list())
    sheet = Sheet(
        "Average Rank against accuracy",
        "Accuracy: the right answer's token is the only maximum of the whole vocabulary. "
        "The large points are one checkpoint, the thin lines the course of training.",
        "checkpoint" if len(steps) > 1 else "fixed",
        steps,
        [name for name, _ in parts],
    )
    known = table.filter(pl.col("average_rank").is_not_nan())
    top = max([0.01, *known["accuracy"]])
    sheet.across = Axis("Average Rank, log scale (1 is best)", log=True)
    sheet.panels = [Panel(Axis("Accuracy", ends=(-0.04 * top, 1.08 * top)), 380)]
    for series, part in parts:
        for group, colour, rows in _groups(part, "gold", labels, value="average_rank"):
            rows = rows.filter(pl.col("average_rank").is_not_nan())
            track = rows.sort("step", nulls_last=True).drop_nulls("step")
            common: dict[str, Any] = {"series": series, "group": group, "colour": colour}
            sheet.traces.append(
                Trace(
                    shape="curve", role="line", columns=_places(track), width=1, size=4,
                    name=sheet.name(series, group), dash=sheet.dash(series), **common,
                )
            )  # fmt: skip
            columns = {
                **_places(rows),
                "step": rows["step"].to_list(),
                "when": [step_name(step) for step in rows["step"]],
                "rank": [f"Average Rank: {told(rank)}" for rank in rows["average_rank"]],
                "hits": [f"Accuracy: {told(share)}" for share in rows["accuracy"]],
            }
            sheet.traces.append(
                Trace(
                    shape="points", role="point", columns=columns, size=12, slides=True,
                    head=sheet.head(group, series), told=["when", "rank", "hits"], **common,
                )
            )  # fmt: skip
    return sheet


def _places(rows: pl.DataFrame) -> Columns:
    return {"x": floats(rows["average_rank"]), "value": floats(rows["accuracy"])}


def _groups(
    part: pl.DataFrame, column: str, labels: FairnessLabels, *, value: str = "value"
) -> list[tuple[str, str, pl.DataFrame]]:
    return [
        (label, colour, rows)
        for label, colour in zip(labels, COLOURS, strict=True)
        if len(rows := part.filter(pl.col(column) == label)) and not rows[value].is_nan().all()
    ]
