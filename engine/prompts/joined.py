"""Texts and their continuations in ids: the only place where the two are joined.

The convention is that of lm-evaluation-harness (`TemplateLM._encode_pair`): a continuation is what
text and continuation, encoded together, have beyond the text.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from logitbank.engine.tokenizers.tokenizer import Tokenizer


def contexts(
    tokenizer: "Tokenizer", texts: Sequence[str], *, add_special_tokens: bool | None
) -> list[list[int]]:
    """Ids of texts that something continues, after the special tokens that begin a text.

    Special tokens that end a text, such as `[SEP]`, are left out, since a continuation would stand
    behind them. A text that begins with the same special tokens itself gets no second ones.
    """
    plain = tokenizer.encode_many(texts, add_special_tokens=False)
    opening = [] if add_special_tokens is False else tokenizer.opening
    return [ids if ids[: len(opening)] == opening else [*opening, *ids] for ids in plain]


def continuations(
    tokenizer: "Tokenizer",
    pairs: Sequence[tuple[str, str]],
    before: Sequence[Sequence[int]],
    *,
    add_special_tokens: bool | None,
) -> list[tuple[int, ...] | None]:
    """Ids of the second text of each pair, after the first one, whose context is in `before`.

    None where the tokens of the first text are not the first tokens of both together.
    """
    both = contexts(tokenizer, [a + b for a, b in pairs], add_special_tokens=add_special_tokens)
    return [
        tuple(ids[len(context) :]) if ids[: len(context)] == [*context] else None
        for ids, context in zip(both, before, strict=True)
    ]
