"""LAMBADA and CrowS-Pairs as prompts of many queries."""

import csv
import json
import os
from pathlib import Path

from logitbank.engine.prompts.sequences import (
    Candidate,
    Continuation,
    MaskedTokens,
    SequenceSet,
)
from logitbank.engine.prompts.values import Scalar
from logitbank.errors import PromptError, UsageError

LAMBADA = "lambada_test_openai.jsonl"
CROWS_PAIRS = "crows_pairs_anonymized.csv"
DIRECTIONS = ("stereo", "antistereo")
_CROWS_PAIRS = ("sent_more", "sent_less", "stereo_antistereo", "bias_type")


def lambada(data: Path | None = None) -> SequenceSet:
    """The last word of each of LAMBADA's 5,153 passages (OpenAI's version), all its tokens.

    Column `target`: the word with the space before it.
    """
    path = public_file("lambada", LAMBADA, data)
    prompts = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            context, _, word = json.loads(line)["text"].rpartition(" ")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise PromptError(f"{path}:{number} is no passage of LAMBADA ({error!r})") from error
        columns: dict[str, Scalar] = {"target": " " + word}
        prompts.append(Continuation(f"lambada-{number - 1}", context, " " + word, columns))
    return SequenceSet("lambada", tuple(prompts))


def crows_pairs(data: Path | None = None) -> SequenceSet:
    """Both sentences of each of the 1,508 pairs.

    Masked models: each token that the two share under its own mask (Nangia et al. 2020). Causal
    ones: every token after the begin-of-text token, as lm-evaluation-harness does. Columns: `pair`,
    `side` (more, less), `direction` (stereo, antistereo), `bias_type`.
    """
    path = public_file("crows-pairs", CROWS_PAIRS, data)
    prompts = []
    with path.open(encoding="utf-8", newline="") as lines:
        for number, row in enumerate(csv.DictReader(lines)):
            if odd := [name for name in _CROWS_PAIRS if not row.get(name)]:
                raise PromptError(f"{path}: pair {number} lacks {odd[0]}")
            if row["stereo_antistereo"] not in DIRECTIONS:
                raise PromptError(
                    f"{path}: pair {number} has the direction {row['stereo_antistereo']!r}; there "
                    f"are {' and '.join(DIRECTIONS)}"
                )
            texts = {"more": row["sent_more"], "less": row["sent_less"]}
            for side, other in (("more", "less"), ("less", "more")):
                name, text = f"{number}-{side}", texts[side]
                columns: dict[str, Scalar] = {
                    "pair": number,
                    "side": side,
                    "direction": row["stereo_antistereo"],
                    "bias_type": row["bias_type"],
                }
                masked = MaskedTokens(name, text, texts[other], first=side == "more")
                prompts.append(Candidate(name, text, masked, columns, begun=True))
    if not prompts:
        raise PromptError(f"{path} holds no pair; give CrowS-Pairs' own file")
    return SequenceSet("crows-pairs", tuple(prompts))


def public_file(folder: str, name: str, data: Path | None) -> Path:
    """A file in a data folder; unlike WinoBias it is not downloaded."""
    root = data or os.environ.get("LOGITBANK_DATA")
    path = Path(root or ".") / folder / name
    if root is None or not path.is_file():
        raise UsageError(
            f"{folder}/{name} is not at hand; name a folder that holds it with --data or "
            "LOGITBANK_DATA"
        )
    return path
