"""The prompt set with a prompt."""

from difflib import get_close_matches

import polars as pl

from logitbank.errors import UsageError
from logitbank.store import Bank

_COMPARED = 20_000
"""Ids that are compared with a mistyped one: 0.2 s."""


def prompt_set(bank: Bank, prompts: str | None, *, prompt_id: str | None = None) -> str:
    """The named prompt set; otherwise the only one, or the only one with a prompt of this id.

    Raises
    ------
    UsageError
        There are several prompt sets, or none has the prompt; similar ids are listed.
    BankError
        The bank has no such prompt set.
    """
    names = bank.prompt_sets if prompts is None else [prompts]
    if not names:
        bank.prompts("any")  # raises
    if prompt_id is not None:
        has_id = pl.col("prompt_id") == prompt_id
        tables = {name: bank.prompts(name) for name in names}
        found = [n for n, rows in tables.items() if len(rows.filter(has_id).head(1).collect())]
        if not found:
            ids = pl.concat(rows.select(pl.col("prompt_id").unique()) for rows in tables.values())
            known = ids.head(_COMPARED).collect()["prompt_id"].unique().sort().to_list()
            near = ", ".join(map(repr, get_close_matches(prompt_id, known, n=3)))
            raise UsageError(
                f"No prompt {prompt_id!r} in {', '.join(names)}. "
                + (f"Similar: {near}." if near else "Leave out --prompt to list prompts.")
            )
        names = found
    if len(names) > 1:
        with_id = "" if prompt_id is None else f" with a prompt {prompt_id!r}"
        raise UsageError(
            f"{bank.address} has several prompt sets{with_id}: {', '.join(names)}."
            " Name one with --prompts."
        )
    bank.prompts(names[0])  # raises if the bank does not have it
    return names[0]
