"""Candidate sentences of StereoSet: one score for each, from the log-probabilities of its tokens.

Source: StereoSet (Nadeem et al. 2021) and its implementation in bias-bench. Every deviation is
documented at the function that makes it.
"""

from collections.abc import Collection, Iterator, Sequence
from functools import partial

import numpy as np
import polars as pl

from logitbank.analysis.frames.batches import ROWS, NoRowsError
from logitbank.analysis.frames.codes import distinct
from logitbank.analysis.frames.expressions import Floats, check_choice
from logitbank.analysis.frames.prompt_sums import CHECKPOINT
from logitbank.analysis.frames.reader import Scores
from logitbank.errors import UsageError

RULES = ("reference", "sum_logprob", "mean_logprob")
"""How the log-probabilities of a candidate's tokens become one score; see `read_candidates`."""

LABELS = ("stereotype", "anti-stereotype", "unrelated")
INTRA, INTER, BOTH, CAUSAL = "intrasentence", "intersentence", "both", "intersentence_causal"
TASK_OF = {"masked": INTRA, "sentence": INTRA, "nsp": INTER, "given": CAUSAL}
"""Kind of score to task. `given`, a causal model's candidate given its context, is an extension
with its own name; it never replaces next-sentence scores."""
PLAIN = "plain"
"""The condition without a prefix."""

KEYS = (*CHECKPOINT, "language", "condition", "score")
"""Columns that identify a set of scores; `score` is the rule."""
CANDIDATES = pl.Schema(
    {
        **dict.fromkeys(KEYS, pl.String),
        "step": pl.Int64,
        "task": pl.String,
        "score_kind": pl.String,  # a key of TASK_OF, or `file`
        "example": pl.String,
        "candidate": pl.String,
        "term": pl.String,  # English, in every language
        "domain": pl.String,
        "label": pl.String,
        "value": pl.Float64,  # null if a token has no score
    }
)
"""One row per candidate sentence."""

_NEEDED = ("example", "domain", "label", "score_kind")
_OPTIONAL = {"language": "", "condition": PLAIN}
_TERMS = ("target_english", "target")
_GROUP = ("language", "condition", "score_kind")
_CANDIDATE = ("model", "prompt_id", *_GROUP)


def read_candidates(
    scores: Scores, rules: Sequence[str] = ("reference",)
) -> Iterator[pl.DataFrame]:
    """Scores of StereoSet's candidates as `CANDIDATES`, of a few checkpoints at a time.

    With p_1 … p_n the probabilities of the tokens: `reference` is their arithmetic mean of a masked
    word, and exp(mean ln p) of causal models; `sum_logprob` and `mean_logprob` are the sum and the
    mean of ln p, in nats. A next-sentence score is its probability under every rule. All arithmetic
    is float64, tokens in their order. A candidate without one of its tokens at a checkpoint has
    null as its value.

    Parameters
    ----------
    scores
        Of prompt sets such as `stereoset-intra`. The default of their column `language` is blank,
        that of `condition` plain.
    rules
        Each gives rows of its own.

    Raises
    ------
    UsageError
        An unknown rule, or prompts without the columns; a text that is null; an unknown label or
        kind of score; a token that occurs twice; a log-probability that is NaN or above 0.
    """
    for rule in rules:
        check_choice("score", rule, RULES)
    expected = pl.concat(_expected(scores.of(name)) for name in scores.sets)
    read = partial(_candidates, expected=expected, rules=rules)
    return scores.map_frames(read, rows=ROWS)


def _expected(scores: Scores) -> pl.DataFrame:
    """The candidates of a prompt set, by model, with the number of their tokens, `pieces`."""
    known = scores.columns
    terms = [name for name in _TERMS if name in known] or _TERMS[1:]
    scores.require(*_NEEDED, *terms, family="stereoset-intra")
    optional = [name for name in _OPTIONAL if name in known]
    rows = scores.expected_rows(("prompt_id", "piece", *_NEEDED, *terms, *optional))
    candidates = (
        _filled(rows.lazy(), optional)
        .group_by(_CANDIDATE)
        .agg(
            pl.col("example", "domain", "label").first(),
            term=pl.coalesce(terms).first(),
            pieces=pl.col("piece").n_unique().cast(pl.Int64),
        )
        .collect()
    )
    for name in ("example", "domain", "label", "score_kind", "term"):
        if count := candidates[name].null_count():
            raise UsageError(f"{count:,} candidates have no {name}. Every candidate needs one.")
    _refuse_other(candidates, "label", LABELS)
    _refuse_other(candidates, "score_kind", tuple(TASK_OF))
    return candidates.with_columns(task=pl.col("score_kind").replace_strict(TASK_OF))


def _filled(rows: pl.LazyFrame, known: Collection[str]) -> pl.LazyFrame:
    return rows.with_columns(
        pl.col(name).fill_null(blank) if name in known else pl.lit(blank).alias(name)
        for name, blank in _OPTIONAL.items()
    )


