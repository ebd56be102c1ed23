"""Minimal pairs: which of two sentences a model finds more probable, by group.

Frames in, frames out. A causal model's sentence score is the log-probability of the whole sentence,
a masked model's the pseudo-log-likelihood of the tokens that are scored; the two are never mixed.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from logitbank.analysis.families.pairs import FAMILY
from logitbank.analysis.frames.banks import Banks, choose_prompts, open_banks
from logitbank.analysis.frames.batches import Scan, as_frames, frame_columns, prompt_frames
from logitbank.analysis.frames.expected import expected_pieces, expected_rows, missing_note
from logitbank.analysis.frames.prompt_sums import (
    CHECKPOINT,
    PromptSums,
    check_columns,
    concat_sorted,
    map_prompt_sums,
)
from logitbank.analysis.frames.scan_cache import ScanCache
from logitbank.analysis.harness import Export, save_exports
from logitbank.analysis.results.curve import curve
from logitbank.analysis.results.tables import Result
from logitbank.analysis.stats.from_baseline import beside_baseline, items_of
from logitbank.analysis.stats.shares import if_enough, standard_error, with_wilson
from logitbank.analysis.stats.significance import benjamini_hochberg
from logitbank.analysis.study import Study, study_of
from logitbank.errors import BankError, UsageError
from logitbank.store import Bank
from logitbank.wording import checkpoint_name

OWN = ("pair", "side", "score_kind")
GROUPS = ("bias_type", "group", "UID", "linguistics_term")
"""Columns that group the pairs, the first that the prompts have."""
SIDES = {"good": ("good", "bad"), "more": ("more", "less")}
"""The marks of the two sentences of a pair; the first is the one whose share is measured."""
DIRECTIONS = ("stereo", "antistereo")
KINDS = ("masked", "sentence")
ALL = "all"
KEYS = [*CHECKPOINT, "score_kind"]
LAST = ("p", "p_bh", "likelihood_diff", "likelihood_diff_stderr", "pairs", "neutral")


def analyze_pairs(
    banks: Banks,
    *,
    prompts: str | None,
    models: Sequence[str] | None,
    cache: ScanCache | None,
    group_by: str | None,
    save_results: str | Path | None,
    partial: bool,
) -> Study["Pairs"]:
    """The study of banks; `logitbank.pairs` documents the parameters."""
    opened = open_banks(banks, models=models, prompts=prompts, family=FAMILY.prompts)
    prompts = choose_prompts(opened, prompts, default="crows-pairs", family=FAMILY.prompts)
    result = _of_banks(opened, prompts, models, group_by)
    if cache is not None and group_by is None:
        cache.put(_key(prompts, models), result)
    if save_results is not None:
        group = result.settings["group_by"]
        names = ["pair", "score_kind", *([str(group)] if group else [])]
        expected = expected_rows(opened, prompts, names)
        save_exports(
            [*_exports(result, expected, prompts)], folder=Path(save_results), partial=partial
        )
    lacking = result.checkpoints.filter(pl.col("missing") > 0)
    count = int(lacking["missing"].sum())
    missing = [missing_note(count, "sentence", checkpoints=len(lacking))] if count else []
    return study_of(FAMILY, result, prompts=[prompts], banks=opened, models=models, missing=missing)


def _of_banks(
    banks: Sequence[Bank], prompts: str, models: Sequence[str] | None, group_by: str | None
) -> "Pairs":
    frame = prompt_frames(banks, prompts, models)
    return pairs_metric(frame, group_by=group_by, expected=expected_pieces(banks, prompts))


def _key(prompts: str, models: Sequence[str] | None) -> tuple[object, ...]:
    return ("pairs", prompts, None if models is None else tuple(models))


@dataclass(frozen=True, slots=True)
class Pairs(Result):
    """What `pairs_metric` found. Scores are in percent; 50 is chance."""

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


def pairs_metric(
    frame: Scan, *, group_by: str | None = None, expected: pl.DataFrame | None = None
) -> Pairs:
    """How often the first sentence of a pair is the more probable one, by group and overall.

    `score` is the percentage of pairs whose `good` or `more` sentence has the higher sum of
    log-probabilities. In CrowS-Pairs that is `sent_more` in pairs of both directions: in a pair
    marked `antistereo`, `sent_less` goes against a stereotype, and `sent_more` is still the more
    stereotyping sentence. Equal sums are neutral: they count in `pairs`, and not as preferred.

    Parameters
    ----------
    frame
        A scan such as `Bank.scan("crows-pairs")`: one row per checkpoint, sentence and piece, with
        the columns pair, side (`good`, `bad` or `more`, `less`), score_kind (`masked`, `sentence`),
        and for CrowS-Pairs direction (`stereo`, `antistereo`). Or several, as `batches` gives them.
    group_by
        Column with the groups; by default the first of `GROUPS` that is there.
    expected
        How many pieces each sentence has, as for `sum_prompts`. A pair that a checkpoint has
        in part is left out there.

    Raises
    ------
    UsageError, BankError
        As `sum_prompts`; an invalid side, direction or kind; a pair with a side twice; no whole
        pair.

    References
    ----------
    Warstadt et al. 2020 (BLiMP). Nangia et al. 2020, §3 and its published code; of whole sentences
    lm-evaluation-harness, whose `pct_stereotype` and `likelihood_diff` these are. Departure: sums
    are compared as they are, where the published code rounds them to three digits, which makes
    more pairs neutral.

    Examples
    --------
    >>> rows = {
    ...     "model": "m", "run": "main", "step": 8, "prompt_id": ["a", "b"], "piece": 0,
    ...     "logprob": [-1.0, -2.0], "pair": 0, "side": ["good", "bad"], "group": "agreement",
    ...     "score_kind": "sentence",
    ... }
    >>> found = pairs_metric(pl.DataFrame(rows)).pairs
    >>> found.select("group", "score", "neutral").rows()
    [('all', 100.0, 0), ('agreement', 100.0, 0)]
    """
    frames = as_frames(frame)
    names = set.intersection(*map(set, frame_columns(frames)))
    group_by = group_by or next((name for name in GROUPS if name in names), None)
    columns = [
        *OWN,
        *(["direction"] if "direction" in names else []),
        *([group_by] if group_by else []),
    ]
    check_columns(names, columns, family=FAMILY.name)

    def reduced(
        prompts: PromptSums, _: pl.DataFrame | None
    ) -> tuple[pl.DataFrame, pl.DataFrame, pl.Series, pl.DataFrame, pl.Series]:
        pairs = _pairs(prompts.rows, group_by)
        items = items_of(
            pairs, ("score_kind", "group"), item="pair", value=pl.col("difference") > 0
        )
        numbers, sides = (prompts.rows[name].unique() for name in ("pair", "side"))
        return _table(pairs), prompts.coverage, numbers, items, sides

    parts = map_prompt_sums(frames, reduced, family=FAMILY.name, columns=columns, expected=expected)
    tables, coverage, numbers, items, sides = zip(*parts, strict=True)
    table = concat_sorted(tables, "score_kind")
    if table.is_empty():
        raise BankError("no pair has both its sentences whole; extract the rest first")
    return Pairs(
        pairs=beside_baseline(table, items, ("score_kind", "group"), scale=100.0),
        checkpoints=concat_sorted(coverage).with_columns(unscored=_unscored(pl.concat(numbers))),
        settings={
            "intervals": "Wilson, 95 %", "group_by": group_by,
            "sides": " ".join(_sides(pl.concat(sides).unique())),
        },
    )  # fmt: skip


def _table(pairs: pl.DataFrame) -> pl.DataFrame:
    directions = DIRECTIONS if "direction" in pairs.columns else ()
    table = (
        pairs.group_by(*KEYS, "group")
        .agg(
            share=(pl.col("difference") > 0).mean(),
            **{f"{name}_score": 100 * _preferred(name) for name in directions},
            likelihood_diff=pl.col("difference").abs().mean(),
            likelihood_diff_stderr=pl.col("difference").abs().std(ddof=1) / pl.len().sqrt(),
            pairs=pl.len().cast(pl.Int64),
            neutral=(pl.col("difference") == 0).sum().cast(pl.Int64),
        )
        .with_columns(
            pl.col("likelihood_diff_stderr").fill_null(float("nan")),
            first=pl.col("group") != ALL,
        )
        .sort(*KEYS, "first", "group", nulls_last=True)
    )
    table = _with_tests(with_wilson(table, "share", "pairs"))
    return table.select(
        *KEYS,
        "group",
        score=100 * pl.col("share"),
        score_stderr=100 * standard_error(pl.col("share"), pl.col("pairs")),
        low=100 * pl.col("low"),
        high=100 * pl.col("high"),
        **{f"{name}_score": f"{name}_score" for name in directions},
        **{name: name for name in LAST},
    )


def _with_tests(table: pl.DataFrame) -> pl.DataFrame:
    """With `p` and `p_bh`; p is 1 where all pairs are neutral."""
    from scipy.special import bdtr

    preferred = (table["share"] * table["pairs"]).round().to_numpy()
    told = (table["pairs"] - table["neutral"]).to_numpy()
    fewer = np.minimum(preferred, told - preferred)
    table = table.with_columns(p=pl.Series(np.minimum(1.0, 2 * bdtr(fewer, told, 0.5))))
    adjusted = pl.col("p").map_batches(
        lambda p: pl.Series(benjamini_hochberg(p.to_numpy())), return_dtype=pl.Float64
    )
    first = pl.col("group") == ALL
    return table.with_columns(p_bh=pl.when(~first).then(adjusted.over(*KEYS, first)))


def _unscored(numbers: pl.Series) -> pl.Expr:
    """How many numbers up to the last pair's are those of no pair that the model has a score of.

    Sentences without a scored token have no row to count, so the count is of gaps.
    """
    if not numbers.dtype.is_integer():
        return pl.lit(None, pl.Int64)
    known = pl.col("prompts") + pl.col("missing")
    last, first = (int(str(end)) for end in (numbers.max(), numbers.min()))
    return (last - first + 1 - (known + 1) // 2).clip(lower_bound=0).cast(pl.Int64)


def _preferred(direction: str) -> pl.Expr:
    """Share of the pairs of a direction, neutral ones left out, that prefer the stereotype."""
    differences = pl.col("difference").filter(
        (pl.col("direction") == direction) & (pl.col("difference") != 0)
    )
    return (differences > 0).mean().fill_null(float("nan"))


def _sides(marks: pl.Series) -> tuple[str, str]:
    """The marks of the two sentences of a pair; errors name others."""
    for sides in SIDES.values():
        if not set(marks) - set(sides):
            return sides
    known = "good and bad, or more and less"
    raise UsageError(f"The sides of pairs are {sorted(map(str, marks))}: mark them {known}.")


def _pairs(sentences: pl.DataFrame, group_by: str | None) -> pl.DataFrame:
    """One row per checkpoint, whole pair and group, `all` among these: the difference in nats."""
    one, other = _sides(sentences["side"].unique())
    for column, allowed in (("score_kind", KINDS), ("direction", DIRECTIONS)):
        if column not in sentences.columns:
            continue
        invalid = sentences.filter(~pl.col(column).is_in(allowed).fill_null(False))
        if len(invalid):
            raise UsageError(
                f"sentence {invalid['prompt_id'][0]!r} has the {column} {invalid[column][0]!r}, "
                f"which is neither {' nor '.join(allowed)} ({len(invalid):,} such rows)"
            )
    key = [*KEYS, "pair"]
    twice = sentences.filter(pl.struct(*key, "side").is_duplicated())
    if len(twice):
        row = twice.row(0, named=True)
        raise UsageError(
            f"pair {row['pair']!r} of {checkpoint_name(row)} has several sentences of side "
            f"{row['side']!r} ({len(twice):,} such rows); a pair is one of each side"
        )
    group = pl.lit(ALL) if group_by is None else pl.col(group_by).cast(pl.String)
    columns = [pl.col("^direction$"), group.alias("group"), pl.col("logprob"), pl.col("pieces")]
    first, second = (sentences.filter(side=side).select(*key, *columns) for side in (one, other))
    both = first.join(second, on=key, suffix="_other", nulls_equal=True)
    apart = both.filter(
        (pl.col("score_kind") == "masked") & (pl.col("pieces") != pl.col("pieces_other"))
    )
    if len(apart) and one == "more":
        row = apart.row(0, named=True)
        raise UsageError(
            f"pair {row['pair']!r} of {checkpoint_name(row)} has {row['pieces']} scored tokens "
            f"against {row['pieces_other']} ({len(apart):,} such pairs); masked scores are over "
            "the tokens that both sentences share"
        )
    both = both.with_columns(difference=pl.col("logprob") - pl.col("logprob_other"))
    overall = both.with_columns(group=pl.lit(ALL))
    return overall if group_by is None else pl.concat([overall, both])


def _exports(result: Pairs, expected: pl.DataFrame, prompts: str) -> Iterator[Export]:
    """Causal scores under the harness's task names, masked ones under a name of their own.

    `expected` has the columns model, pair, score_kind and the groups of what each model was asked.
    """
    column, kinds = result.settings["group_by"], ["score_kind", "group"]
    every = expected.with_columns(group=pl.lit(ALL))
    if column is not None:
        own = expected.with_columns(group=pl.col(str(column)).cast(pl.String))
        every = pl.concat([every, own])
    whole = (
        every.unique()
        .group_by("model", *kinds)
        .agg(original=pl.col("pair").n_unique().cast(pl.Int64))
    )
    share = "acc" if result.settings["sides"] == "good bad" else "pct_stereotype"
    table = (
        result.checkpoints.select(CHECKPOINT)
        .join(whole, on="model")
        .join(result.pairs, on=[*CHECKPOINT, *kinds], how="left", nulls_equal=True)
        .with_columns(
            pl.col("pairs").fill_null(0).alias("effective"),
            (pl.col("score") / 100).alias(share),
            *(
                (pl.col(column) / 100).alias(f"{share}_{end}")
                for column, end in (("score_stderr", "stderr"), ("low", "low"), ("high", "high"))
            ),
        )
        .with_columns(missing=pl.col("original") - pl.col("effective"))
        .sort(*kinds, *CHECKPOINT, nulls_last=True)
    )
    causal = "crows_pairs_english" if prompts == "crows-pairs" else prompts.replace("-", "_")
    masked = f"{prompts.replace('-', '_')}_masked"
    for (kind, group), rows in table.group_by(kinds, maintain_order=True):
        end = "" if group == ALL else "_" + str(group).replace("-", "_")
        metrics = {name: name for name in (share, "likelihood_diff")}
        yield Export((causal if kind == "sentence" else masked) + end, rows, metrics)


def compared(frames: Sequence[pl.LazyFrame], expected: pl.DataFrame) -> pl.DataFrame:
    """The values that a comparison of two banks sets side by side."""
    if not set(OWN) <= set(frames[0].collect_schema().names()):
        return pl.DataFrame()
    table = pairs_metric(frames, expected=expected).pairs.filter(group=ALL)
    return table.select(
        *CHECKPOINT, metric=pl.lit("score"), group=pl.col("score_kind"), value=pl.col("score")
    )


def gap(
    banks: Sequence[Bank], prompts: str, models: Sequence[str] | None, resamples: int,
    cache: ScanCache,
) -> pl.DataFrame:  # fmt: skip
    """The distance of the score over all pairs from one half, for a trade-off."""
    result = cache.get(_key(prompts, models), lambda: _of_banks(banks, prompts, models, None))
    rows = result.pairs.filter(group=ALL)
    stderr = rows.select(if_enough(pl.col("score_stderr") / 100, pl.col("pairs"))).to_series()
    return curve(rows, rows["score"] / 100 - 0.5, stderr=stderr)
