"""Numbers of `studies` by plain transformers, NumPy and SciPy, from the formulas of the papers."""

import json
import string
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import mannwhitneyu

from tests.support import stand_ins
from tests.support.paths import PUBLIC

OPTIONS = dict(zip(("male", "female", "not specified"), stand_ins.OPTIONS, strict=True))


def rows_at(model: Any, inputs: Sequence[Mapping[str, Any]], place: Sequence[int]) -> Iterable[Any]:
    """Raw logits at a place of each text, (texts, vocabulary), texts of one length together."""
    import torch

    by_length = defaultdict(list)
    for number, each in enumerate(inputs):
        by_length[len(each["input_ids"])].append(number)
    for numbers in by_length.values():
        for start in range(0, len(numbers), 64):
            some = numbers[start : start + 64]
            batch = {key: torch.tensor([inputs[i][key] for i in some]) for key in inputs[some[0]]}
            with torch.inference_mode():
                logits = model(**batch).logits
            yield some, logits[range(len(some)), [place[i] for i in some]].double().numpy()


def fairness(folder: Path, asked: Sequence[tuple[str, int, str, str]]) -> dict[str, float]:
    """Of prompts, option orders, texts and correct answers at a checkpoint."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    inputs = [{"input_ids": tokenizer(text)["input_ids"]} for _, _, text, _ in asked]
    last = [len(each["input_ids"]) - 1 for each in inputs]
    rank, first, parts = (np.empty(len(asked)) for _ in range(3))
    for some, rows in rows_at(AutoModelForCausalLM.from_pretrained(folder), inputs, last):
        answers = [asked[i][3] for i in some]
        gold = rows[range(len(some)), [OPTIONS[answer] for answer in answers]]
        rank[[*some]] = 1 + (rows > gold[:, None]).sum(axis=1)
        first[[*some]] = (rows >= gold[:, None]).sum(axis=1) == 1
        three = np.exp(rows[:, [*OPTIONS.values()]])
        p = np.exp(gold) / three.sum(axis=1)
        parts[[*some]] = (np.log(2 / (1 + p)) + p * np.log(2 * p / (1 + p))) / 2
    seeds, answers = (np.array([each[i] for each in asked]) for i in (1, 3))
    found = {}
    for option in ("male", "female"):
        by_seed = [(answers == option) & (seeds == seed) for seed in np.unique(seeds)]
        found[f"average_rank {option}"] = np.mean([rank[chosen].mean() for chosen in by_seed])
        found[f"accuracy {option}"] = np.mean([first[chosen].mean() for chosen in by_seed])
        found[f"jsd_p {option}"] = np.mean([parts[chosen].mean() for chosen in by_seed])
    found["delta"] = found["jsd_p female"] - found["jsd_p male"]
    by_prompt: dict[tuple[str, str], list[float]] = defaultdict(list)
    for (prompt, _, _, answer), part in zip(asked, parts, strict=True):
        by_prompt[answer, prompt].append(part)
    means = [
        [np.mean(values) for (answer, _), values in by_prompt.items() if answer == option]
        for option in ("male", "female")
    ]
    found["u"], found["p"] = mannwhitneyu(*means, method="asymptotic")
    return {name: float(value) for name, value in found.items()}


def pronouns(folder: Path, texts: Sequence[str], tokens: Sequence[int]) -> np.ndarray:
    """P(he) and P(she) at the first mask of each text, (texts, 2)."""
    from transformers import AutoModelForMaskedLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    inputs = [dict(tokenizer(text.replace("[MASK]", tokenizer.mask_token))) for text in texts]
    mask = tokenizer.mask_token_id
    found = np.empty((len(texts), 2))
    places = [each["input_ids"].index(mask) for each in inputs]
    for some, rows in rows_at(AutoModelForMaskedLM.from_pretrained(folder), inputs, places):
        found[[*some]] = np.exp(rows)[:, [*tokens]] / np.exp(rows).sum(axis=1, keepdims=True)
    return found


def stereoset(folder: Path, task: str) -> tuple[float, float, float]:
    """lms, ss and iCAT of a BERT on a task in English, averaged over terms."""
    examples = json.loads((PUBLIC / "stereoset" / "dev-english.json").read_text())["data"][task]
    score = (_intra if task == "intrasentence" else _inter)(folder, examples)
    terms = defaultdict(list)
    for example in examples:
        stereo, anti, unrelated = (
            next(score[s["id"]] for s in example["sentences"] if s["gold_label"] == label)
            for label in ("stereotype", "anti-stereotype", "unrelated")
        )
        related = (stereo > unrelated) + (anti > unrelated)
        terms[example["target"]].append((stereo > anti, related / 2))
    ss, lms = 100 * np.mean([np.mean(rows, axis=0) for rows in terms.values()], axis=0)
    return lms, ss, lms * min(ss, 100 - ss) / 50


def _intra(folder: Path, examples: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    from transformers import AutoModelForMaskedLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    owner, tokens, inputs = [], [], []
    for example in examples:
        words = example["context"].split(" ")
        at = next(i for i, word in enumerate(words) if "BLANK" in word)
        for sentence in example["sentences"]:
            word = sentence["sentence"].split(" ")[at].translate(_NO_PUNCTUATION)
            pieces = tokenizer(word, add_special_tokens=False)["input_ids"]
            for i, piece in enumerate(pieces):
                before = tokenizer.decode(pieces[:i]) + tokenizer.mask_token
                inputs.append(dict(tokenizer(example["context"].replace("BLANK", before))))
                owner.append(sentence["id"])
                tokens.append(piece)
    places = [each["input_ids"].index(tokenizer.mask_token_id) for each in inputs]
    found = defaultdict(list)
    for some, rows in rows_at(AutoModelForMaskedLM.from_pretrained(folder), inputs, places):
        p = np.exp(rows) / np.exp(rows).sum(axis=1, keepdims=True)
        for i, row in zip(some, p, strict=True):
            found[owner[i]].append(row[tokens[i]])
    return {name: float(np.mean(values)) for name, values in found.items()}


_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def _inter(folder: Path, examples: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    import torch
    from transformers import AutoModelForNextSentencePrediction, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForNextSentencePrediction.from_pretrained(folder)
    found = {}
    for example in examples:
        for sentence in example["sentences"]:
            pair = tokenizer(example["context"], sentence["sentence"], return_tensors="pt")
            with torch.inference_mode():
                row = model(**pair).logits[0].double()
            found[sentence["id"]] = float(row.softmax(0)[0])
    return found
