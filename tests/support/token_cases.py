"""Tokenizers of every kind, each with a tiny model, and the scored tokens by plain transformers.

`expected_sums` uses no tokenization of logitbank: it encodes texts with a plain tokenizer, as the
sources of the prompt sets do.
"""

import importlib.util
import json
import math
import shutil
import unicodedata
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from logitbank.engine.prompts import scoring
from logitbank.engine.prompts.known import gest
from logitbank.engine.prompts.prompt_set import PromptSet
from logitbank.engine.prompts.scoring import BLANK
from logitbank.engine.prompts.values import MASK, Prompt
from tests.support.checkpoints import write_masked_tokenizer
from tests.support.paths import PUBLIC
from tests.support.tokenizers import real_tokenizer, tiny_tokenizer

Sums = dict[tuple[str, int | None, str], tuple[int, float]]
"""Number of tokens and sum of an option of a prompt, by prompt, order and option."""

_PIECES = PUBLIC / "tokenizers" / "sentencepiece"
UNIGRAM = "botchan_en_unigram_1000.model"
"""Its "nurse" is ▁ n ur se, and its "elbow" ▁ el b ow."""
_AROUND = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
_MASKED = {"cls_token": "<s>", "sep_token": "</s>", "mask_token": "<mask>"}


def _sentencepiece(folder: Path, name: str, tokenizer_class: str, **config: Any) -> str:
    source = _PIECES / (config.pop("model", UNIGRAM))
    if not source.is_file():
        pytest.skip(f"{source} is not there")
    folder.mkdir(parents=True)
    shutil.copy(source, folder / name)
    _config(folder, tokenizer_class=tokenizer_class, **config)
    return {"XLMRobertaTokenizer": "xlm-roberta", "DebertaV2Tokenizer": "deberta-v2"}.get(
        tokenizer_class, "gpt_neox"
    )


def _config(folder: Path, **config: Any) -> None:
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def _converted(folder: Path, *, masked: bool, **parts: Any) -> str:
    """The Unigram vocabulary as tokenizer.json, with some parts replaced."""
    from transformers import AutoTokenizer

    model = _sentencepiece(folder, "sentencepiece.bpe.model", "XLMRobertaTokenizer")
    AutoTokenizer.from_pretrained(str(folder)).save_pretrained(folder)
    (folder / "sentencepiece.bpe.model").unlink()
    content = json.loads((folder / "tokenizer.json").read_text())
    if not masked:
        content["post_processor"] = None
    (folder / "tokenizer.json").write_text(json.dumps(content | parts))
    names = _AROUND | (_MASKED if masked else {})
    _config(folder, tokenizer_class="PreTrainedTokenizerFast", **names)
    return model if masked else "gpt_neox"


def _metaspace(scheme: str) -> dict[str, Any]:
    mark = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": True}
    return {"pre_tokenizer": mark, "decoder": mark}


_SHORTER = {
    "normalizer": {
        "type": "Sequence",
        "normalizers": [{"type": t} for t in ("NFKD", "StripAccents", "Lowercase", "NFKC")],
    }
}


def _wordpiece(folder: Path, *, cased: bool) -> str:
    if not cased:
        real_tokenizer("bert-base-uncased", folder)
        return "bert"
    write_masked_tokenizer(folder)
    entries = (folder / "vocab.txt").read_text().split()
    capitals = [mark + chr(c) for c in range(65, 91) for mark in ("", "##")]
    (folder / "vocab.txt").write_text("\n".join([*entries, *capitals, "The", "He", "She"]) + "\n")
    _config(folder, tokenizer_class="BertTokenizer", do_lower_case=False)
    return "bert"


def _real(folder: Path, name: str, **config: Any) -> str:
    real_tokenizer(name, folder)
    if config:
        _config(folder, tokenizer_class="PreTrainedTokenizerFast", **config)
    return "roberta" if name == "roberta-base" else "gpt_neox"


def _tiny(folder: Path, kind: Any) -> str:
    tiny_tokenizer(kind, folder)
    return "gpt_neox"


def _mistral(folder: Path, **config: Any) -> str:
    """SentencePiece BPE with byte fallback and a leading word mark, as released."""
    found = importlib.util.find_spec("mistral_common")
    if found is None or found.origin is None:
        pytest.skip("mistral_common is not installed")
    folder.mkdir(parents=True)
    shutil.copy(
        Path(found.origin).parent / "data" / "tokenizer.model.v1", folder / "tokenizer.model"
    )
    _config(folder, tokenizer_class="LlamaTokenizer", **_AROUND, **config)
    return "gpt_neox"


