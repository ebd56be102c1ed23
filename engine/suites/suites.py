"""Find the checkpoints of a suite: a known series, a repository on the hub, or a local folder.

It lists and names; it downloads no weights and loads none.
"""

import difflib
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from logitbank.engine.cache import offline
from logitbank.engine.suites.catalogue import KnownSuite, known_suite, known_suites
from logitbank.engine.suites.folders import TOKENS, joined_runs, scan_folder
from logitbank.engine.suites.hub import Hub
from logitbank.engine.suites.sources import Checkpoint, HubSource, LocalSource, Suite
from logitbank.errors import SuiteError
from logitbank.store.format.schema import CheckpointId
from logitbank.store.steps import (
    RELEASE_NAMES,
    StepSelector,
    is_token_count,
    parse_name,
    parse_steps,
    run_seed,
)

__all__ = [
    "Checkpoint",
    "HubSource",
    "KnownSuite",
    "LocalSource",
    "Suite",
    "duplicate_notes",
    "known_suites",
    "on_hub",
    "resolve_suite",
]


RELEASE = RELEASE_NAMES[0]


def resolve_suite(
    spec: str,
    *,
    steps: str = "all",
    hub: Hub | None = None,
    model: str | None = None,
) -> Suite:
    """The checkpoints that a name stands for.

    Parameters
    ----------
    spec
        A known suite (`pythia-160m`), a repository on the hub (`owner/name`), whose branches, tags
        and folders may be checkpoints, or a folder that is
        a checkpoint or holds checkpoints (`step1000`, `checkpoint-1000`, `seed0/step1000`, …).
        A known name comes first, then a folder; write `./pythia-160m` for a folder of that name.
    steps
        A choice as `parse_steps` reads it. The release (the hub's `main`) is left out unless it
        is asked for or is all there is.
    hub
        The hub to ask, by default the one that the environment names. Unused for a folder.
    model
        Name of the model, by default that of the suite, repository or folder.

    Raises
    ------
    UsageError
        `steps` cannot be read.
    SuiteError
        Nothing of that name, no checkpoint in it, two folders of the same run and step, a step
        that is not there, a hub that cannot be asked, or adapters.
    """
    selector = parse_steps(steps)
    known = known_suite(spec)
    if _is_folder(spec):
        everything = _from_folder(Path(spec).expanduser(), model)
    elif on_hub(spec):
        repo = spec.partition("/")[2]
        suite = known or KnownSuite(repo, repo=spec, description="", model=repo)
        everything = _from_hub(suite, hub or Hub(), model)
    else:
        raise SuiteError(_unknown(spec))
    return _choose(everything, selector)


def duplicate_notes(suite: Suite, hub: Hub) -> tuple[str, ...]:
    """One line for each set of a suite's revisions whose weight files are the same, byte by byte.

    One small request per checkpoint and no download. What the hub does not tell is passed over;
    a listing that fails becomes a note.
    """
    if offline():
        return ()
    sources = [c.source for c in suite.checkpoints if isinstance(c.source, HubSource)]
    problems = hub.list_all(sources)
    same: dict[str, list[HubSource]] = {}
    for source in sources:
        with suppress(SuiteError):
            if digest := hub.weights_digest(source):
                same.setdefault(digest, []).append(source)
    return (
        *(_same_weights(equal) for equal in same.values() if len(equal) > 1),
        *(f"duplicates unknown: {problem}" for problem in problems),
    )


def _same_weights(equal: Sequence[HubSource]) -> str:
    repos = list(dict.fromkeys(source.repo for source in equal))
    if len(repos) == 1:
        names = " and ".join(source.folder or source.revision for source in equal)
        what = "folders" if equal[0].folder else "revisions"
        return f"{repos[0]}: {what} {names} hold the same weights"
    return f"{' and '.join(repos)} hold the same weights"


def on_hub(spec: str) -> bool:
    """Whether the hub is asked for a suite; another is a folder, or not known at all."""
    if known_suite(spec) is not None:
        return True
    return not _is_folder(spec) and bool(re.fullmatch(r"[\w.-]+/[\w.-]+", spec, re.ASCII))


def _is_folder(spec: str) -> bool:
    exists = bool(spec) and (_looks_local(spec) or Path(spec).expanduser().exists())
    return exists and known_suite(spec) is None


def _looks_local(spec: str) -> bool:
    return spec.startswith((".", "~", os.sep)) or spec.endswith("/") or spec.count("/") > 1


def _unknown(spec: str) -> str:
    close = difflib.get_close_matches(spec, [suite.name for suite in known_suites()], n=3)
    hint = f" (did you mean {' or '.join(close)}?)" if close else ""
    return (
        f"{spec!r} is neither a known suite, a folder, nor an owner/name on the hub{hint}; "
        "`logitbank suites` lists the known ones"
    )


