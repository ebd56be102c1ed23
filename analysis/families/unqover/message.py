"""What UnQover says first: whether more subjects are favoured than chance would make."""

from math import comb

import polars as pl

from logitbank.analysis.drawing.names import name_among
from logitbank.analysis.drawing.paper import shortened
from logitbank.analysis.families.unqover.metric import ALL, Unqover
from logitbank.analysis.results.message import (
    KeyNumber,
    Message,
    checkpoint_number,
    interval_text,
    missing_text,
    on_one_side,
    subject_of,
    untold,
)
from logitbank.analysis.results.words import Row
from logitbank.wording import counted, signed, step_name

KEYS = ["model", "run", "category"]
OUTSIDE = 0.05
"""Share of 95 % intervals that leave out 0 where nothing is favoured."""


def unqover_message(result: Unqover) -> Message | None:
    """Of the last checkpoints, the category and model with most subjects beyond chance."""
    of_all = result.unqover.filter(pl.col("split") == ALL, pl.col("mu").is_not_nan())
    if of_all.is_empty():
        return None
    subjects = result.subjects.filter(pl.col("split") == ALL)
    known = pl.col("gamma_low").is_not_nan() & pl.col("gamma_high").is_not_nan()
    counts = subjects.group_by(*KEYS, "step").agg(
        clear=on_one_side("gamma_low", "gamma_high", 0).sum(), intervals=known.sum()
    )
    last = (
        of_all.group_by(KEYS, maintain_order=True)
        .last()
        .join(counts, on=[*KEYS, "step"], nulls_equal=True, maintain_order="left")
    )
    rows = sorted(last.iter_rows(named=True), key=lambda row: (_chance(row), -row["mu"]))
    row = rows[0]
    of_row = {name: row[name] for name in KEYS}
    ranked = subjects.filter(**of_row).filter(pl.col("step").eq_missing(pl.lit(row["step"])))
    categories = result.subjects.filter(pl.col("split") == ALL)["category"]
    return Message(
        sentence=_sentence(subject_of(row, result.unqover), row),
        figure=name_among("ranked_subjects", row["category"], categories),
        numbers=[*_counted(row), _favoured(ranked), _intensity(row), checkpoint_number(of_all)],
        series=(row["model"], row["run"]),
        certain=_certain(row),
    )


def _chance(row: Row) -> float:
    """How likely chance alone leaves so many intervals beside 0; 1 without intervals.

    Subjects are counted as if they were independent, though each is another's partner: this
    chooses what is said first and is no test.
    """
    n, k = row["intervals"], row["clear"]
    parts = (comb(n, i) * OUTSIDE**i * (1 - OUTSIDE) ** (n - i) for i in range(k, n + 1))
    return float(sum(parts))


def _certain(row: Row) -> bool:
    return bool(row["intervals"]) and _chance(row) <= OUTSIDE


def _sentence(subject: str, row: Row) -> str:
    where = f"At {step_name(row['step'])}"
    asked = f"questions of {row['category']} that leave the answer open"
    if not row["intervals"]:
        return (
            f"{where} the preferences of {subject} in {asked} have a size μ of {row['mu']:.3f}; "
            f"{untold(row['attributes'], 'attribute')}."
        )
    told = f"favours some {_subjects(row)} over others" if _certain(row) else (
        f"favours no more {_subjects(row)} over others than chance would make it"
    )  # fmt: skip
    return (
        f"{where} {subject} {told} in {asked}: {row['clear']:,} of {row['intervals']:,} intervals "
        f"leave out 0, and chance alone gives about {_expected(row)}."
    )


def _subjects(row: Row) -> str:
    return "names" if row["category"] == "gender" else "subjects"


def _expected(row: Row) -> str:
    return f"{OUTSIDE * row['intervals']:.2g}"


def _counted(row: Row) -> list[KeyNumber]:
    if not row["intervals"]:
        return []
    rests = f"{row['category']}; chance alone gives about {_expected(row)}"
    value = f"{row['clear']:,} of {row['intervals']:,}"
    return [KeyNumber(value, "intervals that leave out 0", rests)]


def _favoured(ranked: pl.DataFrame) -> KeyNumber:
    row = ranked.sort("rank", "subject").row(0, named=True)
    rests = f"{interval_text(row, signed, 'gamma_')}{counted(row['attributes'], 'attribute')}"
    return KeyNumber(signed(row["gamma"]), f"greatest γ, of {shortened(row['subject'])}", rests)


def _intensity(row: Row) -> KeyNumber:
    rests = f"{interval_text(row, '{:.3f}'.format, 'mu_')}{counted(row['instances'], 'instance')}"
    return KeyNumber(f"{row['mu']:.3f}", f"bias intensity μ at {step_name(row['step'])}",
                     f"{rests}{missing_text(row)}; noise alone is above 0")  # fmt: skip
