"""Output of `show`: one prompt through training, or the prompts with the largest change."""

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from logitbank.analysis.finding import formatted
from logitbank.analysis.prompts.show import PromptView
from logitbank.analysis.results.series import CROWD
from logitbank.cli.output import (
    one_line,
    print_command,
    print_frame,
    print_lines,
    print_table,
    print_title,
)
from logitbank.store.read.provenance import name_releases
from logitbank.wording import plain_step

if TYPE_CHECKING:
    from logitbank.analysis.prompts.scores import PromptScores
    from logitbank.analysis.prompts.show import PromptMoves

BARS = "▁▂▃▄▅▆▇█"
MOST_BARS = 20
"""Most checkpoints in a sparkline."""
MOST_TEXT = 60
"""Most characters of a prompt in a list."""
MEASURES = {"share": "option probability (normalized)"}
"""Measures that are printed under another name."""


def print_shown(shown: "PromptView | PromptMoves", form: str, *, bank: str, top: int) -> None:
    """Print tables for people, with at most `top` prompts per model, or all rows as data."""
    if form != "table":
        print_frame(shown.table, form)
    elif not isinstance(shown, PromptView):
        _print_moves(shown, bank=bank, top=top)
    elif shown.tokens is None:
        _print_view(shown)
    else:
        _print_tokens(shown, shown.tokens)


def _print_view(view: PromptView) -> None:
    order = _print_prompt(view)
    for scores in view.scores:
        part = scores.with_order(order)
        if len(part.prompts):
            _print_series(f"{scores.model} {scores.run}", scores.measure)
            print_table(option_table(part), kept="checkpoints")
            if scores.measure == "share":
                sums = (float(np.exp(part.logprob[c]).sum()) for c in (0, -1))
                first, last = (formatted(each, ".3g") for each in sums)
                print_lines([f"Probability of all options: {first} first, {last} last."])


def _print_prompt(view: PromptView) -> int | None:
    """Print the text, columns and options of a prompt; returns its first option order."""
    scores = view.scores[0]
    row = scores.prompts.row(0, named=True)
    order: int | None = row.pop("order_seed")
    print_title(f"Prompt {row.pop('prompt_id')} of {view.prompts}")
    print_lines(f"│ {line}" for line in row.pop("text").split("\n"))
    if order is not None:
        others = ", ".join(str(seed) for seed in view.orders if seed != order)
        print_lines([f"option order: {order}" + (f" (others: {others})" if others else "")])
    print_lines(one_line(f"{name}: {value}") for name, value in row.items() if value is not None)
    for option in scores.with_order(order).options.iter_rows(named=True):
        pieces = f", {option['pieces']} tokens" if option["pieces"] > 1 else ""
        print_lines([one_line(f'option {option["option"]}: "{option["continuation"]}"{pieces}')])
    return order


def option_table(scores: "PromptScores") -> pl.DataFrame:
    """First, last, lowest and highest value of each option of one prompt, and a sparkline."""
    values = scores.values()
    top = 1.0 if scores.measure == "share" else float(np.nan_to_num(values).max(initial=0.0)) or 1.0
    rows: list[dict[str, Any]] = []
    for option, column in zip(scores.options["option"], values.T, strict=True):
        row: dict[str, Any] = {"option": option, "first": column[0], "last": column[-1]}
        for name, find in (("lowest", np.nanargmin), ("highest", np.nanargmax)):
            index = None if np.isnan(column).all() else int(find(column))
            row[name] = None if index is None else column[index]
            row[f"{name} at"] = None if index is None else plain_step(scores.steps[index])
        rows.append(row | {"checkpoints": sparkline(column / top)})
    return pl.DataFrame(rows).fill_nan(None)


def sparkline(values: np.ndarray) -> str:
    """Bars for values between 0 and 1, blanks for NaN; at most `MOST_BARS`, equally spaced.

    >>> sparkline(np.array([0, 0.5, np.nan, 1]))
    '▁▅ █'
    """
    chosen = np.unique(np.linspace(0, len(values) - 1, MOST_BARS).round().astype(int))
    heights = np.clip(values[chosen] * len(BARS), 0, len(BARS) - 1)
    return "".join(" " if np.isnan(height) else BARS[int(height)] for height in heights)


def _print_tokens(view: PromptView, tokens: pl.DataFrame) -> None:
    order = _print_prompt(view)
    tokens = tokens.filter(pl.col("order_seed").eq_missing(pl.lit(order, pl.Int32)))
    if tokens["token_text"].null_count() == len(tokens):
        print_lines(
            ["The bank has no texts of tokens. Run the same `logitbank extract` to add them."]
        )
    for series in tokens.partition_by("model", "run", "piece", maintain_order=True):
        first = series.row(0, named=True)
        piece = f", token {first['piece'] + 1} of the options" if first["piece"] else ""
        print_lines([""])
        print_title(f"{first['model']} {first['run']}: most probable tokens{piece}")
        rows = [
            (
                plain_step(checkpoint["step"][0]),
                ", ".join(map(_token, checkpoint.iter_rows(named=True))),
            )
            for checkpoint in series.partition_by("step", maintain_order=True)
        ]
        print_table(pl.DataFrame(rows, schema=["checkpoint", "tokens"], orient="row"))


def _token(row: dict[str, Any]) -> str:
    text = f"#{row['token']}" if row["token_text"] is None else f'"{row["token_text"]}"'
    return f"{text} {np.exp(row['logprob']):.3f}"


def _print_moves(moves: "PromptMoves", *, bank: str, top: int) -> None:
    print_title(f"Prompts of {moves.prompts} with the largest change")
    first: dict[str, Any] | None = None
    key = ["prompt_id", "order_seed"]
    text = pl.col("text").str.replace_all(r"\s+", " ").str.slice(0, MOST_TEXT)
    texts = moves.texts.select(*key, text)
    crowd = len(moves.tables) >= CROWD
    tables = {f"{model} {run}": table for (model, run), table in moves.tables.items()}
    if crowd:
        every = moves.table.sort("movement", descending=True, maintain_order=True)
        tables = {f"{len(tables)} models and runs": every}
    for name, table in tables.items():
        _print_series(name, moves.measure)
        shown = (table if crowd else table.drop("model", "run")).head(top)
        shown = shown.join(texts, on=key, how="left", nulls_equal=True, maintain_order="left")
        ends = [end for end in ("low", "high") if shown[end].is_finite().sum() == len(shown)]
        shown = name_releases(shown, *(f"{end}_step" for end in ends))
        print_table(shown.select(c for c in shown if c.name != "order_seed" or c.count()))
        if first is None and len(table):
            first = table.row(0, named=True)
    if first is not None:
        order = first["order_seed"]
        words = ["logitbank", "show", bank, "--prompts", moves.prompts]
        words += ["--model", first["model"]] * crowd
        words += ["--prompt", first["prompt_id"]] + ([] if order is None else ["--order", order])
        print_lines(["", *["Prompts of one model: --model NAME."] * crowd])
        print_command(words)


def _print_series(name: str, measure: str) -> None:
    print_lines([""])
    print_title(f"{name}: {MEASURES.get(measure, measure)}")
