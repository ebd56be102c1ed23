"""Minimal pairs: which of two sentences a model finds more probable, by group.

A causal model's sentence score is the log-probability of the whole sentence, a masked model's the
pseudo-log-likelihood of the tokens that are scored.
"""

from dataclasses import replace
from functools import partial

import numpy as np
import polars as pl

from logitbank.analysis.families.pairs import DIRECTIONS, FAMILY, SCORE
from logitbank.analysis.families.pairs.findings import findings
from logitbank.analysis.family import Family
from logitbank.analysis.frames.items import Items, gather_items
from logitbank.analysis.frames.prompt_sums import CHECKPOINT
from logitbank.analysis.frames.reader import Scores
from logitbank.analysis.stats.significance import benjamini_hochberg
from logitbank.analysis.stats.summary import ALL
from logitbank.errors import UsageError
from logitbank.wording import checkpoint_name

COLUMNS = ("pair", "side", "score_kind")
GROUPS = ("bias_type", "group", "UID", "linguistics_term")
"""Columns that group the pairs, the first that the prompts have."""
SIDES = {("good", "bad"): "Accuracy", ("more", "less"): "Stereotype preferred"}
"""The marks of the two sentences of a pair, and what the share of the first one is called."""
KINDS = ("masked", "sentence")


def family_of(scores: Scores, group_by: str | None = None) -> Family:
    """The family for these prompts: the name of their score, and its groups."""
    scores.require(*COLUMNS, family=FAMILY.name)
    sides = _sides(scores.expected_rows(["side"])["side"].unique())
    named = replace(
        FAMILY,
        measures=(replace(SCORE, text=SIDES[sides]), *FAMILY.measures[1:]),
        items=partial(read_items, group_by=group_by),
    )
    return replace(named, findings=partial(findings, named))


def read_items(scores: Scores, *, group_by: str | None = None) -> Items:
    """Of each pair whether its first sentence is preferred, and the size of the difference in nats.

    `preferred` is whether the `good` or `more` sentence has the higher sum of log-probabilities. In
    CrowS-Pairs that is `sent_more` in pairs of both directions: in a pair marked `antistereo`,
    `sent_less` goes against a stereotype, and `sent_more` is still the more stereotyping sentence.
    Equal sums are neutral: they count as not preferred, and `different` is 0. A pair that a
    checkpoint has in part has no value.

    Parameters
    ----------
    scores
        Of a prompt set such as `crows-pairs`, with the columns pair, side (`good`, `bad` or `more`,
        `less`), score_kind (`masked`, `sentence`), and for CrowS-Pairs direction (`stereo`,
        `antistereo`).
    group_by
        Column with the groups; by default the first of `GROUPS` that is there.

    Raises
    ------
    UsageError, BankError
        As `Scores.map_prompts`; a column that cannot group pairs; an invalid side, direction or
        kind; a pair with a side twice.

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
    optional = [name for name in ("direction", group_by) if name is not None and name in names]
    return gather_items(
        scores.map_prompts(
            lambda sums: _items(_pairs(sums.all_rows, group_by)),
            *COLUMNS, *optional, family=FAMILY.name,
        )
    )  # fmt: skip


def _items(pairs: pl.DataFrame) -> pl.DataFrame:
    """The parts of the measures; those of a direction are of its pairs alone."""
    difference = pl.col("difference")
    values = {"preferred": difference > 0, "different": difference != 0}
    parts = [
        (pairs, "preferred", values["preferred"]), (pairs, "size", difference.abs()),
        *(
            (pairs.filter(direction=direction), f"{part} {direction}", value)
            for direction in (DIRECTIONS if "direction" in pairs.columns else ())
            for part, value in values.items()
        ),
    ]  # fmt: skip
    return pl.concat(
        rows.select(
            *CHECKPOINT, "^group$", item="pair", part=pl.lit(part), value=value.cast(pl.Float64)
        )
        for rows, part, value in parts
    )


def sign_tests(items: Items) -> pl.DataFrame:
    """The exact sign test of all pairs and of each group, at every checkpoint.

    Columns model, run, step, group, pairs, neutral (pairs of equal sums), p of the others, 1
    without any; p_bh, adjusted for the groups of the checkpoint (Benjamini–Hochberg; null for all).
    `unscored`, of all: how many pair numbers up to the last one have no score of the model, because
    their sentences share no token; null if pairs have no numbers.
    """
    from scipy.special import bdtr

    preferred, size = (items.only(part=part) for part in ("preferred", "size"))
    groups = [(ALL, np.arange(len(size.axes)))]
    groups += [(name["group"], which) for name, which in size.by_group() if name]
    tables = []
    for name, which in groups:
        own = size.values[:, which]
        number, neutral = (~np.isnan(own)).sum(axis=1), (own == 0).sum(axis=1)
        hits = np.nansum(preferred.values[:, which], axis=1)
        different = number - neutral
        p = np.minimum(1.0, 2 * bdtr(np.minimum(hits, different - hits), different, 0.5))
        columns = {"group": pl.lit(name), "pairs": number, "neutral": neutral, "p": p}
        tables.append(items.checkpoints.with_columns(**columns))
    is_group = pl.col("group") != ALL
    adjusted = pl.col("p").map_batches(
        lambda p: pl.Series(benjamini_hochberg(p.to_numpy())), return_dtype=pl.Float64
    )
    unscored = _unscored(size)
    return (
        pl.concat(tables)
        .filter(pl.col("pairs") > 0)
        .with_columns(
            p_bh=pl.when(is_group).then(adjusted.over(*CHECKPOINT, is_group)),
            unscored=pl.when(~is_group).then(
                pl.col("model").replace_strict(unscored, return_dtype=pl.Int64)
            ),
        )
        .sort(CHECKPOINT, nulls_last=True, maintain_order=True)
    )


def _unscored(items: Items) -> dict[str, int | None]:
    """By model. Sentences without a scored token have no row: gaps in the numbers are counted."""
    numbers = items.axes["item"].cast(pl.Int64, strict=False)
    if numbers.null_count() or numbers.is_empty():
        return dict.fromkeys(items.expected)
    whole = int(numbers.max()) - int(numbers.min()) + 1  # type: ignore[arg-type]
    return {model: whole - int(flags.sum()) for model, flags in items.expected.items()}


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
    key = [*CHECKPOINT, "score_kind", "pair"]
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
