"""Which training steps: read them from names, and choose among those that are there.

Pure: it opens no file and asks no hub.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple, Self

from logitbank.errors import SuiteError, UsageError

Step = int | None
"""A training step; None is the release, which has none."""

_ALLOWED = "use all, log, START:END:STRIDE, release, or a list like 0,512,last"
# The prefix is tried last (`??`), so that `global_step10` is no run called "global".
_STEP_NAME = re.compile(
    r"(?:(?P<run>.+?)[-_])??"
    r"(?P<word>(?:global[-_]?step|checkpoint|ckpt|step)[-_]?)?"
    r"(?P<step>[0-9]{1,12})"
    r"(?:-tokens[0-9.]+[KMBT])?",
    re.ASCII,
)
_RELEASE_NAMES = frozenset({"main", "release", "final"})


class RunStep(NamedTuple):
    """What a revision or folder name says."""

    run: str
    step: Step


def parse_name(name: str) -> RunStep | None:
    """Run and step that a hub revision or a folder name stands for, or None where it says neither.

    `step1000`, `step-1000`, `checkpoint-1000`, `global_step1000`, `1000` and
    `step1000-tokens4B` are steps of the run "main"; `stage1-step1000` is one of "stage1".
    `main`, `release` and `final` are the release.
    """
    if name in _RELEASE_NAMES:
        return RunStep("main", None)
    match = _STEP_NAME.fullmatch(name)
    if not match or (match["run"] and not match["word"]):
        return None  # `llama-7` is a name, not step 7 of "llama"
    return RunStep(match["run"] or "main", int(match["step"]))


def run_seed(run: str) -> int | None:
    """The seed in a run name like `seed3`, `seed-3` or `seed_3`; None in any other."""
    match = re.fullmatch(r"seed[-_]?([0-9]{1,12})", run)
    return int(match[1]) if match else None


def in_order(steps: Iterable[Step]) -> list[Step]:
    """Each step once, ascending, the release last.

    >>> in_order([1000, None, 8, 8])
    [8, 1000, None]
    """
    distinct = set(steps)
    release: list[Step] = [None] if None in distinct else []
    return [*sorted(step for step in distinct if step is not None), *release]


def listed(steps: Iterable[Step]) -> str:
    """Steps in order, as messages name them.

    >>> listed([1000, None, 8])
    '8, 1000, release'
    """
    return ", ".join("release" if step is None else str(step) for step in in_order(steps)) or "none"


@dataclass(frozen=True, slots=True)
class StepSelector:
    """A choice of steps, made before it is known which ones there are."""

    kind: Literal["all", "log", "range", "list"]
    listed: tuple[int, ...] = ()
    """Steps that must be there; only of a list."""
    last: bool = False
    release: bool = False
    span: tuple[int, int | None, int] = (0, None, 1)
    """First, last (inclusive; None is open) and stride; only of a range."""
    text: str = "all"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `all`, `log`, `START:END:STRIDE`, `release` or a list.

        Raises
        ------
        UsageError
            The text is none of these, or names a negative step, a stride of 0 or an empty range.
        """
        word = text.strip()
        if word == "all":
            return cls("all", text=word)
        if word == "log":
            return cls("log", text=word)
        if ":" in word:
            return cls("range", span=_parse_span(word), text=word)
        parts = [part.strip() for part in word.split(",")]
        return cls(
            "list",
            listed=tuple(
                sorted({_number(p, of=word) for p in parts if p not in ("last", "release")})
            ),
            last="last" in parts,
            release="release" in parts,
            text=word,
        )

    def missing(self, available: Iterable[Step]) -> tuple[int, ...]:
        """Listed steps that are not among the available ones."""
        present = set(available)
        return tuple(step for step in self.listed if step not in present)

    def pick(self, available: Iterable[Step]) -> tuple[Step, ...]:
        """The available steps that are chosen, ascending, the release last; maybe none."""
        present = set(available)
        steps = sorted(step for step in present if step is not None)
        chosen = set(_PICKERS[self.kind](self, steps))
        release = (None,) if self.release and None in present else ()
        return (*sorted(chosen), *release)

    def select(self, available: Iterable[Step], *, of: str = "this suite") -> tuple[Step, ...]:
        """Choose among the available steps.

        Parameters
        ----------
        available
            Steps that are there, in any order; None is the release.
        of
            What the steps belong to, for the message of an error.

        Returns
        -------
        tuple
            Chosen steps, ascending, the release last. The release is left out unless it was
            asked for, or nothing else is there and the choice is `all` or `log`.

        Raises
        ------
        SuiteError
            A listed step, the last step or the release is not there, or nothing is chosen.
        """
        present = set(available)
        steps = sorted(step for step in present if step is not None)
        if not steps and None in present and self.kind in ("all", "log"):
            return (None,)
        if not steps and not (self.release and None in present):
            raise SuiteError(f"{of} has no training steps, but steps {self.text!r} were asked for")
        if missing := self.missing(present):
            nearest = min(steps, key=lambda step: (abs(step - missing[0]), step), default=None)
            raise SuiteError(
                f"step {missing[0]} of {of} is not available; the nearest is {nearest} "
                f"({_extent(steps)})"
            )
        if self.release and None not in present:
            raise SuiteError(f"{of} has no release; choose from its steps ({_extent(steps)})")
        if self.last and not steps:
            raise SuiteError(f"{of} has no last step, only its release; use release")
        if not (chosen := self.pick(present)):
            raise SuiteError(f"steps {self.text!r} choose none of {of} ({_extent(steps)})")
        return chosen


