"""Fluctuation of pronoun ratios in masked models during pre-training.

Scores of “he” and “she” at the mask, from banks and published tables, become ratios, their
coefficients of variation over a plateau of training, and correlations. After arXiv 2211.14639;
every departure is named where it happens.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from logitbank.analysis.families.fluctuation.tables import (
    NOTHING,
    Series,
    all_plateaus,
    checkpoint_pair_table,
    checkpoint_table,
    correlation_table,
    dense_scores,
    frequency_table,
    plateau_table,
    profession_table,
    run_pair_table,
    spread_table,
    trajectory_table,
)
from logitbank.analysis.frames.banks import select_models
from logitbank.analysis.frames.expressions import Floats
from logitbank.analysis.frames.input_files import parse_integers, parse_numbers, read_table
from logitbank.analysis.frames.pronoun_scores import (
    as_scores,
    expected_professions,
    published_columns,
    published_table,
)
from logitbank.analysis.frames.reader import Scores
from logitbank.analysis.results.query import write
from logitbank.analysis.results.tables import Result
from logitbank.errors import UsageError

MOST_FREQUENT = 20
"""Professions in the table `frequent`, for each case."""
FIRST_YEAR, LAST_YEAR = 1700, 2000
"""Years of a corpus that are summed, both included."""
COLUMNS = ("verb", "occupation", "prior")
CODED = ("model", "run", "verb", "option")
"""Columns that are wanted as Categorical: a sixth of the time, where each row was cast."""
_FORMATS = (
    "a table of frequencies has occupation, case, year and frequency, or occupation, case and total"
)


@dataclass(frozen=True, slots=True)
class Fluctuation(Result):
    """Results of `fluctuation_metric`: tidy tables.

    R = P(he) / P(she), N = R · P(she | prior) / P(he | prior), C = P(he) + P(she), with P the
    softmax over the whole vocabulary. A CV is the population deviation (ddof 0) over the plateau's
    checkpoints divided by their mean. `plateau` is the requested training step; the plateau's
    checkpoints are those from the first step at or after it. Correlations are Pearson's, over
    professions; `n` counts those with finite values, `excluded` the others.
    """

    checkpoints: pl.DataFrame
    """Professions at each checkpoint; `missing` those that are expected of the model, or that the
    series has elsewhere."""
    plateaus: pl.DataFrame
    """Where each begins, and the prior's own CV and mean certainty."""
    spread: pl.DataFrame
    """Smallest, largest, mean and median of each measure over professions."""
    correlations: pl.DataFrame
    """Certainty and corpus frequency against the CV of R and of N."""
    run_pairs: pl.DataFrame
    """Every two runs of a model: correlation of the professions' mean R, and of their mean N."""
    frequent: pl.DataFrame
    """The most frequent professions in each case; no rows without frequencies."""
    professions: pl.DataFrame
    """certainty = mean C, mean and CV of R and N. `missing` and `she_zero` count the plateau's
    checkpoints without a score, which makes all of them NaN, and with P(she) = 0, which makes a
    mean infinite and a CV NaN. `frequency_<case>` where frequencies are given."""
    checkpoint_pairs: pl.DataFrame
    """Every two checkpoints of a series: correlation of the rows of R, which is that of N."""
    trajectories: pl.DataFrame
    """Scores over training of the prior and of a few professions."""
    frequencies: pl.DataFrame
    """All professions by their corpus frequency in each case."""
    settings: Mapping[str, str | int]
    """Choices and counts: prior rows with “an”, which are not used, and rows that were twice."""


