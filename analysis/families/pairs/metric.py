"""Minimal pairs: which of two sentences a model finds more probable, by group.

Frames in, frames out. A causal model's sentence score is the log-probability of the whole sentence,
a masked model's the pseudo-log-likelihood of the tokens that are scored; the two are never mixed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import polars as pl

from logitbank.analysis.families.pairs import FAMILY
from logitbank.analysis.frames.items import Items, gather_items
from logitbank.analysis.frames.prompt_sums import (
    CHECKPOINT,
    PromptSums,
    concat_sorted,
)
from logitbank.analysis.frames.reader import Scores
from logitbank.analysis.results.tables import Result
from logitbank.analysis.stats.significance import benjamini_hochberg
from logitbank.analysis.stats.summary import ALL, BASELINE, measures_table
from logitbank.errors import BankError, UsageError
from logitbank.wording import checkpoint_name

COLUMNS = ("pair", "side", "score_kind")
GROUPS = ("bias_type", "group", "UID", "linguistics_term")
"""Columns that group the pairs, the first that the prompts have."""
SIDES = (("good", "bad"), ("more", "less"))
"""The marks of the two sentences of a pair; the first is the one whose share is measured."""
DIRECTIONS = ("stereo", "antistereo")
KINDS = ("masked", "sentence")
KEYS = [*CHECKPOINT, "score_kind"]


@dataclass(frozen=True, slots=True)
class Pairs(Result):
    """Results of `pairs_metric`. Scores are in percent; 50 is chance."""

    measures: pl.DataFrame
    """Every measure of the family, as `summarise` returns them."""
    pairs: pl.DataFrame
    """Per checkpoint, kind of score and group, and for `all` of them: `score` over all `pairs` with
    its standard error and interval (Wilson, 95 %), and the number of `neutral` pairs, whose
    sentences have equal scores; of CrowS-Pairs `stereo_score` and `antistereo_score`, over the
    pairs of each direction that are not neutral. `p` is the exact sign test over pairs that are
    not neutral, and `p_bh` is adjusted for the number of groups of the checkpoint
    (Benjamini–Hochberg; null for `all`). `likelihood_diff` is the mean size of the difference in
    nats, with its standard error. `from_baseline` is the difference of the score from the first
    checkpoint's, `baseline_step`, in points and in pairs over the `common` ones."""
    checkpoints: pl.DataFrame
    """Sentences that are there with all their pieces, how many are missing, and `unscored` pairs:
    numbers that no pair of the model has, as where two sentences share no token to score."""
    settings: Mapping[str, str | int | float | bool | None]
    """Intervals; `sides`, the marks of the sentences; `group_by`, the column of the groups."""


