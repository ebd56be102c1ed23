"""Names, values and table schemas of bank format 1."""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple, Self, cast

import numpy as np
import polars as pl

from logitbank.errors import UsageError
from logitbank.store.format.limits import (
    MAX_INT,
    MAX_NAME,
    MAX_STEP,
    check_name,
    check_number,
    shown,
)
from logitbank.wording import KEEP_LEVELS, plain_step

FORMAT_VERSION = 1

Head = Literal["next_token", "mask", "next_sentence"]
Dtype = Literal["float16", "float32", "bfloat16"]
"""Dtype of rows, states and heads; rows of log-probabilities are never bfloat16."""
KeepLevel = Literal["full", "hidden", "topk", "options"]
RowArray = Literal["logprobs", "hidden"]
"""Array of a deposit: log-probabilities, or final hidden states."""
Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]

CLASS_HEADS = frozenset({"next_sentence"})
"""Heads whose outputs are classes, not tokens of a vocabulary."""
NEXT_SENTENCE_CLASSES = 2
"""Outputs of a next-sentence head: 0 is "is next", 1 "is another"."""
_RESERVED_FOLDERS = ("zarr.json", "index.json", "index.json.gz")

SCORES_SCHEMA = pl.Schema(
    {
        "query": pl.Int32(),  # row in the query set
        "token": pl.Int32(),  # vocabulary entry, or class of a classification head
        "kind": pl.Enum(["option", "top"]),
        "logit": pl.Float32(),
        "logsumexp": pl.Float64(),  # of the query's whole row; logprob = logit - logsumexp
        "rank": pl.Int32(),  # 1 + number of entries with a strictly greater logit
        "ties": pl.Int32(),  # number of other entries with exactly this logit
        "padding_above": pl.Int32(),  # of those greater, how many are padding outputs
        "padding_ties": pl.Int32(),  # of those equal, how many are padding outputs
        "exact": pl.Boolean(),  # computed before rounding; otherwise rank..rank+ties is an interval
    }
)
SCORE_KEY = ("query", "kind", "token")
"""Columns that identify a score of a deposit."""
COUNTS = ("rank", "ties", "padding_above", "padding_ties")
"""Columns of a score that count entries of its row."""
PROMPTS_SCHEMA = pl.Schema(
    {
        "prompt_id": pl.String(),
        "order_seed": pl.Int32(),  # null if the options have no order
        "piece": pl.Int32(),  # number of an option's token; 0 if a prompt has one query
        "text": pl.String(),
        "answer": pl.String(),  # label of the correct option, or null
        "option": pl.String(),  # label
        "continuation": pl.String(),  # exact text scored, leading space included
        "token": pl.Int32(),
        "is_answer": pl.Boolean(),
        "query_set": pl.String(),
        "row": pl.Int32(),
    }
)
TOKENS_SCHEMA = pl.Schema(
    {
        "token": pl.Int32(),
        "text": pl.String(),  # bytes that are not UTF-8 as \\xNN
        "is_text": pl.Boolean(),  # false if there are such bytes
        "special": pl.Boolean(),
    }
)
INFO = pl.Schema(
    {
        "model": pl.String,
        "run": pl.String,
        "step": pl.Int64,
        "query_set": pl.String,
        "queries": pl.Int64,
        "committed": pl.Int64,  # queries
        "blocks": pl.Int64,
        "sealed": pl.Boolean,
        "keep": pl.String,
        "dtype": pl.String,
        "engine": pl.String,
        "bytes": pl.Int64,
    }
)
"""Columns of `Bank.info`, one row per deposit."""
CHECKPOINT_COLUMNS = ("model", "run", "run_seed", "step")
REVISION = "table_revision"
"""Last column of a table that replaced earlier ones of its prompt set: 1 and up."""
RESERVED_COLUMNS = frozenset(
    {
        REVISION,
        *(*PROMPTS_SCHEMA, *SCORES_SCHEMA, *CHECKPOINT_COLUMNS, "prompt_set", "logprob"),
        *("token_text", "_key", "_tokenizer", "_pieces", "_scored"),
    }
)
"""Columns of a scan or its joins, which metadata columns of prompts must not have."""


@dataclass(frozen=True, slots=True)
class Query:
    """One scored position of one token sequence, by one head. Its identity is its content."""

    ids: tuple[int, ...]
    """Token ids of the whole sequence."""
    position: int
    """Index in `ids` whose output is scored."""
    head: Head = "next_token"
    segments: tuple[int, ...] = ()
    """Segment ids, as long as `ids`, or empty if the model has none."""
    language: str = ""
    """Language adapter, or empty."""

    def __hash__(self) -> int:
        # Only the ends of a long document: Python hashes a tuple anew each time, which took most
        # of 17 s for 16,000 positions of one document.
        ends = (self.ids[:32], self.ids[-32:]) if len(self.ids) > 64 else (self.ids,)
        return hash((len(self.ids), *ends, self.position, self.head, self.segments, self.language))


