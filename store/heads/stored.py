"""LM heads of a bank, stored under the digest of their content, read in part or whole."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, get_args

import numpy as np

from logitbank.errors import BankError, BankFormatError, DamagedError
from logitbank.store.deposits.rows import ShardedArray
from logitbank.store.files import copies, objects, verified
from logitbank.store.files.objects import Digest
from logitbank.store.format import zarrays
from logitbank.store.format.grid import Grid
from logitbank.store.format.heads import (
    HEAD_DIGEST,
    HeadContent,
    Operation,
    OutputHead,
    head_digest,
    operations_from_json,
)
from logitbank.store.format.limits import MAX_OUTPUTS, MAX_SIZE, check_number
from logitbank.store.format.numbers import STORED_AS
from logitbank.store.format.schema import Dtype
from logitbank.wording import VERIFY

FOLDER = "heads"
BIAS = "bias/c/0"
CHUNK_ROWS = 128
RESTORE = (
    "scores can be read without it. Copy that folder from another copy of the bank with `logitbank"
    " merge`, or extract again into another bank"
)


@dataclass(frozen=True)
class StoredHead:
    """An LM head in a bank; only its attributes have been read."""

    path: Path
    grid: Grid
    """Sizes of its weights."""
    dtype: Dtype
    has_bias: bool
    after: tuple[Operation, ...]
    objects: Mapping[str, Digest] = field(compare=False)
    """Digests in its attributes, by path in its folder."""

    @property
    def digest(self) -> str:
        return self.path.name

    @classmethod
    def open(cls, root: Path, digest: str, *, needed_by: str = "") -> "StoredHead":
        """The head of this digest.

        Raises DamagedError if it is missing, or its attributes are damaged or of another head, and
        BankFormatError if it names an operation that this version does not know.
        """
        path = objects.plain_path(root, f"{FOLDER}/{digest}")
        about = path / "zarr.json"
        try:
            head, described = _parse(path, verified.document(about, *zarrays.ATTRIBUTES))
        except FileNotFoundError as error:
            needed = f"; rows of {needed_by} need it" if needed_by else ""
            raise DamagedError(f"{path} is missing{needed}; {RESTORE}") from error
        except BankFormatError as error:
            raise BankFormatError(f"{about}: {error}") from error
        except (KeyError, TypeError, ValueError) as error:
            raise DamagedError(f"{about} does not describe a head: {error}; {RESTORE}") from error
        if described != digest:  # parts of a head cannot be compared with its digest
            raise DamagedError(f"{path} contains another head; {RESTORE}")
        return head

    def require_shape(self, outputs: int, width: int | None, needed_by: str) -> None:
        """Refuse a head that does not fit the states of a deposit, with a DamagedError."""
        if self.grid.shape != (outputs, width):
            raise DamagedError(
                f"{self.path} has {self.grid.rows:,} outputs for states of {self.grid.columns:,}"
                f" entries, but {needed_by} has {outputs:,} and {width}; {VERIFY}"
            )

    def part(self, tokens: np.ndarray) -> OutputHead:
        """The head of some outputs, in their order, from as few inner chunks as possible."""
        if len(tokens) * CHUNK_ROWS >= self.grid.rows:
            return self.whole().of(tokens)
        bias = None if (whole_bias := self._bias()) is None else whole_bias[tokens]
        return OutputHead(self._weight(tokens), self.dtype, bias, self.after)

    def whole(self) -> OutputHead:
        """The whole head, verified against its digest, or DamagedError; the last one is cached."""
        return _whole(self, verified.file_stamp(self.path / "zarr.json"))

    def read(self) -> OutputHead:
        """The whole head, as `whole`, without the cache."""
        head = OutputHead(self._weight(None), self.dtype, self._bias(), self.after)
        if head.digest != self.digest:
            raise DamagedError(f"{self.path} contains another head; {RESTORE}")
        return head

    @property
    def size(self) -> int:
        """Bytes of its arrays, as they are stored."""
        return sum(digest.bytes for digest in self.objects.values())

    def metadata(self) -> dict[str, bytes]:
        """zarr.json of each of its arrays, by the array's name."""
        return array_metadata(self.grid, self.has_bias)

    def missing(self) -> list[str]:
        """Objects that are missing or have another size."""
        files = {name: objects.plain_path(self.path, name) for name in self.objects}
        return [
            name
            for name, file in files.items()
            if not file.is_file() or file.stat().st_size != self.objects[name].bytes
        ]

    def _weight(self, tokens: np.ndarray | None) -> np.ndarray:
        committed = {b: self.objects[f"weight/c/{b}/0"] for b in range(self.grid.blocks)}
        metadata = self.metadata()["weight"]
        weight = ShardedArray.open(self.path / "weight", metadata, self.grid, committed)
        return weight.read(tokens, dtype=self.grid.dtype)

    def _bias(self) -> np.ndarray | None:
        if not self.has_bias:
            return None
        file = objects.plain_path(self.path, BIAS)
        try:
            verified.require({file: self.objects[BIAS]})
            return np.frombuffer(file.read_bytes()[:-4], "<f4").astype(np.float32)
        except FileNotFoundError as error:
            advice = copies.missing_advice(file, RESTORE)
            raise DamagedError(f"{file} is missing; {advice}") from error


