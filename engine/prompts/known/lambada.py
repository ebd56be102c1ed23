"""LAMBADA as prompts with many queries."""

from pathlib import Path

from logitbank.engine.prompts.datasets import PublicFile, public_file, read_data_text
from logitbank.engine.prompts.known_set import KnownSet
from logitbank.engine.prompts.prompt_set import SequenceSet
from logitbank.engine.prompts.rows import json_value
from logitbank.engine.prompts.sequences import Continuation
from logitbank.engine.prompts.values import Scalar
from logitbank.errors import PromptError

FILE = PublicFile(
    "lambada",
    "lambada_test_openai.jsonl",
    "https://openaipublic.blob.core.windows.net/gpt-2/data/lambada_test.jsonl",
    "4aa8d02cd17c719165fc8a7887fddd641f43fcafa4b1c806ca8abc31fabdb226",
)

_REMEDY = "Use LAMBADA's own file."


def lambada(data: Path | None = None) -> SequenceSet:
    """The last word of each of LAMBADA's 5,153 passages (OpenAI's version), all its tokens.

    Column `target`: the word with the space before it.
    """
    path = public_file(FILE, data)
    prompts = []
    for number, line in enumerate(read_data_text(path, remedy=_REMEDY).split("\n"), 1):
        if not line.strip():
            continue
        passage = json_value(line, f"{path}:{number}:")
        text = passage.get("text") if isinstance(passage, dict) else None
        context, _, word = text.rpartition(" ") if isinstance(text, str) else ("", "", "")
        if not context or not word:
            raise PromptError(f"{path}:{number} is not a LAMBADA passage. {_REMEDY}")
        columns: dict[str, Scalar] = {"target": " " + word}
        prompts.append(Continuation(f"lambada-{number - 1}", context, " " + word, columns))
    return SequenceSet("lambada", tuple(prompts))


KNOWN = KnownSet(
    pattern="lambada",
    about="the last words of LAMBADA's 5,153 passages, for causal models",
    make=lambada,
)
