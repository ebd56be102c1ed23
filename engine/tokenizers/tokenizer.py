"""A tokenizer: text in, ids out, and a digest that identifies it."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from importlib import import_module
from itertools import takewhile
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import polars as pl

from logitbank.engine.tokenizers.vocabulary import vocabulary
from logitbank.errors import MissingExtraError, SuiteError
from logitbank.store.format.schema import json_digest

VOCABULARY_FILES = (
    "tokenizer.json",
    "tokenizer.model",
    "vocab.json",
    "vocab.txt",
    "spiece.model",
    "sentencepiece.bpe.model",
    "spm.model",
)
"""Files that transformers reads a vocabulary from."""
TOKENIZER_FILES = (
    *VOCABULARY_FILES,
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "merges.txt",
)
"""All files that a tokenizer is read from; downloads and digests take them from this list."""
GENERIC_CLASSES = ("PreTrainedTokenizerFast", "TokenizersBackend")
"""Names of the class of transformers that reads tokenizer.json without changes."""
GENERIC_MODELS = ("gpt_neox", "gpt2", "llama", "bert", "roberta", "xlm-roberta")
"""Model types whose files may name that class; tests compare each with AutoTokenizer."""
OWN_CLASSES = {
    "gpt_neox": "GPTNeoXTokenizer",
    "olmo": "GPTNeoXTokenizer",
    "gpt2": "GPT2Tokenizer",
    "bert": "BertTokenizer",
    "roberta": "RobertaTokenizer",
    "xlm-roberta": "XLMRobertaTokenizer",
    "xmod": "XLMRobertaTokenizer",
}
"""The class that AutoTokenizer takes for a model type, if the files name it, or it with `Fast`."""
_BATCH = 10_000
"""Texts that are encoded at once: the library needs more memory for each than its ids take."""


def files_digest(folder: Path) -> str:
    """SHA-256 of every file in `folder` that a tokenizer is read from: equal files, equal ids."""
    total = hashlib.sha256()
    for name in sorted((*TOKENIZER_FILES, "config.json")):
        if (folder / name).is_file():
            content = (folder / name).read_bytes()
            total.update(f"{name} {len(content)}\n".encode() + content)
    return total.hexdigest()


def tokenizer_folder(folder: Path) -> Path:
    """The checkpoint's folder, or the suite's if only that one has a vocabulary."""
    candidates = (folder, folder.parent, folder.parent.parent)
    return next(filter(vocabulary_in, candidates), folder)


def vocabulary_in(folder: Path) -> bool:
    """Whether a folder has a vocabulary file."""
    return any((folder / name).is_file() for name in VOCABULARY_FILES)


class EncodedText(NamedTuple):
    """The ids of a text, and the characters that they stand for."""

    ids: list[int]
    spans: list[tuple[int, int]]
    """Start and end (excluded) of each token in the text; (0, 0) for a special token around the
    text."""


class UnknownToken(NamedTuple):
    """The token that stands for whatever is not in the vocabulary."""

    id: int
    text: str


class Tokenizer:
    """Text to token ids, as the checkpoint's own files define it.

    Attributes
    ----------
    digest
        SHA-256 of what decides the ids of a text: vocabulary, merges, added tokens, normalisation
        and the special tokens around a text. Decoding, truncation and padding are left out.
    entries
        Number of vocabulary entries, added tokens included; a model may have more outputs.
    mask_token, mask_id
        The mask token; None without one.
    begin_id
        The begin-of-text token; None without one.
    before_id
        The token that precedes a text whose first token is scored: `begin_id`; or the end-of-text
        token, as in lm-evaluation-harness (Qwen has only this one); or the last special token that
        is put before a text (`[CLS]`); None without any.
    unknown
        The unknown token; None without one.
    opening
        Special tokens that are put before every text.
    """

    def __init__(self, backend: Any, folder: Path | None = None) -> None:
        self._backend = backend
        self._folder = folder
        self.mask_token: str | None = backend.mask_token
        self.mask_id: int | None = None if self.mask_token is None else backend.mask_token_id
        self.begin_id: int | None = backend.bos_token_id
        self.special_ids = frozenset(backend.all_special_ids)
        self.unknown: UnknownToken | None = None
        if backend.unk_token is not None:
            self.unknown = UnknownToken(backend.unk_token_id, backend.unk_token)
        self.opening: list[int] = self._opening()
        before = (self.begin_id, backend.eos_token_id, *self.opening[-1:])
        self.before_id: int | None = next((i for i in before if i is not None), None)
        self.entries: int = len(backend)
        self.digest: str = json_digest(_content(backend))

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read the tokenizer in a checkpoint folder. Code that ships with it never runs.

        Raises
        ------
        SuiteError
            The folder has no vocabulary file, one that cannot be read, or a tokenizer in Python.
        MissingExtraError
            transformers is not installed.
        """
        if not vocabulary_in(folder):
            raise SuiteError(
                f"{folder} has no tokenizer. Copy one of {', '.join(VOCABULARY_FILES)} next to the "
                "weights."
            )
        tokenizer = cls(_read(folder), folder)
        # If the class does not look for the vocabulary file that is there (say vocab.txt instead of
        # vocab.json), transformers 5 silently makes a vocabulary of its few special tokens.
        if tokenizer.entries <= len(tokenizer._backend.all_special_ids):
            raise SuiteError(
                f"The tokenizer in {folder} has {tokenizer.entries} entries, all of them special "
                "tokens: its class did not read the vocabulary file. Correct tokenizer_class in "
                "tokenizer_config.json."
            )
        return tokenizer

    def _opening(self) -> list[int]:
        probes = ["a"] if self.encode("a", add_special_tokens=False) else self._backend.get_vocab()
        for probe in probes:
            if plain := self.encode(probe, add_special_tokens=False):
                whole = self.encode(probe)
                for start in range(len(whole) - len(plain) + 1):
                    if whole[start : start + len(plain)] == plain:
                        return whole[:start]
        return []

    def for_task(self, task: Literal["causal", "masked"] | None) -> Self:
        """The tokenizer as a model of this task uses it: without a mask for a causal model.

        Raises
        ------
        SuiteError
            The model predicts masked tokens, but its tokenizer names no mask token.
        """
        if task == "masked" and self.mask_id is None:
            raise SuiteError(
                f"The model in {self._folder} predicts masked tokens, but its tokenizer names no "
                "mask_token. Name it in tokenizer_config.json."
            )
        if task != "causal":
            return self
        other = copy(self)
        other.mask_token = other.mask_id = None
        return other

    def opening_text(self, ids: Sequence[int]) -> str:
        """The special tokens at the beginning of these ids, as text."""
        unknown = self.unknown.id if self.unknown else None
        begin = takewhile(lambda token: token in self.special_ids and token != unknown, ids)
        return "".join(self.decode_each([*begin]))

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn a panic of the Rust library, such as one at a regular expression, into an error."""
        try:
            yield
        except BaseException as error:
            if type(error).__name__ != "PanicException":
                raise
            where = "" if self._folder is None else f" in {self._folder}"
            raise SuiteError(
                f"The tokenizer{where} fails at a text ({str(error)[:200]}). Check the regular"
                " expressions in its tokenizer.json."
            ) from None

    def encode(self, text: str, *, add_special_tokens: bool | None = None) -> list[int]:
        """Ids of one text; None leaves the special tokens to the tokenizer."""
        return self.encode_many([text], add_special_tokens=add_special_tokens)[0]

    def encode_many(
        self, texts: Sequence[str], *, add_special_tokens: bool | None = None
    ) -> list[list[int]]:
        """Ids of each text; nothing is truncated or padded."""
        flags = {} if add_special_tokens is None else {"add_special_tokens": add_special_tokens}
        ids: list[list[int]] = []
        for start in range(0, len(texts), _BATCH):
            with self._explained():
                batch = self._backend(
                    list(texts[start : start + _BATCH]),
                    return_attention_mask=False,
                    return_token_type_ids=False,
                    verbose=False,
                    **flags,
                )
            ids += batch["input_ids"]
        return ids

    def encode_with_spans(
        self, text: str, *, add_special_tokens: bool | None = None
    ) -> EncodedText:
        """Ids of one text as by `encode`, with their spans."""
        flags = {} if add_special_tokens is None else {"add_special_tokens": add_special_tokens}
        with self._explained():
            batch = self._backend(text, return_offsets_mapping=True, verbose=False, **flags)
        return EncodedText(batch["input_ids"], batch["offset_mapping"])

    def encode_pair(self, first: str, second: str) -> tuple[list[int], list[int]]:
        """Ids of two texts with the special tokens around them, and the text of each id."""
        with self._explained():
            batch = self._backend(first, second, return_token_type_ids=True, verbose=False)
        return batch["input_ids"], batch["token_type_ids"]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of some ids together."""
        text: str = self._backend.decode(list(ids), clean_up_tokenization_spaces=False)
        return text

    def decode_each(self, ids: Sequence[int]) -> list[str]:
        """The text of each id by itself; empty for a padding output."""
        return [self.decode([i]) for i in ids]

    def vocabulary(self) -> pl.DataFrame:
        """The text of every entry: columns of `TOKENS_SCHEMA`, ascending."""
        return vocabulary(self._backend)


