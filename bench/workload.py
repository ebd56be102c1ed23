"""The prompts of every benchmark, from WinoBias."""

from pathlib import Path

from bench.models import public_data
from logitbank.engine.prompts.prompt_set import PromptSet
from logitbank.engine.prompts.registry import prompt_set
from logitbank.engine.prompts.tokenize import tokenize
from logitbank.engine.prompts.values import Prompt
from logitbank.engine.tokenizers.tokenizer import Tokenizer


def workload(count: int, kind: str = "plain") -> PromptSet:
    """`plain`: `count` prompts of 38 tokens on average, spread over the whole set.

    `long`: the same, each after the texts of two others, about 110 tokens.

    `five_orders`: `count` sentences that follow each other, each a prompt in five option orders.
    The two questions about a sentence are neighbours and share it. Sentences spread over the set
    would share less than the set does: 3.2 times in place of 4.0, and 3.7 to 3.9 so.
    """
    if kind in ("plain", "long"):
        whole = prompt_set("winobias:orders=1", data=public_data()).prompts
        chosen = whole[:: len(whole) // count][:count]
        if kind == "plain":
            return PromptSet("bench", chosen)
        others = [whole[(7 * i + 1009) % len(whole)].text for i in range(count + 1)]
        return PromptSet(
            "bench-long",
            tuple(
                Prompt(p.id, f"{others[i]} {others[i + 1]} {p.text}", p.options)
                for i, p in enumerate(chosen)
            ),
        )
    whole = prompt_set("winobias:orders=5", data=public_data()).prompts
    ids = list(dict.fromkeys(prompt.id for prompt in whole))
    if count > len(ids):
        raise ValueError(f"WinoBias has {len(ids):,} sentences, not {count:,}.")
    start = len(ids) // 3
    chosen = {*(ids[start:] + ids[:start])[:count]}
    return PromptSet("bench-orders", tuple(p for p in whole if p.id in chosen))


def token_ids(prompts: PromptSet, checkpoint: Path, *, distinct: bool) -> list[tuple[int, ...]]:
    """The sequences that are scored, or those of every prompt by itself."""
    tokenizer = Tokenizer.load(checkpoint)
    if distinct:
        return [query.ids for query in tokenize(prompts, tokenizer).queries]
    return [tuple(tokenizer.encode(prompt.text)) for prompt in prompts.prompts]