TOKENIZERS: dict[str, Callable[[Path], str]] = {
    "byte-bpe": lambda f: _real(f, "pythia", eos_token="<|endoftext|>"),
    "byte-bpe-bos": lambda f: _real(f, "pythia", bos_token="<|endoftext|>"),
    "byte-bpe-masked": lambda f: _real(f, "roberta-base"),
    "wordpiece-uncased": lambda f: _wordpiece(f, cased=False),
    "wordpiece-cased": lambda f: _wordpiece(f, cased=True),
    "mistral": _mistral,
    "mistral-no-bos": lambda f: _mistral(f, add_bos_token=False),
    "gemma": lambda f: _tiny(f, "gemma"),
    "llama-prepend": lambda f: _tiny(f, "llama"),
    "unigram-tokenizer.model": lambda f: _sentencepiece(
        f, "tokenizer.model", "LlamaTokenizer", **_AROUND, add_bos_token=True
    ),
    "bpe-tokenizer.model": lambda f: _sentencepiece(
        f, "tokenizer.model", "LlamaTokenizer", model="botchan_en_bpe_1000.model", **_AROUND
    ),
    "unigram-spiece.model": lambda f: _sentencepiece(
        f, "spiece.model", "T5Tokenizer", extra_ids=0, **_AROUND
    ),
    "unigram-sentencepiece.bpe.model": lambda f: _sentencepiece(
        f, "sentencepiece.bpe.model", "XLMRobertaTokenizer"
    ),
    "unigram-spm.model": lambda f: _sentencepiece(f, "spm.model", "DebertaV2Tokenizer"),
    "unigram-tokenizer.json": lambda f: _converted(f, masked=True),
    "unigram-causal": lambda f: _converted(f, masked=False),
    "unigram-shorter": lambda f: _converted(f, masked=True, **_SHORTER),
    "unigram-shorter-causal": lambda f: _converted(f, masked=False, **_SHORTER),
    **{
        f"metaspace-{scheme}{'' if masked else '-causal'}": lambda f, s=scheme, m=masked: (
            _converted(f, masked=m, **_metaspace(s))
        )
        for scheme in ("always", "first", "never")
        for masked in (True, False)
    },
}


def write_case(kind: str, folder: Path) -> Any:
    """A folder with this tokenizer and a tiny model; returns the plain tokenizer."""
    import torch
    from transformers import (
        AutoConfig,
        AutoModelForCausalLM,
        AutoModelForMaskedLM,
        AutoModelForPreTraining,
        AutoTokenizer,
    )

    model_type = TOKENIZERS[kind](folder)
    tokenizer = AutoTokenizer.from_pretrained(str(folder))
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = AutoConfig.for_model(
        model_type, vocab_size=len(tokenizer), intermediate_size=16, max_position_embeddings=514,
        pad_token_id=1, **sizes,
    )  # fmt: skip
    auto = AutoModelForMaskedLM
    if model_type == "bert":
        auto = AutoModelForPreTraining
    elif model_type == "gpt_neox":
        auto = AutoModelForCausalLM
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of torch.jit, in DeBERTa's module
        auto.from_config(config).save_pretrained(folder)
    return tokenizer


def arithmetic(ids: Sequence[int], place: int, token: int) -> float:
    """A stand-in for the log-probability of a token at a place of these ids, in nats."""
    text = f"{[*map(int, ids)]} {place} {token}"
    return -(1 + zlib.crc32(text.encode())) / 2**30


class ImpossibleError(Exception):
    """A prompt that this tokenizer cannot score."""


def expected_sums(prompts: PromptSet, tokenizer: Any, *, has_pairs: bool) -> Sums:
    """The sums of all prompts with `arithmetic`, or ImpossibleError for the first that has none."""
    expected: Sums = {}
    kept = prompts.prompts
    if prompts.drop_split:
        kept = tuple(p for p in (_with_single_tokens(p, tokenizer) for p in kept) if p)
        if not kept:
            raise ImpossibleError("no prompt is left")
    for prompt in kept:
        for option, scores in _scores(prompt, tokenizer, prompts, has_pairs):
            expected[prompt.id, prompt.order_seed, option] = (len(scores), math.fsum(scores))
    return expected


def _with_single_tokens(prompt: Any, tokenizer: Any) -> Any:
    """The prompt with those options that are a token of their own; None if it needs another."""
    tokens = {option.text: _plain(tokenizer, option.text) for option in prompt.options}
    special = tokenizer.all_special_ids
    single = {text for text, ids in tokens.items() if len(ids) == 1 and ids[0] not in special}
    required = [option for option in prompt.options if not option.optional]
    if not single.issuperset(option.text for option in required):
        return None
    kept, used = [], {tokens[option.text][0] for option in required}
    for option in prompt.options:
        if option.optional and (option.text not in single or tokens[option.text][0] in used):
            continue
        used.add(tokens[option.text][0])
        kept.append(option)
    return replace(prompt, options=tuple(kept))


