"""Find the checkpoints of a suite: a known series, a repository on the hub, or a local folder.

It lists, names and groups checkpoints. It downloads and loads no weights.
"""

import difflib
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from logitbank.engine.cache import offline
from logitbank.engine.suites.catalogue import KnownSuite, known_suite, known_suites
from logitbank.engine.suites.hub import Hub, HubSource
from logitbank.engine.weights.config_identity import config_digest, config_fields
from logitbank.engine.weights.digests import sample_digest
from logitbank.engine.weights.weights import (
    ADAPTER,
    ADAPTER_UNSUPPORTED,
    DISTRIBUTED_UNSUPPORTED,
    GGUF,
    GGUF_UNSUPPORTED,
    is_distributed,
    weight_names,
)
from logitbank.errors import SuiteError, UsageError
from logitbank.store.format.schema import CheckpointId, Json
from logitbank.store.steps import (
    RELEASE_NAMES,
    Step,
    Steps,
    StepSelector,
    is_token_count,
    parse_name,
    parse_steps,
    run_seed,
)

RELEASE = RELEASE_NAMES[0]
_COPY = re.compile(r"(tmp|temp|old|bak|backup|best)[-_.]", re.IGNORECASE)
"""The beginning of a name that the Trainer or a person gives to an unfinished or second copy."""
_FIRST_STAGE = "stage1"
"""The run of a step without a stage, if other names have stages: some of OLMo 2's have none."""
_STEP_WORD = re.compile(r"(?:step|checkpoint|ckpt|chck|iter)[-_=]?\d", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class LocalSource:
    """A checkpoint on this machine."""

    path: Path
    """Its folder."""

    def describe(self) -> dict[str, Json]:
        """Name of the folder, never its path, and a digest of a sample of the weights."""
        description: dict[str, Json] = {"folder": self.path.name}
        if (sample := sample_digest(self.path)) is not None:
            description["sample"] = sample
        return description


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Weights at one training step of one run, and their source."""

    id: CheckpointId
    source: LocalSource | HubSource


@dataclass(frozen=True, slots=True)
class Suite:
    """An ordered list of checkpoints of one architecture."""

    name: str
    checkpoints: tuple[Checkpoint, ...]
    """Sorted by run, then by step; a run's release after its steps."""
    notes: tuple[str, ...] = ()
    """Notes for the user, one line each: missing and excluded checkpoints."""


def resolve_suite(
    spec: str,
    *,
    steps: Steps = "all",
    hub: Hub | None = None,
    model: str | None = None,
) -> Suite:
    """The checkpoints that a name stands for.

    Parameters
    ----------
    spec
        A known suite (`pythia-160m`), a repository on the hub (`owner/name`), whose branches, tags
        and folders may be checkpoints, or a folder that is a checkpoint or contains some
        (`step1000`, `checkpoint-1000`, `seed0/step1000`, …).
        A known name comes first, then a folder; write `./pythia-160m` for a folder of that name.
    steps
        A choice as `parse_steps` reads it. The release (the hub's `main`) is only included if it
        is named or if there is nothing else.
    hub
        The hub, by default the one that the environment names. Unused for a folder.
    model
        Name of the model, by default that of the suite, repository or folder.

    Raises
    ------
    UsageError
        `steps` cannot be read.
    SuiteError
        The name is unknown, contains no checkpoint or twice the same run and step, a step is
        missing, the hub cannot be reached, or the folder contains adapters.
    """
    selector = parse_steps(steps)
    if _is_folder(spec):
        everything = _from_folder(Path(spec).expanduser(), model)
    elif on_hub(spec):
        name = spec.partition("/")[2]
        suite = known_suite(spec) or KnownSuite(name, repo=spec, description="", model=name)
        everything = _from_hub(suite, hub or Hub(), model or suite.model)
    else:
        close = difflib.get_close_matches(spec, [suite.name for suite in known_suites()], n=3)
        hint = f" (did you mean {' or '.join(close)}?)" if close else ""
        raise SuiteError(
            f"{spec!r} is neither a known suite, a folder, nor an owner/name on the hub{hint}; "
            "`logitbank suites` lists the known ones"
        )
    return _select(everything, selector)


def listed_suites(
    listed: Sequence[str | Path | Suite], steps: Steps
) -> list[tuple[str | Suite, Steps]]:
    """Suites with the steps of each. `@FILE` stands for the suites in a file.

    The file has one suite in a line, and after it `steps=…` if its steps are others than `steps`.
    Empty lines and those that begin with `#` are skipped.

    Raises
    ------
    SuiteError
        A file cannot be read, has no suite, or a line has other words.
    """
    found: list[tuple[str | Suite, Steps]] = []
    for each in listed:
        if isinstance(each, Suite) or not str(each).startswith("@"):
            found.append((each if isinstance(each, Suite) else str(each), steps))
            continue
        path = Path(str(each)[1:]).expanduser()
        try:
            lines = path.read_text(encoding="utf-8-sig").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise SuiteError(f"--suite {each}: {path} cannot be read: {error}.") from None
        before = len(found)
        for number, line in enumerate(lines, 1):
            match = re.fullmatch(r"(.+?)(?:\s+steps=(\S+))?", line.strip())
            if match is None or match[1].startswith("#"):
                continue
            own = match[2] or steps
            try:
                parse_steps(own)
            except UsageError as error:
                raise SuiteError(f"{path}, line {number}: {error}") from None
            found.append((match[1], own))
        if len(found) == before:
            raise SuiteError(f"{path} names no suite. Write one in each line.")
    return found


def require_distinct(suites: Sequence[Suite]) -> None:
    """Refuse two suites with the same checkpoint of the same model.

    Raises
    ------
    SuiteError
        There is one.
    """
    owners: dict[CheckpointId, str] = {}
    for suite in suites:
        for checkpoint in suite.checkpoints:
            if (other := owners.get(checkpoint.id)) is not None:
                raise SuiteError(
                    f"Suites {other} and {suite.name} both have {checkpoint.id}. Name each"
                    " checkpoint once, or run them one after another with --model."
                )
            owners[checkpoint.id] = suite.name


def group_by_config(
    checkpoints: Sequence[Checkpoint], hub: Hub | None = None
) -> list[list[CheckpointId]]:
    """Checkpoints in their order, one list for each model.

    Configs in folders are compared by their fields, those on the hub by their bytes, which takes
    one small request per checkpoint. Checkpoints whose configs are unknown are one group.
    """
    if hub is not None:
        hub.needed_by_all(checkpoint.source for checkpoint in checkpoints)  # lists their files
    groups: dict[str, list[CheckpointId]] = {}
    for checkpoint in checkpoints:
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


def on_hub(spec: str) -> bool:
    """Whether a suite is on the hub. Any other suite is a folder, or unknown."""
    if known_suite(spec) is not None:
        return True
    return not _is_folder(spec) and bool(re.fullmatch(r"[\w.-]+/[\w.-]+", spec, re.ASCII))


def _is_folder(spec: str) -> bool:
    if not spec or known_suite(spec) is not None:
        return False
    is_path = spec.startswith((".", "~", os.sep)) or spec.endswith("/") or spec.count("/") > 1
    return is_path or Path(spec).expanduser().exists()


def _select(everything: Suite, selector: StepSelector) -> Suite:
    """Apply the selector to each run; a step that is missing in one run is a note."""
    available = {c.id.step for c in everything.checkpoints}
    if selector.select(available, everything.name) == (None,):
        releases = [c for c in everything.checkpoints if c.id.step is None]
        return replace(everything, checkpoints=tuple(releases))
    selected, notes = [], list(everything.notes)
    runs: dict[str, dict[Step, Checkpoint]] = {}
    for checkpoint in everything.checkpoints:
        runs.setdefault(checkpoint.id.run, {})[checkpoint.id.step] = checkpoint
    for run, by_step in sorted(runs.items(), key=lambda r: (set(r[1]) == {None}, _natural(r[0]))):
        selected += [by_step[step] for step in selector.pick(by_step)]
        if set(by_step) != {None} and (missing := selector.missing(by_step)):
            notes.append(f"run {run} of {everything.name} has no step {_shortened(missing)}")
    return replace(everything, checkpoints=tuple(selected), notes=tuple(notes))


def _by_name(
    sources: Sequence[tuple[str, LocalSource | HubSource]],
    where: str,
    model: str,
    main: tuple[str, int | None] = ("main", None),
) -> tuple[list[Checkpoint], list[str]]:
    """The checkpoints among names such as `step1000` or `seed0/stage1-step1000`, and notes.

    `main` is the name and seed of the main run. Two names of one step are an error in a folder, and
    a note in a repository, whose branches, tags and folders may be the same.
    """
    names: dict[tuple[str, Step], str] = {}
    checkpoints, without_step, copies, duplicates, token_counts = [], [], [], [], []
    stages = any(name.rpartition("/")[2].startswith(f"{_FIRST_STAGE}-") for name, _ in sources)
    for name, source in sources:
        *folders, last = name.split("/")
        if _COPY.match(last):
            copies.append(name)
            continue
        if (parsed := parse_name(last)) is None:
            without_step.append(name)
            continue
        runs = "-".join(dict.fromkeys(run for run in (*folders, parsed.run) if run != "main"))
        if stages and not runs and parsed.step is not None:
            runs = _FIRST_STAGE
        run, seed = (runs, run_seed(runs)) if runs else main
        if (run, parsed.step) in names:
            duplicates.append(f"{name} ({names[run, parsed.step]})")
            continue
        names[run, parsed.step] = name
        checkpoints.append(Checkpoint(CheckpointId(model, run, parsed.step, seed), source))
        if is_token_count(last):
            token_counts.append(name)
    if duplicates and isinstance(sources[0][1], LocalSource):
        raise SuiteError(f"{where}: {duplicates[0]} are the same step; rename or move one of them")
    notes = []
    if without_step:
        notes.append(f"{where}: excluded, no step in the name: {_shortened(without_step)}")
    if copies:
        notes.append(f"{where}: excluded, temporary or second copies: {_shortened(copies)}")
    if duplicates:
        notes.append(f"{where}: excluded, same step as others: {_shortened(duplicates)}")
    if token_counts:
        notes.append(f"{where}: names such as {token_counts[0]} are token counts, used as steps")
    return checkpoints, notes


def _from_hub(suite: KnownSuite, hub: Hub, model: str) -> Suite:
    """The checkpoints among branches, tags and folders of a repository, in this order."""
    if suite.members:  # one repository for each checkpoint; an absent one fails when fetched
        members = (
            Checkpoint(CheckpointId(model, m.run, m.step, m.run_seed), HubSource(m.repo, RELEASE))
            for m in suite.members
        )
        return Suite(suite.name, tuple(members))
    repo, (branches, tags) = suite.repo, hub.refs(suite.repo)
    refs = [*sorted(branches, key=_release_first), *sorted(tags, key=_release_first)]
    sources = [HubSource(repo, ref) for ref in dict.fromkeys(refs)]
    if suite.release:  # what `repo` calls main contains no model
        sources = [source for source in sources if source.revision != RELEASE]
        sources.append(HubSource(suite.release, RELEASE))
    elif RELEASE in refs:
        folders = [
            folder
            for folder, files in hub.files(repo, RELEASE).items()
            if "config.json" in files and weight_names([*files])
        ]
        if folders and "" not in folders:
            sources.remove(HubSource(repo, RELEASE))
        sources += [HubSource(repo, RELEASE, f) for f in sorted(folders, key=_natural) if f]
    main = suite.run, suite.run_seed
    checkpoints, notes = _by_name([(s.name, s) for s in sources], repo, model, main)
    if not checkpoints:
        raise SuiteError(
            f"{repo} has no branch, tag or folder like step1000 and no main; choose another"
            f" repository ({'; '.join(notes)})"
        )
    steps = {checkpoint.id.step for checkpoint in checkpoints}
    expected = suite.expected or ()
    if offline():
        count = f"only the {len(steps)} checkpoints in the cache are known"
        notes.append(f"{suite.name}: offline, so {count}")
    elif missing := [step for step in expected if step not in steps]:
        count = f"missing {len(missing)} of {len(expected)} steps"
        notes.append(f"{suite.name}: {count}: {_shortened(missing)}")
    if steps == {None}:
        notes.append(f"{suite.name} has no step like step1000, only its release (main)")
    return Suite(suite.name, tuple(checkpoints), tuple(notes))


def _from_folder(folder: Path, model: str | None) -> Suite:
    """The checkpoints in a folder, or the folder itself if it is one and contains no other.

    Sub-folders named like `step1000` that contain `config.json` are checkpoints of the run "main".
    In a sub-folder of another name they are checkpoints of the run of that name. A folder that is
    a checkpoint and contains others is their release.
    """
    if not folder.exists():
        raise SuiteError(
            f"folder {folder} does not exist; give a folder of checkpoints, owner/name on the "
            "hub, or a name that `logitbank suites` lists"
        )
    _refuse_unsupported(folder)
    if not folder.is_dir():
        raise SuiteError(f"{folder} is a file; give the folder that contains the checkpoint")
    notes: list[str] = []
    below = list(_below(folder, notes))
    if all(parse_name(path.name) is None for path in below):
        return _single_checkpoint(folder, model, notes)
    parents = {path.parent for path in below}
    sources = [_named(path, folder, path in parents) for path in below]
    if _is_checkpoint(folder):
        sources.append((RELEASE, LocalSource(folder)))
    name = model or folder.resolve().name
    checkpoints, name_notes = _by_name(sources, str(folder), name)
    if not checkpoints:
        raise SuiteError(f"no checkpoint in {folder} ({'; '.join((*name_notes, *notes))})")
    return Suite(name, tuple(checkpoints), (*name_notes, *notes))


def _below(folder: Path, notes: list[str], *, nested: bool = True) -> Iterator[Path]:
    """Sub-folders with a config, and those in sub-folders that are named for runs."""
    for path in sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith(".")):
        _refuse_unsupported(path)
        is_step = parse_name(path.name) is not None
        if (path / "config.json").is_file():
            yield path
            if nested and not is_step:  # may be a final model beside its checkpoints
                inside = _below(path, notes, nested=False)
                yield from (found for found in inside if parse_name(found.name) is not None)
        elif is_step and not is_token_count(path.name):
            reason = DISTRIBUTED_UNSUPPORTED if is_distributed(path) else "has no config.json"
            notes.append(f"{path} is excluded: it {reason}")
        elif nested:
            yield from _below(path, notes, nested=False)