def _refuse_other(candidates: pl.DataFrame, column: str, allowed: Sequence[str]) -> None:
    other = candidates.filter(~pl.col(column).is_in(allowed))
    if len(other):
        names = other["prompt_id"].unique().sort()
        raise UsageError(
            f"Candidates with a {column} other than {', '.join(allowed)}: {some(names)}."
        )


def _candidates(frame: pl.LazyFrame, expected: pl.DataFrame, rules: Sequence[str]) -> pl.DataFrame:
    """The expected candidates of each language and condition that a checkpoint began."""
    known = frame.collect_schema().names()
    tokens = _is_next(_filled(frame, known)).collect()
    wide = _scores(tokens, rules, expected)
    begun = wide.select(*CHECKPOINT, *_GROUP).unique()
    rows = begun.join(expected.drop("pieces"), on=["model", *_GROUP]).join(
        wide, on=[*CHECKPOINT, "prompt_id", *_GROUP], how="left", nulls_equal=True
    )
    named = rows.rename({"prompt_id": "candidate"})
    names = [name for name in CANDIDATES.names() if name not in ("score", "value")]
    return pl.concat(
        named.select(*names, score=pl.lit(rule), value=rule).select(CANDIDATES.names())
        for rule in rules
    ).cast(CANDIDATES)


def _is_next(frame: pl.LazyFrame) -> pl.LazyFrame:
    """One row for each next-sentence query: ln P(is next), from the logits of both classes.

    A trained head is nearly certain. In float32, logit - logsumexp is then 0 for many candidates
    whose two logits still differ.
    """
    key = [*CHECKPOINT, "prompt_id", "piece", *_GROUP]
    nsp = pl.col("score_kind") == "nsp"
    gap = pl.col("logit").cast(pl.Float64).sum().over(key) - 2 * pl.col("logit").cast(pl.Float64)
    both = pl.col("option").n_unique().over(key) == 2
    surprise = gap.clip(lower_bound=0) + (-gap.abs()).exp().log1p()
    exact = pl.when(both).then(-surprise).otherwise("logprob").alias("logprob")
    frame = frame.with_columns(pl.col("logprob").cast(pl.Float64))
    scored = frame.filter(nsp).with_columns(exact).filter(pl.col("option") != "other")
    return pl.concat([frame.filter(~nsp), scored]).select(*key, "logprob")


def _scores(tokens: pl.DataFrame, rules: Sequence[str], expected: pl.DataFrame) -> pl.DataFrame:
    """One row per checkpoint and candidate, with a column for each rule; null without a token.

    Half a million tokens take 0.2 s; grouped by Polars they took 1.2 s.
    """
    key = [*CHECKPOINT, "prompt_id", *_GROUP]
    coded = distinct(tokens.select(key))
    wide = tokens[coded.rows].select(key)
    pieces = wide.join(expected, on=_CANDIDATE, how="left", maintain_order="left")["pieces"]
    piece = tokens["piece"].to_numpy()
    order = np.lexsort((piece, coded.codes))  # sums are in the order of tokens
    groups, piece = coded.codes[order], piece[order]
    logprob = tokens["logprob"].fill_null(np.nan).to_numpy()[order]
    duplicate = (groups[1:] == groups[:-1]) & (piece[1:] == piece[:-1])
    for problem, invalid in (
        ("a token that occurs twice", groups[1:][duplicate]),
        ("a log-probability that is NaN or above 0", groups[~(logprob <= 0)]),
    ):
        if len(invalid):
            candidates = wide["prompt_id"][np.unique(invalid)].unique().sort()
            raise UsageError(f"Candidates with {problem}: {some(candidates)}.")
    if wide.is_empty():
        raise NoRowsError("There is no score of StereoSet. Run `logitbank extract` first.")
    starts = np.flatnonzero(np.diff(groups, prepend=-1))
    n = np.diff(starts, append=len(groups))
    total = np.add.reduceat(logprob, starts)
    masked, nsp = ((wide["score_kind"] == kind).to_numpy() for kind in ("masked", "nsp"))
    mean = np.add.reduceat(np.exp(logprob), starts) / n
    scores: dict[str, Floats] = {
        "reference": np.where(masked, mean, np.exp(total / n)),
        "sum_logprob": total,
        "mean_logprob": total / n,
    }
    probability = np.exp(logprob[starts])
    return wide.with_columns(
        pl.when(pl.Series(n) == pieces)
        .then(pl.Series(np.where(nsp, probability, scores[rule])))
        .alias(rule)
        for rule in rules
    )


def some(names: pl.Series | Sequence[str]) -> str:
    """A count and the first three names, for messages.

    >>> some(["a", "b", "c", "d"])
    '4 (a, b, c, …)'
    """
    first = ", ".join(str(name) for name in names[:3])
    more = ", …" if len(names) > 3 else ""
    return f"{len(names):,} ({first}{more})"
