"""One score for each candidate sentence, from the log-probabilities of its pieces.

After StereoSet (Nadeem et al. 2021) and its reading in bias-bench; every departure is said where
it happens.
"""

from collections.abc import Sequence
from typing import Literal, get_args

import polars as pl

from logitbank.analysis.expressions import check_choice
from logitbank.errors import UsageError

Rule = Literal["reference", "mean_prob", "sum_logprob", "mean_logprob", "geometric"]
"""How the log-probabilities of a candidate's pieces become one score. `reference` is `mean_prob`
for the pieces of a masked word and `geometric` for the tokens of a causal model. Next-sentence
scores have one piece, and their probability is the score under every rule."""

LABELS = ("stereotype", "anti-stereotype", "unrelated")
INTRA, INTER, BOTH, CAUSAL = "intrasentence", "intersentence", "both", "intersentence_causal"
TASK_OF = {"masked": INTRA, "sentence": INTRA, "nsp": INTER, "given": CAUSAL}
"""Kind of score to task. `given`, a causal model's candidate given its context, is an extension
under a name of its own; it never stands in for next-sentence scores."""
PLAIN = "plain"
"""The condition without a prefix."""

KEYS = ("model", "run", "run_seed", "step", "language", "condition", "score")
"""What a set of scores is of; `score` is the rule."""
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
        "position": pl.Int64,  # of the example among those of its task
        "value": pl.Float64,  # null where a piece has no score
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
    frame: pl.LazyFrame | pl.DataFrame, rules: Sequence[Rule] = ("reference",)
) -> pl.DataFrame:
    """Scores of candidates, in the columns of `CANDIDATES`; a frame that has them stays as it is.

    With p_1 … p_n the probabilities of the pieces: `mean_prob` is their arithmetic mean,
    `sum_logprob` and `mean_logprob` the sum and the mean of ln p, in nats, and `geometric`
    exp(mean ln p). All arithmetic is float64, pieces in their order.

    Parameters
    ----------
    frame
        `Bank.scan("stereoset-intra")` or another such set: one row per checkpoint, candidate and
        piece. Without a column `language` it is blank, without `condition` plain. Where there is a
        column `pieces`, a candidate with fewer rows has no score.
    rules
        Each gives rows of its own.

    Raises
    ------
    UsageError
        A rule that is none, or a frame without these columns; a label, domain or kind of score
        that is none; a piece that is there twice; a log-probability that is NaN or above 0.

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
        check_choice("score", rule, get_args(Rule))
    if lacking := [name for name in _NEEDED if name not in names]:
        raise UsageError(
            f"the prompt set has no column {', '.join(lacking)}; StereoSet's sets are those of "
            "`logitbank extract --prompts stereoset-intra` and stereoset-inter"
        )
    wide = _scores(frame.lazy(), names, rules).collect()
    _check_pieces(wide)
    return check_candidates(_long(wide, rules))


def _scores(frame: pl.LazyFrame, names: Sequence[str], rules: Sequence[Rule]) -> pl.LazyFrame:
    """One row per checkpoint and candidate, with a column for each rule."""
    terms = [name for name in ("target_english", "target") if name in names]
    if not terms:
        raise UsageError("the prompt set has no column target; StereoSet's terms are needed")
    filled = frame.with_columns(
        pl.col(name).fill_null(blank) if name in names else pl.lit(blank).alias(name)
        for name, blank in _OPTIONAL.items()
    )
    place = [name for name in ("query_set", "row") if name in names]
    ids = [*_CHECKPOINT, "score_kind", "prompt_id"]
    rows = pl.len().cast(pl.Int64)
    return (
        filled.select(
            *ids, "piece", "logprob", "example", "domain", "label", *place,
            term=pl.coalesce(terms),
            pieces="pieces" if "pieces" in names else pl.lit(None, pl.Int64),
        )
        .sort("piece", maintain_order=True)  # sums of floats in one order, whatever the rows'
        .group_by(ids)
        .agg(
            pl.col("example", "domain", "label", "term", *place).first(),
            rows=rows,
            expected=pl.max_horizontal(
                pl.col("piece").max() + 1, pl.col("pieces").first()
            ).cast(pl.Int64),
            twice=pl.col("piece").n_unique() < rows,
            lowest=pl.col("logprob").min(),
            highest=pl.col("logprob").max(),
            unknown=pl.col("logprob").is_nan().any() | pl.col("logprob").is_null().any(),
            **{rule: _rule(rule) for rule in rules},
        )
        .with_columns(_position(place))
    )  # fmt: skip


def _rule(rule: Rule) -> pl.Expr:
    logprob, kind = pl.col("logprob"), pl.col("score_kind").first()
    mean_prob, geometric = logprob.exp().mean(), logprob.mean().exp()
    chosen = {
        "reference": pl.when(kind == "masked").then(mean_prob).otherwise(geometric),
        "mean_prob": mean_prob,
        "sum_logprob": logprob.sum(),
        "mean_logprob": logprob.mean(),
        "geometric": geometric,
    }[rule]
    return pl.when(kind == "nsp").then(logprob.first().exp()).otherwise(chosen)


def _position(place: Sequence[str]) -> pl.Expr:
    """Examples in the order of their prompt set, which is the order of its queries."""
    if len(place) < 2:
        return pl.lit(0, pl.Int64).alias("position")
    group = ("language", "score_kind")
    first = pl.col("query_set") == pl.col("query_set").min().over(group)
    row = pl.when(first).then("row").min().over(*group, "example")
    return row.fill_null(-1).cast(pl.Int64).alias("position")


def _check_pieces(wide: pl.DataFrame) -> None:
    _refuse(wide.filter("twice"), "a piece that is there twice")
    _refuse(
        wide.filter(pl.col("unknown") | (pl.col("highest") > 0)),
        "a log-probability that is NaN or above 0",
    )
    odd = sorted({str(kind) for kind in wide["score_kind"].unique()} - set(TASK_OF))
    if odd:
        raise UsageError(f"the score_kind {odd[0]!r} is not known; there are {', '.join(TASK_OF)}")


def _refuse(wide: pl.DataFrame, what: str) -> None:
    if len(wide):
        raise UsageError(f"candidates with {what}: {some(wide['prompt_id'].unique().sort())}")


def some(names: pl.Series | Sequence[str]) -> str:
    """The count and the first three names of what is wrong.

    >>> some(["a", "b", "c", "d"])
    '4 (a, b, c, …)'
    """
    first = ", ".join(str(name) for name in names[:3])
    more = ", …" if len(names) > 3 else ""
    return f"{len(names):,} ({first}{more})"


def _long(wide: pl.DataFrame, rules: Sequence[Rule]) -> pl.DataFrame:
    complete = pl.when(pl.col("rows") == pl.col("expected"))
    columns = [name for name in CANDIDATES.names() if name not in ("score", "task", "value")]
    named = wide.rename({"prompt_id": "candidate"})
    return pl.concat(
        named.select(
            *columns,
            score=pl.lit(rule),
            task=pl.col("score_kind").replace_strict(TASK_OF, return_dtype=pl.String),
            value=complete.then(rule),
        ).select(CANDIDATES.names())
        for rule in rules
    )


def check_candidates(candidates: pl.DataFrame) -> pl.DataFrame:
    """The columns of `CANDIDATES`, where every row is one that can be aggregated.

    Raises
    ------
    UsageError
        Columns are missing, a text is null, or a label is not one of `LABELS`.
    """
    if lacking := [name for name in CANDIDATES.names() if name not in candidates.columns]:
        raise UsageError(f"candidates have no column {', '.join(lacking)}")
    table = candidates.select(CANDIDATES.names()).cast(CANDIDATES)  # type: ignore[arg-type]
    for name, dtype in CANDIDATES.items():
        if dtype == pl.String and (count := table[name].null_count()):
            raise UsageError(f"candidates without {name}: {count:,}; every candidate needs one")
    odd = table.filter(~pl.col("label").is_in(LABELS))
    if len(odd):
        ids = odd["candidate"].unique().sort()
        raise UsageError(
            f"candidates with another label than {', '.join(LABELS)}: {some(ids)}; the first is "
            f"{odd.sort('candidate')['label'][0]!r}"
        )
    return table
