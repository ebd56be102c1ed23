"""Find the checkpoints in a folder by the names of its sub-folders.

It opens no file.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from logitbank.engine.weights.weights import ADAPTER, GGUF, OF_ADAPTER, OF_GGUF, weight_names
from logitbank.errors import SuiteError
from logitbank.store.steps import Step, is_token_count, parse_name, run_seed

TOKENS = "{where}: names such as {name} are read as numbers of tokens, which become the steps"


class FoundCheckpoint(NamedTuple):
    """A checkpoint's folder, and what its name says."""

    run: str
    step: Step
    path: Path


_STEP_WORD = re.compile(r"(?:step|checkpoint|ckpt|chck|iter)[-_=]?\d", re.IGNORECASE)


class FolderScan(NamedTuple):
    """What a folder holds."""

    model: str
    checkpoints: tuple[FoundCheckpoint, ...]
    notes: tuple[str, ...]


def scan_folder(folder: Path) -> FolderScan:
    """The checkpoints in a folder, or the folder itself where it is one.

    Sub-folders named like `step1000` that hold `config.json` are checkpoints of the run "main";
    in a sub-folder of another name they are checkpoints of the run of that name. A folder that is
    a checkpoint and holds others is their release. One that holds no other gets its step from its
    own name and its model from its parent's: `pythia/step10` is step 10 of `pythia`.

    Raises
    ------
    SuiteError
        The folder does not exist, is another file, holds no checkpoint, an adapter, or two
        checkpoints of the same run and step.
    """
    if not folder.exists():
        raise SuiteError(
            f"folder {folder} does not exist; give a folder of checkpoints, owner/name on the "
            "hub, or a name that `logitbank suites` lists"
        )
    if folder.suffix == GGUF and folder.is_file():
        raise SuiteError(f"{folder} {OF_GGUF}")
    if not folder.is_dir():
        raise SuiteError(f"{folder} is a file; give the folder that holds the checkpoint")
    notes: list[str] = []
    checkpoints = list(_below(folder, notes, run="main", nested=True))
    if counts := [c.path.name for c in checkpoints if is_token_count(c.path.name)]:
        notes.append(TOKENS.format(where=folder, name=counts[0]))
    if not checkpoints:
        return FolderScan(*named_by_itself(folder), ())
    if (release := _checkpoint_in(folder)) is not None:
        checkpoints.append(FoundCheckpoint("main", None, release))
    _refuse_twins(checkpoints)
    return FolderScan(folder.resolve().name, tuple(checkpoints), tuple(notes))


def _below(folder: Path, notes: list[str], *, run: str, nested: bool) -> Iterator[FoundCheckpoint]:
    for path in _subfolders(folder):
        named = parse_name(path.name)
        if (path / ADAPTER).is_file():
            raise SuiteError(f"{path} {OF_ADAPTER}")
        if not (path / "config.json").is_file():
            if named is not None and not is_token_count(path.name):
                notes.append(f"{path} is left out: it has no config.json")
            elif nested:
                yield from _below(path, notes, run=path.name, nested=False)
        elif named is None:
            notes.append(f"{path} is left out: its name tells no step; rename it like step1000")
        else:
            yield FoundCheckpoint(joined_runs(run, named.run), named.step, path)


def joined_runs(*runs: str) -> str:
    """One name for runs inside each other; "main" adds nothing."""
    return "-".join(dict.fromkeys(run for run in runs if run != "main")) or "main"


def named_by_itself(folder: Path) -> tuple[str, tuple[FoundCheckpoint, ...]]:
    """Model and checkpoint of a folder that holds no other checkpoint."""
    where = folder.resolve()
    if (folder / ADAPTER).is_file():
        raise SuiteError(f"{folder} {OF_ADAPTER}")
    name = where.name
    if (checkpoint := _checkpoint_in(folder)) is None:
        raise SuiteError(_nothing_in(folder))
    if (named := parse_name(name)) is None or is_token_count(name):  # `llama/7B` is a model
        if _STEP_WORD.search(name):
            raise SuiteError(
                f"the step in the name of {folder} cannot be read; rename the folder like step1000"
            )
        return name, (FoundCheckpoint("main", None, checkpoint),)
    parent, run = where.parent, named.run
    if run == "main" and run_seed(parent.name) is not None:
        parent, run = parent.parent, parent.name
    return parent.name or name, (FoundCheckpoint(run, named.step, checkpoint),)


def _checkpoint_in(folder: Path) -> Path | None:
    """The folder itself where it is a checkpoint."""
    names = [path.name for path in folder.iterdir()]
    return folder if "config.json" in names and weight_names(names) else None


def _refuse_twins(checkpoints: list[FoundCheckpoint]) -> None:
    taken: dict[tuple[str, Step], Path] = {}
    for run, step, path in checkpoints:
        if (other := taken.setdefault((run, step), path)) != path:
            what = "the release" if step is None else f"step {step}"
            raise SuiteError(
                f"{other} and {path} are both {what} of run {run!r}; rename or move one of them"
            )


def _subfolders(folder: Path) -> list[Path]:
    return sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))


def _nothing_in(folder: Path) -> str:
    if packed := sorted(folder.glob(f"*{GGUF}")):
        return f"{packed[0]} {OF_GGUF}"
    seen = [path.name for path in _subfolders(folder)]
    more = f" and {len(seen) - 5} more" if len(seen) > 5 else ""
    contents = f"sub-folders {', '.join(seen[:5])}{more}" if seen else "no sub-folder"
    return (
        f"no checkpoint in {folder}: looked for config.json + *.safetensors in it and in "
        "sub-folders named like step1000, "
        f"and saw {contents}; give the folder that holds them"
    )