def parse_steps(text: str) -> StepSelector:
    """Read `all`, `log`, `START:END:STRIDE`, `release`, or a list like `0,512,last`.

    `log` is step 0, for each power of two the available step nearest on a log scale, and the
    last. `START:END:STRIDE` is every step of that range, both ends included, whose distance from
    the first is a multiple of the stride; any part may be empty.

    Raises
    ------
    UsageError
        The text is none of these.
    """
    return StepSelector.parse(text)


def _parse_span(text: str) -> tuple[int, int | None, int]:
    parts = [part.strip() for part in text.split(":")]
    if len(parts) > 3:
        raise UsageError(f"steps {text!r} have {len(parts)} parts; {_ALLOWED}")
    first, last, stride = (_number(p, of=text) if p else None for p in (*parts, "")[:3])
    if stride == 0:
        raise UsageError(f"steps {text!r} have a stride of 0; use 1 or more")
    if last is not None and last < (first or 0):
        raise UsageError(f"steps {text!r} end before they start; write the smaller step first")
    return first or 0, last, stride or 1


def _number(text: str, *, of: str) -> int:
    if re.fullmatch(r"-[0-9]+", text):
        raise UsageError(f"steps {of!r} hold a negative number, {text}; {_ALLOWED}")
    if not re.fullmatch(r"[0-9]{1,12}", text):
        raise UsageError(f"steps {of!r} are unknown at {text!r}; {_ALLOWED}")
    return int(text)


def _pick_all(selector: StepSelector, steps: list[int]) -> Iterable[int]:
    return steps


def _pick_list(selector: StepSelector, steps: list[int]) -> Iterable[int]:
    wanted = {*selector.listed, *(steps[-1:] if selector.last else ())}
    return wanted.intersection(steps)


def _pick_range(selector: StepSelector, steps: list[int]) -> Iterable[int]:
    first, last, stride = selector.span
    end = steps[-1] if last is None and steps else last or 0
    return [step for step in steps if first <= step <= end and (step - first) % stride == 0]


def _pick_log(selector: StepSelector, steps: list[int]) -> Iterable[int]:
    positive = [step for step in steps if step > 0]
    powers = (2**n for n in range(steps[-1].bit_length() if steps else 0))
    nearest = [min(positive, key=lambda s: (max(s / p, p / s), s)) for p in powers]
    return [*(step for step in steps[:1] if step == 0), *nearest, *steps[-1:]]


_PICKERS = {"all": _pick_all, "list": _pick_list, "range": _pick_range, "log": _pick_log}


def _extent(steps: list[int]) -> str:
    return f"{len(steps)} steps from {steps[0]} to {steps[-1]}" if steps else "no steps"
