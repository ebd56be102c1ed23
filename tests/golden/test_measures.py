"""Every number of a family's own tables that is a measure is the one in its table of measures."""

from pathlib import Path

import polars as pl
import pytest

from tests.golden.runner import EXPECTED

Column = tuple[str, str, str, dict[str, str]]
"""A column of a table of its own, the measure and its column, and the columns of both that name the
same group."""
ENDS = ("low", "high")


def with_ends(table: str, column: str, measure: str, **keys: str) -> list[Column]:
    """A number and the ends of its interval, which begin with its name or do not."""
    ends = [(table, f"{column}_{end}", f"{measure}/{end}", keys) for end in ENDS]
    return [(table, column, f"{measure}/value", keys), *ends]


COLUMNS: dict[str, list[Column]] = {
    "tradeoff": [
        *with_ends("tradeoff", "performance", "performance"),
        *with_ends("tradeoff", "delta", "delta"),
    ],
}  # fmt: skip
"""By a table of a family; that of a study is the first one that it has."""
STUDIES = sorted(
    path.parent
    for path in EXPECTED.glob("*/*/measures.csv")
    if any((path.parent / f"{kind}.csv").is_file() for kind in COLUMNS)
)


def rows(path: Path) -> pl.DataFrame:
    return pl.read_csv(path, infer_schema=False)


@pytest.mark.parametrize("study", STUDIES, ids=lambda path: path.name[:40])
def test_columns_are_measures_at_nine_digits(study: Path) -> None:
    measures = rows(study / "measures.csv")
    if "group" not in measures.columns:
        measures = measures.with_columns(group=pl.lit("all"))
    compared = 0
    kind = next(kind for kind in COLUMNS if (study / f"{kind}.csv").is_file())
    for table, column, measure, keys in COLUMNS[kind]:
        name, _, new = measure.partition("/")
        own = rows(study / f"{table}.csv")
        own = own.rename({"measure": "kind"}, strict=False)
        names = [name.format(**row) for row in own.to_dicts()]
        named = own.with_columns(measure=pl.Series(names, dtype=pl.String))
        place = ["model", "run", "step", "measure"]
        found = named.join(
            measures, left_on=[*place, *keys], right_on=[*place, *keys.values()],
            how="left", nulls_equal=True, suffix="_new",
        )  # fmt: skip
        pair = found.select(a=column, b=f"{new}_new" if new in own.columns else new)
        one, two = pair.filter(pl.col("a") != "NaN").cast(pl.Float64)
        assert two.to_list() == pytest.approx(one.to_list(), rel=1e-9), (table, column)
        compared += len(one)
    assert compared > 0 or measures.is_empty()
