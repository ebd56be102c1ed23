"""What verification finds: one object that is not what was written."""

from dataclasses import dataclass
from typing import Literal

Problem = Literal["missing", "truncated", "changed", "swapped", "foreign", "unreadable"]


@dataclass(frozen=True, slots=True)
class Damage:
    """One object that is not what was committed."""

    path: str
    """Relative to the bank."""
    problem: Problem
    detail: str
    deposit: str = ""
    """Folder of the deposit that it is in, if any."""
    block: int | None = None
    """Its block; None where it concerns all."""
    concerns: str = ""
    """The checkpoint and the prompts whose scores are in it, for people."""

    def __str__(self) -> str:
        about = f"; concerns {self.concerns}" if self.concerns else ""
        return f"{self.path}: {self.problem} ({self.detail}){about}"
