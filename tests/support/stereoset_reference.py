"""StereoSet within sentences by plain transformers in float32. Run as a module.

Nothing of logitbank is imported. A language module of another checkpoint may be used, and a filter
of the k highest logits that keeps the tail.
"""

import json
import string
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForMaskedLM, AutoModelForPreTraining, AutoTokenizer

Query = tuple[list[int], int, int]
"""Tokens, the place of the mask, and the scored token."""
AT_ONCE = 256


def network(folder: str, language: str, modules_from: str) -> Any:
    """The model, with its language module or that of another checkpoint."""
    config = AutoConfig.from_pretrained(folder)
    if config.model_type != "xmod":
        return AutoModelForPreTraining.from_pretrained(folder, dtype=torch.float32).eval()
    if language not in config.languages:
        config.languages = [*config.languages, language]
    model = AutoModelForMaskedLM.from_config(config)
    weights = load_file(Path(folder) / "model.safetensors")
    for name, value in load_file(Path(modules_from) / "model.safetensors").items():
        if f".{language}." in name:
            weights.setdefault(name, value)
    absent = model.load_state_dict(weights, strict=False).missing_keys
    assert not [name for name in absent if "adapter" in name], absent
    model.tie_weights()
    model.set_default_language(language)
    return model.eval()


def word_of(sentence: dict[str, Any], context: str) -> str:
    if "word" in sentence:
        return str(sentence["word"])
    place = next(i for i, word in enumerate(context.split(" ")) if "BLANK" in word)
    word = sentence["sentence"].split(" ")[place]
    return str(word.translate(str.maketrans("", "", string.punctuation)))


def queries(tokenizer: Any, context: str, word: str) -> Iterator[Query]:
    """A mask after the earlier tokens of the word; later ones are not there."""
    tokens = tokenizer(word, add_special_tokens=False)["input_ids"]
    for i, token in enumerate(tokens):
        earlier = tokenizer.decode(tokens[:i], clean_up_tokenization_spaces=False)
        text = context.replace("BLANK", earlier + tokenizer.mask_token)  # twice in two contexts
        ids = tokenizer(text)["input_ids"]
        yield ids, ids.index(tokenizer.mask_token_id), token


def probabilities(model: Any, asked: list[Query], by: dict[str, np.ndarray] | None) -> np.ndarray:
    """Of the scored token of each query; queries of one length at once, so that none is padded."""
    found, lengths = np.zeros(len(asked)), defaultdict(list)
    head = model.lm_head if hasattr(model, "lm_head") else model.cls.predictions
    for number, (ids, _, _) in enumerate(asked):
        lengths[len(ids)].append(number)
    for numbers in lengths.values():
        for start in range(0, len(numbers), AT_ONCE):
            batch = numbers[start : start + AT_ONCE]
            with torch.inference_mode():
                states = model.base_model(input_ids=torch.tensor([asked[n][0] for n in batch]))[0]
                states = states[range(len(batch)), [asked[n][1] for n in batch]]
                rows = head(states).double().numpy()
            p = np.exp(rows - rows.max(axis=1, keepdims=True))
            p /= p.sum(axis=1, keepdims=True)
            for row, own, number in zip(rows, p, batch, strict=True):
                if by is not None:
                    highest = np.argsort(-row)[: len(by["bias"])]
                    z = by["weight"] @ row[highest] + by["bias"]
                    share = np.exp(z - z.max())
                    own[highest] = share / share.sum() * own[highest].sum()
                found[number] = own[asked[number][2]]
    return found


def main(job: dict[str, Any]) -> dict[str, float]:
    """lms, ss and iCAT: means over target terms."""
    tokenizer = AutoTokenizer.from_pretrained(job["model"])
    model = network(job["model"], job["language"], job["modules_from"])
    examples = json.loads(Path(job["file"]).read_text())["data"]["intrasentence"]
    asked, pieces = list[Query](), list[tuple[int, str, int]]()
    for number, example in enumerate(examples):
        for sentence in example["sentences"]:
            own = [*queries(tokenizer, example["context"], word_of(sentence, example["context"]))]
            pieces.append((number, sentence["gold_label"], len(own)))
            asked += own
    by = None
    if job["filter"]:
        from safetensors.numpy import load_file as load_numpy

        by = load_numpy(job["filter"])
    keys = [(tuple(ids), place, token) for ids, place, token in asked]
    once = dict(zip(keys, asked, strict=True))
    # Equal queries have equal probabilities: their candidates tie, whatever batch they are in.
    known = dict(zip(once, probabilities(model, [*once.values()], by), strict=True))
    start, scores = 0, defaultdict[int, dict[str, float]](dict)
    for number, label, length in pieces:
        scores[number][label] = float(np.mean([known[key] for key in keys[start : start + length]]))
        start += length
    terms = defaultdict(list)
    for number, example in enumerate(examples):
        stereo, anti, unrelated = (
            scores[number][label] for label in ("stereotype", "anti-stereotype", "unrelated")
        )
        related = (int(stereo > unrelated) + int(anti > unrelated)) / 2
        term = example.get("target_english") or example["target"]
        terms[term].append((stereo > anti, related))
    ss, lms = (100 * np.mean([np.mean(each, axis=0) for each in terms.values()], axis=0)).tolist()
    assert "logitbank" not in sys.modules
    return {"lms": lms, "ss": ss, "icat": lms * min(ss, 100 - ss) / 50}


if __name__ == "__main__":
    torch.set_num_threads(2)
    json.dump([main(job) for job in json.loads(sys.stdin.read())], sys.stdout)
