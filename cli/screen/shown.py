"""What `show` prints: a prompt through training, or the prompts that move most."""

from typing import TYPE_CHECKING

import polars as pl

from logitbank.analysis.prompts.lookup import PromptView
from logitbank.analysis.prompts.top_tokens import PromptTokens
from logitbank.analysis.prompts.view import prompt_rows
from logitbank.cli.output import print_frame
from logitbank.cli.screen.prompt import (
    about_prompt,
    command,
    listed,
    one_line,
    say,
    through_training,
    tokens_through_training,
)
from logitbank.wording import plain_step

if TYPE_CHECKING:
    from logitbank.analysis.prompts.show import PromptMoves


def print_shown(
    shown: "PromptView | PromptTokens | PromptMoves", form: str, *, bank: str, top: int
) -> None:
    """As lines with a plot, or at most `top` prompts of each model; csv and json have all."""
    if isinstance(shown, PromptView):
        _print_view(shown, form)
    elif isinstance(shown, PromptTokens):
        _print_tokens(shown, form)
    else:
        _print_moves(shown, form, bank=bank, top=top)


def _print_view(view: PromptView, form: str) -> None:
    if form != "table":
        print_frame(pl.concat(map(prompt_rows, view.scores)), form)
        return
    order = view.scores[0].prompts["order_seed"][0]
    shown = [part for scores in view.scores if len((part := scores.with_order(order)).prompts)]
    say(about_prompt(view, shown[0]))
    for scores in shown:
        say(through_training(scores))


def _print_tokens(shown: PromptTokens, form: str) -> None:
    if form != "table":
        print_frame(shown.tokens, form)
        return
    order = shown.prompt.scores[0].prompts["order_seed"][0]
    say(about_prompt(shown.prompt, shown.prompt.scores[0].with_order(order)))
    of_first_order = pl.col("order_seed").eq_missing(pl.lit(order, pl.Int32))
    say(tokens_through_training(shown.tokens.filter(of_first_order), shown.k))


def _print_moves(moves: "PromptMoves", form: str, *, bank: str, top: int) -> None:
    if form != "table":
        print_frame(moves.table, form)
        return
    what = "move most"
    if moves.between is not None:
        what = f"differ most, {' → '.join(map(plain_step, moves.between))}"
    say([f"{one_line(moves.prompts)}: the prompts that {what}"])
    first: dict[str, object] | None = None
    for (model, run), table in moves.tables.items():
        say(listed(moves, f"{model} {run}", table, top=top))
        if first is None and len(table):
            first = table.row(0, named=True)
    if first is not None:
        say(["", command(bank, moves.prompts, first)])
