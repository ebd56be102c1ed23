"""The README's picture, from the demo's bank: `python -m scripts.picture [BANK]`.

The squares and curves are values of the bank, by default the recorded one of the tests. A test
compares the files with the output of this script.
"""

import sys
import tarfile
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

import polars as pl

import logitbank
from logitbank.analysis.charts.theme import BLUE, GREY, ORANGE
from logitbank.analysis.families.fairness.metric import fairness_metric

ROOT = Path(__file__).parents[1]
DEMO = ROOT / "tests" / "data" / "demo-bank.tar.xz"
FOLDER = ROOT / "docs" / "_static"
CHANGE = 400
"""The step at which the demo's text changes."""
PROMPTS = 8
SHOWN = "demo-anti-18-referred"
"""The prompt whose option probabilities are drawn."""
WIDTH, HEIGHT = 880, 272
TOP, BOTTOM = 74, 214
CELL, GAP = 8.5, 1.5


@dataclass(frozen=True)
class Theme:
    """Colours of everything but values."""

    ink: str
    muted: str
    line: str
    box: str


THEMES = {
    "light": Theme("#1f2328", "#59636e", "#d1d9e0", "#f6f8fa"),
    "dark": Theme("#f0f6fc", "#9198a1", "#3d444d", "#151b23"),
}
DARK = {"#0072b2": "#56b4e9", "#8a8f98": "#b1bac4"}
"""Colours that are too dark on a dark page, and their replacements."""


@dataclass(frozen=True)
class Values:
    """The values of a bank that are drawn."""

    steps: Sequence[int]
    gap: Sequence[float]
    """Δ from −1 to 1, at each step."""
    right: Sequence[Sequence[float]]
    """Probability of the correct option, of prompts with the answer male, then female."""
    shares: Sequence[tuple[str, Sequence[float]]]
    """Probability of each option of one prompt, at each step."""


def values_of(bank: logitbank.Bank) -> Values:
    """The gap, probabilities of correct options for either answer, and those of one prompt."""
    gap = fairness_metric(bank.scan("toy-winobias"), bootstrap=0).gap.sort("step")
    first = pl.col("order_seed") == pl.col("order_seed").min()
    shares = (
        bank.scan("toy-winobias")
        .filter(first, pl.col("prompt_id").str.ends_with("-referred"))
        .with_columns(p=pl.col("logprob").exp())
        .with_columns(share=pl.col("p") / pl.col("p").sum().over("step", "prompt_id"))
        .select("step", "prompt_id", "option", "is_answer", "share")
        .sort("prompt_id", "step")
        .collect()
    )
    answers = shares.filter("is_answer")
    rows = [
        part["share"].to_list()
        for option in ("male", "female")
        for part in answers.filter(option=option).partition_by("prompt_id", maintain_order=True)[
            : PROMPTS // 2
        ]
    ]
    one = shares.filter(prompt_id=SHOWN)
    return Values(
        gap["step"].to_list(),
        gap["delta_scaled"].to_list(),
        rows,
        [
            (name, one.filter(option=name)["share"].to_list())
            for name in ("male", "female", "not specified")
        ],
    )


