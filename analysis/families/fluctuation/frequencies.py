"""How often professions occur in a corpus, by year and letter case, as one number each.

`docs/tables.md` documents both tables.
"""

import polars as pl

from logitbank.analysis.frames.expressions import Floats
from logitbank.analysis.frames.table_files import number, whole
from logitbank.errors import UsageError

FIRST_YEAR, LAST_YEAR = 1700, 2000
"""Years that are summed, both included."""

_FORMATS = (
    "a table of frequencies has occupation, case, year and frequency, or occupation, case and total"
)


def corpus_frequencies(
    table: pl.DataFrame, corpus_sizes: pl.DataFrame | None = None
) -> pl.DataFrame:
    r"""Total frequency of each profession in each case: :math:`f=\sum_y\mathrm{size}_y\,p_y`.

    Parameters
    ----------
    table
        Relative frequencies by year (occupation, case, year, frequency), or totals (occupation,
        case, total). Numbers may be text.
    corpus_sizes
        Words of each year (year, total_words), in any order; with yearly frequencies only.

    Returns
    -------
    Columns occupation (lower case, without article), case, frequency (words, or the totals'
    unit), one row each. A year or profession that is not in the table adds 0.

    Raises
    ------
    UsageError
        Columns that are neither, a year without a size, something twice, or a number that is no
        frequency.

    References
    ----------
    arXiv 2211.14639, §3 (RQ3): the years 1700 to 2000.

    Examples
    --------
    >>> yearly = {"occupation": "a cook", "case": "lower", "year": [1700, 1701, 2001]}
    >>> sizes = pl.DataFrame({"year": [1701, 1700], "total_words": [30, 10]})
    >>> table = pl.DataFrame(yearly | {"frequency": [0.5, 0.1, 0.9]})
    >>> corpus_frequencies(table, sizes).rows()
    [('cook', 'lower', 8.0)]
    """
    yearly = "total" not in table.columns
    needed = ("occupation", "case", *(("year", "frequency") if yearly else ("total",)))
    if missing := [name for name in needed if name not in table.columns]:
        raise UsageError(f"the frequencies lack {', '.join(missing)}; {_FORMATS}")
    if yearly and corpus_sizes is None:
        raise UsageError("yearly frequencies need the words of each year: give --corpus-sizes")
    if not yearly and corpus_sizes is not None:
        raise UsageError("the frequencies are totals already; leave --corpus-sizes out")
    value = "frequency" if yearly else "total"
    rows = table.select(
        bare(pl.col("occupation").cast(pl.String)),
        pl.col("case").cast(pl.String),
        *([whole(table["year"])] if yearly else []),
        number(table[value]).alias("frequency"),
    )
    _check(rows)
    if corpus_sizes is not None:
        rows = _weighted(rows, corpus_sizes)
    return rows.group_by("occupation", "case").agg(pl.col("frequency").sum()).sort(pl.all())


def frequency_vectors(occupations: pl.Series, frequencies: pl.DataFrame) -> dict[str, Floats]:
    """By case, the frequency of each profession (t,); 0 where the table has none.

    Raises
    ------
    UsageError
        None of the professions is in the table.
    """
    wanted = pl.DataFrame({"occupation": occupations}).select(bare(pl.col("occupation")))
    cases = frequencies["case"].unique().sort().to_list()
    if (
        len(occupations)
        and not wanted["occupation"].is_in(frequencies["occupation"].implode()).any()
    ):
        raise UsageError(
            f"none of the {len(occupations)} professions, such as {occupations[0]!r}, is in the "
            "table of frequencies; its occupations are to be named alike, article or not"
        )
    return {
        case: wanted.join(
            frequencies.filter(pl.col("case") == case),
            on="occupation",
            how="left",
            maintain_order="left",
        )["frequency"]
        .fill_null(0.0)
        .to_numpy()
        for case in cases
    }


def bare(occupation: pl.Expr) -> pl.Expr:
    """A profession in lower case, without its article.

    >>> pl.select(bare(pl.lit(" An Actor"))).item()
    'actor'
    """
    return occupation.str.strip_chars().str.to_lowercase().str.replace(r"^an?\s+", "")


def _check(rows: pl.DataFrame) -> None:
    for name in ("occupation", "case"):
        if rows[name].null_count():
            raise UsageError(f"the frequencies have rows without {name}; {_FORMATS}")
    value = pl.col("frequency").fill_null(0.0)  # a blank is an n-gram that was not found
    invalid = rows.filter((value < 0) | value.is_infinite())
    if len(invalid):
        raise UsageError(
            f"the frequency {invalid['frequency'][0]} of {invalid['occupation'][0]!r} is none; "
            "frequencies are 0 or more"
        )
    keys = [name for name in rows.columns if name != "frequency"]
    twice = rows.filter(rows.select(keys).is_duplicated())
    if len(twice):
        about = ", ".join(str(value) for value in twice.select(keys).row(0))
        raise UsageError(
            f"the frequencies have {about} twice, articles and capitals aside ({len(twice)} such "
            "rows); keep one of them"
        )


def _weighted(rows: pl.DataFrame, corpus_sizes: pl.DataFrame) -> pl.DataFrame:
    if missing := [c for c in ("year", "total_words") if c not in corpus_sizes.columns]:
        raise UsageError(
            f"the corpus sizes lack {', '.join(missing)}; the table has year and total_words"
        )
    sizes = pl.DataFrame([whole(corpus_sizes["year"]), number(corpus_sizes["total_words"])])
    if sizes["year"].is_duplicated().any():
        year = sizes.filter(sizes["year"].is_duplicated())["year"][0]
        raise UsageError(f"the corpus sizes have the year {year} twice; keep one of them")
    inside = rows.filter(pl.col("year").is_between(FIRST_YEAR, LAST_YEAR))
    joined = inside.join(sizes, on="year", how="left")
    unknown = joined.filter(pl.col("total_words").is_null() | (pl.col("total_words") < 0))
    if len(unknown):
        raise UsageError(
            f"the corpus sizes have no words for the year {unknown['year'].sort()[0]}, and the "
            f"frequencies do ({unknown['year'].n_unique()} such years); add them"
        )
    return joined.with_columns(pl.col("frequency") * pl.col("total_words"))