@dataclass(frozen=True, slots=True)
class CheckpointId:
    """Weights at one training step of one run of one model."""

    model: str
    run: str = "main"
    step: int | None = None
    """None for a released model that has no step."""
    run_seed: int | None = None

    def __post_init__(self) -> None:
        for field, value in (("model", self.model), ("run", self.run)):
            check_folder(value, field)
            if value in _RESERVED_FOLDERS:
                raise UsageError(f"{field} {value!r} is reserved; choose another name")
        for field, number in (("step", self.step), ("run_seed", self.run_seed)):
            if isinstance(number, np.integer):  # an entry of an array or a frame
                object.__setattr__(self, field, int(number))
        if self.step is not None:
            check_number(self.step, "step", 0, MAX_STEP)
        if self.run_seed is not None:
            check_number(self.run_seed, "run_seed", -MAX_INT, MAX_INT)

    @property
    def path(self) -> str:
        """`<model>/<run>/<step>` with each part safe as one folder name."""
        step = "release" if self.step is None else str(self.step)
        return f"{folder_name(self.model)}/{folder_name(self.run)}/{step}"

    def __str__(self) -> str:
        run = "" if self.run == "main" else f" {self.run}"
        return f"{self.model}{run} {plain_step(self.step)}"


_ARRAYS: Mapping[KeepLevel, RowArray] = {"full": "logprobs", "hidden": "hidden"}


@dataclass(frozen=True, slots=True)
class Keep:
    """How much of each vocabulary row is stored."""

    level: KeepLevel
    k: int = 1
    """Entries of highest logit listed for each query, at every level."""

    @classmethod
    def parse(cls, text: str, *, accepted: str = KEEP_LEVELS) -> Self:
        """`full`, `hidden`, `topk:K` or `options`; the message of others names `accepted`."""
        if text in ("full", "hidden", "options"):
            return cls(cast(KeepLevel, text))
        if match := re.fullmatch(r"topk:([1-9]\d*)", text):
            return cls("topk", int(match[1]))
        raise UsageError(f"keep level {text!r} is unknown; use {accepted}, K from 1")

    def __str__(self) -> str:
        return f"topk:{self.k}" if self.level == "topk" else self.level

    @property
    def has_full_rows(self) -> bool:
        """Whether log-probabilities of all tokens are stored or can be computed."""
        return self.array is not None

    @property
    def array(self) -> RowArray | None:
        """The array of a block; None if a block has only scores."""
        return _ARRAYS.get(self.level)

    def covers(self, other: "Keep") -> bool:
        """Whether a deposit at this level contains everything that one at `other` does."""
        if self.has_full_rows or other.level == "options":
            return True
        return self.level == other.level == "topk" and self.k >= other.k

    def derivable_from(self, other: "Keep") -> bool:
        """Whether a deposit at this level can be computed from one at `other`, without a model."""
        return other.covers(self) and self.array in (None, "logprobs", other.array)


class OptionTokens(NamedTuple):
    """The option tokens of each query, as compressed sparse rows."""

    offsets: np.ndarray
    """(q + 1,) int64: query i has tokens[offsets[i]:offsets[i + 1]]."""
    tokens: np.ndarray
    """(n,) int32, ascending and distinct within a query."""

    def of(self, row: int) -> np.ndarray:
        return self.tokens[self.offsets[row] : self.offsets[row + 1]]

    @classmethod
    def build(cls, per_query: Sequence[Iterable[int]]) -> Self:
        lists = [sorted(set(tokens)) for tokens in per_query]
        offsets = np.zeros(len(lists) + 1, np.int64)
        np.cumsum([len(tokens) for tokens in lists], out=offsets[1:])
        return cls(offsets, np.array([t for tokens in lists for t in tokens], np.int32))


def json_digest(value: object) -> str:
    """SHA-256 (hex) of the canonical JSON: sorted keys, no spaces, UTF-8."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def canonical_json(value: object) -> str:
    """Sorted keys, no spaces."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def check_folder(name: object, what: str) -> None:
    """Refuse an invalid name, or one that is too long as a folder, with a UsageError."""
    check_name(name, what)
    if len(folder_name(str(name))) > MAX_NAME:
        raise UsageError(
            f"{what} {shown(name)} is longer than {MAX_NAME} letters as a folder name, in which"
            " each letter except A to Z and 0 to 9 counts 3 to 12. Use a shorter name."
        )


@lru_cache(maxsize=1024)  # called eight times per deposit: 5 µs each
def folder_name(name: str) -> str:
    """A name as one path part: letters, digits, `.`, `_`, `-` stay; others become `%XX`."""
    quoted = re.sub(
        r"[^A-Za-z0-9._-]", lambda m: "".join(f"%{byte:02X}" for byte in m[0].encode()), name
    )
    return re.sub(r"^(\.|__)", lambda m: "".join(f"%{ord(c):02X}" for c in m[0]), quoted)
