"""What an error about a row is told as: the prompt that asked for it."""

from collections.abc import Callable
from typing import TypeVar

import polars as pl

from logitbank.engine.plan.plan import DepositPlan
from logitbank.errors import EngineError
from logitbank.store import Bank

T = TypeVar("T")


def about_prompt(bank: Bank, plan: DepositPlan, error: EngineError) -> EngineError:
    """The same error, with its checkpoint and the prompt that it is about."""
    return EngineError(f"{plan.checkpoint}: {_named(bank, plan, error)}")


def naming_prompt(finish: Callable[[], T], bank: Bank, plan: DepositPlan) -> Callable[[], T]:
    """The same function, whose errors say which prompt they are about."""

    def named() -> T:
        try:
            return finish()
        except EngineError as error:
            raise about_prompt(bank, plan, error) from error

    return named


def _named(bank: Bank, plan: DepositPlan, error: EngineError) -> str:
    if error.query is None:
        return str(error)
    here = (pl.col("query_set") == plan.query_set) & (pl.col("row") == error.query)
    for name in bank.prompt_sets:
        prompts = bank.prompts(name).filter(here).select("prompt_id").collect()
        if len(prompts):
            return f"prompt {prompts.item(0, 0)!r} of {name!r}: {error}"
    return f"query {error.query} of {plan.query_set}: {error}"
