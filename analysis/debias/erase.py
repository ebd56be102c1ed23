"""Erase a concept from the hidden states of a bank, linearly, and compute the logits again.

No model is loaded: the bank has the states and the LM head. Source: Belrose et al. 2023 (LEACE),
arXiv 2306.03819, theorem 4.2.
"""

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl

from logitbank.analysis.debias.compare import debias_compare
from logitbank.analysis.debias.results import ERASED_FROM, DebiasComparison
from logitbank.analysis.finding import Finding
from logitbank.analysis.study import Study
from logitbank.errors import UsageError
from logitbank.store import Bank, Deposit
from logitbank.store.bank import open_bank
from logitbank.store.change.rewrite import changed_model, rewrite
from logitbank.store.deposits.reduce import BlockReducer
from logitbank.store.format.layout import BlockData, Layout
from logitbank.store.format.schema import NEXT_SENTENCE_CLASSES, Keep
from logitbank.store.read.choose import checkpoints_chosen
from logitbank.store.steps import in_order
from logitbank.store.tables import prompt_tables
from logitbank.wording import counted

KEEP = Keep.parse("topk:64")
"""Columns of the new logits that are kept."""


@dataclass(frozen=True, slots=True)
class Eraser:
    """h − left right (h − mean): no linear classifier finds the concept better than by chance."""

    left: np.ndarray
    """(width, c − 1)."""
    right: np.ndarray
    """(c − 1, width)."""
    mean: np.ndarray
    """(width,)."""

    def __call__(self, states: np.ndarray) -> np.ndarray:
        """(q, width) float32 states without the concept."""
        moved = (states - self.mean) @ self.right.T @ self.left.T
        return np.asarray(states - moved, np.float32)

    @property
    def digest(self) -> str:
        """SHA-256 (hex) of what it computes."""
        parts = (np.ascontiguousarray(part, "<f8").tobytes() for part in (self.left, self.right))
        return hashlib.sha256(b"".join([*parts, self.mean.tobytes()])).hexdigest()


def fit(states: np.ndarray, labels: np.ndarray) -> Eraser:
    """The smallest affine change of states after which all classes have the same mean.

    With W = Σ^(−½) of the states and Z the classes (one-hot), it is h − W⁺ U Uᵀ W (h − mean), where
    the columns of U span W Cov(h, Z). Smallest in the mean square, weighted by any matrix.

    Parameters
    ----------
    states
        (n, width).
    labels
        (n,) of any values; each is a class.

    Raises
    ------
    UsageError
        There are fewer than two classes.
    """
    x = np.asarray(states, np.float64)
    classes, index = np.unique(labels, return_inverse=True)
    if len(classes) < 2:
        raise UsageError(f"The label has {counted(len(classes), 'value')}. Use one with two.")
    z = np.eye(len(classes))[index]
    mean = x.mean(axis=0)
    centred = x - mean
    values, vectors = np.linalg.eigh(centred.T @ centred / (len(x) - 1))
    values, vectors = (part[..., values > values[-1] * len(values) * 1e-12] for part in
                       (values, vectors))  # fmt: skip
    whitened = (vectors / np.sqrt(values)) @ vectors.T
    u, size, _ = np.linalg.svd(whitened @ centred.T @ (z - z.mean(axis=0)) / (len(x) - 1))
    u = u[:, : len(size)][:, size > 1e-9]
    return Eraser((vectors * np.sqrt(values)) @ vectors.T @ u, u.T @ whitened, mean)


def debias_erase(
    bank: str | Path | Bank,
    *,
    prompts: str,
    label: str,
    model: str | None = None,
    step: int | None = None,
) -> Study[DebiasComparison]:
    """Erase a label of prompts from all states of a model, and compare before and after.

    The eraser is fitted on the states of these prompts. The new logits of every prompt set become a
    model of their own in the bank, which keeps the 64 highest.

    Parameters
    ----------
    bank
        A local bank with states (`--keep hidden`) of these prompts and of StereoSet or UnQover.
    prompts
        Name of the prompt set that has the label.
    label
        Column of the prompts, such as a gender; rows without a value are left out.
    model, step
        The checkpoint; by default the only model, at its last step or its release.

    Raises
    ------
    LogitbankError
        No states, no such column, or fewer than two values in it.
    """
    opened = open_bank(bank, rows=True)
    deposits = _deposits(opened, prompts, model, step)
    table = opened.prompts(prompts)
    if label not in table.collect_schema().names():
        raise UsageError(f"Prompt set {prompts!r} has no column {label!r}.")
    rows = table.select("query_set", "row", label).drop_nulls().unique().collect()
    rows = rows.sort("query_set", "row", label)
    states, labels = list[np.ndarray](), list[pl.Series]()
    for deposit in deposits:
        own = rows.filter(query_set=deposit.query_set)
        if len(own):
            states.append(deposit.hidden(own["row"].to_numpy()))
            labels.append(own[label].cast(pl.String))
    if not labels:
        raise UsageError(f"No prompt of {prompts} with states has a value in the column {label!r}.")
    known = pl.concat(labels)
    eraser = fit(np.concatenate(states), known.to_numpy())
    base = deposits[0].checkpoint.model
    for deposit in deposits:
        _erase(opened, deposit, eraser, {"model": base, "prompts": prompts, "label": label})
    study = debias_compare(opened, [], models=[base], step=step)
    text = f"Erased {label} ({counted(known.n_unique(), 'value')}) from the states of {base}"
    fitted = Finding(text=f"{text}.", n=counted(len(known), "state"))
    return replace(study, findings=(fitted, *study.findings))


def _deposits(bank: Bank, prompts: str, model: str | None, step: int | None) -> list[Deposit]:
    """All deposits of the checkpoint that have states, but those of a next-sentence head."""
    chosen = checkpoints_chosen(bank.deposits(prompts=prompts), models=model, steps=step)
    with_states = [d.checkpoint for d in chosen if d.layout.width is not None]
    if not with_states:
        raise UsageError(f"{bank.address} has no states of {prompts}. Use --keep hidden.")
    last = in_order(c.step for c in with_states)[-1]
    checkpoints = {c for c in with_states if c.step == last}
    if len(checkpoints) > 1:
        names = ", ".join(sorted(str(c) for c in checkpoints))
        raise UsageError(f"{bank.address} has several models or runs: {names}. Name a model.")
    return [
        d
        for d in bank.deposits(*checkpoints)
        if d.layout.width is not None and d.layout.vocab != NEXT_SENTENCE_CLASSES
    ]


def _erase(bank: Bank, deposit: Deposit, eraser: Eraser, about: dict[str, str]) -> None:
    """Store the logits of a deposit's states without the concept, block after block."""
    model = f"{deposit.checkpoint.model} without {about['label']}"
    spec = changed_model(deposit, model, KEEP, eraser.digest, {ERASED_FROM: dict(about)})
    head = deposit.head().whole()
    options = prompt_tables.option_tokens(bank.path, spec.query_set)

    def erased(rows: range, to: Layout) -> BlockData:
        reducer = BlockReducer(
            to, rows.start // to.block_rows, options=options, vocab_entries=spec.vocab_entries
        )
        for number, logits in enumerate(head.logits(eraser(deposit.hidden(np.array(rows))))):
            reducer.put(number, logits)
        return reducer.finish()

    rewrite(deposit, bank, spec, erased)
