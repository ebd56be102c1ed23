"""The order in which checkpoints are run: those of one model after each other."""

from collections.abc import Collection
from pathlib import Path

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
    groups: dict[str, list[CheckpointId]] = {}
    for checkpoint in suite.checkpoints:
        if checkpoint.id in wanted:
            groups.setdefault(_said(checkpoint, base), []).append(checkpoint.id)
    return [checkpoint for group in groups.values() for checkpoint in group]


def _said(checkpoint: Checkpoint, base: Path | None) -> str:
    source = checkpoint.source
    if not isinstance(source, LocalSource):
        return ""
    body = source.path if source.base is None or base is None else base
    try:
        return said_digest(said_of_model(body))
    except (OSError, ValueError, RecursionError, AttributeError):
        return ""  # whoever comes to run it says what is wrong