def picture(values: Values, theme: Theme, *, dark: bool) -> str:
    """An SVG: checkpoints × prompts, the bank, and two analyses of it."""
    male, female, neutral = (DARK.get(c, c) if dark else c for c in (BLUE, ORANGE, GREY))
    change = (
        f"The gender gap is {values.gap[values.steps.index(CHANGE)]:+.2f} at step {CHANGE} and "
    )
    change += f"{values.gap[values.steps.index(CHANGE) + 1]:+.2f} one checkpoint later."
    count = len(values.steps)
    parts = [
        *_heading(10, "1", "Run every checkpoint once", theme),
        *_squares(values, male),
        _text(
            10,
            BOTTOM + 22,
            f"{count} checkpoints × {PROMPTS} prompts (first half: he)",
            theme.muted,
        ),
        _text(10, BOTTOM + 40, "colour: P(correct) of 3 options", theme.muted),
        _arrow(258, theme),
        *_heading(292, "2", "Store the logits", theme),
        *_bank(theme),
        _text(292, BOTTOM + 22, "the bank: a folder,", theme.muted),
        _text(292, BOTTOM + 40, "Zarr and Parquet", theme.muted),
        _arrow(412, theme),
        *_heading(460, "3", "Analyse offline, at any time", theme),
        *_curves(values.steps, [("gap", values.gap, female)], 478, 140, theme),
        _text(460, BOTTOM + 40, "gender gap Δ", theme.muted),
        *_curves(
            values.steps,
            [
                (name, shares, colour)
                for (name, shares), colour in zip(
                    values.shares, (male, female, neutral), strict=True
                )
            ],
            682,
            100,
            theme,
        ),
        _text(664, BOTTOM + 40, "one prompt, correct: female", theme.muted),
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'width="{WIDTH}" height="{HEIGHT}" role="img" font-size="12.5" '
        'font-family="-apple-system, BlinkMacSystemFont, Segoe UI, Helvetica, Arial, sans-serif">\n'
        f"<title>From checkpoints and prompts to a bank and to analyses. {change}</title>\n"
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def _text(x: float, y: float, text: str, fill: str, more: str = "") -> str:
    return f'<text x="{x:g}" y="{y:g}" fill="{fill}"{more}>{escape(text)}</text>'


def _heading(x: float, number: str, text: str, theme: Theme) -> list[str]:
    return [
        f'<circle cx="{x + 10:g}" cy="26" r="10" fill="none" stroke="{theme.muted}"/>',
        _text(x + 10, 30.5, number, theme.ink, ' text-anchor="middle"'),
        _text(x + 28, 31, text, theme.ink, ' font-size="14.5" font-weight="600"'),
    ]


def _squares(values: Values, colour: str) -> Iterable[str]:
    height = (BOTTOM - TOP) / len(values.right)
    for row, shares in enumerate(values.right):
        for column, share in enumerate(shares):
            yield (
                f'<rect x="{10 + column * (CELL + GAP):g}" y="{TOP + row * height:g}" '
                f'width="{CELL:g}" height="{height - GAP:g}" rx="1.5" fill="{colour}" '
                f'fill-opacity="{0.08 + 0.92 * min(1.0, share / 0.6):.2f}"/>'
            )


def _bank(theme: Theme) -> list[str]:
    x, width, ry = 300, 88, 14
    top, bottom = TOP + 12, BOTTOM - 16
    layers = [top + (bottom - top) * i / 4 for i in range(1, 4)]
    sides = f"M{x} {top}V{bottom}A{width / 2:g} {ry} 0 0 0 {x + width} {bottom}V{top}"
    arcs = [
        f'<path d="M{x} {y:g}A{width / 2:g} {ry} 0 0 0 {x + width} {y:g}" fill="none" '
        f'stroke="{theme.line}"/>'
        for y in layers
    ]
    return [
        f'<path d="{sides}" fill="{theme.box}" stroke="{theme.muted}"/>',
        *arcs,
        f'<ellipse cx="{x + width / 2:g}" cy="{top}" rx="{width / 2:g}" ry="{ry}" '
        f'fill="{theme.box}" stroke="{theme.muted}"/>',
    ]


def _arrow(x: float, theme: Theme) -> str:
    y = (TOP + BOTTOM) / 2
    return (
        f'<path d="M{x:g} {y:g}h26m-8 -7l8 7l-8 7" fill="none" stroke="{theme.muted}" '
        'stroke-width="2" stroke-linecap="round" stroke-linejoin="round"/>'
    )


def _curves(
    steps: Sequence[int],
    curves: Sequence[tuple[str, Sequence[float], str]],
    left: float,
    width: float,
    theme: Theme,
) -> Iterable[str]:
    """Lines over training on one scale from 0 to 0.8, each named at its end."""

    def x(step: float) -> float:
        return left + width * step / steps[-1]

    def y(value: float) -> float:
        return BOTTOM - (BOTTOM - TOP) * max(value, -0.03) / 0.8

    yield f'<path d="M{left:g} {BOTTOM}h{width:g}" stroke="{theme.muted}"/>'
    for tick in (0.0, 0.4, 0.8):
        if tick:
            yield f'<path d="M{left:g} {y(tick):g}h{width:g}" stroke="{theme.line}"/>'
        more = ' text-anchor="end" font-size="10.5"'
        yield _text(left - 4, y(tick) + 4, f"{tick:g}", theme.muted, more)
    yield (
        f'<path d="M{x(CHANGE):.1f} {TOP - 8}V{BOTTOM}" stroke="{theme.muted}" '
        'stroke-dasharray="3 3"/>'
    )
    yield _text(x(CHANGE), TOP - 13, f"step {CHANGE}", theme.muted, ' text-anchor="middle"')
    for step in (0, steps[-1]):
        yield _text(x(step), BOTTOM + 18, str(step), theme.muted, ' text-anchor="middle"')
    for name, values, colour in curves:
        points = " ".join(
            f"{x(step):.1f},{y(value):.1f}" for step, value in zip(steps, values, strict=True)
        )
        yield (
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2.2" '
            'stroke-linejoin="round"/>'
        )
        end = f"{values[-1]:+.2f}" if name == "gap" else name
        place = y(values[-1]) + (4 if name != "male" else 12)
        yield _text(left + width + 6, place, end, colour, ' font-weight="600"')


def main(folder: Path, bank: Path | None = None) -> None:
    """Write both pictures into a folder."""
    with tempfile.TemporaryDirectory() as scratch:
        if bank is None:
            with tarfile.open(DEMO) as archive:
                archive.extractall(scratch, filter="data")
            bank = Path(scratch) / "toy.zarr"
        values = values_of(logitbank.Bank.open(bank))
    for name, theme in THEMES.items():
        text = picture(values, theme, dark=name == "dark")
        (folder / f"logitbank-{name}.svg").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(FOLDER, *map(Path, sys.argv[1:2]))
