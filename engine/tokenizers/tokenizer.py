"""A tokenizer: text in, ids out, and a digest that identifies it."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from functools import cached_property
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from itertools import takewhile
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import polars as pl

from logitbank.engine.cache import digest_of, remember, remembered
from logitbank.engine.tokenizers.round_trip import RoundTrip, unreachable_capitals
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
_WEIGHTS = {
    *(".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".h5", ".msgpack", ".ot", ".npz", ".gguf"),
    *(".onnx", ".onnx_data"),
}
"""Endings of files that no tokenizer is read from."""
_PACKAGES = ("transformers", "tokenizers", "sentencepiece", "tiktoken", "protobuf")
"""Packages that read a tokenizer's files."""
_PROBES = ("The nurse’s elbow", " naïve  ＦＩＮＥ 12\n🙂", "")
_BATCH = 10_000
"""Texts that are encoded at once: the library needs more memory for each than its ids take."""


def files_digest(folder: Path) -> str:
    """SHA-256 of every file in `folder` that a tokenizer is read from: equal files, equal ids."""
    return digest_of(
        path for name in (*TOKENIZER_FILES, "config.json") if (path := folder / name).is_file()
    )


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
    opening, closing
        Special tokens that are put before and after every text.
    """

    def __init__(self, facts: Mapping[str, Any], folder: Path | None = None) -> None:
        """`facts` are those of `_facts`, which transformers has made from files in `folder`."""
        self._facts, self._folder = facts, folder
        self._known: dict[int, int] = {}
        self.mask_token: str | None = facts["mask_token"]
        self.mask_id: int | None = facts["mask_id"]
        self.begin_id: int | None = facts["begin_id"]
        self.special_ids = frozenset(facts["special_ids"])
        unknown = facts["unknown"]
        self.unknown = None if unknown is None else UnknownToken(*unknown)
        self.opening: list[int] = facts["opening"]
        self.closing: list[int] = facts["closing"]
        before = (self.begin_id, facts["end_id"], *self.opening[-1:])
        self.before_id: int | None = next((i for i in before if i is not None), None)
        self.entries: int = facts["entries"]
        self.digest: str = facts["digest"]

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read the tokenizer in a checkpoint folder. Code that ships with it never runs.

        What transformers makes of the files is remembered, since its import takes a second.

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
        key = _key(folder)
        if (known := remembered(key)) is not None:
            return cls(json.loads(known), folder)
        made = _read(folder)
        with _explained(folder):
            tokenizer = cls(facts := _facts(made, folder), folder)
            tokenizer._backend = made.backend_tokenizer
            _check(tokenizer, made)
            if _backend(facts).to_str() == facts["content"]:
                remember(key, json.dumps(facts).encode())
        return tokenizer

    @cached_property
    def identity(self) -> str:
        """SHA-256 of everything that decides what this tokenizer does, decoding included."""
        return json_digest([self._facts, self.mask_id])

    @cached_property
    def _backend(self) -> Any:
        return _backend(self._facts)

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

    @cached_property
    def _round_trip(self) -> RoundTrip:
        return RoundTrip(self._backend, json.loads(self._facts["content"]), self.unknown)

    def lost(self, text: str, ids: Sequence[int]) -> str:
        """The characters of a text that its tokens do not have; empty without any.

        What the tokenizer's normalizer changes, such as capitals, is not lost. `ids` are without
        the special tokens around a text.
        """
        return self._round_trip.lost(text, ids)

    @property
    def loses_nothing(self) -> bool:
        """Whether `lost` is empty for every text."""
        return self._round_trip.loses_nothing

    @cached_property
    def unreachable(self) -> list[str]:
        """Entries with capital letters that no text reaches, because it is lower-cased first."""
        return unreachable_capitals(self._backend, self.special_ids)

    def around(self, text: str, ids: Sequence[int]) -> list[int]:
        """Ids of a text with the special tokens around it, once if they are also written in it."""
        return [*self.opening, *ids[self.inner(text, ids)], *self.closing]

    def begun(self, text: str, ids: Sequence[int]) -> list[int]:
        """As `around`, without the special tokens after a text."""
        return [*self.opening, *ids[self.inner(text, ids).start :]]

    def inner(self, text: str, ids: Sequence[int]) -> slice:
        """The place of a text's ids between special tokens that are written around it."""
        start, end = len(self.opening), len(self.closing)
        first = start if self._written(text, ids[:start], self.opening, str.startswith) else 0
        rest = ids[first:][-end:] if end else ()
        last = end if self._written(text, rest, self.closing, str.endswith) else 0
        return slice(first, len(ids) - last)

    def _written(
        self,
        text: str,
        ids: Sequence[int],
        special: list[int],
        is_at_edge: Callable[[str, str], bool],
    ) -> bool:
        """Whether ids are special tokens that the text has, and not unknown words."""
        if not special or [*ids] != special:
            return False
        if self.loses_nothing or self._round_trip.unknown.isdisjoint(special):
            return True
        # T5's class takes token 2 for unknown words, which in other vocabularies is "</s>".
        return is_at_edge(text.strip(), "".join(self.decode_each(special)))

    def encode(self, text: str, *, add_special_tokens: bool | None = None) -> list[int]:
        """Ids of one text; None leaves the special tokens to the tokenizer."""
        return self.encode_many([text], add_special_tokens=add_special_tokens)[0]

    def encode_many(
        self, texts: Sequence[str], *, add_special_tokens: bool | None = None
    ) -> list[list[int]]:
        """Ids of each text; nothing is truncated or padded.

        A text that is written with the special tokens around it gets no second ones.
        """
        flag = add_special_tokens is not False
        ids: list[list[int]] = []
        known = self._known.setdefault
        for start in range(0, len(texts), _BATCH):
            with _explained(self._folder):
                batch = list(texts[start : start + _BATCH])
                found = self._backend.encode_batch_fast(batch, add_special_tokens=False)
            # One object for each token: the library makes new ones, of 28 bytes.
            ids += [[*map(known, each, each)] for each in (encoding.ids for encoding in found)]
        return [*map(self.around, texts, ids)] if flag else ids

    def encode_with_spans(
        self, text: str, *, add_special_tokens: bool | None = None
    ) -> EncodedText:
        """Ids of one text as by `encode`, with their spans."""
        flag = add_special_tokens is not False
        with _explained(self._folder):
            encoding = self._backend.encode(text, add_special_tokens=False)
        if not flag:
            return EncodedText(encoding.ids, encoding.offsets)
        before, after = ([(0, 0)] * len(ids) for ids in (self.opening, self.closing))
        spans = [*before, *encoding.offsets[self.inner(text, encoding.ids)], *after]
        return EncodedText(self.around(text, encoding.ids), spans)

    def encode_pair(self, first: str, second: str) -> tuple[list[int], list[int]]:
        """Ids of two texts with the special tokens around them, and the text of each id."""
        texts = [first, second] if second else [first]
        with _explained(self._folder):
            parts = [self._backend.encode(text, add_special_tokens=False) for text in texts]
            inner = [self.inner(text, part.ids) for text, part in zip(texts, parts, strict=True)]
            if all(place == slice(0, len(part)) for place, part in zip(inner, parts, strict=True)):
                encoding = self._backend.encode(*texts)
            else:
                for place, part in zip(inner, parts, strict=True):
                    part.truncate(place.stop)
                    part.truncate(place.stop - place.start, direction="left")
                encoding = self._backend.post_process(*parts)
        return encoding.ids, encoding.type_ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of some ids together."""
        text: str = self._backend.decode(list(ids), skip_special_tokens=False)
        return text

    def decode_each(self, ids: Sequence[int]) -> list[str]:
        """The text of each id by itself; empty for a padding output."""
        return [self.decode([i]) for i in ids]

    def vocabulary(self) -> pl.DataFrame:
        """The text of every entry: columns of `TOKENS_SCHEMA`, ascending."""
        return vocabulary(self._backend, self.special_ids)


@contextmanager
def _explained(folder: Path | None) -> Iterator[None]:
    """Turn a panic of the Rust library, such as one at a regular expression, into an error."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        where = "" if folder is None else f" in {folder}"
        raise SuiteError(
            f"The tokenizer{where} fails at a text ({str(error)[:200]}). Check the regular"
            " expressions in its tokenizer.json."
        ) from None


