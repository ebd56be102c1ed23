"""Stop a process at a named point of the code, never after a random time.

A point is `MODULE:FUNCTION` (a method is `MODULE:CLASS.METHOD`), or `change:FOLDER`: any change of
a file below a folder. `stop_before` acts in this process. `stopped` starts a command of `logitbank`
in a process that is killed at a point:

>>> stopped("logitbank.store.share.targets:Folder._place", 3, "push", "b.zarr", "to")
-9
"""

import functools
import importlib
import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

from tests.support.paths import ROOT

CHANGES = {"open", "os.mkdir", "os.rename", "os.link", "os.remove", "os.rmdir"}
"""Audit events of Python that change files; `open` for reading is one of them."""


def stop_before(point: str, number: int, by: int = signal.SIGKILL) -> None:
    """Send this process a signal right before it passes a point for the `number`-th time."""
    numbers = itertools.count(1)  # `next` is atomic: several threads may pass

    def passed() -> None:
        if next(numbers) == number:
            os.kill(os.getpid(), by)

    before(point, passed)


def before(
    point: str,
    act: Callable[[], object],
    change: Callable[[object, str, object], None] = setattr,
) -> None:
    """Call a function right before each pass of a point; `change` may be a MonkeyPatch's."""
    module, name = point.split(":", 1)
    if module == "change":
        _before_changes(name, act)
        return
    *path, last = name.split(".")
    owner: Any = importlib.import_module(module)
    for part in path:
        owner = getattr(owner, part)
    real = getattr(owner, last)

    @functools.wraps(real)
    def acting(*arguments: Any, **options: Any) -> Any:
        act()
        return real(*arguments, **options)

    change(owner, last, acting)


def _before_changes(folder: str, act: Callable[[], object]) -> None:
    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if event in CHANGES and str(arguments[0]).startswith(folder):
            act()

    sys.addaudithook(hook)


def stopped(point: str, number: int, *arguments: object, by: int = signal.SIGKILL) -> int:
    """The exit code of `logitbank`, stopped at a point; 0 if it ended before."""
    words = [point, str(number), str(int(by)), *map(str, arguments)]
    command = [sys.executable, "-m", "tests.support.fault_points", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode in (0, -by), done.stderr[-3000:]
    assert "Traceback" not in done.stderr, done.stderr[-3000:]
    return done.returncode


def stops(point: str, *arguments: object, by: int = signal.SIGKILL) -> Iterator[int]:
    """Stop a command before the 1st, 2nd, 4th, 8th … pass until it ends; yields each number.

    The caller looks at what is left after each. Each run resumes what the last one left.
    """
    number = 1
    while stopped(point, number, *arguments, by=by):
        yield number
        number *= 2


if __name__ == "__main__":
    from logitbank.cli.main import main

    point, number, by, *words = sys.argv[1:]
    sys.argv = ["logitbank", *words]
    stop_before(point, int(number), int(by))
    main()
