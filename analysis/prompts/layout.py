"""Where the scores of a prompt set go: prompts, their options, and the tokens that make them up.

Tables of prompts have one row per prompt × order × piece × option, in any order. Knows no score.
"""

from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from logitbank.analysis.frames.codes import distinct
from logitbank.store.format.schema import PROMPTS_SCHEMA

Codes = NDArray[np.int64]
_PROMPT = ("prompt_id", "order_seed", "text", "answer")
_OPTION = ("option", "continuation", "is_answer")
_PLACE = ("query_set", "row", "token")


class PromptLayout(NamedTuple):
    """The prompts that one model was asked, as `layout` puts them in order."""

    prompts: pl.DataFrame
    """(p) prompt_id, order_seed, text, answer, and the set's own columns."""
    options: pl.DataFrame
    """(o) prompt, option, continuation, is_answer, pieces; by prompt."""
    first: Codes
    """(o,) first piece of each option."""
    places: pl.DataFrame
    """query_set, row, token and piece (index of the piece): where the score of a piece is."""


def layout(table: pl.DataFrame) -> PromptLayout:
    """Prompts and options in the order in which a table of prompts names them.

    `table` is as `Bank.prompts` gives it, for the query sets of one model. A piece that is there
    in several query sets is one piece. A prompt without options is one of the prompts.
    """
    prompt = _by_appearance(table.select("prompt_id", "order_seed"))
    option = _by_appearance(table.select("option").with_columns(prompt=prompt))
    piece = table["piece"].to_numpy()
    order = np.lexsort((piece, option, prompt))
    columns = [name for name in table.columns if name not in PROMPTS_SCHEMA]
    prompts = table.select(*_PROMPT, *columns)[order[np.flatnonzero(_starts(prompt[order]))]]
    order = order[table["token"].is_not_null().to_numpy()[order]]
    table = table.select(*_OPTION, *_PLACE)[order]
    prompt, option, piece = prompt[order], option[order], piece[order]
    new_option = _starts(option)
    new_piece = new_option | _starts(piece)
    at = np.cumsum(new_piece) - 1
    heads = np.flatnonzero(new_option)
    first = at[heads]
    pieces = np.diff(first, append=int(at[-1]) + 1 if len(at) else 0)
    whole = table["continuation"].gather(np.flatnonzero(new_piece))
    options = pl.DataFrame(
        {
            "prompt": prompt[heads],
            "option": table["option"].gather(heads),
            "continuation": _joined(whole, pieces),
            "is_answer": table["is_answer"].gather(heads),
            "pieces": pieces.astype(np.int64),
        }
    )
    return PromptLayout(prompts, options, first, table.select(_PLACE).with_columns(piece=at))


def _joined(texts: pl.Series, sizes: Codes) -> pl.Series:
    """Consecutive texts put together, so many each time."""
    if not (sizes > 1).any():
        return texts
    frame = pl.DataFrame({"text": texts, "group": np.repeat(np.arange(len(sizes)), sizes)})
    joined = frame.group_by("group", maintain_order=True).agg(pl.col("text").str.join(""))
    return joined["text"]


def _by_appearance(frame: pl.DataFrame) -> Codes:
    """Equal rows have equal numbers, from 0 in order of first appearance."""
    codes = distinct(frame).codes
    if not len(codes):
        return codes
    first = np.empty(int(codes.max()) + 1, np.int64)
    first[codes[::-1]] = np.arange(len(codes))[::-1]
    number = np.empty(len(first), np.int64)
    number[np.argsort(first)] = np.arange(len(first))
    numbers: Codes = number[codes]
    return numbers


def _starts(codes: NDArray[np.integer]) -> NDArray[np.bool_]:
    """Whether an entry differs from the one before."""
    return np.concatenate((np.ones(min(1, len(codes)), bool), codes[1:] != codes[:-1]))