def _key(folder: Path) -> list[str]:
    """All that decides what transformers makes of a folder's tokenizer."""
    versions = []
    for package in _PACKAGES:
        try:
            versions.append(version(package))
        except PackageNotFoundError:
            versions.append("")
    files = (p for p in folder.iterdir() if p.suffix not in _WEIGHTS and p.is_file())
    return [digest_of(files), *versions]


def _facts(made: Any, folder: Path) -> dict[str, Any]:
    """The behaviour of transformers' tokenizer, as JSON."""
    backend = made.backend_tokenizer
    opening, closing = _around(made)
    backend.no_truncation()
    backend.no_padding()
    split = bool(getattr(made, "split_special_tokens", False))
    content = json.loads(backend.to_str())
    if dropout := content["model"].get("dropout"):
        raise SuiteError(
            f"The tokenizer in {folder} has a dropout of {dropout}, which gives other tokens each "
            'time. Set "dropout" to null in its tokenizer.json.'
        )
    for part in ("truncation", "padding", "decoder"):
        del content[part]
    unknown = None if made.unk_token is None else (made.unk_token_id, made.unk_token)
    return {
        "content": backend.to_str(),
        "split_special_tokens": split,
        "mask_token": made.mask_token,
        "mask_id": None if made.mask_token is None else made.mask_token_id,
        "begin_id": made.bos_token_id,
        "end_id": made.eos_token_id,
        "unknown": unknown,
        "special_ids": made.all_special_ids,
        "opening": opening,
        "closing": closing,
        "entries": len(made),
        "digest": json_digest([content, split]),
    }


