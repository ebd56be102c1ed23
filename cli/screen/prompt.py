"""Prompts, their probabilities and their movements, as lines for people.

Text from a bank is a stranger's: control characters are made visible, a prompt's own lines stand
behind a bar, and nothing in it is markup.
"""

import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from rich.cells import cell_len
from rich.text import Text

from logitbank.cli import output as show
from logitbank.cli.plain import CONTROL, ONE_LINE
from logitbank.wording import plain_step

if TYPE_CHECKING:
    import polars as pl

    from logitbank.analysis.prompts.lookup import PromptView
    from logitbank.analysis.prompts.scores import PromptScores
    from logitbank.analysis.prompts.show import PromptMoves

WIDEST = 72
"""Columns of shortened text; fewer in a narrow terminal."""

BLOCKS = "▁▂▃▄▅▆▇█"
SPARKS = 32
"""Checkpoints of a line of bars."""

CHECKPOINTS = 12
"""Checkpoints whose most probable tokens are listed; csv and json have all."""


def say(lines: Iterable[str | Text]) -> None:
    """Print lines, in which nothing is markup and nothing is wrapped."""
    for line in lines:
        show.out.print(line if isinstance(line, Text) else Text(line), soft_wrap=True)


def one_line(text: object) -> str:
    """A stranger's label, on one line."""
    return str(text).translate(ONE_LINE)


def shortened(text: object, width: int) -> str:
    """A stranger's text on one line, cut to so many columns."""
    line = Text(one_line(" ".join(str(text).split())))
    line.truncate(max(width, 8), overflow="ellipsis")
    return line.plain


def number(value: float) -> str:
    """Three decimals, or three digits of what is smaller than they can tell."""
    if np.isnan(value):
        return "–"
    return f"{value:.3f}" if value == 0 or abs(value) >= 0.001 else f"{value:.1e}"


def width() -> int:
    return min(show.out.width, WIDEST)


def about_prompt(view: "PromptView", scores: "PromptScores") -> Iterator[str]:
    """What is asked: text, answer, the set's own columns, and the options with their tokens."""
    (row,) = scores.prompts.iter_rows(named=True)
    order = row["order_seed"]
    yield f"{one_line(view.prompt_id)}, in {one_line(view.prompts)}"
    others = [seed for seed in view.orders if seed != order]
    if others:
        yield f"order {order}; {len(others)} more: --order {', '.join(map(str, others))}"
    elif order is not None:
        yield f"order {order}"
    yield from (f"│ {line.translate(CONTROL)}" for line in str(row["text"]).split("\n"))
    if row["answer"] is not None:
        yield f"answer: {one_line(row['answer'])}"
    columns = [name for name in row if name not in ("prompt_id", "order_seed", "text", "answer")]
    parts = [
        f"{one_line(name)}: {one_line(row[name])}" for name in columns if row[name] is not None
    ]
    yield from _wrapped(parts)
    yield "options:" if len(scores.options) else "it has no options"
    for option in scores.options.iter_rows(named=True):
        notes = [f"{option['pieces']} tokens"] * (option["pieces"] > 1)
        notes += ["the answer"] * (option["is_answer"] is True)
        yield "  " + ", ".join(
            [f"{shortened(option['option'], 24)}  {_quoted(option['continuation'])}", *notes]
        )


def through_training(scores: "PromptScores") -> Iterator[str | Text]:
    """Bars of each option of one prompt, and a table of first, last, lowest and highest."""
    steps, values = scores.steps, scores.values()
    yield ""
    yield Text(f"{one_line(scores.model)} {one_line(scores.run)}, {scores.measure}", style="bold")
    if not len(scores.options):
        yield "it has no options, so there is nothing to score"
        return
    if not np.isfinite(values).any():
        yield "not scored yet"
        return
    if len(steps) > 1 and _encodes(BLOCKS):
        top = 1.0 if scores.measure == "share" else float(np.nanmax(values)) or 1.0
        yield (
            f"{len(steps)} checkpoints, {plain_step(steps[0])} to {plain_step(steps[-1])};"
            f" bars from 0 to {number(top)}"
        )
        for option, column in zip(scores.options["option"], values.T, strict=True):
            yield f"{sparkline(column / top)}  {shortened(option, width() - SPARKS - 2)}"
    yield from _table(values, scores)
    if scores.measure == "share":
        first, last = (number(float(np.exp(scores.logprob[c]).sum())) for c in (0, -1))
        yield f"probability of all options: {first} first, {last} last"


def tokens_through_training(frame: "pl.DataFrame", k: int) -> Iterator[str | Text]:
    """The most probable tokens at some checkpoints of each model and run, from `top_tokens`."""
    if frame["token_text"].null_count() == len(frame):
        yield ""
        yield "tokens by number: the bank keeps no texts of them; the same `logitbank extract`"
        yield "again adds them, and runs no model"
    pieces = frame["piece"].n_unique()
    for of_run in frame.partition_by("model", "run", "piece", maintain_order=True):
        first = of_run.row(0, named=True)
        checkpoints = of_run.partition_by("step", maintain_order=True)
        at = np.unique(np.linspace(0, len(checkpoints) - 1, CHECKPOINTS).round().astype(int))
        kept = max(map(len, checkpoints))
        notes = [f"piece {first['piece']}"] * (pieces > 1)
        notes += [f"{len(at)} of {len(checkpoints)} checkpoints"] * (len(at) < len(checkpoints))
        notes += [f"the bank keeps {kept}"] * (kept < k)
        name = f"{one_line(first['model'])} {one_line(first['run'])}"
        yield ""
        yield Text(", ".join([name, "most probable tokens", *notes]), style="bold")
        steps = [plain_step(checkpoints[i]["step"][0]) for i in at]
        indent = max(map(len, steps)) + 2
        for step, i in zip(steps, at, strict=True):
            rows = checkpoints[i].select("token", "token_text", "logprob").iter_rows()
            lines = _wrapped([_token(*row) for row in rows], indent)
            yield from (
                f"{'' if n else step:>{indent - 2}}  {line}" for n, line in enumerate(lines)
            )


