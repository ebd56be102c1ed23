"""The prompts of every benchmark: WinoBias's own, what is made of them, and other known sets'."""

from pathlib import Path
from typing import Literal, cast

from bench.models import DATA
from logitbank.engine.prompts.prompt_set import PromptSet
from logitbank.engine.prompts.registry import prompt_set
from logitbank.engine.prompts.sequence_set import SequenceSet
from logitbank.engine.prompts.values import Option, Prompt
from logitbank.engine.tokenizers.tokenizer import Tokenizer

LONG = 3
"""WinoBias prompts in one long prompt: 110 tokens and a few."""
Kind = Literal["plain", "long", "masked", "sentences", "five_orders", "options"]
"""Prompts of 38 tokens on average, or of about 110; professions' with a mask, 9 tokens; StereoSet's
sentences; WinoBias in five orders of its options; four options of several tokens each."""


def workload(
    count: int, kind: Kind = "plain", *, words: int | None = None
) -> PromptSet | SequenceSet:
    """`count` prompts of a kind; of `five_orders` so many sentences, each of them five prompts.

    `words` makes `plain` and `masked` ones so many words long.
    """
    if words is not None:
        return _of_words(count, words, masked=kind == "masked")
    if kind == "sentences":
        return _sentences(count)
    if kind == "five_orders":
        return _five_orders(count)
    if kind == "options":
        return _long_options(count)
    if kind == "masked":
        return PromptSet("bench-masked", prompt_set("professions", data=DATA).prompts[:count])
    return _of_winobias(count, long=kind == "long")


def option_prompts(count: int, kind: Kind, *, words: int | None = None) -> tuple[Prompt, ...]:
    """The same, of a kind that has options."""
    return cast(PromptSet, workload(count, kind, words=words)).prompts


def _sentences(count: int) -> SequenceSet:
    """`count` of StereoSet's candidate sentences, spread over the set: 10 tokens on average."""
    whole = prompt_set("stereoset-intra", data=DATA).prompts
    return SequenceSet("bench-sentences", tuple(whole[:: len(whole) // count][:count]))


def _five_orders(count: int) -> PromptSet:
    """`count` WinoBias sentences that follow each other, with their options in five orders.

    The two questions about a sentence are neighbours, and share it. Sentences spread over the set
    would share less than the set does: 3.2 times in place of 4.0, and 3.7 to 3.9 so.
    """
    whole = prompt_set("winobias:orders=5", data=DATA).prompts
    ids = list(dict.fromkeys(prompt.id for prompt in whole))
    chosen = set(ids[len(ids) // 3 :][:count])
    return PromptSet("bench-orders", tuple(p for p in whole if p.id in chosen))


def _long_options(count: int) -> PromptSet:
    """Contexts of 60 to 120 tokens, each with four options of 5 to 20, all of WinoBias's words."""
    whole = prompt_set("winobias:orders=1", data=DATA).prompts
    words = [word for prompt in whole for word in prompt.text.split()]
    stride = len(words) // count
    prompts = []
    for i in range(count):
        own = words[i * stride :] + words
        context, rest = own[: 50 + i * 7 % 40], own[100:]
        sizes = [5 + (i + j * 3) % 10 for j in range(4)]
        starts = [sum(sizes[:j]) for j in range(4)]
        options = tuple(
            Option(f"o{j}", " " + " ".join(rest[start : start + size]))
            for j, (start, size) in enumerate(zip(starts, sizes, strict=True))
        )
        prompts.append(Prompt(f"p{i}", " ".join(context), options))
    return PromptSet("bench-options", tuple(prompts), whole_options=True)


def _of_winobias(count: int, *, long: bool) -> PromptSet:
    """Prompts spread over the whole set."""
    whole = prompt_set("winobias:orders=1", data=DATA).prompts
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


def _of_words(count: int, words: int, *, masked: bool) -> PromptSet:
    """Prompts made of WinoBias's own words, each from another place; `masked` ones with a mask at
    the end, and a profession's options."""
    whole = prompt_set("winobias:orders=1", data=DATA).prompts
    options = (prompt_set("professions", data=DATA).prompts if masked else whole)[0].options
    stream = [word for prompt in whole for word in prompt.text.split()]
    stride = (len(stream) - words) // count
    end = ["[MASK]"] * masked
    texts = (" ".join([*stream[i * stride :][: words - masked], *end]) for i in range(count))
    prompts = tuple(Prompt(f"w{i}", text, options) for i, text in enumerate(dict.fromkeys(texts)))
    return PromptSet("bench-words", prompts)


def _text(whole: tuple[Prompt, ...], i: int, j: int) -> str:
    return whole[(i * 7 + j * 1009) % len(whole)].text


def token_ids(prompts: PromptSet | SequenceSet, checkpoint: Path) -> list[tuple[int, ...]]:
    """The sequences that are scored, in the order of the prompts."""
    return [query.ids for query in prompts.tokenize(Tokenizer.load(checkpoint)).queries]