def fluctuation_metric(
    frames: Sequence[pl.LazyFrame | pl.DataFrame],
    *,
    plateaus: Sequence[int | str] | None = None,
    frequencies: pl.DataFrame | None = None,
    professions: Sequence[str] | None = None,
    run: Sequence[str] | None = None,
    verb: Sequence[str] | None = None,
    expected: pl.DataFrame | None = None,
) -> Fluctuation:
    """Every fluctuation table of the scores in a frame. All arithmetic is float64.

    A public release (null step) is in `checkpoints` and `trajectories` and in no statistic. A
    profession without a score at one of a plateau's checkpoints has NaN there and is left out of
    correlations and spreads, which count it. A checkpoint without any profession is no row.

    Parameters
    ----------
    frames
        Each `Bank.scan("professions")`, or a table in the published format.
    plateaus
        Training steps from which on to measure, each beside the others. By default one: half of
        the model's last step, which is the published start of RoBERTa and of MultiBERTs.
    frequencies
        Columns occupation, case and frequency, as `corpus_frequencies` gives them.
    professions
        Those whose trajectories to show, with article or without; by default the ones of largest
        and of smallest CV of R.
    run, verb
        Only these runs and verbs; by default all. The start of a plateau depends on all runs.
    expected
        Expected professions of each model: columns model, verb, occupation, prior, as
        `Scores.expected_rows` gives them. Without it, a profession or a verb without a score at any
        checkpoint of the frame is not counted as missing.

    Raises
    ------
    UsageError
        Columns, scores or arguments that do not fit; the message names what would.

    References
    ----------
    arXiv 2211.14639, §3 and App. A–D. Ours: the default plateau, which names no model, and the
    treatment of missing scores.

    Examples
    --------
    R is 1 and 3 over the two checkpoints, and N twice that, since the prior's ratio is 1/2.

    >>> rows = [
    ...     (pronoun, score, job, f"[MASK] is {job}.", "bert", 0, step)
    ...     for step, values in ((0, (0.2, 0.2, 0.1, 0.2)), (10, (0.6, 0.2, 0.1, 0.2)))
    ...     for (job, pronoun), score in zip(
    ...         [(j, p) for j in ("a cook", "a [MASK]") for p in ("he", "she")], values
    ...     )
    ... ]
    >>> names = ["pronoun", "score", "occupation", "template", "model", "seed", "checkpoint"]
    >>> found = fluctuation_metric([pl.DataFrame(rows, names, orient="row")], plateaus=[0])
    >>> found.professions.select(pl.col("mean_r", "mean_n", "cv_r", "cv_n").round(12)).row(0)
    (2.0, 4.0, 0.5, 0.5)
    """
    expected_names = NOTHING if expected is None else expected_professions(expected)
    scores = dense_scores(pl.concat(map(as_scores, frames)), expected_names)
    keep = _chosen(scores.series, run=run, verb=verb)
    spans = [span for span in all_plateaus(scores.series, plateaus) if keep(span.series)]
    checkpoints = checkpoint_table(scores).filter(
        pl.lit(run is None) | pl.col("run").is_in(run or ()) | pl.col("step").is_null(),
        pl.lit(verb is None) | pl.col("verb").is_in(verb or ()),
    )
    scores = scores._replace(series=tuple(filter(keep, scores.series)))
    cases = {} if frequencies is None else _frequency_vectors(scores.occupations, frequencies)
    ranked = frequency_table(scores.occupations, cases)
    chosen = None if professions is None else _indices(scores.occupations, professions)
    return Fluctuation(
        checkpoints=checkpoints,
        plateaus=plateau_table(spans),
        spread=spread_table(spans),
        correlations=correlation_table(spans, cases),
        run_pairs=run_pair_table(spans),
        frequent=ranked.filter(pl.col("rank") <= MOST_FREQUENT),
        professions=profession_table(spans, scores.occupations, cases),
        checkpoint_pairs=checkpoint_pair_table(scores.series),
        trajectories=trajectory_table(scores, spans, chosen),
        frequencies=ranked,
        settings={"an_priors": scores.an_priors, "merged_rows": scores.merged},
    )


def _chosen(series: Sequence[Series], **names: Sequence[str] | None) -> Callable[[Series], bool]:
    """Whether a series has one of the names that are given, such as those of runs."""
    wanted = {key: set(some) for key, some in names.items() if some is not None}
    for key, some in wanted.items():
        known = sorted({getattr(each, key) for each in series})
        if unknown := sorted(some.difference(known)):
            raise UsageError(
                f"{key.capitalize()} {unknown[0]!r} is unknown; there are {', '.join(known)}."
            )

    def keep(each: Series) -> bool:
        return all(getattr(each, key) in some for key, some in wanted.items())

    if not any(map(keep, series)):
        raise UsageError("No run that is chosen has a verb that is chosen: choose others.")
    return keep


def _indices(occupations: pl.Series, chosen: Sequence[str]) -> list[int]:
    """Indices of professions by name, with article or without."""
    plain = pl.select(_bare(pl.lit(occupations))).to_series().to_list()
    found = []
    for name in dict.fromkeys(chosen):
        wanted = pl.select(_bare(pl.lit(name))).item()
        if wanted not in plain:
            some = ", ".join(map(repr, occupations.head(3))) or "none"
            raise UsageError(f"Profession {name!r} is unknown; there are {len(plain)}: {some}, …")
        found.append(plain.index(wanted))
    return found


def source_frames(source: Scores, tables: Sequence[pl.DataFrame]) -> list[pl.LazyFrame]:
    """Scores of pronouns in banks, a few checkpoints at a time, and in published tables."""
    models_of_sources = [bank.models for bank in source.banks]
    if tables:
        # Together, since the lone seed of one file may be one of several.
        rows = pl.concat(tables, how="diagonal")
        models_of_sources.append(rows["model"].drop_nulls().unique().to_list())
    chosen = select_models(models_of_sources, source.models, "the banks and tables")
    holding = [bank for bank, own in zip(source.banks, chosen, strict=False) if own != []]
    frames: list[pl.LazyFrame] = []
    if holding:
        known = {name for bank in holding for name in bank.models}
        own = source.models and [name for name in source.models if name in known]
        frames += replace(source, banks=holding, models=own).frames(coded=CODED)
    if tables:
        own = chosen[-1]
        frames.append(
            rows.lazy() if own is None else rows.lazy().filter(pl.col("model").is_in(own))
        )
    return frames


