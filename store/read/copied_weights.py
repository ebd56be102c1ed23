"""Checkpoints whose weights are, in part or as a whole, those of another one of their series."""

from collections.abc import Iterable
from typing import NamedTuple

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

    def __str__(self) -> str:
        other = "the release" if self.other.step is None else plain_step(self.other.step)
        matrices = counted(self.matrices, "weight matrix", "weight matrices")
        return (
            f"{self.checkpoint}: {self.equal:,} of {matrices} are"
            f" those of {other}. Check the published files before you use numbers of this step."
        )


def copied_weights(deposits: Iterable[Deposit]) -> list[CopiedWeights]:
    """Checkpoints with matrices of a later checkpoint of their run, or of the model's release.

    A matrix counts if it changes between the two; or, of neighbours, if it changes before them and
    after them while others change between them too. Matrices that never change, constant ones, and
    a last step that is the release are as they should be.
    """
    found: dict[CheckpointId, list[str]] = {}
    for deposit in deposits:
        value = deposit.stored.spec.provenance.get(MATRICES)
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
    equal: dict[tuple[int, int], int] = {}
    for column in zip(*rows, strict=True):
        if len({*column} - {CONSTANT}) < 2:
            continue
        places: dict[str, list[int]] = {}
        for index, value in enumerate(column):
            places.setdefault(value, []).append(index)
        places.pop(CONSTANT, None)
        for value, indices in places.items():
            for k, a in enumerate(indices):
                for b in indices[k + 1 :]:
                    between = column[a + 1 : b]
                    apart = any(other != value for other in between)
                    changes = a > 0 and column[a - 1] != value
                    pair = b == a + 1 and changes and (b == last or column[b + 1] != value)
                    if apart or pair:
                        equal[a, b] = equal.get((a, b), 0) + 1
    best: dict[int, tuple[int, int]] = {}
    for (a, b), count in equal.items():
        whole = rows[a] == rows[b]
        if whole and b == a + 1 and own[b].step is None:
            continue  # the last step is the release
        best[a] = max(best.get(a, (0, 0)), (count, b))
    return [
        CopiedWeights(own[a], own[b], count, sum(value != CONSTANT for value in rows[a]))
        for a, (count, b) in sorted(best.items())
    ]
