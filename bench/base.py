"""The code of the last release beside this one, measured in the same run.

Seconds of another day or machine say little: a figure that got slower shows only against a process
of the earlier code that takes turns with one of this.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from scripts.source import TOP

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Base:
    """A revision, checked out into a folder."""

    revision: str
    folder: Path
    """Its files; processes of it run here."""
    package: Path
    """Folder with its package `logitbank`."""

    def environment(self) -> dict[str, str]:
        """Variables with which Python imports it instead of the installed code.

        The folder of the public data is usually beside this checkout, and not beside its own.
        """
        data = os.environ.get("LOGITBANK_DATA", "../shared/data")
        return os.environ | {
            "PYTHONPATH": f"{self.package}{os.pathsep}{self.folder}",
            "LOGITBANK_DATA": str((ROOT / data).resolve()),
        }


def last_release() -> str:
    """The last tag; empty before the first release, or without git."""
    command = ["git", "describe", "--tags", "--abbrev=0"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()


@contextmanager
def checked_out(revision: str, tmp: Path) -> Iterator[Base]:
    """A worktree of the revision, until the context is left."""
    base = Base(revision, tmp / "base", tmp / "base-package")
    worktree = ["git", "worktree"]
    command = [*worktree, "add", "--quiet", "--detach", base.folder, revision]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"--base {revision!r} cannot be checked out: {done.stderr.strip()}")
    try:
        # The folder `api` is the package itself, the others lie within it.
        package = base.package / "logitbank"
        package.mkdir(parents=True)
        for path in (base.folder / "api").iterdir():
            (package / path.name).symlink_to(path)
        for top in TOP:
            if top != "api":
                (package / top).symlink_to(base.folder / top)
        yield base
    finally:
        remove = [*worktree, "remove", "--force", base.folder]
        subprocess.run(remove, cwd=ROOT, capture_output=True)