def _plain(tokenizer: Any, text: str) -> list[int]:
    return [*tokenizer(text, add_special_tokens=False)["input_ids"]]


def _letters(text: str) -> str:
    """A text without case, accents and spaces."""
    folded = unicodedata.normalize("NFKD", text).casefold()
    return "".join(c for c in folded if not (c.isspace() or unicodedata.combining(c)))


def _require_letters(tokenizer: Any, text: str, ids: Sequence[int]) -> None:
    """Raise ImpossibleError if tokens do not have every character of their text."""
    if tokenizer.unk_token_id in ids or _letters(tokenizer.decode(ids)) != _letters(text):
        raise ImpossibleError("unknown")


def _opening(tokenizer: Any) -> list[int]:
    whole, plain = tokenizer("The")["input_ids"], _plain(tokenizer, "The")
    at = next(i for i in range(len(whole)) if whole[i : i + len(plain)] == plain)
    return [*whole[:at]]


def _before(tokenizer: Any) -> int:
    found = (tokenizer.bos_token_id, tokenizer.eos_token_id, *_opening(tokenizer)[-1:])
    for token in found:
        if token is not None:
            return int(token)
    raise ImpossibleError("no token before a text")


def _left_to_right(begin: Sequence[int], ids: Sequence[int]) -> list[float]:
    seen, scores = [*begin], []
    for token in ids:
        scores.append(arithmetic(seen, len(seen) - 1, token))
        seen.append(token)
    return scores


def _masked_at(tokenizer: Any, text: str, number: int = 0) -> tuple[list[int], int]:
    ids = [*tokenizer(text.replace(MASK, tokenizer.mask_token))["input_ids"]]
    places = [i for i, token in enumerate(ids) if token == tokenizer.mask_token_id]
    if len(places) != text.count(MASK):
        raise ImpossibleError("masks")
    return ids, places[number]


def _one_by_one(tokenizer: Any, ids: list[int], places: Sequence[int]) -> list[float]:
    mask = tokenizer.mask_token_id
    return [arithmetic([*ids[:i], mask, *ids[i + 1 :]], i, ids[i]) for i in places]


def _after(tokenizer: Any, text: str, continuation: str) -> tuple[list[int], list[int]]:
    opening = _opening(tokenizer)
    context, both = _plain(tokenizer, text), _plain(tokenizer, text + continuation)
    if both[: len(context)] != context or len(both) == len(context):
        raise ImpossibleError("merges")
    tokens = both[len(context) :]
    _require_letters(tokenizer, continuation, tokens)
    return [*opening, *context], tokens


def _scores(
    prompt: Prompt, tokenizer: Any, prompts: PromptSet, has_pairs: bool
) -> Iterator[tuple[str, list[float]]]:
    masked = tokenizer.mask_token_id is not None
    parts = {name: part or "" for name, part in prompt.parts.items()}
    match prompt.scored:
        case None:
            yield from _option_scores(prompt, tokenizer, prompts)
        case gest.next_word_tokens if masked:
            return
        case gest.word_in_text_tokens if not masked:
            return
        case scoring.target_tokens | scoring.given_tokens if masked:
            raise ImpossibleError("for a causal model")
        case scoring.target_tokens | scoring.given_tokens | gest.next_word_tokens:
            context, tokens = _after(tokenizer, parts["context"], parts["target"])
            if not context:
                raise ImpossibleError("no context")
            yield "target", _left_to_right(context, tokens)
        case scoring.blank_tokens if masked:
            tokens = _plain(tokenizer, parts["word"])
            scores = []
            for i, token in enumerate(tokens):
                earlier = tokenizer.decode(tokens[:i], clean_up_tokenization_spaces=False)
                filled = parts["context"].replace(BLANK, earlier + MASK, 1)
                ids, place = _masked_at(tokenizer, filled)
                scores.append(arithmetic(ids, place, token))
            yield "target", scores
        case scoring.blank_tokens | scoring.shared_tokens if not masked:
            if tokenizer.bos_token_id is None:
                raise ImpossibleError("no begin-of-text token")
            begin, ids = tokenizer.bos_token_id, _plain(tokenizer, prompt.text)
            if prompt.scored is scoring.blank_tokens:  # later tokens follow the text without it
                first = arithmetic([begin], 0, ids[0])
                yield "target", [first, *_left_to_right(ids[:1], ids[1:])]
            else:
                yield "target", _left_to_right([begin], ids)
        case scoring.shared_tokens:
            yield "target", _shared_scores(prompt, tokenizer)
        case scoring.sentence_tokens if masked:
            _require_letters(tokenizer, prompt.text, _plain(tokenizer, prompt.text))
            ids = [*tokenizer(prompt.text)["input_ids"]]
            places = [i for i, t in enumerate(ids) if t not in tokenizer.all_special_ids]
            yield "target", _one_by_one(tokenizer, ids, places)
        case scoring.sentence_tokens:
            ids = _plain(tokenizer, prompt.text)
            _require_letters(tokenizer, prompt.text, ids)
            yield "target", _left_to_right([_before(tokenizer)], ids)
        case gest.word_in_text_tokens:
            yield "target", _word_scores(prompt, tokenizer)
        case scoring.next_sentence_tokens:
            if not has_pairs:
                raise ImpossibleError("no next-sentence head")
            both = tokenizer(parts["context"], parts["sentence"], return_token_type_ids=True)
            ids = [*both["input_ids"], *both["token_type_ids"]]
            yield "next", [arithmetic(ids, 0, 0)]
            yield "other", [arithmetic(ids, 0, 1)]
        case _:
            raise AssertionError(prompt)


