"""Adapters in a folder as runs of the model that their base is."""

from logitbank.engine.suites.catalogue import KnownSuite, known_suite
from logitbank.engine.suites.folders import FolderScan, FoundCheckpoint, named_by_itself
from logitbank.engine.suites.sources import Base, Checkpoint, HubSource, LocalSource, Suite
from logitbank.engine.weights.variants.checkpoint import base_named_by, is_adapter
from logitbank.errors import SuiteError
from logitbank.store.format.schema import CheckpointId
from logitbank.store.steps import run_seed


def with_base(scan: FolderScan, model: str | None, base: Base) -> Suite:
    """Adapters as runs of the model that their base is, and the base itself."""
    itself = base_itself(base, model)
    name, checkpoints = itself.id.model, {itself.id: itself}
    for found in scan.checkpoints:
        source = LocalSource(found.path, base.source if found.adapter else None)
        checkpoint = checkpoint_of(name, found, source)
        other = checkpoints.setdefault(checkpoint.id, checkpoint)
        if other is itself and found.path.resolve() != base.folder.resolve():
            raise SuiteError(
                f"{found.path} and the base {base.folder} are both {itself.id}; move one of them"
            )
    return Suite(name, tuple(checkpoints.values()), scan.notes, base.folder)


def base_itself(base: Base, model: str | None) -> Checkpoint:
    """The base under the name that it has where it is extracted alone."""
    if isinstance(base.source, HubSource):
        known, alone = known_suite(base.source.repo), base.source.repo.partition("/")[2]
        suite = known or KnownSuite(alone, repo=base.source.repo, description="", model=alone)
        name = CheckpointId(model or suite.model, suite.run, None, suite.run_seed)
        return Checkpoint(name, base.source)
    if is_adapter(base.folder):
        raise SuiteError(f"the base {base.folder} is an adapter itself; merge it into its own base")
    alone, (found,) = named_by_itself(base.folder)
    return checkpoint_of(model or alone, found, base.source)


def checkpoint_of(
    model: str, found: FoundCheckpoint, source: LocalSource | HubSource
) -> Checkpoint:
    """What a folder is in a suite."""
    return Checkpoint(CheckpointId(model, found.run, found.step, run_seed(found.run)), source)


def named_base(scan: FolderScan) -> Base:
    """The base that adapters name themselves."""
    named = {base_named_by(f.path).resolve(): f.path for f in scan.checkpoints if f.adapter}
    if len(named) > 1:
        (one, first), (other, second) = [*named.items()][:2]
        raise SuiteError(
            f"{first} is an adapter of {one}, and {second} of {other}; extract those of each base"
            " on their own, or say with --base which it is"
        )
    (folder,) = named
    return Base(LocalSource(folder), folder)