def write_scores(frames: Sequence[pl.LazyFrame], path: str) -> None:
    """Write the scores of frames in the published format; UsageError for an existing file."""
    write(published_table(pl.concat([as_scores(frame) for frame in frames])).lazy(), Path(path))


def read_scores(path: Path) -> pl.DataFrame:
    """A table of scores in the published format."""
    try:
        return published_columns(read_table(path))
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error


def read_frequencies(table: str | None, sizes: str | None) -> pl.DataFrame | None:
    """The corpus frequencies in files; None without any."""
    if table is None:
        if sizes is not None:
            raise UsageError(f"Corpus sizes {sizes} need frequencies: add --frequencies.")
        return None
    rows = read_table(Path(table))
    words = None if sizes is None else read_table(Path(sizes))
    try:
        return corpus_frequencies(rows, words)
    except UsageError as error:
        raise UsageError(f"{table}: {error}") from error


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
    value = "frequency" if yearly else "total"
    needed = ("occupation", "case", *(["year"] if yearly else []), value)
    if missing := [name for name in needed if name not in table.columns]:
        raise UsageError(f"the frequencies lack {', '.join(missing)}; {_FORMATS}")
    if yearly and corpus_sizes is None:
        raise UsageError("yearly frequencies need the words of each year: add --corpus-sizes")
    if not yearly and corpus_sizes is not None:
        raise UsageError("the frequencies are totals already: leave --corpus-sizes out")
    rows = table.select(
        _bare(pl.col("occupation").cast(pl.String)),
        pl.col("case").cast(pl.String),
        *([parse_integers(table["year"])] if yearly else []),
        parse_numbers(table[value]).alias("frequency"),
    )
    for name in ("occupation", "case"):
        if rows[name].null_count():
            raise UsageError(f"the frequencies have rows without {name}; {_FORMATS}")
    blank_is_0 = pl.col("frequency").fill_null(0.0)  # an n-gram that was not found
    invalid = rows.filter((blank_is_0 < 0) | blank_is_0.is_infinite())
    if len(invalid):
        row = invalid.row(0, named=True)
        raise UsageError(
            f"the frequency {row['frequency']} of {row['occupation']!r} is invalid: frequencies "
            "are 0 or more"
        )
    keys = [name for name in rows.columns if name != "frequency"]
    twice = rows.filter(rows.select(keys).is_duplicated())
    if len(twice):
        about = ", ".join(str(value) for value in twice.select(keys).row(0))
        raise UsageError(
            f"the frequencies have {about} twice, articles and capitals aside ({len(twice)} such "
            "rows): keep one of them"
        )
    if corpus_sizes is not None:
        rows = _weighted(rows, corpus_sizes)
    return rows.group_by("occupation", "case").agg(pl.col("frequency").sum()).sort(pl.all())


def _weighted(rows: pl.DataFrame, corpus_sizes: pl.DataFrame) -> pl.DataFrame:
    """Yearly frequencies times the words of their years."""
    if missing := [c for c in ("year", "total_words") if c not in corpus_sizes.columns]:
        raise UsageError(
            f"the corpus sizes lack {', '.join(missing)}; the table has year and total_words"
        )
    sizes = pl.DataFrame(
        [parse_integers(corpus_sizes["year"]), parse_numbers(corpus_sizes["total_words"])]
    )
    twice = sizes.filter(sizes["year"].is_duplicated())
    if len(twice):
        raise UsageError(f"the corpus sizes have the year {twice['year'][0]} twice: keep one")
    inside = rows.filter(pl.col("year").is_between(FIRST_YEAR, LAST_YEAR))
    joined = inside.join(sizes, on="year", how="left")
    unknown = joined.filter(pl.col("total_words").is_null() | (pl.col("total_words") < 0))
    if len(unknown):
        raise UsageError(
            f"the corpus sizes have no words for the year {unknown['year'].sort()[0]}, and the "
            f"frequencies do ({unknown['year'].n_unique()} such years): add them"
        )
    return joined.with_columns(pl.col("frequency") * pl.col("total_words"))


def _frequency_vectors(occupations: pl.Series, frequencies: pl.DataFrame) -> dict[str, Floats]:
    """The frequency of each profession (t,), for each letter case; 0 where the table has none."""
    wanted = pl.select(_bare(pl.lit(occupations)).alias("occupation"))
    known = wanted["occupation"].is_in(frequencies["occupation"].implode())
    if len(occupations) and not known.any():
        raise UsageError(
            f"None of the {len(occupations)} professions, such as {occupations[0]!r}, is in the "
            "table of frequencies: name its occupations alike, with or without article."
        )
    return {
        case: wanted.join(
            frequencies.filter(case=case), on="occupation", how="left", maintain_order="left"
        )["frequency"]
        .fill_null(0.0)
        .to_numpy()
        for case in frequencies["case"].unique().sort().to_list()
    }


def _bare(occupation: pl.Expr) -> pl.Expr:
    """A profession in lower case, without its article.

    >>> pl.select(_bare(pl.lit(" An Actor"))).item()
    'actor'
    """
    return occupation.str.strip_chars().str.to_lowercase().str.replace(r"^an?\s+", "")
