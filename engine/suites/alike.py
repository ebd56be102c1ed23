"""The order in which checkpoints are run, those of one model after each other; how many models."""

from collections.abc import Collection
from typing import NamedTuple

from logitbank.engine.suites.hub import Hub
from logitbank.engine.suites.sources import Checkpoint, LocalSource, Suite
from logitbank.engine.weights.said import said_digest, said_of_model
from logitbank.store.format.schema import CheckpointId


def alike_together(
    suite: Suite, wanted: Collection[CheckpointId], hub: Hub | None = None
) -> list[CheckpointId]:
    """Those wanted of a suite, each after the first whose config says the same of its model.

    An engine runs one model, so fewer are opened. Of revisions that `hub` has listed, whose
    config.json is not here yet, equal files say the same; all others on a hub count as alike.
    """
    groups = _by_model(suite, wanted, hub)
    return [checkpoint for group in groups.values() for checkpoint in group]


class Models(NamedTuple):
    """How many models checkpoints are of, as far as their configs are known."""

    number: int
    """By the configs in folders, and by the different files on a hub, at most; those on a hub of
    which nothing is known count as one."""
    unknown: int
    """These, whose configs are read as they are run and may make more models."""


ONE_MODEL = Models(1, 0)


def models_of(suite: Suite, wanted: Collection[CheckpointId], hub: Hub | None = None) -> Models:
    """The models of those wanted of a suite: a worker starts an engine for each that it meets."""
    groups = _by_model(suite, wanted, hub)
    far = {c.id for c in suite.checkpoints if not isinstance(c.source, LocalSource)}
    return Models(len(groups), len(far.intersection(groups.get("", ()))))


def _by_model(
    suite: Suite, wanted: Collection[CheckpointId], hub: Hub | None
) -> dict[str, list[CheckpointId]]:
    groups: dict[str, list[CheckpointId]] = {}
    for checkpoint in suite.checkpoints:
        if checkpoint.id in wanted:
            groups.setdefault(_said(checkpoint, hub), []).append(checkpoint.id)
    return groups


def _said(checkpoint: Checkpoint, hub: Hub | None) -> str:
    source = checkpoint.source
    if not isinstance(source, LocalSource):
        return "" if hub is None else hub.listed_config(source)
    try:
        return said_digest(said_of_model(source.path))
    except (OSError, ValueError, RecursionError, AttributeError):
        return ""  # whoever comes to run it says what is wrong