def _read(folder: Path) -> Any:
    try:
        tokenizer_class = _tokenizer_class(folder)
    except ImportError as error:
        raise MissingExtraError(
            "Tokenizers need transformers. Fix: pip install 'logitbank[engine]'"
        ) from error
    try:
        backend = tokenizer_class.from_pretrained(
            str(folder), trust_remote_code=False, local_files_only=True
        )
    except BaseException as error:  # the Rust library raises bare Exception for a broken file
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        reason = " ".join(str(error).split())
        raise SuiteError(f"The tokenizer in {folder} cannot be read: {reason}") from error
    if not backend.is_fast:
        raise SuiteError(
            f"The tokenizer in {folder} is {type(backend).__name__}, which is written in Python "
            "and not supported. Save one with a tokenizer.json next to the weights."
        )
    return backend


def _tokenizer_class(folder: Path) -> Any:
    """The class that reads this folder; AutoTokenizer, which imports torch, where it must choose.

    It takes the class that the files name, if that is the generic one or the model's own.
    """
    config, own = (_json(folder / name) for name in ("config.json", "tokenizer_config.json"))
    model, named = config.get("model_type"), own.get("tokenizer_class")
    if (folder / "tokenizer.json").is_file() and "auto_map" not in {**own, **config}:
        if named in GENERIC_CLASSES and model in GENERIC_MODELS:
            from transformers.tokenization_utils_tokenizers import TokenizersBackend

            return TokenizersBackend
        if model in OWN_CLASSES and str(named).removesuffix("Fast") == OWN_CLASSES[model]:
            return getattr(import_module("transformers"), OWN_CLASSES[model])
    from transformers import AutoTokenizer

    return AutoTokenizer


def _json(path: Path) -> dict[str, Any]:
    """A JSON object; empty if the file has none, which its reader reports."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _content(backend: Any) -> Any:
    """What decides the ids of a text, as JSON."""
    content = json.loads(backend.backend_tokenizer.to_str())
    for part in ("truncation", "padding", "decoder"):
        content.pop(part, None)
    return [content, bool(getattr(backend, "split_special_tokens", False))]
