"""LAMBADA, StereoSet and CrowS-Pairs as prompts of many queries: METRICS §5, §6, §8."""

import csv
import json
import os
import string
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from logitbank.engine.prompt_set import Scalar
from logitbank.engine.sequences import (
    BLANK,
    Candidate,
    Continuation,
    MaskedTokens,
    MaskedWord,
    SequenceSet,
)
from logitbank.errors import PromptError, UsageError

LAMBADA = "lambada_test_openai.jsonl"
CROWS_PAIRS = "crows_pairs_anonymized.csv"
STEREOSET = {"en": "dev-english.json", "de": "dev-german.json"}
LABELS = frozenset({"stereotype", "anti-stereotype", "unrelated"})


def lambada(data: Path | None = None) -> SequenceSet:
    """The last word of each of LAMBADA's 5,153 passages (OpenAI's version), all its tokens.

    Column `target`: the word with the space before it.
    """
    path = _file("lambada", LAMBADA, data)
    prompts = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            text = json.loads(line)["text"]
        except (ValueError, KeyError, TypeError) as error:
            raise PromptError(f"{path}:{number} is no passage of LAMBADA ({error})") from error
        context, _, word = text.rpartition(" ")
        columns: dict[str, Scalar] = {"target": " " + word}
        prompts.append(Continuation(f"lambada-{number - 1}", context, " " + word, columns))
    return SequenceSet("lambada", tuple(prompts))


def crows_pairs(data: Path | None = None) -> SequenceSet:
    """Both sentences of each of the 1,508 pairs.

    Masked models: each token that the two share under its own mask. Causal ones: every token.
    Columns: `pair`, `side` (more, less), `direction` (stereo, antistereo), `bias_type`.
    """
    path = _file("crows-pairs", CROWS_PAIRS, data)
    prompts = []
    with path.open(encoding="utf-8", newline="") as lines:
        for number, row in enumerate(csv.DictReader(lines)):
            texts = {"more": row.get("sent_more"), "less": row.get("sent_less")}
            if not all(texts.values()):
                raise PromptError(f"{path}: pair {number} lacks sent_more or sent_less")
            for side, other in (("more", "less"), ("less", "more")):
                name, text = f"{number}-{side}", str(texts[side])
                columns: dict[str, Scalar] = {
                    "pair": number,
                    "side": side,
                    "direction": row["stereo_antistereo"],
                    "bias_type": row["bias_type"],
                }
                masked = MaskedTokens(name, text, str(texts[other]), first=side == "more")
                prompts.append(Candidate(name, text, masked, columns))
    return SequenceSet("crows-pairs", tuple(prompts))


def stereoset_intra(
    data: Path | None = None, *, language: str = "en", leading_space: bool = False
) -> SequenceSet:
    """The three candidates of each intra-sentence example.

    Masked models: each piece of the attribute word, the pieces before it in place. Causal ones:
    every token of the sentence. Columns: `example`, `target`, `target_english`, `domain`, `label`,
    `language`, `condition`.

    Parameters
    ----------
    language
        `en` or `de`; the latter's prompt set is `stereoset-intra-de`.
    leading_space
        Whether the word is encoded with a space before it.
    """
    path = _file("stereoset", STEREOSET[language], data)
    examples = json.loads(path.read_text(encoding="utf-8"))["data"]["intrasentence"]
    prompts = [p for e in examples for p in _candidates(e, language, leading_space, path)]
    suffix = "" if language == "en" else f"-{language}"
    return SequenceSet(f"stereoset-intra{suffix}", tuple(prompts))


def stereoset_inter_causal(data: Path | None = None, *, language: str = "en") -> SequenceSet:
    """The three candidates of each inter-sentence example, every token after the context.

    For causal models, and ours: never to be mixed with a next-sentence head's results. Columns as
    for `stereoset_intra`.
    """
    path = _file("stereoset", STEREOSET[language], data)
    examples = json.loads(path.read_text(encoding="utf-8"))["data"]["intersentence"]
    prompts = tuple(
        Continuation(
            sentence["id"],
            example["context"],
            " " + sentence["sentence"],
            _columns(example, sentence, language),
            "given",
        )
        for example in examples
        for sentence in _labelled(example, path)
    )
    suffix = "" if language == "en" else f"-{language}"
    return SequenceSet(f"stereoset-inter-causal{suffix}", prompts)


def _labelled(example: dict[str, Any], path: Path) -> list[dict[str, Any]]:
    found = sorted(sentence["gold_label"] for sentence in example["sentences"])
    if found != sorted(LABELS):
        raise PromptError(f"{path}: example {example['id']} has the labels {found}")
    sentences: list[dict[str, Any]] = example["sentences"]
    return sentences


def _columns(example: dict[str, Any], sentence: dict[str, Any], language: str) -> dict[str, Scalar]:
    return {
        "example": example["id"],
        "target": example["target"],
        "target_english": example.get("target_english", example["target"]),
        "domain": example["bias_type"],
        "label": sentence["gold_label"],
        "language": language,
        "condition": "plain",
    }


def _candidates(
    example: dict[str, Any], language: str, leading_space: bool, path: Path
) -> Iterator[Candidate]:
    for sentence in _labelled(example, path):
        word = sentence.get("word") or attribute_word(example["context"], sentence["sentence"])
        if word is None:
            raise PromptError(
                f"{path}: no word of {sentence['sentence']!r} ({sentence['id']}) stands where "
                f"{example['context']!r} has {BLANK}"
            )
        masked = MaskedWord(sentence["id"], example["context"], word, leading_space=leading_space)
        columns = _columns(example, sentence, language)
        yield Candidate(sentence["id"], sentence["sentence"], masked, columns)


def attribute_word(context: str, sentence: str) -> str | None:
    """The word of a sentence where its context has `BLANK`, without ASCII punctuation.

    None where there is no such place, or nothing is left.

    >>> attribute_word("Girls tend to be more BLANK than boys", "Girls tend to be more soft than boys")
    'soft'
    """  # noqa: E501
    words = context.split(" ")
    at = next((i for i, word in enumerate(words) if BLANK in word), None)
    found = sentence.split(" ")
    if at is None or at >= len(found):
        return None
    return found[at].translate(str.maketrans("", "", string.punctuation)) or None


def _file(folder: str, name: str, data: Path | None) -> Path:
    """A file in a data folder; unlike WinoBias it is not downloaded."""
    root = data or os.environ.get("LOGITBANK_DATA")
    path = Path(root or ".") / folder / name
    if root is None or not path.is_file():
        raise UsageError(
            f"{folder}/{name} is not at hand; name a folder that holds it with --data or "
            "LOGITBANK_DATA"
        )
    return path
