"""The findings of training a filter, and of comparing filters."""

from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from logitbank.analysis.debias.results import (
    ERASED,
    NONE,
    REFERENCE,
    TRAINED,
    UNTRAINED,
    Debias,
    DebiasComparison,
)
from logitbank.analysis.finding import Finding
from logitbank.analysis.frames.candidates import PLAIN
from logitbank.analysis.frames.expressions import same_as
from logitbank.analysis.results.series import Row, about, from_row, size
from logitbank.wording import counted, step_name

COST = (
    "A filter is good if |C| falls and lms stays: a filter that flattens everything has no bias "
    "and no language either. ss is an average over terms: opposite preferences also give 50."
)
TRAIN_NOTES = (
    "Untrained: the filter with all weights 1, with which the published training begins. It "
    "gives the same answer for all logits, so its effect on bias is not due to training.",
    "Less bias alone is not enough: `logitbank debias compare` measures the cost in language "
    "modelling.",
)
C = ".4f"
LANGUAGES = {"en": "English", "de": "German"}
FEW = 0.5
"""Below this share among the k highest logits, a comparison is mostly of what no filter changes."""
OTHERS = (
    "with truncate they tie at probability 0, with keep_tail they keep theirs. Use a larger --k."
)


def train_findings(result: Debias) -> list[Finding]:
    """A headline about the last part, each part, coverage, and problems of the training."""
    parts = {
        split: {row["filter"]: row for row in result.bias.filter(split=split).to_dicts()}
        for split in result.bias["split"].unique(maintain_order=True)
    }
    split, rows = list(parts.items())[-1]
    before, after = rows[NONE]["abs_c"], rows[TRAINED]["abs_c"]
    found = [
        Finding(
            text=f"The filter changes mean |C| from {before:.4f} to {after:.4f} ({split} part)."
        )
    ]
    for name, each in parts.items():
        found += _split(name, each)
    first = result.bias.row(0, named=True)
    rest = "probability 0" if result.by.mode == "truncate" else "unchanged"
    found.append(
        Finding(
            text=f"Subjects among the {result.by.k} highest logits (others: {rest})",
            value=first["coverage"], form=".1%", n=counted(first["instances"], "instance"),
        )
    )  # fmt: skip
    at_rest = result.by.about.get("at_rest")
    if isinstance(at_rest, float) and at_rest:
        text = "Instances with C = 0 before training, which have no gradient"
        found.append(Finding(text=text, value=at_rest, form=".1%"))
    if after >= before:
        found.append(
            Finding(
                text=(
                    f"On the {split} part, the trained filter is not better than none. Train it "
                    "on more instances, with --regularisation, or with a larger --k."
                )
            )
        )
    return found


def _split(split: str, rows: Mapping[str, Row]) -> Iterator[Finding]:
    none, untrained, trained = (rows[name] for name in (NONE, UNTRAINED, TRAINED))
    n = size("instances")(trained)
    for measure, name in (("abs_c", "mean |C|"), ("positional", "positional error")):
        yield Finding(
            text=f"{split}: {name} with the trained filter", value=trained[measure],
            low=trained.get(f"{measure}_low"), high=trained.get(f"{measure}_high"),
            baseline=f"{none[measure]:{C}} without, {untrained[measure]:{C}} untrained",
            n=n, form=C,
        )  # fmt: skip


def comparison_findings(result: DebiasComparison) -> list[Finding]:
    """A headline, then the last checkpoint of each model: iCAT and |C| of each row."""
    table = result.comparison.filter(pl.col("label") != REFERENCE)
    key = ["model", "run"]
    last = table.filter(
        pl.col("step").eq_missing(pl.col("step").last().over(key))
    )  # a release, or the largest step
    few, many = list[Finding](), list[Finding]()
    for share, finding in _inside(last):
        (few if share < FEW else many).append(finding)
    rows = (each for row in last.to_dicts() for each in _row(row, last, result.unqover))
    return [*few, *_best(last, result.unqover), *_transfer(last), *many, *rows]


def _inside(last: pl.DataFrame) -> Iterator[tuple[float, Finding]]:
    """The smallest shares of candidates and of subjects that a trained filter can change."""
    for column, noun in (
        ("candidates_in_k", "StereoSet's candidates"), ("subjects_in_k", "UnQover's subjects"),
    ):  # fmt: skip
        rows = last.filter(filter=TRAINED).drop_nulls(column).sort(column)
        if rows.is_empty():
            continue
        row = rows.row(0, named=True)
        share = row[column]
        text = f"{share:.1%} of {noun} are among the {row['k']} highest logits of {_name(row)}."
        if share < FEW:
            text = f"Only {text} The filter cannot change the others: {OTHERS}"
        yield share, Finding(text=text, **about(row))


