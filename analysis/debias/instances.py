"""Instances of UnQover as arrays, on which a filter is trained, read from a bank.

The filter's only inputs are the k highest logits at the mask, so no model is loaded.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
import polars as pl

from logitbank.analysis.families.unqover.tables import PRONOUNS, folded
from logitbank.analysis.frames.reader import Scores
from logitbank.errors import BankError, UsageError
from logitbank.store import Bank, CheckpointId, Deposit
from logitbank.store.filter.top import top
from logitbank.store.format.schema import Json
from logitbank.store.read.choose import checkpoints_chosen
from logitbank.store.steps import in_order
from logitbank.store.tables import query_tables
from logitbank.version import __version__

QUESTIONS = 4
"""Questions of an instance: τ12(a), τ21(a), τ12(ā), τ21(ā)."""
OUTSIDE = -1
"""Slot of a form that is not among the k highest."""
_GENDERS = ("gender1", "gender2")
_SHARED = (
    *("instance", "category", "split", "subject1", "subject2", "context", "attribute"),
    *("attribute_class", *_GENDERS),
)
_COLUMNS = (*_SHARED, "order", "negated", "continuation", "token", "query_set", "row")
_FORM = ("prompt_id", "order_seed", "option", "piece")


@dataclass(frozen=True)
class Instances:
    """n instances, each of four questions about two subjects."""

    logits: np.ndarray
    """(n, 4, k) float64, best first."""
    log_mass: np.ndarray
    """(n, 4): ln of the probability of the k tokens together."""
    slots: np.ndarray
    """(n, 4, 2, forms) int16: positions among the k of the surface forms of a subject, or −1."""
    rest: np.ndarray
    """(n, 4, 2): greatest probability of a subject's forms outside the k; 0 without any."""
    names: pl.DataFrame
    """n rows: the columns of the prompt set that all four questions share."""
    missing: int = 0
    """Number of expected instances without a score."""

    def __len__(self) -> int:
        return len(self.logits)

    @property
    def k(self) -> int:
        return int(self.logits.shape[2])

    @cached_property
    def columns(self) -> np.ndarray:
        """The logits as (k, 4 n): a column for each question."""
        return np.ascontiguousarray(self.logits.reshape(-1, self.k).T)

    @cached_property
    def mass(self) -> np.ndarray:
        """(n, 4, 1): probability of the k tokens together."""
        return np.asarray(np.exp(self.log_mass)[:, :, None])

    @cached_property
    def form_indices(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """For each form, its index in flat columns, and 1, or 0 if it is not among the k."""
        number = QUESTIONS * len(self)
        column = np.arange(number).reshape(-1, QUESTIONS, 1)
        forms = [self.slots[..., form].astype(np.int64) for form in range(self.slots.shape[3])]
        return [(np.maximum(f, 0) * number + column, (f >= 0).astype(np.float64)) for f in forms]

    @property
    def coverage(self) -> float:
        """Share of subjects with a form among the k; a filter cannot change the others."""
        return float((self.slots >= 0).any(axis=3).mean())

    def take(self, index: np.ndarray) -> Self:
        """Some of them, in this order, repeats included."""
        return replace(
            self,
            logits=self.logits[index],
            log_mass=self.log_mass[index],
            slots=self.slots[index],
            rest=self.rest[index],
            names=self.names[index],
        )


def _trimmed(slots: np.ndarray) -> np.ndarray:
    """Forms among the k first, and no more columns than they need."""
    slots = -np.sort(-slots, axis=3)
    return slots[..., : max(1, int((slots >= 0).sum(axis=3).max()))].astype(np.int16)


def _logsumexp(logits: np.ndarray) -> np.ndarray:
    highest = logits[..., :1]
    return np.asarray(highest[..., 0] + np.log(np.exp(logits - highest).sum(axis=-1)))


@dataclass(frozen=True, slots=True)
class InstanceReader:
    """Reads the instances of a prompt set at one checkpoint."""

    scores: Scores
    """The prompt set at the checkpoint, of one bank."""
    deposits: Sequence[Deposit]
    """Deposits of the checkpoint, such as those of a sample and of a larger one."""
    k: int
    """Number of highest logits of each question."""
    he_she: bool
    """Whether a pronoun counts as a mention of a name of its gender."""

    @property
    def checkpoint(self) -> CheckpointId:
        return self.deposits[0].checkpoint

    def provenance(self, split: str | None) -> dict[str, Json]:
        """Where a filter's instances come from."""
        deposit, checkpoint = self.deposits[0], self.checkpoint
        weights = deposit.spec.provenance.get("weights")
        return {
            "model": checkpoint.model,
            "run": checkpoint.run,
            "step": checkpoint.step,
            "weights": None if weights is None else str(weights),
            "tokenizer": query_tables.query_set_tokenizer(deposit.bank, deposit.query_set),
            "prompts": self.scores.prompts,
            "split": split,
            "he_she": self.he_she,
            "logitbank_version": __version__,
        }

    def read(self, split: str | None = None) -> Instances:
        """The instances, each once, of a part (train or test) or of all.

        `missing` counts the instances that the prompt set has for the model's tokenizer and that no
        deposit has a score of.

        Raises
        ------
        UsageError
            The prompt set has no such part.
        BankError
            An instance lacks one of its four questions, or scores are missing.
        KeepLevelError
            The bank lists fewer than k logits.
        """
        where = None if split is None else ("split", frozenset([split]))
        scores, prompts = replace(self.scores, where=where), self.scores.prompts
        starts, first = dict[str, int](), 0
        for deposit in self.deposits:
            starts[deposit.query_set] = first
            first += deposit.layout.queries
        rows = scores.prompt_rows(scores.banks[0], prompts)
        asked = _with_slots(rows.filter(pl.col("query_set").is_in([*starts])), he_she=self.he_she)
        number = len(asked.select(_FORM).unique().collect())
        if not number:
            raise UsageError(f"Prompt set {prompts!r} has no instance of split {split!r}.")
        first_row = pl.col("query_set").replace_strict(starts, return_dtype=pl.Int64)
        (frame,) = scores.frames()
        found = _with_slots(frame, he_she=self.he_she).select(
            *_SHARED, "token", "slot", "question", row=pl.col("row") + first_row,
            p=pl.col("logprob").exp(),
        ).collect()  # fmt: skip
        if missing := number - len(found):
            raise BankError(
                f"{missing:,} options of {prompts} have no score. Run the same `logitbank extract`"
                " again."
            )
        result = _arrays(found, _best(self.deposits, self.k), prompts)
        expected = scores.expected_rows(["instance"]).filter(model=self.checkpoint.model)
        return replace(result, missing=max(0, len(expected) - len(result)))


def instance_reader(
    bank: Bank,
    prompts: str,
    *,
    k: int,
    model: str | None = None,
    run: str | None = None,
    step: int | None = None,
    he_she: bool = False,
) -> InstanceReader:
    """The reader of a checkpoint: by default the only model and run, at its last step or release.

    Raises
    ------
    UsageError
        The bank has no such prompts or checkpoint, or several models or runs and none was named.
    """
    names = bank.prompts(prompts).collect_schema().names()
    if missing := [name for name in _COLUMNS if name not in names]:
        raise UsageError(
            f"Prompt set {prompts!r} has no column {missing[0]!r}. Use a prompt set of UnQover "
            "(extract --prompts unqover-gender)."
        )
    chosen = checkpoints_chosen(bank.deposits(prompts=prompts), models=model, runs=run, steps=step)
    for field in ("model", "run"):
        names = sorted({getattr(d.checkpoint, field) for d in chosen})
        if len(names) > 1:
            raise UsageError(f"{bank.path} has several {field}s. Name one of {', '.join(names)}.")
    if not chosen:
        raise UsageError(f"{bank.path} has no scores of {prompts}. Run `logitbank extract` first.")
    last = in_order(d.checkpoint.step for d in chosen)[-1]
    deposits = [d for d in chosen if d.checkpoint.step == last]
    checkpoint = deposits[0].checkpoint
    scores = Scores([bank], (prompts,), [checkpoint.model], steps=[last], runs=[checkpoint.run])
    return InstanceReader(scores, deposits, k, he_she)


class _Best(NamedTuple):
    """The k highest entries of questions, those of several deposits one after the other."""

    rows: np.ndarray
    tokens: np.ndarray
    logits: np.ndarray
    logsumexp: np.ndarray


def _best(deposits: Sequence[Deposit], k: int) -> _Best:
    parts, start = list[_Best](), 0
    for deposit in deposits:
        best = top(deposit, k)
        parts.append(_Best(best.rows + start, best.tokens, best.logits, best.logsumexp))
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
            f" subjects, such as {name!r}. Extract the whole prompt set again."
        )
    index = np.full(max(int(row.max()), int(best.rows.max(initial=0))) + 1, OUTSIDE)
    index[best.rows] = np.arange(len(best.rows))
    at = index[row[:, :, 0]]
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
    log_mass = _logsumexp(logits) - best.logsumexp[at]
    return Instances(logits, log_mass, _trimmed(slots), rest, names)