def _token(token: int, text: str | None, logprob: float) -> str:
    named = f"#{token}" if text is None else _quoted(text)
    return f"{named} {number(float(np.exp(logprob)))}"


def sparkline(values: np.ndarray) -> str:
    """Values between 0 and 1 as bars, a blank where one is NaN; of many, some evenly spaced.

    >>> sparkline(np.array([0, 0.5, np.nan, 1]))
    '▁▅ █'
    """
    at = np.unique(np.linspace(0, len(values) - 1, SPARKS).round().astype(int))
    heights = np.clip(values[at] * len(BLOCKS), 0, len(BLOCKS) - 1)
    return "".join(" " if np.isnan(height) else BLOCKS[int(height)] for height in heights)


def _table(values: np.ndarray, scores: "PromptScores") -> Iterator[str]:
    rows = [["first", "last", "lowest", "at", "highest", "at"]]
    for column in values.T:
        if np.isnan(column).all():
            rows.append(["–"] * 6)
            continue
        low, high = int(np.nanargmin(column)), int(np.nanargmax(column))
        at_low, at_high = _step(scores.steps[low]), _step(scores.steps[high])
        ends = [number(column[i]) for i in (0, -1, low, high)]
        rows.append([*ends[:3], at_low, ends[3], at_high])
    sizes = [max(len(row[i]) for row in rows) for i in range(6)]
    room = max(width() - sum(sizes) - 2 * len(sizes), 8)
    labels = ["", *(shortened(option, room) for option in scores.options["option"])]
    widest = max(map(cell_len, labels))
    for label, row in zip(labels, rows, strict=True):
        cells = [cell.rjust(size) for cell, size in zip(row, sizes, strict=True)]
        yield "  ".join([label + " " * (widest - cell_len(label)), *cells])


def listed(
    moves: "PromptMoves", series: str, table: "pl.DataFrame", *, top: int
) -> Iterator[str | Text]:
    """The first prompts of `movements` or `differences`, each with its text."""
    yield ""
    yield Text(f"{one_line(series)}, {moves.measure}", style="bold")
    if table.is_empty():
        yield "not scored yet"
    elif _still(moves, table):
        verb = "moves" if "movement" in table.columns else "differs"
        yield f"no prompt {verb}; the first:"
    texts = moves.texts.join(
        table.head(top).select("prompt_id", "order_seed"),
        on=["prompt_id", "order_seed"],
        how="semi",
        nulls_equal=True,
    )
    text = {(row[0], row[1]): row[2] for row in texts.iter_rows()}
    for i, row in enumerate(table.head(top).iter_rows(named=True), start=1):
        key = row["prompt_id"], row["order_seed"]
        order = "" if key[1] is None else f", order {key[1]}"
        yield f"{i:>2}. {one_line(key[0])}{order}"
        yield f"    {shortened(row['option'], width() - 42)} {_change(row)}"
        yield f"    {shortened(text[key], width() - 4)}"


def command(bank: object, prompts: str, row: dict[str, object]) -> str:
    """The command that shows the prompt of a row of `movements` or `differences`."""
    words = ["logitbank", "show", str(bank), "--prompts", prompts, "--prompt", row["prompt_id"]]
    words += [] if row["order_seed"] is None else ["--order", str(row["order_seed"])]
    return one_line(shlex.join(map(str, words)))


def _change(row: dict[str, float]) -> str:
    if "difference" in row:
        sign = "−" if row["difference"] < 0 else "+"
        size = number(abs(row["difference"]))
        return f"{number(row['before'])} → {number(row['after'])} ({sign}{size})"
    ends = [(row["low"], row["low_step"]), (row["high"], row["high_step"])]
    ends.sort(key=lambda end: (end[1] is None, end[1] or 0))
    (first, at), (second, then) = ends
    return f"{number(first)} → {number(second)} ({_step(at)} → {_step(then)})"


def _still(moves: "PromptMoves", table: "pl.DataFrame") -> bool:
    """Whether no prompt moves, or differs: shares to 12 decimals, probabilities at all."""
    sizes = table["movement" if "movement" in table.columns else "difference"].abs()
    return bool(((sizes.round(12) if moves.measure == "share" else sizes) == 0).all())


def _step(step: float | None) -> str:
    return "release" if step is None else str(step)


def _quoted(text: str) -> str:
    """In quotes, so that spaces at its ends are seen."""
    return '"' + one_line(text) + '"'


def _wrapped(parts: Sequence[str], indent: int = 0) -> Iterator[str]:
    """Put side by side what fits beside an indentation."""
    line = ""
    for part in parts:
        if line and cell_len(line) + cell_len(part) + 2 > width() - indent:
            yield line + ","
            line = ""
        line = f"{line}, {part}" if line else part
    if line:
        yield line


def _encodes(text: str) -> bool:
    try:
        text.encode(show.out.encoding)
    except UnicodeEncodeError:
        return False
    return True
