"""How messages and sentences write numbers, checkpoints and sizes."""

from collections.abc import Mapping
from typing import Any

KEEP_LEVELS = "full, hidden, topk:K or options"
"""How much of a row of logits can be kept, as commands and messages name it."""
ASKED_LEVELS = "full, hidden, topk:K, options or auto"
"""What an extraction may be asked to keep: `auto` is `full` or `hidden`, the smaller of them."""
KEPT_OF_LOGITS = "full, topk:K or options"
"""The same where there are no states, or a head that cannot give logits back."""
MADE_OF_STATES = "topk:K, options or, of states, full"
"""What can be made of a bank without its models."""


def counted(number: int, noun: str, plural: str = "") -> str:
    """A number with its noun.

    >>> counted(1, "checkpoint"), counted(1540, "query", "queries")
    ('1 checkpoint', '1,540 queries')
    """
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def number(value: float) -> str:
    """Three significant digits, or all those before the point, with a true minus.

    >>> number(0.012345), number(-4321.9)
    ('0.0123', '−4,322')
    """
    text = f"{value:,.0f}" if abs(value) >= 99.5 else f"{value:.3g}"
    return text.replace("-", "−")


def signed(value: float, form: str = ".3f") -> str:
    """A number with a sign and a true minus; without one for what rounds to zero.

    >>> signed(0.25), signed(-1234.5, ",.1f"), signed(-0.0001)
    ('+0.250', '−1,234.5', '0.000')
    """
    text = f"{value:+{form}}"
    return text[1:] if float(text.replace(",", "")) == 0 else text.replace("-", "−")


def step_name(step: int | None) -> str:
    """A training step, or the release, which has none.

    >>> step_name(1000), step_name(None)
    ('step 1,000', 'release')
    """
    return "release" if step is None else f"step {step:,}"


def plain_step(step: int | None) -> str:
    """The same without commas, as messages name a step that a command may be given.

    >>> plain_step(1000), plain_step(None)
    ('step 1000', 'release')
    """
    return "release" if step is None else f"step {step}"


def checkpoint_name(row: Mapping[str, Any]) -> str:
    """The model, run and step of a row, as messages name a checkpoint.

    >>> checkpoint_name({"model": "toy", "run": "main", "step": 1000})
    'toy main step 1000'
    """
    return f"{row['model']} {row['run']} {plain_step(row['step'])}"


def readable_bytes(number: float) -> str:
    """Bytes for people.

    >>> readable_bytes(1_730_000)
    '1.73 MB'
    """
    for unit in ("B", "kB", "MB", "GB"):
        if number < 999.5:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:,.1f} TB"
