"""A command in a pseudo-terminal, with the tests' workers and empty charts; its screen as text."""

import fcntl
import os
import pty
import re
import struct
import termios
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tests.support.preloaded import Preloaded

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
    preloaded: Preloaded,
    *arguments: object,
    columns: int,
    press: Callable[[Screen], bytes] | None = None,
) -> tuple[int, Screen]:
    """The exit code and the last screen of `logitbank`.

    `press` is called after each output, and returns keys to press.
    """
    environment = {n: v for n, v in os.environ.items() if n not in ("COLUMNS", "NO_COLOR")}
    environment["TERM"] = "xterm-256color"
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", ROWS, columns, 0, 0))
    with os.fdopen(theirs, "r+b", buffering=0) as tty:
        process = preloaded.logitbank(*arguments, tty=tty, environment=environment)
    screen, left = Screen(columns), b""
    while True:
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
    return process.wait(), screen


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
