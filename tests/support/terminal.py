"""A command in a pseudo-terminal, with the tests' workers and empty charts; its screen as text."""

import fcntl
import gc
import importlib
import json
import os
import pkgutil
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from logitbank import analysis
from tests.support.paths import ROOT

CTRL_C = b"\x03"
ROWS = 50
_CONTROL = re.compile(r"\x1b\[(\??)([\d;]*)([A-Za-z])|\x1b\][^\x07]*\x07")


@dataclass
class Screen:
    """What is on a terminal of unlimited height. Characters of two cells are no concern here."""

    columns: int
    lines: list[list[str]] = field(default_factory=lambda: [[]])
    wrapped: set[int] = field(default_factory=set)
    """Lines that the terminal broke because they were too long."""
    row: int = 0
    column: int = 0
    cursor: bool = True

    def write(self, text: str) -> None:
        position = 0
        for control in _CONTROL.finditer(text):
            self._characters(text[position : control.start()])
            self._control(control[1], control[2], control[3])
            position = control.end()
        self._characters(text[position:])

    def _characters(self, text: str) -> None:
        for character in text:
            if character == "\r":
                self.column = 0
            elif character == "\n":
                self._down()
            else:
                assert character.isprintable(), repr(character)
                if self.column == self.columns:
                    self.wrapped.add(self.row)
                    self._down()
                    self.column = 0
                line = self.lines[self.row]
                line += [" "] * (self.column + 1 - len(line))
                line[self.column] = character
                self.column += 1

    def _down(self) -> None:
        self.row += 1
        if self.row == len(self.lines):
            self.lines.append([])

    def _control(self, private: str, number: str, kind: str) -> None:
        if private:
            self.cursor = kind == "h" if number == "25" else self.cursor
        elif kind == "A":
            self.row = max(0, self.row - int(number or 1))
        elif kind == "K":
            keep = 0 if number == "2" else self.column
            del self.lines[self.row][keep:]
            self.wrapped.discard(self.row)
        else:
            assert kind in "mGJ", f"unknown control {number}{kind}"

    def text(self) -> list[str]:
        return ["".join(line).rstrip() for line in self.lines]


def run(
    *arguments: object, columns: int, press: Callable[[Screen], bytes] | None = None
) -> tuple[int, Screen]:
    """The exit code and the last screen of `logitbank`.

    `press` is called after each output, and returns keys to press.
    """
    path = f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    environment = {n: v for n, v in os.environ.items() if n not in ("COLUMNS", "NO_COLOR")}
    environment |= {"TERM": "xterm-256color", "PYTHONPATH": path}
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", ROWS, columns, 0, 0))
    request = [*map(str, arguments)], environment, os.getcwd(), os.ttyname(theirs)
    server = _server()
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.write(json.dumps(request).encode() + b"\n")
    server.stdin.flush()
    screen, left, code = Screen(columns), b"", None
    while True:
        ready, _, _ = select.select([ours, *([server.stdout] if code is None else [])], [], [])
        if server.stdout in ready:
            code = int(server.stdout.readline())
            os.close(theirs)  # from here on the terminal ends with its last process
            continue
        try:
            received = os.read(ours, 2**16)
        except OSError:  # the last process that had the terminal has ended
            break
        if not received:
            break
        left += received
        whole = len(left)
        for whole in range(len(left), max(-1, len(left) - 4), -1):
            try:
                text = left[:whole].decode()
                break
            except UnicodeDecodeError:
                continue
        escape = text.rfind("\x1b")
        if escape >= 0 and not _CONTROL.match(text, escape):
            whole, text = len(text[:escape].encode()), text[:escape]
        left = left[whole:]
        screen.write(text)
        if press is not None and (keys := press(screen)):
            os.write(ours, keys)
    os.close(ours)
    assert code is not None
    return code, screen


@cache
def _server() -> subprocess.Popen[bytes]:
    """A process with the imports of all commands, which forks for each; it ends with this one."""
    command = [sys.executable, "-m", "tests.support.terminal"]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe)


def assert_clean(arguments: Sequence[object], screen: Screen) -> None:
    """No traceback, no line that the terminal broke, no bar that is left, and a cursor."""
    lines = screen.text()
    shown = f"{arguments} at {screen.columns} columns:\n" + "\n".join(lines)
    assert not any("Traceback (most recent call last)" in line for line in lines), shown
    # Data, such as CSV, are printed as they are.
    assert "--format" in arguments or not screen.wrapped, (
        f"lines {sorted(screen.wrapped)} are broken\n{shown}"
    )
    assert not any(re.search("[━╸╺⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏]", line) for line in lines), shown
    assert screen.cursor, shown


def _become(arguments: list[str], environment: dict[str, str], folder: str, tty: str) -> None:
    """Go on as a command in a terminal; does not return."""
    from logitbank.analysis.charts import chart
    from logitbank.cli.main import main as logitbank
    from tests.support import preloaded

    os.login_tty(os.open(tty, os.O_RDWR | os.O_NOCTTY))
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout, sys.stderr = (os.fdopen(n, "w", 1, "utf-8", closefd=False) for n in (1, 2))
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)

    def touched(charts: dict[str, object], folder: Path, **_: object) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for name in charts:
            (folder / f"{name}.pdf").touch()

    chart.save_charts = touched  # type: ignore[assignment]
    if preloaded.SERVERS in os.environ:
        preloaded.processes_from_servers()
    sys.argv = ["logitbank", *arguments]
    code = 1
    try:
        logitbank()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def main() -> None:
    """Fork for each line of the input, and print the exit code of each command."""
    for module in pkgutil.walk_packages(analysis.__path__, "logitbank.analysis."):
        importlib.import_module(module.name)
    for name in ("polars", "rich.table", "rich.progress", "scipy.stats"):
        importlib.import_module(name)
    gc.freeze()
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            _become(*json.loads(line))
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
