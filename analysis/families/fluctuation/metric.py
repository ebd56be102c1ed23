"""Fluctuation of pronoun ratios in masked models during pre-training.

Scores of “he” and “she” at the mask, from banks and published tables, become ratios, their
coefficients of variation over a plateau of training, and correlations. After arXiv 2211.14639;
every departure is named where it happens.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl

from logitbank.analysis.families.fluctuation import CERTAINTY, FAMILY, HE, LN_N, LN_R
from logitbank.analysis.families.fluctuation.tables import (
    Series,
    all_plateaus,
    all_series,
    bare,
    checkpoint_pair_table,
    correlation_table,
    frequency_table,
    plateau_table,
    profession_items,
    profession_table,
    read_pronouns,
    run_pair_table,
    spread_table,
    trajectory_table,
)
from logitbank.analysis.frames.banks import select_models
from logitbank.analysis.frames.input_files import parse_integers, parse_numbers, read_table
from logitbank.analysis.frames.items import Items
from logitbank.analysis.frames.pronoun_scores import (
    as_scores,
    published_columns,
    published_table,
)
from logitbank.analysis.frames.reader import Scores
from logitbank.analysis.results.measured import Measured, changes_of, overall
from logitbank.analysis.results.query import write
from logitbank.analysis.results.tables import Result
from logitbank.analysis.stats.measure import View
from logitbank.analysis.stats.summary import measures_table
from logitbank.errors import UsageError

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

    measures: pl.DataFrame
    """`ln_r` and `ln_n`, the means of ln R and ln N, `he`, the share of professions for which “he”
    is more probable, and `c`, the mean of C, as `summarise` returns them: by verb, and of several
    verbs also of `all`. A logarithm that is infinite is missing."""
    change_points: pl.DataFrame
    """Change points of the mean of ln R over all verbs, by model and run."""
    plateaus: pl.DataFrame
    """Where each begins, and the prior's own CV and mean certainty."""
    spread: pl.DataFrame
    """Smallest, largest, mean and median of each measure over professions."""
    correlations: pl.DataFrame
    """Certainty and corpus frequency against the CV of R and of N."""
    run_pairs: pl.DataFrame
    """Every two runs of a model: correlation of the professions' mean R, and of their mean N."""
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

    checkpoints = View(CERTAINTY, LN_R, LN_N, HE)

    @property
    def headline(self) -> Measured:
        """The measures over all verbs, with their change points."""
        return Measured(of_all_verbs(self.measures), self.change_points)


def of_all_verbs(measures: pl.DataFrame) -> pl.DataFrame:
    """The measures over all verbs."""
    return overall(measures).drop("verb")


def read_items(source: Scores) -> Items:
    """Each profession's ln R, ln N, he and C, as `profession_items` returns them."""
    return profession_items(
        read_pronouns(source.frames(coded=CODED), source.expected_rows(COLUMNS))
    )


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

    A public release (null step) is in `measures` and `trajectories`, and in no plateau and no
    correlation. A profession without a score at one of a plateau's checkpoints has NaN there and is
    left out of correlations and spreads, which count it.

    Parameters
    ----------
    frames
        Each `Bank.scan("professions")`, or a table in the published format, of other checkpoints.
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
        `Scores.expected_rows` gives them. Without it, those that any checkpoint of the model has.

    Raises
    ------
    UsageError
        Columns, scores or arguments that do not fit; the message names what would.

    References
    ----------
    arXiv 2211.14639, §3 and App. A–D. Ours: the default plateau, which names no model, the
    treatment of missing scores, and the measures.

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
    pronouns = read_pronouns(frames, expected)
    occupations, every = pronouns.occupations, all_series(pronouns)
    series = _chosen(every, run=run, verb=verb)
    plateaus_of = [span for span in all_plateaus(every, plateaus) if span.series in series]
    items = profession_items(pronouns)
    if run is not None:
        named = pl.col("run").is_in(run) | pl.col("step").is_null()
        items = items.at(np.flatnonzero(items.checkpoints.select(named).to_series()))
    if verb is not None:
        items = items.chosen(np.flatnonzero(items.axes["verb"].is_in(verb)))
    several = items.axes["verb"].n_unique() > 1
    measures = measures_table(items, FAMILY.measures, within=() if several else ["verb"])
    ranked = frequency_table(occupations, frequencies)
    of_professions = profession_table(plateaus_of, ranked)
    chosen = None if professions is None else _named(occupations, professions)
    return Fluctuation(
        measures=measures,
        change_points=changes_of(of_all_verbs(measures), FAMILY.measures[0]),
        plateaus=plateau_table(plateaus_of),
        spread=spread_table(of_professions),
        correlations=correlation_table(of_professions),
        run_pairs=run_pair_table(of_professions),
        professions=of_professions,
        checkpoint_pairs=checkpoint_pair_table(series),
        trajectories=trajectory_table(series, of_professions, chosen),
        frequencies=ranked,
        settings={"an_priors": pronouns.an_priors, "merged_rows": pronouns.merged},
    )


def _chosen(series: Sequence[Series], **names: Sequence[str] | None) -> list[Series]:
    """The series with one of the names that are given, such as those of runs."""
    wanted = {key: set(some) for key, some in names.items() if some is not None}
    for key, some in wanted.items():
        known = sorted({each.key[key] for each in series})
        if unknown := sorted(some.difference(known)):
            raise UsageError(
                f"{key.capitalize()} {unknown[0]!r} is unknown; there are {', '.join(known)}."
            )
    chosen = [s for s in series if all(s.key[key] in some for key, some in wanted.items())]
    if not chosen:
        raise UsageError("No run that is chosen has a verb that is chosen: choose others.")
    return chosen


def _named(occupations: pl.Series, chosen: Sequence[str]) -> list[str]:
    """Professions by their names, with article or without."""
    plain = dict(zip(pl.select(bare(pl.lit(occupations))).to_series(), occupations, strict=True))
    wanted = {name: pl.select(bare(pl.lit(name))).item() for name in chosen}
    if unknown := [name for name, each in wanted.items() if each not in plain]:
        some = ", ".join(map(repr, occupations.head(3))) or "none"
        raise UsageError(f"Profession {unknown[0]!r} is unknown; there are {len(plain)}: {some}, …")
    return [plain[each] for each in dict.fromkeys(wanted.values())]


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
        bare(pl.col("occupation").cast(pl.String)),
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
