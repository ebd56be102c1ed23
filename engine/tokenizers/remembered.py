"""Tokenizers as transformers made them once, read again without transformers.

What a folder's files mean is for transformers to say: it puts many tokenizers together anew, from
the vocabulary and merges in tokenizer.json, and leaves its normaliser and splitting aside. So what
it made is kept in the user's cache, under a digest of everything that it goes by. On two busy cores
the plan for LAMBADA took 49 s with transformers and torch, and 18 s without.
"""

import hashlib
import json
import os
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from logitbank.store.files.copies import cache_folder

_PACKAGES = ("transformers", "tokenizers", "sentencepiece", "tiktoken", "mistral-common")
"""Whose versions decide what is made of the files."""
_METHODS = ("__call__", "_encode_plus", "decode", "_decode", "__len__", "get_vocab")
"""What a class may do in its own way with the tokenizer that is kept."""
_PROBES = (
    *("The nurse thanked the mechanic.", " he", "she", "  two  spaces\n\n", "CamelCase don't 1234"),
    *("é ü ß 中文 🙂", "[MASK] <mask> <|endoftext|> <s>", "a\tb", "x" * 40, "."),
)
"""Texts of which both must make the same ids before anything is kept."""


class Remembered:
    """What `Tokenizer` asks of transformers' fast tokenizers, over what was kept of one."""

    is_fast = True

    def __init__(self, content: dict[str, Any]) -> None:
        from tokenizers import Tokenizer as Backend

        self.backend_tokenizer = Backend.from_str(content["tokenizer"])
        self.backend_tokenizer.no_truncation()
        self.backend_tokenizer.no_padding()
        self.split_special_tokens: bool = content["split_special_tokens"]
        self.backend_tokenizer.encode_special_tokens = self.split_special_tokens
        self.mask_token: str | None = content["mask_token"]
        self.mask_token_id: int | None = content["mask_token_id"]
        self.unk_token: str | None = content["unk_token"]
        self.unk_token_id: int | None = content["unk_token_id"]
        self.bos_token_id: int | None = content["bos_token_id"]
        self.eos_token_id: int | None = content["eos_token_id"]
        self.all_special_ids: list[int] = content["all_special_ids"]
        self.added_tokens_decoder = self.backend_tokenizer.get_added_tokens_decoder()

    def __len__(self) -> int:
        return int(self.backend_tokenizer.get_vocab_size(with_added_tokens=True))

    def __call__(
        self,
        first: str | list[str],
        second: str | None = None,
        *,
        add_special_tokens: bool = True,
        **_: object,
    ) -> dict[str, Any]:
        if isinstance(first, str):
            encoded = self.backend_tokenizer.encode(
                first, second, add_special_tokens=add_special_tokens
            )
            return {
                "input_ids": encoded.ids,
                "token_type_ids": encoded.type_ids,
                "offset_mapping": encoded.offsets,
            }
        many = self.backend_tokenizer.encode_batch(first, add_special_tokens=add_special_tokens)
        return {"input_ids": [encoded.ids for encoded in many]}

    def decode(self, ids: Sequence[int], **_: object) -> str:
        text: str = self.backend_tokenizer.decode(list(ids), skip_special_tokens=False)
        return text

    def get_vocab(self) -> dict[str, int]:
        vocabulary: dict[str, int] = self.backend_tokenizer.get_vocab(with_added_tokens=True)
        return vocabulary


def recall(folder: Path, files: str) -> Remembered | None:
    """What was kept of the tokenizer in `folder`, whose files have this digest; None if nothing.

    What cannot be read is as nothing: it is made again.
    """
    try:
        content = json.loads(_place(folder, files).read_bytes())
        body = content["content"]
        if content["sha256"] != _digest(body):
            return None
        return Remembered(body)
    except (OSError, ValueError, KeyError, TypeError, ImportError):
        return None


def remember(folder: Path, files: str, made: Any) -> None:
    """Keep what transformers made of `folder`, if it does no more with it than is kept."""
    if not made.is_fast or _does_more(made):
        return
    names = (
        *("mask_token", "mask_token_id", "unk_token", "unk_token_id"),
        *("bos_token_id", "eos_token_id", "all_special_ids"),
    )
    content: dict[str, Any] = {
        "tokenizer": made.backend_tokenizer.to_str(),
        "split_special_tokens": bool(getattr(made, "split_special_tokens", False)),
        **{name: getattr(made, name) for name in names},
    }
    again = Remembered(content)
    if said_by(again) != said_by(made):
        return
    place = _place(folder, files)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        beside = place.with_name(f".{place.name}-{os.getpid()}")
        beside.write_text(json.dumps({"sha256": _digest(content), "content": content}))
        beside.replace(place)
    except OSError:  # a cache that cannot be written costs time, and nothing else
        return


def said_by(backend: Any) -> list[object]:
    """Ids of some texts in all the ways in which they are asked for, and what ids say."""
    plain = {"return_attention_mask": False, "return_token_type_ids": False, "verbose": False}
    ways: list[dict[str, bool]] = [{}, *({"add_special_tokens": flag} for flag in (True, False))]
    ids = [backend(list(_PROBES), **plain, **way)["input_ids"] for way in ways]
    pair = backend(_PROBES[0], _PROBES[1], return_token_type_ids=True, verbose=False)
    texts = [*ids[-1], *([i] for text in ids[0] for i in text)]
    decoded = [backend.decode(text, clean_up_tokenization_spaces=False) for text in texts]
    added = {i: (str(token), token.special) for i, token in backend.added_tokens_decoder.items()}
    return [ids, pair["input_ids"], pair["token_type_ids"], decoded, added, len(backend)]


def _does_more(made: Any) -> bool:
    """Whether its class encodes or decodes in a way of its own."""
    from transformers import TokenizersBackend

    return any(
        getattr(type(made), name, None) is not getattr(TokenizersBackend, name, None)
        for name in _METHODS
    )


def _place(folder: Path, files: str) -> Path:
    """Where what was made of a folder is kept: transformers goes by the folder's name too."""
    key = [str(folder.resolve()), files, *(_version(name) for name in _PACKAGES)]
    return cache_folder() / "tokenizers" / f"{_digest(key)}.json"


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
