"""The prompts of every benchmark, from WinoBias."""

from pathlib import Path

from bench.models import public_data
from logitbank.engine.prompts.prompt_set import PromptSet
from logitbank.engine.prompts.registry import prompt_set
from logitbank.engine.tokenizers.tokenizer import Tokenizer


def workload(count: int, kind: str = "plain") -> PromptSet:
    """`plain`: `count` prompts of 38 tokens on average, spread over the whole set.

    `five_orders`: `count` sentences that follow each other, each a prompt in five option orders.
    The two questions about a sentence are neighbours and share it. Sentences spread over the set
    would share less than the set does: 3.2 times in place of 4.0, and 3.7 to 3.9 so.
    """
    if kind == "plain":
        whole = prompt_set("winobias:orders=1", data=public_data()).prompts
        return PromptSet("bench", whole[:: len(whole) // count][:count])
    whole = prompt_set("winobias:orders=5", data=public_data()).prompts
    ids = list(dict.fromkeys(prompt.id for prompt in whole))
    chosen = set(ids[len(ids) // 3 :][:count])
    return PromptSet("bench-orders", tuple(p for p in whole if p.id in chosen))


def token_ids(prompts: PromptSet, checkpoint: Path, *, distinct: bool) -> list[tuple[int, ...]]:
    """The sequences that are scored, or those of every prompt by itself."""
    tokenizer = Tokenizer.load(checkpoint)
    if distinct:
        return [query.ids for query in prompts.tokenize(tokenizer).queries]
    return [tuple(tokenizer.encode(prompt.text)) for prompt in prompts.prompts]
