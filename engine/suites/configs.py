"""Groups of checkpoints that one engine can run: those whose configs describe one model."""

from collections.abc import Collection

from logitbank.engine.suites.hub import Hub
from logitbank.engine.suites.sources import Checkpoint, LocalSource, Suite
from logitbank.engine.weights.config_identity import config_digest, config_fields
from logitbank.store.format.schema import CheckpointId


def group_by_config(
    suite: Suite, chosen: Collection[CheckpointId], hub: Hub | None = None
) -> list[list[CheckpointId]]:
    """The chosen checkpoints of a suite in its order, one list for each model.

    Configs in folders are compared by their fields, those that `hub` has listed by their bytes.
    Checkpoints whose configs are unknown are one group.
    """
    groups: dict[str, list[CheckpointId]] = {}
    for checkpoint in suite.checkpoints:
        if checkpoint.id in chosen:
            groups.setdefault(_config(checkpoint, hub), []).append(checkpoint.id)
    return list(groups.values())


def _config(checkpoint: Checkpoint, hub: Hub | None) -> str:
    source = checkpoint.source
    if not isinstance(source, LocalSource):
        return "" if hub is None else hub.config_digest(source)
    try:
        return config_digest(config_fields(source.path))
    except (OSError, ValueError, RecursionError, AttributeError):
        return ""  # raised when it is run
