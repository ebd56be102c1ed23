"""Stop a process at a named point of the code, never after a random time.

A point is `MODULE:FUNCTION` (a method is `MODULE:CLASS.METHOD`), or `change:FOLDER`: any change of
a file below a folder. `stop_before` acts in this process. `stopped` starts a command of `logitbank`
in a process that is killed at a point:

>>> stopped(preloaded, "logitbank.store.share.targets:Folder._place", 3, "push", "b.zarr", "to")
-9
"""

import functools
import importlib
import itertools
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.support.preloaded import Preloaded

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


def stopped(preloaded: "Preloaded", point: str, number: int, *arguments: object) -> int:
    """The exit code of `logitbank`, killed at a point; 0 if it ended before."""
    with tempfile.TemporaryFile("w+") as output:
        module = "tests.support.fault_points"
        process = preloaded.command(module, point, number, *arguments, output=output)
        code = process.wait()
        output.seek(0)
        told = output.read()
    assert code in (0, -signal.SIGKILL), told[-3000:]
    assert "Traceback" not in told, told[-3000:]
    return code


def stops(preloaded: "Preloaded", point: str, *arguments: object) -> Iterator[int]:
    """Stop a command before the 1st, 2nd, 4th, 8th … pass until it ends; yields each number.

    The caller looks at what is left after each. Each run resumes what the last one left.
    """
    number = 1
    while stopped(preloaded, point, number, *arguments):
        yield number
        number *= 2


if __name__ == "__main__":
    from logitbank.cli.main import main

    point, number, *words = sys.argv[1:]
    sys.argv = ["logitbank", *words]
    stop_before(point, int(number))
    main()
