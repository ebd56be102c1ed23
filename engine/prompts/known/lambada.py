"""LAMBADA as prompts of many queries."""

import json
from pathlib import Path

from logitbank.engine.prompts.datasets import PublicFile, public_file
from logitbank.engine.prompts.known_set import KnownSet
from logitbank.engine.prompts.sequence_set import SequenceSet
from logitbank.engine.prompts.sequences import Continuation
from logitbank.engine.prompts.values import Scalar
from logitbank.errors import PromptError

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
    prompts = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            context, _, word = json.loads(line)["text"].rpartition(" ")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise PromptError(f"{path}:{number} is no passage of LAMBADA ({error!r})") from error
        columns: dict[str, Scalar] = {"target": " " + word}
        prompts.append(Continuation(f"lambada-{number - 1}", context, " " + word, columns))
    return SequenceSet("lambada", tuple(prompts))


KNOWN = KnownSet(
    pattern="lambada",
    about="the last words of LAMBADA's 5,153 passages, for causal models",
    make=lambada,
)