def _choose(everything: Suite, selector: StepSelector) -> Suite:
    """Apply the selector to each run; a step that one run lacks is a note."""
    available = {c.id.step for c in everything.checkpoints}
    if selector.select(available, of=everything.name) == (None,):
        chosen = [c for c in everything.checkpoints if c.id.step is None]
        return replace(everything, checkpoints=tuple(chosen))
    chosen, notes = [], list(everything.notes)
    runs: dict[str, dict[int | None, Checkpoint]] = {}
    for checkpoint in everything.checkpoints:
        runs.setdefault(checkpoint.id.run, {})[checkpoint.id.step] = checkpoint
    for run, by_step in sorted(runs.items(), key=lambda r: (set(r[1]) == {None}, _natural(r[0]))):
        chosen += [by_step[step] for step in selector.pick(by_step)]
        if set(by_step) != {None} and (missing := selector.missing(by_step)):
            notes.append(f"run {run} of {everything.name} has no step {_shortened(missing)}")
    return replace(everything, checkpoints=tuple(chosen), notes=tuple(notes))


def _from_hub(suite: KnownSuite, hub: Hub, model: str | None) -> Suite:
    """The checkpoints among branches, tags and folders of a repository, in this order."""
    if suite.members:
        return _from_members(suite, model)
    repo, (branches, tags) = suite.repo, hub.refs(suite.repo)
    refs = [*sorted(branches, key=_release_first), *sorted(tags, key=_release_first)]
    folders = hub.folders(repo, RELEASE) if RELEASE in refs else ()
    sources = [
        HubSource(repo, ref)
        for ref in dict.fromkeys(refs)
        if ref != RELEASE or "" in folders or not folders
    ]
    sources += [HubSource(repo, RELEASE, each) for each in sorted(folders, key=_natural) if each]
    found: dict[tuple[str, int | None], Checkpoint] = {}
    unread, again, counts = [], [], []
    for source in sources:
        name = source.folder or source.revision
        *around, last = name.split("/")
        if (named := parse_name(last)) is None:
            unread.append(name)
            continue
        run, seed = joined_runs(*around, named.run), None
        run, seed = (suite.run, suite.run_seed) if run == "main" else (run, run_seed(run))
        if is_token_count(last):
            counts.append(name)
        checkpoint = Checkpoint(CheckpointId(model or suite.model, run, named.step, seed), source)
        if (first := found.setdefault((run, named.step), checkpoint)) is not checkpoint:
            assert isinstance(first.source, HubSource)
            again.append(f"{name} ({first.source.folder or first.source.revision})")
    if not found:
        raise SuiteError(
            f"{repo} has no branch, tag or folder like step1000 and no main, only "
            f"{_shortened(unread) or 'none'}; choose another repository"
        )
    notes = []
    if unread:
        notes.append(f"{repo}: left out, as their names have no step: {_shortened(unread)}")
    if again:
        notes.append(f"{repo}: left out, as others are the same step: {_shortened(again)}")
    if counts:
        notes.append(TOKENS.format(where=repo, name=counts[0]))
    notes += _completeness(suite, {step for _, step in found})
    return Suite(suite.name, tuple(found.values()), tuple(notes))


def _from_members(suite: KnownSuite, model: str | None) -> Suite:
    """A series of one repository a checkpoint; what is not there fails when it is asked for."""
    name = model or suite.model
    return Suite(
        suite.name,
        tuple(
            Checkpoint(CheckpointId(name, m.run, m.step, m.run_seed), HubSource(m.repo, "main"))
            for m in suite.members
        ),
    )


def _completeness(suite: KnownSuite, steps: set[int | None]) -> Iterator[str]:
    if offline():
        yield f"{suite.name}: offline, so only the {len(steps)} checkpoints in the cache are known"
    elif suite.expected and (missing := [s for s in suite.expected if s not in steps]):
        count = f"missing {len(missing)} of {len(suite.expected)} steps"
        yield f"{suite.name}: {count}: {_shortened(missing)}"
    if steps == {None}:
        yield f"{suite.name} has no step like step1000; only its release (main) is there"


def _from_folder(folder: Path, model: str | None) -> Suite:
    scan = scan_folder(folder)
    name = model or scan.model
    checkpoints = (
        Checkpoint(CheckpointId(name, f.run, f.step, run_seed(f.run)), LocalSource(f.path))
        for f in scan.checkpoints
    )
    return Suite(name, tuple(checkpoints), scan.notes)


def _natural(text: str) -> list[tuple[int, int | str]]:
    """Sort key that puts step2 before step10."""
    parts = re.split(r"([0-9]+)", text)
    return [(0, int(part)) if part.isdigit() else (1, part) for part in parts]


def _release_first(name: str) -> tuple[int, list[tuple[int, int | str]]]:
    """Sort key of revisions: of several names of the release, `main` is the first."""
    of_release = name in RELEASE_NAMES
    return RELEASE_NAMES.index(name) if of_release else len(RELEASE_NAMES), _natural(name)


def _shortened(values: Sequence[int | str]) -> str:
    shown = ", ".join(map(str, values[:10]))
    return f"{shown} and {len(values) - 10} more" if len(values) > 10 else shown