@lru_cache(maxsize=1)  # rows are read block by block: 0.1 s each time for 50,304 × 512 weights
def _whole(head: StoredHead, _: verified.Stamp) -> OutputHead:
    return head.read()


def forget_whole() -> None:
    """Empty the cache of `StoredHead.whole`, so that the next reader sees what is on the disk."""
    _whole.cache_clear()


def head_digests(root: Path) -> list[str]:
    """Digests of the heads in a bank."""
    names = (entry.name for entry in objects.entries(root / FOLDER) if entry.is_dir())
    return [name for name in names if HEAD_DIGEST.fullmatch(name)]


def is_whole(root: Path, digest: str) -> bool:
    """Whether a head's attributes are sound and each of its objects has its size."""
    try:
        return not StoredHead.open(root, digest).missing()
    except BankFormatError:  # of a later version
        return True
    except DamagedError:
        return False


def head_sizes(root: Path) -> dict[str, int]:
    """Bytes of each head of a bank, by digest; damaged heads are left out."""
    sizes: dict[str, int] = {}
    for name in head_digests(root):
        with suppress(BankError):
            sizes[name] = StoredHead.open(root, name).size
    return sizes


def array_metadata(grid: Grid, has_bias: bool) -> dict[str, bytes]:
    """zarr.json of each array of a head, by the array's name."""
    arrays = {"weight": zarrays.rows_metadata(grid, ("token", "entry"))}
    if has_bias:
        arrays["bias"] = zarrays.bias_metadata(grid.rows)
    return arrays


def _parse(path: Path, document: Any) -> tuple[StoredHead, str]:
    """The head that a document describes, and its digest according to the document."""
    a = document["attributes"]["logitbank"]
    after = operations_from_json(a["after"])  # first: a later version may have other fields
    for name, most in (("outputs", MAX_OUTPUTS), ("width", MAX_OUTPUTS), ("block_rows", MAX_SIZE)):
        check_number(a[name], name, 1, most)
    if a["dtype"] not in get_args(Dtype):
        raise ValueError(f"dtype is {a['dtype']!r}")
    content = HeadContent(str(a["content"]["weight"]), a["content"]["bias"])
    if type(a["bias"]) is not bool or a["bias"] != isinstance(content.bias, str):
        raise ValueError(f"bias is {a['bias']!r}, and its digest is {content.bias!r}")
    listed = {name: objects.digest_from_json(value) for name, value in a["objects"].items()}
    grid = Grid(a["outputs"], a["width"], STORED_AS[a["dtype"]], a["block_rows"])
    expected = {f"weight/c/{block}/0" for block in range(min(grid.blocks, 2**20))}
    expected |= {f"{name}/zarr.json" for name in array_metadata(grid, a["bias"])}
    expected |= {BIAS} if a["bias"] else set()
    if set(listed) != expected:
        raise ValueError(f"objects {sorted(set(listed) ^ expected)[:3]} are missing or unexpected")
    head = StoredHead(path, grid, a["dtype"], a["bias"], after, listed)
    return head, head_digest(a["dtype"], grid.shape, after, content)
