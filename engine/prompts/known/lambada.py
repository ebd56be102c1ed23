"""LAMBADA as prompts with many queries."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from logitbank.engine.prompts.datasets import public_file
from logitbank.engine.prompts.findings import read_each
from logitbank.engine.prompts.known_set import KnownSet
from logitbank.engine.prompts.prompt_set import PromptSet
from logitbank.engine.prompts.rows import read_rows
from logitbank.engine.prompts.scoring import target_tokens
from logitbank.engine.prompts.values import Prompt
from logitbank.errors import PromptError
from logitbank.store.format.limits import shown


def lambada(data: Path | None = None) -> PromptSet:
    """The last word of each of LAMBADA's 5,153 passages (OpenAI's version), all its tokens.

    Column `target`: the word with the space before it.
    """
    path = public_file("lambada", "lambada_test_openai.jsonl", data)
    rows = (
        (line, row if isinstance(row, PromptError) else (line, row))
        for line, row in read_rows(path, ["text"])
    )
    return PromptSet(
        "lambada",
        tuple(read_each(path, rows, _passage, what="passages", remedy="Use LAMBADA's own file.")),
    )


def _passage(row: tuple[int, Mapping[str, Any]]) -> Prompt:
    line, values = row
    text = values["text"]
    context, _, word = text.rpartition(" ") if isinstance(text, str) else ("", "", "")
    if not context or not word:
        raise PromptError(f"not a LAMBADA passage: {shown(text)}")
    target = " " + word
    return Prompt(
        f"lambada-{line - 1}",
        text,
        columns={"target": target},
        scored=target_tokens,
        parts={"context": context, "target": target},
    )


KNOWN = KnownSet(
    pattern="lambada",
    about="the last words of LAMBADA's 5,153 passages, for causal models",
    size="5,153",
    license="CC BY 4.0",
    analysis="lambada",
    make=lambada,
)
