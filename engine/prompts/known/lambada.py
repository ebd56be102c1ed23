"""LAMBADA as prompts with many queries."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from logitbank.engine.prompts.datasets import PublicFile, public_file
from logitbank.engine.prompts.findings import read_each
from logitbank.engine.prompts.known_set import KnownSet
from logitbank.engine.prompts.prompt_set import SequenceSet
from logitbank.engine.prompts.rows import read_rows
from logitbank.engine.prompts.sequences import Continuation
from logitbank.engine.prompts.values import Scalar
from logitbank.errors import PromptError
from logitbank.store.format.limits import shown

FILE = PublicFile(
    "lambada",
    "lambada_test_openai.jsonl",
    "https://openaipublic.blob.core.windows.net/gpt-2/data/lambada_test.jsonl",
    "4aa8d02cd17c719165fc8a7887fddd641f43fcafa4b1c806ca8abc31fabdb226",
)


def lambada(data: Path | None = None) -> SequenceSet:
    """The last word of each of LAMBADA's 5,153 passages (OpenAI's version), all its tokens.

    Column `target`: the word with the space before it.
    """
    path = public_file(FILE, data)
    rows = (
        (line, row if isinstance(row, PromptError) else (line, row))
        for line, row in read_rows(path, ["text"])
    )
    return SequenceSet(
        "lambada",
        tuple(read_each(path, rows, _passage, what="passages", remedy="Use LAMBADA's own file.")),
    )


def _passage(row: tuple[int, Mapping[str, Any]]) -> Continuation:
    line, values = row
    text = values["text"]
    context, _, word = text.rpartition(" ") if isinstance(text, str) else ("", "", "")
    if not context or not word:
        raise PromptError(f"not a LAMBADA passage: {shown(text)}")
    columns: dict[str, Scalar] = {"target": " " + word}
    return Continuation(f"lambada-{line - 1}", context, " " + word, columns)


KNOWN = KnownSet(
    pattern="lambada",
    about="the last words of LAMBADA's 5,153 passages, for causal models",
    make=lambada,
)
