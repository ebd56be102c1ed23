"""Corpus frequencies: yearly ones with sizes, totals, and their correlation with the CV."""

import numpy as np
import polars as pl
import pytest

from logitbank.analysis.families.fluctuation.metric import corpus_frequencies, fluctuation_metric
from logitbank.analysis.frames.input_files import read_table
from logitbank.errors import UsageError
from tests.support.fluctuation_cases import JOBS, random_table
from tests.support.paths import PUBLIC as DATA

SIZES = pl.DataFrame({"year": [1702, 1701, 1700, 1699], "total_words": [10, 100, 1000, 7]})


def yearly(*rows: tuple[str, str, int, float]) -> pl.DataFrame:
    return pl.DataFrame(
        list(rows), schema=["occupation", "case", "year", "frequency"], orient="row"
    )


def test_years_are_weighed_by_their_words_and_joined_by_year() -> None:
    table = yearly(
        ("nurse", "lower", 1700, 0.5),
        ("nurse", "lower", 1702, 0.1),
        ("a judge", "lower", 1701, 0.25),
        ("nurse", "insensitive", 1701, 0.75),
        ("nurse", "lower", 1699, 0.9),  # before the years that count
        ("actor", "lower", 2001, 0.9),  # after them, and without a size
    )
    assert corpus_frequencies(table, SIZES).rows() == [
        ("judge", "lower", 25.0),
        ("nurse", "insensitive", 75.0),
        ("nurse", "lower", 501.0),
    ]
    assert (
        corpus_frequencies(table.reverse(), SIZES.reverse()).rows()
        == corpus_frequencies(table, SIZES).rows()
    )


def test_every_year_of_the_published_sizes_counts() -> None:
    path = DATA / "professions" / "corpus-sizes-by-year.csv"
    if not path.is_file():
        pytest.skip(f"needs {path}; set LOGITBANK_DATA")
    lines = path.read_text().split()[1:]
    sizes = {int(year): int(words) for year, words in (line.split(",") for line in lines)}
    table = yearly(*(("a cook", "lower", year, 1 / (year - 1600)) for year in sizes))
    ((_, _, found),) = corpus_frequencies(table, read_table(path)).rows()
    assert len(sizes) == 301
    assert found == pytest.approx(sum(n / (y - 1600) for y, n in sizes.items()), rel=1e-12)


def totals(**values: float) -> pl.DataFrame:
    rows = [(job.replace("_", " "), "lower", value) for job, value in values.items()]
    return pl.DataFrame(rows, schema=["occupation", "case", "total"], orient="row")


def test_absent_professions_count_zero_and_stay_in_the_correlation() -> None:
    table = totals(nurse=5, an_actor=9, A_COOK=2, wizard=1e9)
    frequencies = corpus_frequencies(table)
    result = fluctuation_metric([random_table()], plateaus=[3], frequencies=frequencies)
    found = dict(result.professions.select("occupation", "frequency_lower").iter_rows())
    assert found == dict.fromkeys(JOBS, 0.0) | {"a nurse": 5, "an actor": 9, "a cook": 2}
    rows = result.correlations.filter(pl.col("x") == "frequency")
    assert rows.select("y", "case", "n", "excluded").rows() == [
        ("cv_r", "lower", 6, 0),
        ("cv_n", "lower", 6, 0),
    ]
    for row in rows.iter_rows(named=True):
        p = result.professions
        expected = np.corrcoef(p["frequency_lower"], p[row["y"]])[0, 1]
        assert row["r"] == pytest.approx(expected, abs=1e-13)


def test_every_case_has_its_own_correlation_and_its_own_ranks() -> None:
    table = pl.concat(
        [
            totals(nurse=5, actor=9),
            totals(nurse=50, dean=9).with_columns(case=pl.lit("insensitive")),
        ]
    )
    result = fluctuation_metric(
        [random_table()], plateaus=[3], frequencies=corpus_frequencies(table)
    )
    assert result.correlations["case"].to_list() == [
        *(None, None, "insensitive", "insensitive", "lower", "lower")
    ]
    assert result.frequencies.filter(pl.col("rank") <= 2).rows() == [
        ("insensitive", 1, "a nurse", 50.0),
        ("insensitive", 2, "a dean", 9.0),
        ("lower", 1, "an actor", 9.0),
        ("lower", 2, "a nurse", 5.0),
    ]


YEAR = yearly(("x", "lower", 1700, 0.1))
NO_CASE = totals(x=1).with_columns(case=pl.lit(None, pl.String))


@pytest.mark.parametrize(
    ("table", "sizes", "message"),
    [
        (pl.DataFrame({"occupation": ["x"]}), None, "case, year, frequency"),
        (YEAR, None, "--corpus-sizes"),
        (totals(x=1), SIZES, "--corpus-sizes"),
        (YEAR.with_columns(year=1800), SIZES, "1800"),
        (YEAR.with_columns(frequency=-0.1), SIZES, "-0.1 of 'x'"),
        (totals(x=float("inf")), None, "inf of 'x'"),
        (pl.concat([totals(cook=1), totals(a_cook=2)]), None, "cook, lower"),
        (YEAR, SIZES.drop("year"), "year"),
        (YEAR, pl.concat([SIZES, SIZES.head(1)]), "1702 twice"),
        (NO_CASE, None, "case"),
        (totals(x=1).with_columns(total=pl.lit("many")), None, "'many'"),
    ],
)
def test_tables_of_frequencies_that_do_not_fit_are_refused(
    table: pl.DataFrame, sizes: pl.DataFrame | None, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        corpus_frequencies(table, sizes)


def test_frequencies_of_other_things_are_refused() -> None:
    with pytest.raises(UsageError, match="'a cook'"):
        fluctuation_metric([random_table()], frequencies=corpus_frequencies(totals(wizard=1)))
