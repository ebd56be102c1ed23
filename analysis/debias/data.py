"""Instances of UnQover as arrays: what a filter is trained on, straight from a bank.

The filter's only inputs are the k highest logits at the mask, so nothing of the model is needed.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import polars as pl

from logitbank.analysis.debias.instances import OUTSIDE, QUESTIONS, Instances, logsumexp, trimmed
from logitbank.analysis.families.unqover.instances import PRONOUNS, folded
from logitbank.analysis.frames.expected import expected_query_sets
from logitbank.errors import BankError, UsageError
from logitbank.store import Bank, Deposit
from logitbank.store.filter.top import top

_NAMED = 5
_GENDERS = ("gender1", "gender2")
_SHARED = (
    *("instance", "category", "split", "subject1", "subject2", "context", "attribute"),
    *("attribute_class", *_GENDERS),
)
_COLUMNS = (*_SHARED, "order", "negated", "continuation", "token", "query_set", "row")
_KEPT = (*_SHARED, "query_set", "token", "slot", "question", "p")
_PROBABILITY = (pl.col("logit").cast(pl.Float64) - pl.col("logsumexp").cast(pl.Float64)).exp()


def instances(
    bank: Bank,
    prompts: str,
    *,
    k: int,
    split: str | None = None,
    model: str | None = None,
    run: str | None = None,
    step: int | None = None,
    he_she: bool = False,
) -> tuple[Instances, Deposit]:
    """The instances of a prompt set that a checkpoint answered, and its deposit.

    Of several deposits, as of a sample and a larger one, all are taken, each instance once; the
    first of them is given back. What the prompt set has for the model's tokenizer and none of them
    has a score of is `missing`.

    Parameters
    ----------
    k
        Highest logits of each question.
    split
        Only this part, train or test.
    model, run, step
        The checkpoint; by default the only model and run, and its last step or release.
    he_she
        A name may be answered by its pronoun too.

    Raises
    ------
    UsageError
        The bank has no such prompts or split, or several models or runs and none was named.
    BankError
        An instance lacks one of its four questions, or some of its scores are not there yet.
    KeepLevelError
        The bank lists fewer than k logits.
    """
    table = bank.prompts(prompts)
    names = table.collect_schema().names()
    if missing_columns := [name for name in _COLUMNS if name not in names]:
        raise UsageError(
            f"prompt set {prompts!r} has no column {missing_columns[0]!r}, so it has no UnQover "
            "instances; name one that `--prompts unqover-…` made"
        )
    deposits = _deposits(bank, prompts, model=model, run=run, step=step)
    rows = table if split is None else table.filter(pl.col("split") == split)
    slots, parts, start = _with_slots(rows, he_she=he_she), list[pl.DataFrame](), 0
    for deposit in deposits:
        answered = slots.filter(pl.col("query_set") == deposit.query_set).join(
            deposit.option_scores().select("query", "token", p=_PROBABILITY),
            left_on=["row", "token"], right_on=["query", "token"], how="left",
            maintain_order="left",
        )  # fmt: skip
        row = pl.col("row").cast(pl.Int64) + start
        parts.append(answered.select(*_KEPT, row).collect())
        start += deposit.layout.queries
    frame = pl.concat(parts)
    if frame.is_empty():
        raise UsageError(f"prompt set {prompts!r} has no instance of split {split!r}")
    if len(deposits) > 1:  # each instance once
        first = pl.col("query_set").first().over("instance")
        frame = frame.filter(pl.col("query_set") == first)
    result = _arrays(frame, _best(deposits, k), prompts)
    expected = expected_query_sets(bank, prompts)[deposits[0].checkpoint.model]
    whole = rows.filter(pl.col("query_set").is_in(list(expected))).select(
        pl.col("instance").n_unique()
    )
    missing = max(0, int(whole.collect().item()) - len(result))
    return replace(result, missing=missing), deposits[0]


def _deposits(
    bank: Bank,
    prompts: str,
    *,
    model: str | None,
    run: str | None,
    step: int | None,
) -> list[Deposit]:
    """All of one checkpoint."""
    deposits = bank.deposits_of(prompts)
    models = sorted({d.checkpoint.model for d in deposits})
    if model is None and len(models) > 1:
        raise UsageError(f"{bank.address} has several models; name one of {', '.join(models)}")
    chosen = [d for d in deposits if model in (None, d.checkpoint.model)]
    runs = sorted({d.checkpoint.run for d in chosen})
    if run is None and len(runs) > 1:
        raise UsageError(
            f"{bank.address} has several runs of {chosen[0].checkpoint.model}; name one of"
            f" {', '.join(runs)}"
        )
    chosen = [d for d in chosen if run in (None, d.checkpoint.run)]
    chosen = [d for d in chosen if step is None or d.checkpoint.step == step]
    if not chosen:
        requested = f"{model or 'any model'}{'' if run is None else f' {run}'}"
        requested += "" if step is None else f" at step {step}"
        available = list(dict.fromkeys(str(d.checkpoint) for d in deposits))
        more = f" and {len(available) - _NAMED} more" if len(available) > _NAMED else ""
        raise UsageError(
            f"{bank.address} has no scores of {prompts} by {requested}; it has"
            f" {', '.join(available[:_NAMED]) or 'none'}{more}"
        )

    def age(deposit: Deposit) -> tuple[bool, int]:
        at = deposit.checkpoint.step
        return at is None, at or 0

    last = max(chosen, key=age).checkpoint
    return [d for d in chosen if d.checkpoint == last]


class _Best(NamedTuple):
    """The k highest entries of questions, those of several deposits one after the other."""

    rows: np.ndarray
    tokens: np.ndarray
    logits: np.ndarray
    logsumexp: np.ndarray


def _best(deposits: Sequence[Deposit], k: int) -> _Best:
    parts, start = list[_Best](), 0
    for deposit in deposits:
        rows, listed = top(deposit, k)
        parts.append(_Best(rows + start, listed.tokens, listed.logits, listed.logsumexp))
        start += deposit.layout.queries
    return _Best(*map(np.concatenate, zip(*parts, strict=True)))


def _with_slots(rows: pl.LazyFrame, *, he_she: bool) -> pl.LazyFrame:
    """One row for each question and surface form of a subject, with which subject it is."""
    form = folded("continuation")
    named = [form == folded(f"subject{i}") for i in (1, 2)]
    if he_she:
        pronouns = (pl.col(gender).replace_strict(PRONOUNS, default=None) for gender in _GENDERS)
        named = [name | (form == pronoun) for name, pronoun in zip(named, pronouns, strict=True)]
    slot = pl.when(named[0]).then(0).when(named[1]).then(1)
    question = (pl.col("order") == "21").cast(pl.Int8) + 2 * pl.col("negated").cast(pl.Int8)
    return rows.with_columns(slot=slot, question=question).drop_nulls("slot")


def _arrays(frame: pl.DataFrame, best: _Best, prompts: str) -> Instances:
    frame = frame.with_columns(_id=pl.col("instance").rank("dense") - 1)
    n = int(frame["_id"].max()) + 1  # type: ignore[arg-type]
    i, j, slot = (frame[name].to_numpy() for name in ("_id", "question", "slot"))
    row = np.full((n, QUESTIONS, 2), OUTSIDE)
    row[i, j, slot] = frame["row"].to_numpy()
    if (absent := (row < 0).any(axis=(1, 2))).any():
        name = frame.filter(pl.col("_id") == int(np.flatnonzero(absent)[0]))["instance"][0]
        raise BankError(
            f"{int(absent.sum())} of {n:,} instances of {prompts} lack a question or one of its"
            f" subjects, the first of them {name!r}; extract the whole prompt set again"
        )
    place = np.full(max(int(row.max()), int(best.rows.max(initial=0))) + 1, OUTSIDE)
    place[best.rows] = np.arange(len(best.rows))
    at = place[row[:, :, 0]]
    if (at < 0).any():
        raise BankError(
            f"{int((at < 0).sum()):,} questions of {prompts} are not scored yet; run `logitbank"
            " extract` again to finish"
        )
    if lacking_scores := frame["p"].null_count():
        raise BankError(
            f"{lacking_scores:,} options of {prompts} are not scored; run the same `logitbank"
            " extract` again"
        )
    logits = best.logits[at]
    matches = best.tokens[at[i, j]] == frame["token"].to_numpy()[:, None]
    rank = np.where(matches.any(axis=1), matches.argmax(axis=1), OUTSIDE)
    key = pl.struct("_id", "question", "slot")
    form = frame.select(pl.int_range(pl.len()).over(key)).to_series().to_numpy()
    slots = np.full((n, QUESTIONS, 2, int(form.max()) + 1), OUTSIDE, np.int16)
    slots[i, j, slot, form] = rank
    rest = np.zeros((n, QUESTIONS, 2))
    out = rank < 0
    np.maximum.at(rest, (i[out], j[out], slot[out]), frame["p"].to_numpy()[out])
    names = frame.unique("_id", keep="first").sort("_id").select(_SHARED)
    log_mass = logsumexp(logits) - best.logsumexp[at]
    return Instances(logits, log_mass, trimmed(slots), rest, names)
