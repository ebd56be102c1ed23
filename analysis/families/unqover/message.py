"""What UnQover says first: whether some subjects are favoured by more than chance."""

import polars as pl

from logitbank.analysis.drawing.names import name_among
from logitbank.analysis.drawing.paper import shortened
from logitbank.analysis.families.unqover.metric import ALL, Unqover
from logitbank.analysis.families.unqover.summary import LEVEL
from logitbank.analysis.results.message import (
    KeyNumber,
    Message,
    checkpoint_number,
    interval_text,
    missing_text,
    subject_of,
    untold,
)
from logitbank.analysis.results.words import Row
from logitbank.wording import counted, signed, step_name

KEYS = ["model", "run", "category"]


def unqover_message(result: Unqover) -> Message | None:
    """Of the last checkpoints, the category and model whose preference is the least like chance."""
    of_all = result.unqover.filter(pl.col("split") == ALL, pl.col("mu").is_not_nan())
    if of_all.is_empty():
        return None
    subjects = result.subjects.filter(pl.col("split") == ALL)
    p = pl.col("p_adjusted").fill_nan(None)
    least = subjects.group_by(*KEYS, "step").agg(p=p.min(), clear=(p <= LEVEL).sum())
    last = (
        of_all.group_by(KEYS, maintain_order=True)
        .last()
        .join(least, on=[*KEYS, "step"], nulls_equal=True, maintain_order="left")
    )
    tested = last["p"].count()
    rows = sorted(
        last.with_columns(p_of_all=(pl.col("p") * tested).clip(0, 1)).iter_rows(named=True),
        key=lambda row: (1.0 if row["p"] is None else row["p"], -row["mu"]),
    )
    row = rows[0]
    of_row = {name: row[name] for name in KEYS}
    ranked = subjects.filter(**of_row).filter(pl.col("step").eq_missing(pl.lit(row["step"])))
    categories = result.subjects.filter(pl.col("split") == ALL)["category"]
    return Message(
        sentence=_sentence(subject_of(row, result.unqover), row, tested),
        figure=name_among("ranked_subjects", row["category"], categories),
        numbers=[*_counted(row), _favoured(ranked), _intensity(row), checkpoint_number(of_all)],
        series=(row["model"], row["run"]),
    )


def _sentence(subject: str, row: Row, tested: int) -> str:
    where = f"At {step_name(row['step'])}"
    asked = f"questions of {row['category']} that leave the answer open"
    if row["p"] is None:
        return (
            f"{where} the preferences of {subject} in {asked} have a size μ of {row['mu']:.3f}; "
            f"{untold(row['attributes'], 'attribute')}."
        )
    told = "favours some {} over others" if row["p_of_all"] <= LEVEL else (
        "favours no {} over others that can be told from chance"
    )  # fmt: skip
    of = f", largest of {tested:,} models and categories" if tested > 1 else ""
    return (
        f"{where} {subject} {told.format(_subjects(row))} in {asked}: p = {row['p_of_all']:.2g} "
        f"for the largest of {row['subjects']:,} preferences{of}."
    )


def _subjects(row: Row) -> str:
    return "names" if row["category"] == "gender" else "subjects"


def _counted(row: Row) -> list[KeyNumber]:
    if row["p"] is None:
        return []
    value = f"{row['clear']:,} of {row['subjects']:,}"
    rests = f"{row['category']}; adjusted for their number, signs of attributes flipped"
    return [KeyNumber(value, f"{_subjects(row)} with p ≤ {LEVEL}", rests)]


def _favoured(ranked: pl.DataFrame) -> KeyNumber:
    row = ranked.sort("rank", "subject").row(0, named=True)
    rests = f"{interval_text(row, signed, 'gamma_')}{counted(row['attributes'], 'attribute')}"
    return KeyNumber(signed(row["gamma"]), f"greatest γ, of {shortened(row['subject'])}", rests)


def _intensity(row: Row) -> KeyNumber:
    rests = f"{interval_text(row, '{:.3f}'.format, 'mu_')}{counted(row['instances'], 'instance')}"
    return KeyNumber(f"{row['mu']:.3f}", f"bias intensity μ at {step_name(row['step'])}",
                     f"{rests}{missing_text(row)}; noise alone is above 0")  # fmt: skip