def _backend(facts: Mapping[str, Any]) -> Any:
    """The tokenizer of the Rust library that `_facts` describe."""
    from tokenizers import Tokenizer as Backend
    from tokenizers.models import Unigram

    backend = Backend.from_str(facts["content"])
    if isinstance(backend.model, Unigram):  # the library reads its scores one bit off
        model = json.loads(facts["content"])["model"]
        entries = [(entry, score) for entry, score in model["vocab"]]
        backend.model = Unigram(entries, model["unk_id"], model["byte_fallback"])
    backend.encode_special_tokens = facts["split_special_tokens"]
    return backend


def _around(made: Any) -> tuple[list[int], list[int]]:
    """Special tokens that are put before and after every text."""

    def encode(text: str, special: bool) -> list[int]:
        return [*made(text, add_special_tokens=special, verbose=False)["input_ids"]]

    for probe in ["a"] if encode("a", False) else made.get_vocab():
        if plain := encode(probe, False):
            whole = encode(probe, True)
            for start in range(len(whole) - len(plain) + 1):
                if whole[start : (end := start + len(plain))] == plain:
                    return whole[:start], whole[end:]
    return [], []


def _check(tokenizer: Tokenizer, made: Any) -> None:
    """Refuse a tokenizer without its vocabulary, or whose class changes what the library does."""
    folder = tokenizer._folder
    # If the class does not look for the vocabulary file that is there (say vocab.txt instead of
    # vocab.json), transformers 5 silently makes a vocabulary of its few special tokens.
    if tokenizer.entries <= len(made.all_special_ids):
        raise SuiteError(
            f"The tokenizer in {folder} has {tokenizer.entries} entries, all of them special "
            "tokens: its class did not read the vocabulary file. Correct tokenizer_class in "
            "tokenizer_config.json."
        )
    theirs = _or_error(lambda: made([*_PROBES], verbose=False)["input_ids"])
    if _or_error(lambda: tokenizer.encode_many(_PROBES)) != theirs:
        raise SuiteError(
            f"The tokenizer in {folder} is not supported: {type(made).__name__} gives other ids "
            "than its tokenizer.json. Name another tokenizer_class in tokenizer_config.json."
        )


def _or_error(encode: Callable[[], list[list[int]]]) -> list[list[int]] | str:
    """Ids, or the error of the Rust library, such as that of a vocabulary without `[UNK]`."""
    try:
        return encode()
    except Exception as error:
        return str(error)


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