def _named(path: Path, folder: Path, is_release: bool) -> tuple[str, LocalSource]:
    """The name and source of a checkpoint in `folder`.

    A final model beside checkpoints, as the Trainer saves it, is the release of their run.
    """
    name = path.relative_to(folder).as_posix()
    return f"{name}/{RELEASE}" if is_release else name, LocalSource(path)


def _single_checkpoint(folder: Path, model: str | None, notes: Sequence[str]) -> Suite:
    """A folder that is one checkpoint: `pythia/step10` is step 10 of `pythia`."""
    if not _is_checkpoint(folder):
        for path in (*sorted(folder.iterdir()), folder):
            _refuse_unsupported(path)
            if is_distributed(path):
                raise SuiteError(f"{path} {DISTRIBUTED_UNSUPPORTED}.")
        raise SuiteError(
            f"no checkpoint in {folder}: looked for config.json + *.safetensors in it and in "
            "sub-folders named like step1000; give the folder that contains them"
        )
    name, parent = folder.resolve().name, folder.resolve().parent
    parsed = None if is_token_count(name) else parse_name(name)  # `llama/7B` is a model
    if parsed is None and _STEP_WORD.search(name):
        raise SuiteError(
            f"the step in the name of {folder} cannot be read; rename the folder like step1000"
        )
    run, step = ("main", None) if parsed is None else parsed
    if parsed is not None and run == "main" and run_seed(parent.name) is not None:
        run, parent = parent.name, parent.parent
    model = model or (name if parsed is None else parent.name or name)
    checkpoint = CheckpointId(model, run, step, run_seed(run))
    return Suite(model, (Checkpoint(checkpoint, LocalSource(folder)),), tuple(notes))


def _refuse_unsupported(path: Path) -> None:
    if path.suffix == GGUF and path.is_file():
        raise SuiteError(f"{path} {GGUF_UNSUPPORTED}")
    if (path / ADAPTER).is_file():
        raise SuiteError(f"{path} {ADAPTER_UNSUPPORTED}")


def _is_checkpoint(folder: Path) -> bool:
    names = [path.name for path in folder.iterdir()]
    return "config.json" in names and bool(weight_names(names))


def _natural(text: str) -> list[tuple[int, int | str]]:
    """Sort key that puts step2 before step10."""
    parts = re.split(r"([0-9]+)", text)
    return [(0, int(part)) if part.isdigit() else (1, part) for part in parts]


def _release_first(name: str) -> tuple[int, list[tuple[int, int | str]]]:
    """Sort key of revisions: of several names of the release, `main` is the first."""
    is_release = name in RELEASE_NAMES
    return RELEASE_NAMES.index(name) if is_release else len(RELEASE_NAMES), _natural(name)


def _shortened(values: Sequence[int | str]) -> str:
    text = ", ".join(map(str, values[:8]))
    return f"{text} and {len(values) - 8} more" if len(values) > 8 else text
