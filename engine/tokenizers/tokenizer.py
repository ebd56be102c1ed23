"""A tokenizer as text in, ids out, and a digest that says which one it was.

It knows transformers and nothing of prompts, models or the bank.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from itertools import takewhile
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import polars as pl

from logitbank.engine.doing import step
from logitbank.engine.tokenizers.vocabulary import vocabulary
from logitbank.errors import MissingExtraError, PromptError, SuiteError
from logitbank.store.format.schema import json_digest

VOCABULARY_FILES = (
    "tokenizer.json",
    "tokenizer.model",
    "vocab.json",
    "vocab.txt",
    "spiece.model",
    "sentencepiece.bpe.model",
)
_BATCH = 10_000
"""Texts that are encoded at once: what the library makes of each takes more memory than its ids."""
MAX_RENDERED = 1_000_000
"""Characters that a chat template may write for one prompt: more than any context of today takes,
and tokenizing ten times as many took 2.5 GB."""
_OTHER_FILES = (
    "config.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "merges.txt",
)


def files_digest(folder: Path) -> str:
    """SHA-256 of every file in `folder` that a tokenizer is read from: equal files, equal ids."""
    total = hashlib.sha256()
    for name in sorted(VOCABULARY_FILES + _OTHER_FILES):
        if (folder / name).is_file():
            content = (folder / name).read_bytes()
            total.update(f"{name} {len(content)}\n".encode() + content)
    return total.hexdigest()


def tokenizer_folder(folder: Path) -> Path:
    """The checkpoint's own folder, or the suite's where only that has tokenizer files."""
    names = ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "vocab.json")
    for candidate in (folder, folder.parent, folder.parent.parent):
        if any((candidate / name).exists() for name in names):
            return candidate
    return folder


def vocabulary_in(folder: Path) -> bool:
    """Whether a folder has the words of a tokenizer, and not only what else it says."""
    return any((folder / name).is_file() for name in VOCABULARY_FILES)


class Placed(NamedTuple):
    """The ids of a text, and where in it they are."""

    ids: list[int]
    places: list[tuple[int, int]] | None
    """The characters, from a first up to a last that is not among them, that each token stands for;
    (0, 0) for a token that is put around the text. None where the tokenizer does not say."""


class Unknown(NamedTuple):
    """The token that stands for whatever a vocabulary lacks."""

    id: int
    text: str


class Tokenizer:
    """Text to token ids, as the checkpoint's own files define it.

    `digest` is the SHA-256 of what decides the ids of a text: vocabulary, merges, added tokens,
    normalisation and the special tokens put around a text. Decoding, truncation and padding are
    left out. `entries` is the number of vocabulary entries, added tokens included; a model may
    have more outputs. `mask_token` and `mask_id` are None where it has no mask, and so is
    `begin_id`, of the begin-of-text token. `before_id` is what stands before a text that is scored
    from its first token on: `begin_id`, or where it has none its end-of-text token, as
    lm-evaluation-harness does (Qwen has the one alone), or where it has neither what it puts before
    a text (`[CLS]`); None where that is nothing. `unknown` is the
    token for what the vocabulary lacks, if there is one, and `opening` the special tokens that are
    put before every text.
    """

    def __init__(self, backend: Any, folder: Path | None = None) -> None:
        self._backend = backend
        self._folder = folder
        self.mask_token: str | None = backend.mask_token
        self.mask_id: int | None = None if self.mask_token is None else backend.mask_token_id
        self.begin_id: int | None = backend.bos_token_id
        self.special_ids = frozenset(backend.all_special_ids)
        self.unknown: Unknown | None = None
        if backend.unk_token is not None:
            self.unknown = Unknown(backend.unk_token_id, backend.unk_token)
        self.opening: list[int] = self._opening()
        before = (self.begin_id, backend.eos_token_id, *self.opening[-1:])
        self.before_id: int | None = next((i for i in before if i is not None), None)
        self.entries: int = len(backend)
        self.digest: str = json_digest(_mapping(backend))

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read the tokenizer in a checkpoint folder. Code that ships with it never runs.

        Raises
        ------
        SuiteError
            The folder holds no vocabulary file, or one that cannot be read.
        MissingExtraError
            transformers is not installed.
        """
        if not vocabulary_in(folder):
            raise SuiteError(
                f"{folder} holds no tokenizer: looked for {', '.join(VOCABULARY_FILES)}; "
                "copy the tokenizer's files beside the weights"
            )
        tokenizer = cls(_read(folder), folder)
        # transformers 5 answers a vocabulary file that it does not look for (say vocab.txt where
        # the class wants vocab.json) with a vocabulary of its few special tokens, without a word.
        if tokenizer.entries <= len(tokenizer._backend.all_special_ids):
            raise SuiteError(
                f"the tokenizer in {folder} has {tokenizer.entries} entries, all of them special "
                "tokens: its class did not read the vocabulary file; name the right "
                "tokenizer_class in tokenizer_config.json"
            )
        return tokenizer

    def _opening(self) -> list[int]:
        probes = ["a"] if self.encode("a", add_special_tokens=False) else self._backend.get_vocab()
        for probe in probes:
            if plain := self.encode(probe, add_special_tokens=False):
                whole = self.encode(probe)
                for at in range(len(whole) - len(plain) + 1):
                    if whole[at : at + len(plain)] == plain:
                        return whole[:at]
        return []

    def for_task(self, task: Literal["causal", "masked"] | None) -> Self:
        """The tokenizer as a model of this task uses it: one that predicts next tokens has no mask.

        Raises
        ------
        SuiteError
            The model predicts masked tokens, and its tokenizer names no mask.
        """
        if task == "masked" and self.mask_id is None:
            raise SuiteError(
                f"the model in {self._folder} predicts masked tokens, and its tokenizer names no "
                "mask_token; name it in tokenizer_config.json"
            )
        if task != "causal":
            return self
        other = copy(self)
        other.mask_token = other.mask_id = None
        return other

    def opening_of(self, ids: Sequence[int]) -> str:
        """The special tokens that these ids begin with, as text."""
        unknown = self.unknown.id if self.unknown else None
        begin = takewhile(lambda token: token in self.special_ids and token != unknown, ids)
        return "".join(self.pieces([*begin]))

    def encode(self, text: str, *, add_special_tokens: bool | None = None) -> list[int]:
        """Ids of one text; None leaves the special tokens to the tokenizer."""
        return self.encode_many([text], add_special_tokens=add_special_tokens)[0]

    def encode_many(
        self, texts: Sequence[str], *, add_special_tokens: bool | None = None
    ) -> list[list[int]]:
        """Ids of each text; nothing is truncated or padded."""
        flags = {} if add_special_tokens is None else {"add_special_tokens": add_special_tokens}
        ids: list[list[int]] = []
        with step("encoding texts", len(texts)) as at:
            for start in range(0, len(texts), _BATCH):
                batch = self._backend(
                    list(texts[start : start + _BATCH]),
                    return_attention_mask=False,
                    return_token_type_ids=False,
                    verbose=False,
                    **flags,
                )
                ids += batch["input_ids"]
                at.done = len(ids)
        return ids

    def encode_placed(self, text: str, *, add_special_tokens: bool | None = None) -> Placed:
        """Ids of one text as by `encode`, with their places in it."""
        if not self._backend.is_fast:
            return Placed(self.encode(text, add_special_tokens=add_special_tokens), None)
        flags = {} if add_special_tokens is None else {"add_special_tokens": add_special_tokens}
        found = self._backend(text, return_offsets_mapping=True, verbose=False, **flags)
        return Placed(found["input_ids"], found["offset_mapping"])

    def encode_pair(self, first: str, second: str) -> tuple[list[int], list[int]]:
        """Ids of two texts with the special tokens around them, and the text that each is of."""
        batch = self._backend(first, second, return_token_type_ids=True, verbose=False)
        return batch["input_ids"], batch["token_type_ids"]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of some ids together."""
        text: str = self._backend.decode(list(ids), clean_up_tokenization_spaces=False)
        return text

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """The text of each id by itself; empty for a padding output."""
        decode = self._backend.decode
        return [decode([i], clean_up_tokenization_spaces=False) for i in ids]

    def chat_template(self) -> tuple[str, Callable[[Sequence[Mapping[str, str]]], str]]:
        """The chat template, and what makes the text of a conversation with it.

        The text ends where the assistant's answer begins. The template is a program of the model's
        authors; transformers runs it in a sandbox, where it can make a text and nothing else.

        Raises
        ------
        PromptError
            The tokenizer has no chat template, or one that depends on the date or on chance.
        """
        made, where = self._backend, self._folder or "this tokenizer"
        template = getattr(made, "chat_template", None)
        if not isinstance(template, str):
            raise PromptError(
                f"{where} has no chat template; write texts in place of messages, or put a "
                "chat_template.jinja beside the tokenizer's files"
            )
        if "strftime_now" in template:
            raise PromptError(
                f"the chat template of {where} depends on the date (strftime_now), so texts would "
                "differ from day to day; write a fixed date into it"
            )

        def text_of(turns: Sequence[Mapping[str, str]]) -> str:
            texts: set[str] = set()
            for _ in range(4):
                try:
                    text = str(
                        made.apply_chat_template(
                            [*turns], tokenize=False, add_generation_prompt=True
                        )
                    )
                except Exception as error:  # the template's own, and those of the sandbox
                    raise PromptError(
                        f"the chat template of {where} refuses it: {error}; change the "
                        "conversation or the template"
                    ) from error
                if len(text) > MAX_RENDERED:
                    raise PromptError(
                        f"the chat template of {where} writes {len(text):,} characters, and a "
                        f"prompt may have {MAX_RENDERED:,}; shorten the conversation or mend the "
                        "template"
                    )
                texts.add(text)
            if len(texts) > 1:
                raise PromptError(
                    f"the chat template of {where} depends on chance: it writes one conversation in"
                    " several ways; take the chance out of it"
                )
            return text

        return template, text_of

    def vocabulary(self) -> pl.DataFrame:
        """What every entry says, as a bank keeps it: columns of `TOKENS_SCHEMA`, ascending."""
        return vocabulary(self._backend)


def _read(folder: Path) -> Any:
    try:
        from transformers import AutoTokenizer
    except ImportError as error:
        raise MissingExtraError(
            "tokenizers need transformers: pip install 'logitbank[engine]'"
        ) from error
    try:
        return AutoTokenizer.from_pretrained(
            str(folder), trust_remote_code=False, local_files_only=True
        )
    except Exception as error:  # the Rust library raises bare Exception for a broken file
        reason = " ".join(str(error).split())
        raise SuiteError(f"the tokenizer in {folder} cannot be read: {reason}") from error


def _mapping(backend: Any) -> Any:
    """What decides the ids of a text, as JSON."""
    if not backend.is_fast:
        special = {"special": backend.special_tokens_map, "class": type(backend).__name__}
        return [sorted(backend.get_vocab().items()), special]
    content = json.loads(backend.backend_tokenizer.to_str())
    for part in ("truncation", "padding", "decoder"):
        content.pop(part, None)
    return [content, bool(getattr(backend, "split_special_tokens", False))]
