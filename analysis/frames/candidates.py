"""Candidate sentences of StereoSet: one score for each, from the log-probabilities of its tokens.

Source: StereoSet (Nadeem et al. 2021) and its implementation in bias-bench. Every deviation is
documented at the function that makes it.
"""

from collections.abc import Sequence
from itertools import chain

import numpy as np
import polars as pl

from logitbank.analysis.frames.codes import distinct
from logitbank.analysis.frames.expressions import Floats, check_choice
from logitbank.errors import UsageError

RULES = ("reference", "mean_prob", "sum_logprob", "mean_logprob", "geometric")
"""How the log-probabilities of a candidate's tokens become one score; see `as_candidates`."""

LABELS = ("stereotype", "anti-stereotype", "unrelated")
INTRA, INTER, BOTH, CAUSAL = "intrasentence", "intersentence", "both", "intersentence_causal"
TASK_OF = {"masked": INTRA, "sentence": INTRA, "nsp": INTER, "given": CAUSAL}
"""Kind of score to task. `given`, a causal model's candidate given its context, is an extension
with its own name; it never replaces next-sentence scores."""
PLAIN = "plain"
"""The condition without a prefix."""

KEYS = ("model", "run", "run_seed", "step", "language", "condition", "score")
"""Columns that identify a set of scores; `score` is the rule."""
CANDIDATES = pl.Schema(
    {
        **dict.fromkeys(KEYS, pl.String),
        "run_seed": pl.Int64,
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

_NEEDED = (
    *("model", "run", "run_seed", "step", "prompt_id", "piece", "logprob"),
    *("example", "domain", "label", "score_kind"),
)
_OPTIONAL = {"language": "", "condition": PLAIN}
_CHECKPOINT = ("model", "run", "run_seed", "step", "language", "condition")


def as_candidates(
    frame: pl.LazyFrame | pl.DataFrame,
    rules: Sequence[str] = ("reference",),
    *,
    prompts: pl.LazyFrame | None = None,
) -> pl.DataFrame:
    """Scores of candidates, in the columns of `CANDIDATES`. A frame of them is returned unchanged.

    With p_1 … p_n the probabilities of the tokens: `mean_prob` is their arithmetic mean,
    `sum_logprob` and `mean_logprob` the sum and the mean of ln p, in nats, and `geometric`
    exp(mean ln p). All arithmetic is float64, tokens in their order.

    Parameters
    ----------
    frame
        `Bank.scan("stereoset-intra")` or another such set: one row per checkpoint, candidate and
        token. The default of a column `language` is blank, that of `condition` plain.
    rules
        Each returns rows of its own.
    prompts
        `Bank.prompts` of the same sets. A candidate with fewer tokens than in them has no score.

    Raises
    ------
    UsageError
        An unknown rule, or a frame without these columns; an unknown label, domain or kind of
        score; a token that occurs twice; a log-probability that is NaN or above 0.

    Examples
    --------
    >>> pieces = pl.DataFrame({"piece": [0, 1], "logprob": [-1.0, -3.0]}).with_columns(
    ...     model=pl.lit("m"), run=pl.lit("main"), run_seed=None, step=0, prompt_id=pl.lit("c1"),
    ...     example=pl.lit("e1"), target=pl.lit("nurse"), domain=pl.lit("gender"),
    ...     label=pl.lit("stereotype"), score_kind=pl.lit("sentence"),
    ... )
    >>> as_candidates(pieces, ["geometric", "sum_logprob"])["value"].round(4).to_list()
    [0.1353, -4.0]
    """
    names = frame.collect_schema().names()
    if "candidate" in names and "value" in names:
        return check_candidates(frame.lazy().collect())
    for rule in rules:
        check_choice("score", rule, RULES)
    if missing := [name for name in _NEEDED if name not in names]:
        raise UsageError(
            f"The prompt set has no column {', '.join(missing)}. Use StereoSet's prompt sets: "
            "logitbank extract --prompts stereoset-intra --prompts stereoset-inter"
        )
    rows = _columns(_is_next(frame.lazy(), names), names).collect()
    wide = _scores(rows, rules, _about(prompts))
    return check_candidates(_long(wide, rules))


def _is_next(frame: pl.LazyFrame, names: Sequence[str]) -> pl.LazyFrame:
    """One row for each next-sentence query: ln P(is next), from the logits of both classes.

    A trained head is nearly certain. In float32, logit - logsumexp is then 0 for many candidates
    whose two logits still differ.
    """
    if not {"option", "logit"} <= set(names):
        return frame
    key = [*(name for name in (*_CHECKPOINT, "query_set") if name in names), "prompt_id", "piece"]
    nsp = pl.col("score_kind") == "nsp"
    gap = pl.col("logit").cast(pl.Float64).sum().over(key) - 2 * pl.col("logit").cast(pl.Float64)
    both = pl.col("option").n_unique().over(key) == 2
    surprise = gap.clip(lower_bound=0) + (-gap.abs()).exp().log1p()
    exact = pl.when(both).then(-surprise).otherwise("logprob").alias("logprob")
    scored = frame.filter(nsp).with_columns(pl.col("logprob").cast(pl.Float64))
    return pl.concat(
        [
            frame.filter(~nsp).with_columns(pl.col("logprob").cast(pl.Float64)),
            scored.with_columns(exact).filter(pl.col("option") != "other"),
        ]
    )


def _columns(frame: pl.LazyFrame, names: Sequence[str]) -> pl.LazyFrame:
    """The needed columns of a scan, blanks filled."""
    terms = [name for name in ("target_english", "target") if name in names]
    if not terms:
        raise UsageError("The prompt set has no column target, which contains StereoSet's terms.")
    filled = [
        pl.col(name).fill_null(blank) if name in names else pl.lit(blank).alias(name)
        for name, blank in _OPTIONAL.items()
    ]
    return frame.select(
        *(pl.col(name) for name in _NEEDED),
        *filled,
        pl.coalesce(terms).alias("term"),
        (pl.col("query_set") if "query_set" in names else pl.lit("")).alias("query_set"),
    )


def _about(prompts: pl.LazyFrame | None) -> pl.DataFrame:
    """Number of tokens of each candidate."""
    on = ("query_set", "prompt_id")
    if prompts is None:
        return pl.DataFrame(schema={**dict.fromkeys(on, pl.String), "pieces": pl.Int64})
    pieces = (pl.col("piece").max() + 1).cast(pl.Int64)
    return prompts.group_by(on).agg(pieces=pieces).collect()


def _scores(rows: pl.DataFrame, rules: Sequence[str], about: pl.DataFrame) -> pl.DataFrame:
    """One row per checkpoint and candidate, with a column for each rule; null without a token.

    Half a million tokens take 0.2 s; grouped by Polars they took 1.2 s.
    """
    unknown = sorted({str(kind) for kind in rows["score_kind"].unique()} - set(TASK_OF))
    if unknown:
        raise UsageError(f"Unknown score_kind {unknown[0]!r}. Use one of {', '.join(TASK_OF)}.")
    coded = distinct(rows.select(*_CHECKPOINT, "score_kind", "prompt_id"))
    wide = (
        rows[coded.rows]
        .drop("piece", "logprob")
        .join(about, on=["query_set", "prompt_id"], how="left", maintain_order="left")
        .with_columns(pl.col("pieces").fill_null(0))
    )
    piece = rows["piece"].to_numpy()
    order = np.lexsort((piece, coded.codes))  # sums are in the order of tokens
    groups, piece = coded.codes[order], piece[order]
    logprob = rows["logprob"].cast(pl.Float64).fill_null(np.nan).to_numpy()[order]
    duplicate = (groups[1:] == groups[:-1]) & (piece[1:] == piece[:-1])
    for problem, invalid in (
        ("a token that occurs twice", groups[1:][duplicate]),
        ("a log-probability that is NaN or above 0", groups[~(logprob <= 0)]),
    ):
        if len(invalid):
            candidates = wide["prompt_id"][np.unique(invalid)].unique().sort()
            raise UsageError(f"Candidates with {problem}: {some(candidates)}.")
    if wide.is_empty():
        return wide.with_columns(pl.lit(None, pl.Float64).alias(rule) for rule in rules)
    starts = np.flatnonzero(np.diff(groups, prepend=-1))
    n = np.diff(starts, append=len(groups))
    last = piece[starts + n - 1].astype(np.int64)
    whole = n >= np.maximum(last + 1, wide["pieces"].to_numpy())
    total = np.add.reduceat(logprob, starts)
    scores: dict[str, Floats] = {
        "mean_prob": np.add.reduceat(np.exp(logprob), starts) / n,
        "sum_logprob": total,
        "mean_logprob": total / n,
        "geometric": np.exp(total / n),
    }
    masked, nsp = ((wide["score_kind"] == kind).to_numpy() for kind in ("masked", "nsp"))
    scores["reference"] = np.where(masked, scores["mean_prob"], scores["geometric"])
    probability = np.exp(logprob[starts])
    return wide.with_columns(
        pl.when(pl.Series(whole))
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


def _long(wide: pl.DataFrame, rules: Sequence[str]) -> pl.DataFrame:
    columns = [name for name in CANDIDATES.names() if name not in ("score", "task", "value")]
    named = wide.rename({"prompt_id": "candidate"})
    return pl.concat(
        named.select(
            *columns,
            score=pl.lit(rule),
            task=pl.col("score_kind").replace_strict(TASK_OF, return_dtype=pl.String),
            value=rule,
        ).select(CANDIDATES.names())
        for rule in rules
    )


def check_candidates(candidates: pl.DataFrame) -> pl.DataFrame:
    """The columns of `CANDIDATES`, if every row can be aggregated.

    Raises
    ------
    UsageError
        Columns are missing, a text is null, or a label is not one of `LABELS`.
    """
    if missing := [name for name in CANDIDATES.names() if name not in candidates.columns]:
        raise UsageError(f"Candidates have no column {', '.join(missing)}.")
    table = candidates.select(CANDIDATES.names()).cast(CANDIDATES)
    for name, dtype in CANDIDATES.items():
        if dtype == pl.String and (count := table[name].null_count()):
            raise UsageError(f"{count:,} candidates have no {name}. Every candidate needs one.")
    invalid = table.filter(~pl.col("label").is_in(LABELS))
    if len(invalid):
        ids = invalid["candidate"].unique().sort()
        raise UsageError(f"Candidates with a label other than {', '.join(LABELS)}: {some(ids)}.")
    return table


def concat_candidates(parts: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Candidates of several sources in one table."""
    return pl.concat(chain([pl.DataFrame(schema=CANDIDATES)], parts))