def pairs_metric(scores: Scores, *, group_by: str | None = None) -> Pairs:
    """How often the first sentence of a pair is the more probable one, by group and overall.

    `score` is the percentage of pairs whose `good` or `more` sentence has the higher sum of
    log-probabilities. In CrowS-Pairs that is `sent_more` in pairs of both directions: in a pair
    marked `antistereo`, `sent_less` goes against a stereotype, and `sent_more` is still the more
    stereotyping sentence. Equal sums are neutral: they count in `pairs`, and not as preferred.

    Parameters
    ----------
    scores
        Of a prompt set such as `crows-pairs`, with the columns pair, side (`good`, `bad` or `more`,
        `less`), score_kind (`masked`, `sentence`), and for CrowS-Pairs direction (`stereo`,
        `antistereo`). A pair that a checkpoint has in part is left out there.
    group_by
        Column with the groups; by default the first of `GROUPS` that is there.

    Raises
    ------
    UsageError, BankError
        As `Scores.map_prompts`; a column that cannot group pairs; an invalid side, direction or
        kind; a pair with a side twice; no whole pair.

    References
    ----------
    Warstadt et al. 2020 (BLiMP). Nangia et al. 2020, §3 and its published code; of whole sentences
    lm-evaluation-harness, whose `pct_stereotype` and `likelihood_diff` these are. Departure: sums
    are compared as they are, where the published code rounds them to three digits, which makes
    more pairs neutral.
    """
    names = scores.columns
    if group_by:
        scores.require_groups(group_by, *COLUMNS)
    group_by = group_by or next((name for name in GROUPS if name in names), None)
    optional = [*(["direction"] if "direction" in names else []), *([group_by] if group_by else [])]

    def reduced(prompts: PromptSums) -> _Part:
        pairs = _pairs(prompts.all_rows, group_by)
        numbers, sides = (prompts.rows[name].unique() for name in ("pair", "side"))
        return _Part(items(pairs), _sizes(pairs), prompts.coverage, numbers, sides)

    parts = scores.map_prompts(reduced, *COLUMNS, *optional, family=FAMILY.name)
    of_frames, sizes, coverage, numbers, sides = zip(*parts, strict=True)
    measures = measures_table(gather_items(of_frames), FAMILY.measures, within=["score_kind"])
    table = _table(measures, pl.concat(sizes))
    if table.is_empty():
        raise BankError("No pair has scores of both sentences. Extract the rest first.")
    return Pairs(
        measures=measures,
        pairs=table,
        checkpoints=concat_sorted(coverage).with_columns(unscored=_unscored(pl.concat(numbers))),
        settings={
            "intervals": "Wilson, 95 %", "group_by": group_by,
            "sides": " ".join(_sides(pl.concat(sides).unique())),
        },
    )  # fmt: skip


class _Part(NamedTuple):
    """Results of one frame."""

    items: pl.DataFrame
    sizes: pl.DataFrame
    coverage: pl.DataFrame
    numbers: pl.Series
    sides: pl.Series


def items(pairs: pl.DataFrame) -> pl.DataFrame:
    """Whether the first sentence is preferred; null without a score of both."""
    preferred = (pl.col("difference") > 0).cast(pl.Float64)
    return pairs.select(*KEYS, "^group$", item="pair", value=preferred)


def _sizes(pairs: pl.DataFrame) -> pl.DataFrame:
    """Sizes of differences, neutral pairs, and shares by direction, for each group and `all`."""
    known = pairs.drop_nulls("difference")
    size = pl.col("difference").abs()
    directions = [name for name in DIRECTIONS if "direction" in pairs.columns]
    numbers = {
        **{f"{name}_score": 100 * _preferred(name) for name in directions},
        "likelihood_diff": size.mean(),
        "likelihood_diff_stderr": (size.std(ddof=1) / pl.len().sqrt()).fill_null(float("nan")),
        "neutral": (size == 0).sum().cast(pl.Int64),
    }
    overall = known.with_columns(group=pl.lit(ALL))
    parts = [overall, known] if "group" in known.columns else [overall]
    return pl.concat(part.group_by(*KEYS, "group").agg(**numbers) for part in parts)


def _table(summary: pl.DataFrame, sizes: pl.DataFrame) -> pl.DataFrame:
    """The scores of all pairs and of each group, with tests; p is 1 if all pairs are neutral."""
    from scipy.special import bdtr

    if "group" not in summary.columns:
        summary = summary.with_columns(group=pl.lit(ALL))
    table = summary.filter(pl.col("items") > 0).join(
        sizes, on=[*KEYS, "group"], nulls_equal=True, maintain_order="left"
    )
    number, neutral = table["items"].to_numpy(), table["neutral"].to_numpy()
    preferred, different = (table["value"].to_numpy() * number / 100).round(), number - neutral
    p = np.minimum(1.0, 2 * bdtr(np.minimum(preferred, different - preferred), different, 0.5))
    adjusted = pl.col("p").map_batches(
        lambda p: pl.Series(benjamini_hochberg(p.to_numpy())), return_dtype=pl.Float64
    )
    is_group = pl.col("group") != ALL
    table = table.with_columns(p=p).with_columns(
        p_bh=pl.when(is_group).then(adjusted.over(*KEYS, is_group))
    )
    return table.sort(*KEYS, is_group, "group", nulls_last=True).select(
        *KEYS, "group", "low", "high", pl.col("^.*stereo_score$"), "p", "p_bh", "likelihood_diff",
        "likelihood_diff_stderr", "neutral", *BASELINE, score="value", score_stderr="stderr",
        pairs="items",
    ).select(
        *KEYS, "group", "score", "score_stderr", "low", "high", pl.col("^.*stereo_score$"), "p",
        "p_bh", "likelihood_diff", "likelihood_diff_stderr", "pairs", "neutral", *BASELINE,
    )  # fmt: skip


