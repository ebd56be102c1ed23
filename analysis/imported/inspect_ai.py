"""Logs of inspect_ai: multiple choice whose answers were logged with log-probabilities."""

import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from logitbank.analysis.frames.json_files import json_object
from logitbank.analysis.imported.inspect_archive import (
    is_archive,
    place_of,
    read_header,
    read_samples,
)
from logitbank.analysis.imported.items import Evaluation, Item, logprob_of, text_columns
from logitbank.errors import UsageError

TOOL = "inspect_ai"
KIND = "log of inspect_ai"
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def read_log(path: Path) -> Evaluation:
    """The samples of a log whose answer is a letter: the first token, or that after `ANSWER:`.

    A choice has the log-probability of its letter there, with or without a space before it, as the
    model listed it beside the token that it wrote; what it did not list is not known. The file is
    a JSON document or, as inspect_ai packs it, an archive.

    Raises
    ------
    UsageError
        It is no log or damaged, or no sample has choices and log-probabilities.
    """
    packed = is_archive(path) or path.suffix == ".eval"
    document = read_header(path) if packed else json_object(path, KIND)
    about = document.get("eval")
    if not isinstance(about, dict) or not (packed or "samples" in document):
        raise UsageError(f"{path} is no {KIND}: it has no `eval` and `samples`")
    plan = document.get("plan")
    steps = plan.get("steps") if isinstance(plan, dict) else None
    if isinstance(steps, list) and any(_shuffles(step) for step in steps):
        raise UsageError(
            f"{path} is of an evaluation that shuffled the choices of each sample, and does not say"
            " how; evaluate with multiple_choice(shuffle=False), or shuffle the data set's choices"
        )
    samples = read_samples(path) if packed else _listed(path, document["samples"])
    items: dict[str, Item] = {}
    places: dict[str, tuple[int, str]] = {}
    left_out = 0
    for where, sample in samples:
        item = _item(sample, where)
        if item is None:
            left_out += 1
            continue
        if item.id in items:
            raise UsageError(f"{where} has the id {item.id!r} again; keep one log to a file")
        items[item.id], places[item.id] = item, place_of(sample)
    if not items:
        raise UsageError(
            f"{path} has no sample of multiple choice with the log-probabilities of its answer's"
            " letter; evaluate with logprobs=True and top_logprobs=20"
        )
    # Samples are packed as they end, which differs from run to run; as JSON they are in order.
    ordered = sorted(items, key=places.__getitem__) if packed else items
    packages = about.get("packages")
    version = packages.get(TOOL) if isinstance(packages, dict) else None
    return Evaluation(
        tool=TOOL,
        version=None if version is None else str(version),
        task=str(about.get("task") or path.stem),
        items=tuple(items[name] for name in ordered),
        model=str(about["model"]) if about.get("model") else None,
        step=None,
        files=(path,),
        left_out=left_out,
    )


def _listed(path: Path, samples: object) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The samples of a JSON document, each with where it is."""
    for number, sample in enumerate(samples if isinstance(samples, list) else [], 1):
        where = f"{path}, sample {number}"
        if not isinstance(sample, dict):
            raise UsageError(f"{where} is no JSON object")
        yield where, sample


def _shuffles(step: object) -> bool:
    """Whether a solver showed choices in an order of its own."""
    params = step.get("params") if isinstance(step, dict) else None
    return bool(isinstance(params, dict) and params.get("shuffle"))


def _item(sample: Mapping[str, Any], where: str) -> Item | None:
    """None where a sample has no choices, or nothing is known of them."""
    choices = sample.get("choices")
    if not isinstance(choices, list) or not 2 <= len(choices) <= len(LETTERS):
        return None
    letters = LETTERS[: len(choices)]
    listed = _listed_at_answer(sample.get("output"), letters)
    values = [_summed(listed, letter, where) for letter in letters]
    if all(value is None for value in values):
        return None
    question = _text(sample.get("input"))
    text = "\n".join(
        [question, *(f"{letter}) {c}" for letter, c in zip(LETTERS, choices, strict=False))]
    )
    epoch, target = sample.get("epoch", 1), sample.get("target")
    target = target[0] if isinstance(target, list) and len(target) == 1 else target
    return Item(
        id=f"{sample.get('id')}" + ("" if epoch == 1 else f"-epoch{epoch}"),
        text=text,
        pairs=tuple((text, letter) for letter in letters),
        logprobs=tuple(values),
        answer=letters.index(target) if isinstance(target, str) and target in [*letters] else None,
        columns=text_columns(sample.get("metadata")),
    )


def _listed_at_answer(output: object, letters: str) -> list[Mapping[str, Any]]:
    """The token that answers, and those listed beside it, each once; of several the last."""
    try:
        written = [*output["choices"][0]["logprobs"]["content"]]  # type: ignore[index]
        before, at = "", None
        for token in written:
            text = str(token["token"])
            if text.strip() in [*letters] and (
                not before.strip() or before.rstrip().upper().endswith("ANSWER:")
            ):
                at = token
            before += text
        entries = [] if at is None else [*(at.get("top_logprobs") or []), at]
    except (KeyError, IndexError, TypeError, AttributeError):
        return []
    by_text = {str(e.get("token")): e for e in reversed(entries) if isinstance(e, dict)}
    return list(by_text.values())


def _summed(listed: Iterable[Mapping[str, Any]], letter: str, where: str) -> float | None:
    """Log-probability of a letter, by any token that is it but for white space."""
    found = [
        logprob_of(entry.get("logprob"), where)
        for entry in listed
        if str(entry.get("token")).strip() == letter
    ]
    if not found:
        return None
    return min(0.0, max(found) + math.log(sum(math.exp(v - max(found)) for v in found)))


def _text(value: object) -> str:
    """An input: a text, or the contents of messages."""
    if not isinstance(value, list):
        return str(value)
    contents = [message.get("content") for message in value if isinstance(message, dict)]
    return "\n".join(content for content in contents if isinstance(content, str))
