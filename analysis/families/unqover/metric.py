"""UnQover: which subject a model prefers when the context does not determine the answer.

Scores of subjects under four versions of each question become bias by subject and attribute, bias
intensity, and the errors that the four versions cancel.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import polars as pl

from logitbank.analysis.families.unqover import FAMILY
from logitbank.analysis.families.unqover.tables import (
    ALL,
    FLIPS,
    GAMMA,
    HEAD,
    OWN,
    SEED,
    SUBJECT,
    attribute_table,
    count_table,
    gamma_items,
    level_items,
    subject_attribute_cells,
    subject_table,
    unqover_instances,
    with_splits,
)
from logitbank.analysis.frames.items import Items, gather_items
from logitbank.analysis.frames.prompt_sums import concat_sorted
from logitbank.analysis.frames.reader import Scores
from logitbank.analysis.results.measured import Measured, changes_of
from logitbank.analysis.results.tables import Result
from logitbank.analysis.stats.measure import View
from logitbank.analysis.stats.summary import summarise

COLUMNS = ("category", "split", "instance")
"""Columns of the prompts that identify an instance."""
INTERVALS = "t over attributes, for mu over subjects, 95 %"
ROWS = 100_000
"""Rows of a batch, which are as wide as their texts."""


@dataclass(frozen=True, slots=True)
class Unqover(Result):
    """Results of `unqover_metric`. Every row begins with model, run, step, category and split.

    Step is null for a release. Split `all` is every instance, the others are parts of it.
    """

    measures: pl.DataFrame
    """`mu` (bias intensity), `eta`, `abs_c` (mean size of C), `positional` and `attributive` error,
    as `summarise` returns them; see `level_items`. `sd` of η is between subjects."""
    change_points: pl.DataFrame
    """Change points of μ, by model and run, if there is one category."""
    counts: pl.DataFrame
    """`coverage`, the share of subject slots within the `topk` (1 without a limit), `coverage_8`
    and `coverage_10`; numbers of subjects, attributes, contexts, instances and pairs of subjects;
    `pair_attributes`, how many pairs there are with an attribute (a full set has pairs ×
    attributes), and `subject_attributes`, rows of `cells`; `missing` instances, which the model was
    asked and of which the checkpoint has no score."""
    subjects: pl.DataFrame
    """γ(x) as `gamma` with its interval, mean over attributes; `p_adjusted`, the p value of no
    preference, adjusted for the number of subjects (`sign_test`); `rank`, 1 for the most favoured;
    `eta`, mean of η(x, a); `intensity`, the greatest |γ(x, a)|, and the `attribute` where it is."""
    attributes: pl.DataFrame
    """`strength` and `eta`, means over subjects of |γ(x, a)| and |η(x, a)|; the `subject` with the
    greatest |γ(x, a)| and its `gamma`; `gamma_female`, C towards the female name, of which the
    male value is the negative (null in other categories)."""
    cells: pl.DataFrame
    """γ(x, a) and η(x, a) as `gamma` and `eta`, with the numbers of averaged values, at the last
    checkpoint of every model, run and category. A release comes after all steps."""
    settings: Mapping[str, str | int | float | bool | None]

    unqover = View(*FAMILY.measures)

    @property
    def headline(self) -> Measured:
        """The measures of all instances, with their change points."""
        return Measured(of_all(self.measures), self.change_points)


def of_all(measures: pl.DataFrame) -> pl.DataFrame:
    """The measures of all instances, with the category if there are several."""
    table = measures.filter(split=ALL).drop("split")
    return table if table["category"].n_unique() > 1 else table.drop("category")


def unqover_metric(scores: Scores, *, topk: int | None = None, he_she: bool = False) -> Unqover:
    """Every UnQover table of the scores. All arithmetic is float64.

    Means are over the instances that there are: in a set that was sampled not every pair of
    subjects meets every attribute, and the tables say how many do. Contexts are replicates, and
    averaged. Intervals are t: of μ over subjects, and rough, as these share partners; of the others
    over attributes with all their instances.

    Parameters
    ----------
    scores
        Of prompt sets such as `unqover-gender`. Sets of a category are analysed together, such as
        its train and its test part, and an instance of several counts once.
    topk, he_she
        As for `unqover_instances`.

    Raises
    ------
    UsageError
        Columns or arguments that do not fit.
    BankError
        As `unqover_instances`.

    References
    ----------
    Li et al. 2020, "UnQovering Stereotyping Biases via Underspecified Questions". Ours: no limit
    to the highest entries, the intervals, and the splits.
    """
    parts, kept = [], list[pl.DataFrame]()
    for instances in read_instances(scores, topk=topk, he_she=he_she):
        split = with_splits(instances)
        cells = subject_attribute_cells(split)
        parts.append(
            (
                level_items(split, cells), gamma_items(cells), count_table(split, cells),
                subject_table(cells), attribute_table(split, cells),
            )
        )  # fmt: skip
        kept = [_last(pl.concat([*kept, cells]))]
    expected = scores.expected_rows(COLUMNS).cast(pl.String)
    expected = expected.unique(["model", "category", "instance"], keep="first")
    levels, gammas, counts, subjects, attributes = zip(*parts, strict=True)
    counted = _with_missing(concat_sorted(counts, "category", "split"), expected)
    measures = summarise(gather_items(levels), FAMILY.measures)
    measures = _without_changes(measures, counted.filter(pl.col("missing") > 0))
    means = summarise(gather_items(gammas), [GAMMA], changes=False).rename({"value": "gamma"})
    return Unqover(
        measures=measures,
        change_points=changes_of(of_all(measures), FAMILY.measures[0]),
        counts=counted,
        subjects=_ranked(pl.concat(subjects), means),
        attributes=concat_sorted(attributes, "category"),
        cells=concat_sorted(kept, "category"),
        settings={
            "topk": topk, "he_she": he_she, "flips": FLIPS, "seed": SEED, "intervals": INTERVALS,
        },
    )  # fmt: skip


def with_counts(result: Unqover) -> pl.DataFrame:
    """The measures of each checkpoint, category and split beside their counts."""
    table = result.unqover.drop("items", "clusters", "missing")
    return table.join(result.counts, on=HEAD, nulls_equal=True, maintain_order="left")


def read_instances(
    scores: Scores, *, topk: int | None = None, he_she: bool = False
) -> Iterator[pl.DataFrame]:
    """`unqover_instances` of a few checkpoints at a time."""
    scores.require(*OWN, family="unqover-gender")
    read = partial(unqover_instances, topk=topk, he_she=he_she)
    return scores.map_frames(read, rows=ROWS)


def read_items(source: Scores) -> Items:
    """`level_items` over all splits."""
    parts = []
    for instances in read_instances(source):
        everything = instances.with_columns(split=pl.lit(ALL))
        items = level_items(everything, subject_attribute_cells(everything))
        parts.append(items.pooled("split"))
    return gather_items(parts)


def _ranked(subjects: pl.DataFrame, means: pl.DataFrame) -> pl.DataFrame:
    """With γ(x), its interval and its `rank`, the most favoured first."""
    ends = {f"gamma_{end}": end for end in ("low", "high")}
    key, rank = [*HEAD, *SUBJECT], pl.col("gamma").rank("min", descending=True).over(HEAD)
    ranked = subjects.join(means.select(*key, "gamma", **ends), on=key, nulls_equal=True)
    ranked = ranked.with_columns(rank=rank.cast(pl.Int64))
    return ranked.sort(*HEAD, "rank", "subject", nulls_last=True).select(
        *key, "rank", "gamma", "gamma_low", "gamma_high", "p_adjusted", "eta",
        "intensity", "attribute", "attributes", "instances",
    )  # fmt: skip


def _with_missing(table: pl.DataFrame, expected: pl.DataFrame) -> pl.DataFrame:
    """With a column `missing`: of the instances of a model, category and split, those not there."""
    key = ["model", "category", "split"]
    whole = with_splits(expected).group_by(key).len(name="whole")
    missing = pl.col("whole").cast(pl.Int64) - pl.col("instances")
    counted = table.join(whole, on=key, how="left", maintain_order="left")
    return counted.with_columns(missing=missing.clip(lower_bound=0).fill_null(0)).drop("whole")


def _without_changes(measures: pl.DataFrame, incomplete: pl.DataFrame) -> pl.DataFrame:
    """Measures without a change from or to the `incomplete` checkpoints.

    The items are means over instances, so that those of two checkpoints would be over others.
    """
    for step in ("step", "baseline_step"):
        places = incomplete.select(HEAD).rename({"step": step}).with_columns(incomplete=True)
        measures = measures.join(
            places, on=[step if name == "step" else name for name in HEAD], how="left",
            nulls_equal=True, maintain_order="left",
        )  # fmt: skip
        kept = pl.when(pl.col("incomplete").is_null())
        changes = kept.then(pl.col("^from_baseline.*$")).otherwise(float("nan"))
        common = kept.then("common").otherwise(0)
        measures = measures.with_columns(changes, common=common).drop("incomplete")
    return measures


def _last(cells: pl.DataFrame) -> pl.DataFrame:
    """Rows of the last checkpoint of every model, run and category."""
    place = pl.col("step").fill_null(2**62)
    return cells.filter(place == place.max().over("model", "run", "category"))
