"""Checkpoints whose weights are, in part or as a whole, those of another one of their series."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from logitbank.store.deposits.deposit import Deposit
from logitbank.store.format.schema import CheckpointId
from logitbank.wording import counted, plain_step

MATRICES = "matrices"
"""Field of the provenance: a short digest of each weight matrix by name; `-` for a constant one."""
CONSTANT = "-"


class CopiedWeights(NamedTuple):
    """A checkpoint with weight matrices that training cannot have given back."""

    checkpoint: CheckpointId
    other: CheckpointId
    equal: int
    matrices: int

    @property
    def source(self) -> str:
        """The checkpoint that has these weights: `step 100` or `the release`."""
        return "the release" if self.other.step is None else plain_step(self.other.step)

    def __str__(self) -> str:
        matrices = counted(self.matrices, "weight matrix", "weight matrices")
        return (
            f"{self.checkpoint}: {self.equal:,} of {matrices} are those of {self.source}."
            " Check the published files before you use numbers of this step."
        )


def copied_weights(deposits: Iterable[Deposit]) -> list[CopiedWeights]:
    """Checkpoints with matrices of a later checkpoint of their run, or of the model's release.

    A matrix counts if it changes between the two; or, of neighbours, if it changes before them and
    after them while others change between them too. Matrices that never change, constant ones, and
    a last step that is the release are as they should be.
    """
    found: dict[CheckpointId, list[str]] = {}
    for deposit in deposits:
        value = deposit.spec.provenance.get(MATRICES)
        if isinstance(value, str) and value:
            found.setdefault(deposit.checkpoint, value.split(" "))
    series: dict[tuple[str, str], list[CheckpointId]] = {}
    for checkpoint in found:
        series.setdefault((checkpoint.model, checkpoint.run), []).append(checkpoint)
    copied = []
    for (model, _), own in series.items():
        if all(checkpoint.step is not None for checkpoint in own):
            own = [*own, *(c for c in found if c.model == model and c.step is None)][: len(own) + 1]
        own.sort(key=lambda c: (c.step is None, c.step or 0))
        rows = [found[checkpoint] for checkpoint in own]
        if len({len(row) for row in rows}) == 1:
            copied += _in_series(own, rows)
    return copied


def _in_series(own: list[CheckpointId], rows: list[list[str]]) -> list[CopiedWeights]:
    last = len(own) - 1
    numbers: dict[str, int] = {CONSTANT: 0}
    codes = np.array([[numbers.setdefault(value, len(numbers)) for value in row] for row in rows])
    several = np.array([len({*column} - {0}) > 1 for column in codes.T.tolist()])
    counts_here = (codes != 0) & several
    changes = codes[1:] != codes[:-1]
    spans = np.concatenate([np.zeros_like(codes[:1]), np.cumsum(changes, axis=0)])
    copied = []
    for a in range(last):
        equal = (codes[a + 1 :] == codes[a]) & counts_here[a]
        apart = equal & (spans[a + 1 :] != spans[a])
        if a > 0:  # a neighbour
            apart[0] |= equal[0] & changes[a - 1] & (a + 1 == last or changes[a + 1])
        counts = apart.sum(axis=1)
        if own[a + 1].step is None and rows[a] == rows[a + 1]:
            counts[0] = 0  # the last step is the release
        count, b = max((int(count), a + 1 + k) for k, count in enumerate(counts))
        if count:
            matrices = int((codes[a] != 0).sum())
            copied.append(CopiedWeights(own[a], own[b], count, matrices))
    return copied
