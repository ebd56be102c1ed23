"""LAMBADA as prompts of many queries."""

from pathlib import Path

from logitbank.engine.prompts.datasets import PublicFile, public_file, text_of_file
from logitbank.engine.prompts.known_set import KnownSet
from logitbank.engine.prompts.prompt_set import SequenceSet
from logitbank.engine.prompts.rows import json_value
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

_REMEDY = "give LAMBADA's own file"


def lambada(data: Path | None = None) -> SequenceSet:
    """The last word of each of LAMBADA's 5,153 passages (OpenAI's version), all its tokens.

    Column `target`: the word with the space before it.
    """
    path = public_file(FILE, data)
    prompts = []
    for number, line in enumerate(text_of_file(path, remedy=_REMEDY).splitlines(), 1):
        try:
            context, word = _passage(line)
        except PromptError as error:
            raise PromptError(
                f"{path}:{number} is no passage of LAMBADA: {error}; {_REMEDY}"
            ) from None
        columns: dict[str, Scalar] = {"target": " " + word}
        prompts.append(Continuation(f"lambada-{number - 1}", context, " " + word, columns))
    return SequenceSet("lambada", tuple(prompts))


def _passage(line: str) -> tuple[str, str]:
    """The last word of a line's passage, and what stands before it and its space."""
    passage = json_value(line, "line")
    text = passage.get("text") if isinstance(passage, dict) else None
    if not isinstance(text, str):
        raise PromptError(f"{shown(passage)} has no text")
    context, _, word = text.rpartition(" ")
    if not context or not word:
        raise PromptError(f"{shown(text)} has no last word after a space")
    return context, word


KNOWN = KnownSet(
    pattern="lambada",
    about="the last words of LAMBADA's 5,153 passages, for causal models",
    make=lambada,
)
