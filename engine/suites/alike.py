"""The order in which checkpoints are run, those of one model after each other; how many models."""

from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from logitbank.engine.suites.sources import Checkpoint, LocalSource, Suite
from logitbank.engine.weights.said import said_digest, said_of_model
from logitbank.store.format.schema import CheckpointId


def alike_together(
    suite: Suite, wanted: Collection[CheckpointId], base: Path | None
) -> list[CheckpointId]:
    """Those wanted of a suite, each after the first whose config says the same of its model.

    An engine runs one model, so fewer are opened. Of what is not here yet, the config is not known:
    such checkpoints count as alike.
    """
    groups = _by_model(suite, wanted, base)
    return [checkpoint for group in groups.values() for checkpoint in group]


class Models(NamedTuple):
    """How many models checkpoints are of, as far as their configs are here."""

    number: int
    """By the configs in folders; those on a hub count as one."""
    unknown: int
    """Checkpoints on a hub, whose configs are read as they are run and may make more models."""


ONE_MODEL = Models(1, 0)


def models_of(suite: Suite, wanted: Collection[CheckpointId], base: Path | None) -> Models:
    """The models of those wanted of a suite: a worker starts an engine for each that it meets."""
    far = [c for c in suite.checkpoints if c.id in wanted and not isinstance(c.source, LocalSource)]
    return Models(len(_by_model(suite, wanted, base)), len(far))


def _by_model(
    suite: Suite, wanted: Collection[CheckpointId], base: Path | None
) -> dict[str, list[CheckpointId]]:
    groups: dict[str, list[CheckpointId]] = {}
    for checkpoint in suite.checkpoints:
        if checkpoint.id in wanted:
            groups.setdefault(_said(checkpoint, base), []).append(checkpoint.id)
    return groups


def _said(checkpoint: Checkpoint, base: Path | None) -> str:
    source = checkpoint.source
    if not isinstance(source, LocalSource):
        return ""
    body = source.path if source.base is None or base is None else base
    try:
        return said_digest(said_of_model(body))
    except (OSError, ValueError, RecursionError, AttributeError):
        return ""  # whoever comes to run it says what is wrong
