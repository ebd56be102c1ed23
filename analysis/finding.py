"""A finding: one sentence for one fact, with its number, interval and sample size as data."""

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One fact that an analysis found. `str(finding)` is its sentence.

    >>> print(Finding(text="Δ at step 720", value=0.739, low=0.737, high=0.741, n="192 prompts"))
    Δ at step 720: 0.739, 95% CI [0.737, 0.741], n = 192 prompts.
    >>> print(Finding(text="The gender gap is 0.71 at step 440."))
    The gender gap is 0.71 at step 440.
    """

    text: str
    """A complete sentence, or, with `value`, the name of that number."""
    value: float | None = None
    low: float | None = None
    high: float | None = None
    """Ends of the 95% confidence interval; None or NaN without one."""
    n: str = ""
    """Sample size with its unit, and missing ones: `192 prompts (48 sentences), 3 missing`."""
    baseline: str = ""
    """Value for comparison: `0.077 at step 0`."""
    extreme: str = ""
    """Checkpoints between the first and the last whose value is beyond both, with its interval:
    `highest 0.944 at step 925`."""
    figure: str = ""
    """Name of the chart that shows it."""
    form: str = ".3f"
    """Format specification of the value and its interval, such as `+.3f`, `.1%` or `,.0f`. `.1f%`
    is for a number in percent."""
    series: tuple[str, ...] = ()
    """Model and run of the finding; empty for all."""
    note: str = ""
    """Doubt about the number, which stands beside it: `step 5 has weights of the release`."""

    @property
    def number(self) -> str:
        """The value as text; empty without one."""
        return "" if self.value is None else formatted(self.value, self.form)

    @property
    def interval(self) -> str:
        """`95% CI [low, high]`; empty without an interval."""
        if self.low is None or self.high is None or self.low != self.low or self.high != self.high:
            return ""
        return f"95% CI [{formatted(self.low, self.form)}, {formatted(self.high, self.form)}]"

    @property
    def basis(self) -> str:
        """Interval, sample size, baseline, extreme and note, which follow the number."""
        n = f"n = {self.n}" if self.n else ""
        baseline = f"baseline {self.baseline}" if self.baseline else ""
        parts = (self.interval, n, baseline, self.extreme, self.note)
        return ", ".join(part for part in parts if part)

    def __str__(self) -> str:
        if self.value is None:
            return f"{self.text.removesuffix('.')}, {self.basis}." if self.basis else self.text
        return f"{self.text}: {', '.join(part for part in (self.number, self.basis) if part)}."

    def as_dict(self) -> dict[str, Any]:
        """The fields, with the whole sentence, for JSON: None for NaN."""
        fields = {name: None if each != each else each for name, each in asdict(self).items()}
        return {"sentence": str(self), **fields}


def signed(form: str) -> str:
    """The format of a difference of numbers with this format.

    >>> signed(".2f"), signed("+.3f")
    ('+.2f', '+.3f')
    """
    return f"+{form.lstrip('+')}"


def formatted(value: float, form: str = ".3f") -> str:
    """A number as text, with a true minus; a dash for NaN, and no sign if it rounds to zero.

    >>> formatted(-0.25, "+.2f"), formatted(0.42, ".1%"), formatted(42, ".1f%")
    ('−0.25', '42.0%', '42.0%')
    >>> formatted(float("nan"))
    '–'
    """
    if value != value:
        return "–"
    in_percent = form.endswith("f%")
    text = format(value, form.removesuffix("%") if in_percent else form) + "%" * in_percent
    if text.lstrip("+-").strip("0.,%") == "":
        text = text.lstrip("+-")
    return text.replace("-", "−")
