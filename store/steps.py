"""Training steps: read from names, and chosen among those that are available."""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal, NamedTuple

from logitbank.errors import SuiteError, UsageError
from logitbank.store.format.limits import MAX_STEP

Step = int | None
"""A training step; None is the release, which has none."""
Steps = Collection[Step | str] | int | str
"""Steps of a list, as text such as `last`, `log` or `0:100:10`, or one number."""

_ALLOWED = "use all, log, START:STOP:STRIDE, release, or a list like 0,512,last"
_FACTORS = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "t": 10**12}
_COUNT = r"[0-9]{1,18}(?:\.[0-9]{1,9})?[KMBT]?"
# The run is matched last (`??`), so that the run of `global_step10` is not "global".
_STEP_NAME = re.compile(
    r"(?:(?P<run>.+?)[-_])??"
    r"(?:(?:epoch|ep)[-_=]?[0-9]+[-_](?=[a-z]))?"  # steps go on from epoch to epoch
    r"(?:(?P<word>global[-_]?step|checkpoint|ckpt|chck|step|iter|iteration|(?<=[0-9]-)ba)[-_=]?"
    r"|(?P<stage>ext|decay)[-_]?)?"
    rf"(?P<count>{_COUNT})(?P<unit>[-_]?steps?)?"
    r"(?:[-_](?:tokens)?[0-9.]+[KMBT]T?)?"
    r"(?:[-_](?:hf|unsharded|consolidated|safetensors))*"
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
    `1000` are step 1,000 of the run "main", also with an epoch before (`epoch=0-step=1000`) or a
    format after (`step1000-hf`). K, M, B and T multiply: `step_20k` is step 20,000 and
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
    words = ("word", "stage", "unit")
    if not match or (match["run"] and not any(match[word] for word in words)):
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


def without_seed(run: str) -> str | None:
    """A run name without the seed in it; None if it contains no seed.

    A seed is `seed` or `ingredient` (of OLMo 2's second stage) with what follows it up to a number.

    >>> without_seed("seed3"), without_seed("stage2-ingredient1"), without_seed("seed-large-1")
    ('', 'stage2', '')
    >>> without_seed("stage2"), without_seed("main")
    (None, None)
    """
    words = re.split(r"[-_]", run)
    for at, word in enumerate(words):
        if re.fullmatch(r"(seed|ingredient)[0-9]*", word, re.ASCII | re.IGNORECASE):
            ends = (end for end in range(at, len(words)) if words[end][-1:].isdigit())
            return "-".join(words[:at] + words[next(ends, len(words)) + 1 :])
    return None


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
    """A choice of steps, made before the available steps are known."""

    text: str
    kind: Literal["all", "log", "range", "list"]
    listed: tuple[int, ...] = ()
    """Steps of a list, all of which must be available."""
    last: bool = False
    release: bool = False
    span: tuple[int, int | None, int] = (0, None, 1)
    """First step, last step (inclusive; None is open) and stride of a range."""

    def missing(self, available: Iterable[Step]) -> tuple[int, ...]:
        """Listed steps that are not available."""
        present = set(available)
        return tuple(step for step in self.listed if step not in present)

    def pick(self, available: Iterable[Step]) -> tuple[Step, ...]:
        """The available steps that are chosen, ascending, the release last; maybe none."""
        present = set(available)
        steps = sorted(step for step in present if step is not None)
        release = (None,) if self.release and None in present else ()
        return (*sorted(set(self._pick(steps))), *release)

    def _pick(self, steps: list[int]) -> Iterable[int]:
        """The chosen ones of these training steps, in any order."""
        if self.kind == "all":
            return steps
        if self.kind == "list":
            return {*self.listed, *(steps[-1:] if self.last else ())}.intersection(steps)
        if self.kind == "range":
            first, last, stride = self.span
            last = steps[-1] if last is None and steps else last or 0
            return [s for s in steps if first <= s <= last and (s - first) % stride == 0]
        positive = [step for step in steps if step > 0]
        powers = (2**n for n in range(steps[-1].bit_length() if steps else 0))
        nearest = [min(positive, key=lambda s: (max(s / p, p / s), s)) for p in powers]
        return [*(step for step in steps[:1] if step == 0), *nearest, *steps[-1:]]

    def select(self, available: Iterable[Step], name: str = "this suite") -> tuple[Step, ...]:
        """Choose among the available steps of the suite or bank `name`.

        Returns
        -------
        tuple
            Chosen steps, ascending, the release last. It includes the release only if the text
            names it, or if nothing else is available and the choice is `all` or `log`.

        Raises
        ------
        SuiteError
            A listed step, the last step or the release is missing, or no step is chosen.
        """
        present = set(available)
        steps = sorted(step for step in present if step is not None)
        if present == {None} and self.kind in ("all", "log"):
            return (None,)
        extent = f"{len(steps)} steps from {steps[0]} to {steps[-1]}" if steps else "no steps"
        extent += ", and a release" if None in present else ""
        if missing := self.missing(present):
            nearest = sorted(steps, key=lambda step: (abs(step - missing[0]), step))[:1]
            hint = f" The nearest is {nearest[0]}." if nearest else ""
            raise SuiteError(f"{name} has no step {missing[0]}, only {extent}.{hint}")
        if self.release and None not in present:
            raise SuiteError(f"{name} has no release, only {extent}.")
        chosen = self.pick(present)
        if not chosen or (self.last and not steps):
            raise SuiteError(f"{name} has no steps {self.text!r}, only {extent}.")
        return chosen


def parse_steps(steps: Steps) -> StepSelector:
    """Read `all`, `log`, `START:STOP:STRIDE`, `release`, or a list like `0,512,last`.

    In Python a list may also be `[0, 512, "last", None]`, in which None is the release.

    `log` is step 0, for each power of two the available step nearest on a log scale, and the
    last. `START:STOP:STRIDE` is every step of that range, both ends included, whose distance from
    the first is a multiple of the stride; any part may be empty. A number may be written `20k` or
    `1M`.

    Raises
    ------
    UsageError
        The text is none of these.
    """
    if not isinstance(steps, str):
        several = [*steps] if isinstance(steps, Collection) else [steps]
        steps = ",".join("release" if step is None else str(step) for step in several)
    text = steps.strip()
    if text == "all":
        return StepSelector(text, "all")
    if text == "log":
        return StepSelector(text, "log")
    separator = ":" if ":" in text else ","
    parts = [part.strip() for part in text.split(separator)]
    words = ("",) if separator == ":" else ("last", "release")
    numbers = [None if part in words else parse_count(part) for part in parts]
    invalid = [p for p, n in zip(parts, numbers, strict=True) if n is None and p not in words]
    if invalid or (separator == ":" and len(parts) > 3):
        position = f" at {invalid[0]!r}" if invalid else ""
        raise UsageError(f"Steps {text!r} are invalid{position}: {_ALLOWED}.")
    if separator == ",":
        listed = tuple(sorted({number for number in numbers if number is not None}))
        last, release = "last" in parts, "release" in parts
        return StepSelector(text, "list", listed, last=last, release=release)
    first, end, stride = (*numbers, None)[:3]
    if stride == 0 or (end is not None and end < (first or 0)):
        raise UsageError(
            f"Steps {text!r} are an empty range. Use a stride of at least 1, and the smaller step"
            " first."
        )
    return StepSelector(text, "range", span=(first or 0, end, stride or 1))