def measured_split(unqover: pl.DataFrame, row: Row) -> pl.DataFrame:
    """The rows of UnQover from which a row of the comparison is: those of the test part, if the
    prompts have one, and otherwise of all instances; one of each category."""
    own = unqover.filter(same_as(row, ("model", "run", "step", "filter", "label")))
    test = own.filter(split="test")
    return test if len(test) else own.filter(split="all")


def _basis(unqover: pl.DataFrame, row: Row) -> dict[str, Any]:
    """Sample size of a mean |C|, and its interval if it is of one category."""
    rows = measured_split(unqover, row)
    if rows.is_empty():
        return {}
    n = counted(int(rows["instances"].sum()), "instance")
    n += " of the test part" * (rows["split"][0] == "test")
    ends = {end: rows.row(0, named=True).get(f"abs_c_{end}") for end in ("low", "high")}
    return {"n": n, **(ends if len(rows) == 1 else {})}


def _best(last: pl.DataFrame, unqover: pl.DataFrame) -> Iterator[Finding]:
    """The trained filter, or eraser, with the smallest |C|, compared with no filter."""
    changed = last.filter(pl.col("filter").is_in([TRAINED, ERASED]))
    if changed.is_empty():
        yield Finding(text=f"{counted(len(last), 'row')} compared; no trained filter.")
    measured = changed.drop_nulls("abs_c").sort("abs_c")
    if measured.is_empty():
        return
    row = measured.row(0, named=True)
    base = _unfiltered(row, last)
    text = f"{row['label']}: mean |C| {base['abs_c']:.4f} → {row['abs_c']:.4f}"
    if row["lms"] is not None and base["lms"] is not None:
        text += f", lms {base['lms']:.1f} → {row['lms']:.1f}"
    basis = _basis(unqover, row)
    yield Finding(text=f"{text}.", n=basis.get("n", ""), **about(row, "abs_c"))


def _transfer(last: pl.DataFrame) -> Iterator[Finding]:
    """The change of iCAT in each language, for each trained filter."""
    trained = last.filter(filter=TRAINED, condition=PLAIN).drop_nulls("icat_change")
    for rows in trained.partition_by("model", "run", "label", maintain_order=True):
        row, changes = rows.row(0, named=True), rows.sort("language", descending=True)
        parts = [
            f"in {LANGUAGES.get(language, language)} by {change:+.1f}"
            for language, change in changes.select("language", "icat_change").iter_rows()
        ]
        if len(parts) > 1:
            yield Finding(
                text=f"{_name({**row, 'language': ''})}: trained on English questions, the filter"
                f" changes iCAT {', '.join(parts)}.",
                **about(row, "icat"),
            )  # fmt: skip


def _unfiltered(row: Row, last: pl.DataFrame) -> Row:
    same = last.filter(model=row["model"], run=row["run"], filter=NONE)
    plain = same.filter(pl.col("language").eq_missing(pl.lit(row["language"])), condition=PLAIN)
    return plain.row(0, named=True) if len(plain) else same.row(0, named=True)


def _row(row: Row, last: pl.DataFrame, unqover: pl.DataFrame) -> Iterator[Finding]:
    name = _name(row)
    base = _unfiltered(row, last)
    itself = row["filter"] == NONE and row["condition"] == PLAIN
    if row["icat"] is not None:
        n = size("examples")(row)
        baseline = ""
        if not itself and row["icat_change"] is not None:
            baseline = f"{base['icat']:.1f} without filter and prefix (paired change "
            baseline += f"{row['icat_change']:+.1f} over {row['common']:,} common examples)"
        text = f"{name}: iCAT (lms {row['lms']:.1f}, ss {row['ss']:.1f})"
        yield from_row(row, "icat", text, form=".1f", n=n, baseline=baseline, figure="icat")
    if row["abs_c"] is not None:
        yield Finding(
            text=f"{name}: UnQover mean |C| (positional error {row['positional']:.4f})",
            value=row["abs_c"], form=C, **about(row, "abs_c"), **_basis(unqover, row),
            baseline="" if itself else f"{base['abs_c']:{C}} without a filter",
        )  # fmt: skip


def _name(row: Row) -> str:
    parts = [row["model"], step_name(row["step"]), row["language"], row["label"]]
    parts += [] if row["condition"] == PLAIN else [row["condition"]]
    return ", ".join(part for part in parts if part)
