"""The prompts of every benchmark: WinoBias's own, or what is made of them."""

from pathlib import Path
from typing import Literal

from bench.models import public_data
from logitbank.engine.prompts.prompt_set import PromptSet
from logitbank.engine.prompts.registry import prompt_set
from logitbank.engine.prompts.values import Prompt
from logitbank.engine.tokenizers.tokenizer import Tokenizer

LONG = 3
"""WinoBias prompts in one long prompt: about 110 tokens."""
Kind = Literal["plain", "long", "five_orders"]
"""Prompts of 38 tokens on average, or of about 110; WinoBias in five orders of its options."""


def workload(count: int, kind: Kind = "plain") -> PromptSet:
    """`count` prompts of a kind; of `five_orders` so many sentences, each of them five prompts."""
    if kind == "five_orders":
        return _five_orders(count)
    return _of_winobias(count, long=kind == "long")


def _five_orders(count: int) -> PromptSet:
    """`count` WinoBias sentences that follow each other, with their options in five orders.

    The two questions about a sentence are neighbours, and share it. Sentences spread over the set
    would share less than the set does: 3.2 times in place of 4.0, and 3.7 to 3.9 so.
    """
    whole = prompt_set("winobias:orders=5", data=public_data()).prompts
    ids = list(dict.fromkeys(prompt.id for prompt in whole))
    chosen = set(ids[len(ids) // 3 :][:count])
    return PromptSet("bench-orders", tuple(p for p in whole if p.id in chosen))


def _of_winobias(count: int, *, long: bool) -> PromptSet:
    """Prompts spread over the whole set."""
    whole = prompt_set("winobias:orders=1", data=public_data()).prompts
    stride = len(whole) // count
    chosen = whole[:: max(stride, 1)][:count]
    if len(chosen) < count:
        raise ValueError(f"there are only {len(whole)} prompts")
    if long:
        chosen = tuple(
            Prompt(
                p.id, " ".join([*(_text(whole, i, j) for j in range(1, LONG)), p.text]), p.options
            )
            for i, p in enumerate(chosen)
        )
    return PromptSet("bench-long" if long else "bench", tuple(chosen))


def _text(whole: tuple[Prompt, ...], i: int, j: int) -> str:
    return whole[(i * 7 + j * 1009) % len(whole)].text


def token_ids(prompts: PromptSet, checkpoint: Path) -> list[tuple[int, ...]]:
    """The sequences that are scored, in the order of the prompts."""
    return [query.ids for query in prompts.tokenize(Tokenizer.load(checkpoint)).queries]
