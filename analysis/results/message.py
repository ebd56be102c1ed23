"""What a page says first: one sentence, the figure that shows it, and a few numbers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


class KeyNumber(NamedTuple):
    """A number beside the first figure of a page."""

    value: str
    what: str
    """What it is, without a verb: `checkpoints`."""
    rests_on: str = ""
    """Its interval, and over how many prompts it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """The most important finding of an analysis, in plain words."""

    sentence: str
    figure: str
    """The kind of figure that shows it."""
    numbers: Sequence[KeyNumber]
    series: tuple[str, str]
    """The model and run that it is about."""
    certain: bool
    """Whether it is more than chance could make: a change of level, or an interval without 0."""
