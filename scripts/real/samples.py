"""The prompts: a seeded sample of each of three public sets, under the names of the sets."""

import random
from collections.abc import Hashable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from logitbank.engine.prompts.known.crows_pairs import crows_pairs
from logitbank.engine.prompts.known.lambada import lambada
from logitbank.engine.prompts.known.winobias import winobias
from logitbank.engine.prompts.prompt_set import PromptSet

SEED = 0
T = TypeVar("T", bound=Hashable)


def samples(
    data: Path, *, sentences: int = 20, orders: int = 2, pairs: int = 40, passages: int = 40
) -> tuple[PromptSet, PromptSet, PromptSet]:
    """WinoBias, CrowS-Pairs and LAMBADA, each cut to what is drawn.

    Of WinoBias whole pairs of sentences are drawn, pro and anti, each with both questions; of
    CrowS-Pairs both sentences of a pair. The same arguments give the same prompts.
    """
    whole = winobias(data, orders=orders)
    ids = drawn([p.columns["sentence_id"] for p in whole.prompts if p.columns["paired"]], sentences)
    crows = crows_pairs(data)
    numbers = drawn([p.columns["pair"] for p in crows.prompts], pairs)
    words = lambada(data)
    texts = drawn([p.id for p in words.prompts], passages)
    return (
        replace(whole, prompts=tuple(p for p in whole.prompts if p.columns["sentence_id"] in ids)),
        replace(crows, prompts=tuple(p for p in crows.prompts if p.columns["pair"] in numbers)),
        replace(words, prompts=tuple(p for p in words.prompts if p.id in texts)),
    )


def drawn(values: Sequence[T], count: int) -> set[T]:
    return set(random.Random(SEED).sample([*dict.fromkeys(values)], count))