def _option_scores(
    prompt: Prompt, tokenizer: Any, prompts: Any
) -> Iterator[tuple[str, list[float]]]:
    if tokenizer.mask_token_id is not None and not prompt.masks:
        raise ImpossibleError("for a causal model")
    seen = set()
    for option in prompt.options:
        if prompt.masks:
            if tokenizer.mask_token_id is None:
                raise ImpossibleError("no mask")
            context, place = _masked_at(tokenizer, prompt.text, prompt.mask or 0)
            tokens = _plain(tokenizer, option.text)
        else:
            context, tokens = _after(tokenizer, prompt.text, option.text)
            place = len(context) - 1
        if prompts.first_token:
            tokens = tokens[:1]
        whole = prompts.whole_options and not prompt.masks
        if tokenizer.unk_token_id in tokens or (len(tokens) > 1 and not whole):
            raise ImpossibleError("tokens")
        if not context or tuple(tokens) in seen:
            raise ImpossibleError("same tokens, or no text")
        seen.add(tuple(tokens))
        if prompt.masks:
            yield option.label, [arithmetic(context, place, tokens[0])]
        else:
            yield option.label, _left_to_right(context, tokens)


def _shared_scores(prompt: Prompt, tokenizer: Any) -> list[float]:
    """As the authors of CrowS-Pairs: `get_span` of their metric.py."""
    import difflib

    first, second = ([*tokenizer(prompt.parts[name])["input_ids"]] for name in ("first", "second"))
    is_first = prompt.text == prompt.parts["first"]
    own = first if is_first else second
    places: list[int] = []
    for tag, a, b, c, d in difflib.SequenceMatcher(
        None, [*map(str, first)], [*map(str, second)], autojunk=False
    ).get_opcodes():
        if tag == "equal":
            places += range(a, b) if is_first else range(c, d)
    unscored = tokenizer.all_special_ids
    return _one_by_one(tokenizer, own, [i for i in places if own[i] not in unscored])


def _word_scores(prompt: Prompt, tokenizer: Any) -> list[float]:
    """The longest run of tokens that is the word, between those of the text before and after it."""
    ids = [*tokenizer(prompt.text)["input_ids"]]
    special = {*tokenizer.all_special_ids}

    def shown(tokens: Sequence[int]) -> str:
        return _letters(tokenizer.decode([t for t in tokens if t not in special]))

    runs = [
        range(i, j)
        for i in range(len(ids))
        if not special & {*ids[i : i + 1]}
        for j in range(i + 1, min(i + 9, len(ids)))
        if ids[j - 1] not in special and shown(ids[i:j]) == _letters(prompt.parts["word"] or "")
    ]
    where = len(_letters(prompt.parts["before"] or "")) / max(1, len(_letters(prompt.text)))
    run = min(
        runs,
        key=lambda r: (
            abs(len(shown(ids[: r.start])) / max(1, len(shown(ids))) - where) > 0.02,
            -len(r),
        ),
        default=None,
    )
    if run is None or tokenizer.unk_token_id in [ids[i] for i in run]:
        raise ImpossibleError("the word is not in the vocabulary")
    hidden = [tokenizer.mask_token_id if i in run else token for i, token in enumerate(ids)]
    return [arithmetic(hidden, i, ids[i]) for i in run]
