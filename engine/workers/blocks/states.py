"""Hidden states of a block, and the proof that they give the engine's logits."""

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from logitbank.engine.backends.heads import allowed
from logitbank.engine.plan.plan import DepositPlan
from logitbank.engine.weights.config import ModelConfig
from logitbank.engine.weights.heads import divided_head
from logitbank.engine.workers.events import Job
from logitbank.errors import EngineError, SuiteError
from logitbank.store.format.heads import OutputHead
from logitbank.store.format.schema import Head

SAMPLED = 8
"""Rows of a block whose logits are all compared: 0.1 s for 50,304 outputs."""
_PRODUCT_ROWS = 128
"""Rows of one matrix product; its columns are the listed tokens of all these rows."""


class BlockStates:
    """Collects hidden states before any rounding, and compares their products with the logits.

    Every row is compared at its options and highest tokens. A few rows, including the first and the
    last, are compared at all outputs.
    """

    def __init__(self, head: OutputHead, rows: range) -> None:
        self._head, self._rows = head, rows
        self._states = np.empty((len(rows), head.width), np.float32)
        sampled = np.linspace(0, len(rows) - 1, min(SAMPLED, len(rows)))
        self.sampled: dict[int, np.ndarray | None] = dict.fromkeys(map(int, sampled))
        """Logits (v,) float32 of the rows that are compared at all outputs; set by the caller."""

    def put(self, rows: Sequence[int] | np.ndarray, states: np.ndarray) -> None:
        """Add the states (n, width) float32 of some of the block's queries.

        Raises
        ------
        EngineError
            The states are of another width than the head.
        """
        if states.shape[1] != self._states.shape[1]:
            raise EngineError(
                f"states have {states.shape[1]:,} entries, and their head takes"
                f" {self._states.shape[1]:,}; report this architecture",
                query=self._rows[int(rows[0])],
            )
        self._states[np.asarray(rows)] = states

    def prove(self, scores: pl.DataFrame) -> None:
        """Compare with the engine's logits of the sampled rows and those listed in `scores`.

        Raises
        ------
        EngineError
            A logit differs by more than the rounding of float32 explains.
        """
        for i, logits in self.sampled.items():
            assert logits is not None, "`finish` refuses a block with a missing row first"
            products = self._head.logits(self._states[i : i + 1])[0]
            self._compare(np.full(len(logits), i), products, logits)
        listed = scores.select("query", "token", "logit").sort("query")
        row = listed["query"].to_numpy() - self._rows.start
        token = listed["token"].to_numpy()
        products = np.empty(len(row), np.float32)
        for first in range(0, len(self._rows), _PRODUCT_ROWS):
            part = slice(*np.searchsorted(row, [first, first + _PRODUCT_ROWS]))
            tokens, column = np.unique(token[part], return_inverse=True)
            some = self._head.logits(self._states[first : first + _PRODUCT_ROWS], tokens)
            products[part] = some[row[part] - first, column]
        self._compare(row, products, listed["logit"].to_numpy())

    def _compare(self, row: np.ndarray, products: np.ndarray, logits: np.ndarray) -> None:
        """Raise EngineError if a product is too far from its logit; `row` (n,) is ascending."""
        starts = np.flatnonzero(np.diff(row, prepend=-1))
        largest = np.maximum.reduceat(np.abs(logits), starts)
        sizes = np.repeat(largest, np.diff(starts, append=len(row)))
        difference = np.abs(products - logits)
        ratio = difference / allowed(sizes)
        worst = int(np.argmax(np.where(np.isfinite(ratio), ratio, np.inf)))
        if not ratio[worst] <= 1:
            raise EngineError(
                "the LM head does not give the engine's logits from the hidden state: one differs"
                f" by {difference[worst]:.3g}, {ratio[worst]:.3g} times the rounding of float32;"
                " use --keep full, and report this architecture",
                query=self._rows[int(row[worst])],
            )


def proved_head(
    job: Job, plan: DepositPlan, kind: Head, heads: Mapping[Head, OutputHead]
) -> OutputHead:
    """The proved head of a deposit's queries.

    Raises
    ------
    HeadError
        No head was proved: no single matrix gives the model's logits.
    SuiteError
        The head takes inputs of another width than the plan expects.
    """
    head = heads.get(kind)
    if head is None:
        raise divided_head(job.checkpoint, kind, ModelConfig.read(job.folder))
    if head.width != plan.layout.width:
        raise SuiteError(
            f"{job.checkpoint}: its LM head takes states of {head.width:,} entries, not of"
            f" {plan.layout.width:,}; extract this checkpoint on its own"
        )
    return head