def _unscored(numbers: pl.Series) -> pl.Expr:
    """How many pair numbers up to the last one have no score of the model.

    Sentences without a scored token have no row to count, so gaps in the numbers are counted.
    """
    if not numbers.dtype.is_integer():
        return pl.lit(None, pl.Int64)
    known = pl.col("prompts") + pl.col("missing")
    last, first = (int(str(end)) for end in (numbers.max(), numbers.min()))
    return (last - first + 1 - (known + 1) // 2).clip(lower_bound=0).cast(pl.Int64)


def _preferred(direction: str) -> pl.Expr:
    """Share of the pairs of a direction, without neutral ones, that prefer the stereotype."""
    differences = pl.col("difference").filter(
        (pl.col("direction") == direction) & (pl.col("difference") != 0)
    )
    return (differences > 0).mean().fill_null(float("nan"))


def _sides(marks: pl.Series) -> tuple[str, str]:
    for sides in SIDES:
        if not set(marks) - set(sides):
            return sides
    raise UsageError(
        f"The sides of pairs are {sorted(map(str, marks))}: mark them good and bad, or more and "
        "less."
    )


def _pairs(sentences: pl.DataFrame, group_by: str | None) -> pl.DataFrame:
    """One row per checkpoint and pair: the difference in nats; null without both sentences."""
    one, other = _sides(sentences["side"].unique())
    for column, allowed in (("score_kind", KINDS), ("direction", DIRECTIONS)):
        if column in sentences.columns:
            valid = pl.col(column).is_in(allowed).fill_null(False)
            _refuse(sentences.filter(~valid), f"{{{column}}} is an invalid {column}: use "
                    f"{' or '.join(allowed)}")  # fmt: skip
    key = [*KEYS, "pair"]
    twice = sentences.filter(pl.struct(*key, "side").is_duplicated())
    _refuse(twice, "several sentences have the side {side}: mark one sentence of each side")
    group = [] if group_by is None else [pl.col(group_by).cast(pl.String).alias("group")]
    columns = [pl.col("^direction$"), *group, pl.col("logprob"), pl.col("pieces")]
    first, second = (sentences.filter(side=side).select(*key, *columns) for side in (one, other))
    both = first.join(second, on=key, suffix="_other", nulls_equal=True, maintain_order="left")
    if one == "more":
        apart = (pl.col("score_kind") == "masked") & (pl.col("pieces") != pl.col("pieces_other"))
        _refuse(both.filter(apart), "masked scores are over the tokens that both sentences share, "
                "and there are {pieces} against {pieces_other}")  # fmt: skip
    return both.with_columns(difference=pl.col("logprob") - pl.col("logprob_other"))


def _refuse(invalid: pl.DataFrame, problem: str) -> None:
    if len(invalid):
        row = invalid.row(0, named=True)
        raise UsageError(
            f"Pair {row['pair']!r} of {checkpoint_name(row)}: {problem.format(**row)} "
            f"({len(invalid):,} such rows)."
        )


def read_items(source: Scores) -> Items:
    """Whether the first sentence of each pair is the more probable one; none for other prompts."""
    if not source.columns.issuperset(COLUMNS):
        return gather_items([])
    pairs = source.map_prompts(
        lambda sums: items(_pairs(sums.all_rows, None)), *COLUMNS, family=FAMILY.name
    )
    return gather_items(pairs)
