"""Which training steps: read them from names, and choose among those that are there.

Pure: it opens no file and asks no hub.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal, NamedTuple, Self

from logitbank.errors import SuiteError, UsageError
from logitbank.store.format.limits import MAX_STEP

Step = int | None
"""A training step; None is the release, which has none."""

_ALLOWED = "use all, log, START:STOP:STRIDE, release, or a list like 0,512,last"
_FACTORS = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "t": 10**12}
_COUNT = r"[0-9]{1,18}(?:\.[0-9]{1,9})?[KMBT]?"
# The run is tried last (`??`), so that the run of `global_step10` is not "global".
_STEP_NAME = re.compile(
    r"(?:(?P<run>.+?)[-_])??"
    r"(?:(?P<word>global[-_]?step|checkpoint|ckpt|chck|step|iter)[-_=]?"
    r"|(?P<stage>ext|decay)[-_]?)?"
    rf"(?P<count>{_COUNT})"
    r"(?:[-_](?:tokens)?[0-9.]+[KMBT])?"
    r"(?:[-_](?P<seed>seed.+))?",
    re.ASCII | re.IGNORECASE,
)
RELEASE_NAMES = ("main", "release", "final")
"""Names of the final released model, the first of them first."""


class RunStep(NamedTuple):
    """Run and training step in the name of a revision or folder."""

    run: str
    step: Step


def parse_name(name: str) -> RunStep | None:
    """Run and step in the name of a hub revision, tag, folder or file; None if it contains neither.

    `step1000`, `step-1000`, `checkpoint-1000`, `ckpt_1000`, `global_step1000`, `iter_0001000` and
    `1000` are step 1,000 of the run "main". K, M, B and T multiply: `step_20k` is step 20,000 and
    `chck_1M` step 1,000,000. A number of tokens after the step is ignored (`step1000-tokens4B`,
    `step-50K-105b`); one alone is the step (`16.78B`).

    Stages and seeds are runs: `stage1-step1000` is step 1,000 of the run "stage1", `ext1000` of
    "ext", `decay100` step 100 of "decay", and `step1000-seed-large-1` is of the run
    "seed-large-1". `main`, `release` and `final` are the final released model.

    >>> parse_name("stage1-step2k-tokens8B")
    RunStep(run='stage1', step=2000)
    """
    if name in RELEASE_NAMES:
        return RunStep("main", None)
    match = _STEP_NAME.fullmatch(name)
    if not match or (match["run"] and not (match["word"] or match["stage"])):
        return None  # `llama-7` is a name, not step 7 of "llama"
    step = parse_count(match["count"])
    runs = [run for run in (match["run"], match["stage"], match["seed"]) if run]
    return None if step is None else RunStep("-".join(runs) or "main", step)


def is_token_count(name: str) -> bool:
    """Whether a name is a number with a unit and nothing else: `16.78B` tokens, or a model's size.

    >>> is_token_count("7B"), is_token_count("7"), is_token_count("step7B")
    (True, False, False)
    """
    return name[-1:].isalpha() and parse_count(name) is not None


def parse_count(text: str) -> int | None:
    """A whole number, which K, M, B or T may multiply; None for any other text.

    >>> parse_count("16.78B"), parse_count("20k"), parse_count("1.5")
    (16780000000, 20000, None)
    """
    if not re.fullmatch(_COUNT, text, re.ASCII | re.IGNORECASE):
        return None
    number = text.rstrip("kKmMbBtT")
    value = Decimal(number) * _FACTORS[text[len(number) :].lower()]
    return int(value) if value <= MAX_STEP and value == int(value) else None


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
        """Read `all`, `log`, `START:STOP:STRIDE`, `release` or a list.

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
        chosen = set(self._pick(steps))
        release = (None,) if self.release and None in present else ()
        return (*sorted(chosen), *release)

    def _pick(self, steps: list[int]) -> Iterable[int]:
        """The chosen ones of these training steps, in any order."""
        if self.kind == "all":
            return steps
        if self.kind == "list":
            return {*self.listed, *(steps[-1:] if self.last else ())}.intersection(steps)
        if self.kind == "range":
            first, last, stride = self.span
            end = steps[-1] if last is None and steps else last or 0
            return [s for s in steps if first <= s <= end and (s - first) % stride == 0]
        positive = [step for step in steps if step > 0]
        powers = (2**n for n in range(steps[-1].bit_length() if steps else 0))
        nearest = [min(positive, key=lambda s: (max(s / p, p / s), s)) for p in powers]
        return [*(step for step in steps[:1] if step == 0), *nearest, *steps[-1:]]

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
    """Read `all`, `log`, `START:STOP:STRIDE`, `release`, or a list like `0,512,last`.

    `log` is step 0, for each power of two the available step nearest on a log scale, and the
    last. `START:STOP:STRIDE` is every step of that range, both ends included, whose distance from
    the first is a multiple of the stride; any part may be empty. A number may be written `20k` or
    `1M`.

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
    if (number := parse_count(text)) is None:
        raise UsageError(f"steps {of!r} are unknown at {text!r}; {_ALLOWED}")
    return number


def _extent(steps: list[int]) -> str:
    return f"{len(steps)} steps from {steps[0]} to {steps[-1]}" if steps else "no steps"
