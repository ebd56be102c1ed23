"""Objects of a bank in `index.json.gz`, for readers at a URL that cannot list.

An index may be hostile, so all values are checked.
"""

import gzip
import json
import re
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from logitbank.errors import DamagedError, UsageError
from logitbank.store.files.documents import SELF_DIGEST, signed
from logitbank.store.files.objects import Digest, compute_digest, digest_from_json
from logitbank.store.files.verified import verify_self_digest

NAME = "index.json.gz"
"""A JSON document, compressed by gzip: 0.45 MB instead of 9.1 MB for 1,000 deposits."""
MAX_BYTES = 64 * 2**20
"""Bytes of the largest index before compression. 154 checkpoints of 15,840 rows take 1.5 MB."""
MAX_TEXT = 16 * 2**20
_VERSION = 1
_PART = r"(?!\.|__)[A-Za-z0-9._%-]{1,255}"
_DEPOSIT = rf"{_PART}/{_PART}/(?:release|0|[1-9]\d{{0,18}})/q-[0-9a-f]{{16}}"
_COMMIT = r"seal|(?:0|[1-9]\d{0,8})|options-[0-9a-f]{12}"
_HEAD = r"heads/[0-9a-f]{64}"
_TEXTS = rf"""
    zarr\.json
  | queries/q-[0-9a-f]{{16}}\.parquet\.sha256
  | (?:prompts|tokens)/{_PART}\.parquet\.sha256
  | {_PART}(?:/{_PART}){{0,2}}/zarr\.json
  | (?P<deposit>{_DEPOSIT})/(?:(?:logprobs/|hidden/|logsumexp/)?zarr\.json
        |commits/(?:{_COMMIT})\.json)
"""
_DATA = rf"""
    queries/q-[0-9a-f]{{16}}\.parquet
  | (?:prompts|tokens)/{_PART}-[0-9a-f]{{12}}\.parquet
  | {_HEAD}/(?:weight/c/(?:0|[1-9]\d{{0,8}})/0|bias/c/0)
  | (?P<deposit>{_DEPOSIT})/(?:(?:logprobs|hidden)/c/(?:0|[1-9]\d{{0,8}})/0|logsumexp/c/0
        |scores/(?:all|(?:0|[1-9]\d{{0,8}})|options-[0-9a-f]{{12}})\.parquet)
"""
TEXT = re.compile(_TEXTS, re.VERBOSE)
"""Paths of the small objects whose text an index repeats."""
DATA = re.compile(_DATA, re.VERBOSE)
_OF_HEAD = re.compile(rf"({_HEAD})/")
_SIDECAR = re.compile(r"[0-9a-f]{64}  [^\n]+\n")
_HEX = re.compile(r"[0-9a-f]{64}")
_GZIP = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class Object:
    """One object of a bank."""

    digest: Digest
    text: str | None = None
    """Content of a document; None for data."""


Objects = Mapping[str, Object]
"""Objects by path relative to the bank."""


def text_object(text: str) -> Object:
    return Object(compute_digest(text.encode()), text)


def is_object(path: str) -> bool:
    """Whether a bank may have an object of this path."""
    return len(path) <= 1024 and bool(TEXT.fullmatch(path) or DATA.fullmatch(path))


def is_data(path: str) -> bool:
    """Whether an object of this path is data, which an index does not repeat."""
    return bool(DATA.fullmatch(path))


def is_table(path: str) -> bool:
    """Whether an object of this path is a table of queries, prompts or tokens."""
    return is_data(path) and path.endswith(".parquet") and object_deposit(path) is None


def is_group(path: str) -> bool:
    """Whether an object of this path is a plain group."""
    is_owned = object_deposit(path) is not None or object_head(path) is not None
    return path.endswith("/zarr.json") and not is_owned


def object_deposit(path: str) -> str | None:
    """The deposit that an object belongs to; None for tables and groups."""
    match = TEXT.fullmatch(path) or DATA.fullmatch(path)
    return match["deposit"] if match else None


def object_head(path: str) -> str | None:
    """The folder of the head that an object belongs to; None for others."""
    match = _OF_HEAD.match(path)
    return match[1] if match else None


def render(objects: Objects) -> bytes:
    """The bytes of an index, the same for the same objects; UsageError if there are too many."""
    listed = {
        path: value.digest._asdict() | ({} if value.text is None else {"text": value.text})
        for path, value in sorted(objects.items())
    }
    document = {"index": _VERSION, "objects": listed}
    data = signed(document, document)
    if len(data) > MAX_BYTES:
        raise UsageError(
            f"The index of {len(objects):,} objects has {len(data):,} bytes, more than"
            f" {MAX_BYTES:,}. Push parts of the bank (--model, --steps) to several places."
        )
    return gzip.compress(data, mtime=0)


def _decompressed(data: bytes) -> bytes:
    """The JSON of an index, which a server may have decompressed already."""
    if not data.startswith(_GZIP):
        return data
    gunzip = zlib.decompressobj(16 + zlib.MAX_WBITS)
    try:
        unpacked = gunzip.decompress(data, MAX_BYTES + 1)
    except zlib.error as error:
        raise ValueError(f"invalid gzip: {error}") from error
    if len(unpacked) <= MAX_BYTES and (not gunzip.eof or gunzip.unused_data):
        raise ValueError("bytes are missing, or follow the end of its gzip")
    return unpacked


def parse(data: bytes, *, where: str) -> dict[str, Object]:
    """Read an index, and check it as far as possible without the data; DamagedError."""
    try:
        unpacked = _decompressed(data)
        if len(unpacked) > MAX_BYTES:
            raise ValueError(f"it has more than {MAX_BYTES:,} bytes")
        document = json.loads(unpacked)
        if document["index"] != _VERSION:
            raise ValueError(f"its version is {document['index']!r}")
        if not verify_self_digest(unpacked, document):
            raise ValueError(f"its SHA-256 is not its member {SELF_DIGEST}")
        return {path: _object(path, value) for path, value in document["objects"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DamagedError(
            f"{where} is not an index of a bank ({str(error)[:200]}). Ask its publisher to push"
            " again."
        ) from error


def _object(path: str, value: Any) -> Object:
    digest, text = digest_from_json(value), value.get("text")
    if not is_object(path) or not _HEX.fullmatch(digest.sha256):
        raise ValueError(f"{path!r} is not a path of a bank, or its sha256 is {digest.sha256!r}")
    if (text is not None) != bool(TEXT.fullmatch(path)):
        raise ValueError(f"{path}: all JSON objects have a text, and no others")
    if text is not None and compute_digest(text.encode()) != digest:
        raise ValueError(f"{path}: its text has another digest")
    return Object(digest, text)


def committed_digests(texts: Mapping[str, str]) -> dict[str, Digest]:
    """Digests of data in the commits and heads among `texts`, by path relative to the bank.

    Raises DamagedError if a commit is invalid.
    """
    digests_by_path: dict[str, Digest] = {}
    for path, text in texts.items():
        folder, slash, _ = path.rpartition("/commits/")
        if path == f"{object_head(path)}/zarr.json":
            folder, slash, _ = path.rpartition("/")
        if not slash:
            continue
        try:
            document = json.loads(text)
            listed = document if "objects" in document else document["attributes"]["logitbank"]
            for relative, value in listed["objects"].items():
                if DATA.fullmatch(target := f"{folder}/{relative}"):
                    digests_by_path[target] = digest_from_json(value)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise DamagedError(f"{path} is not a commit ({error!r})") from error
    return digests_by_path


_SEAL = "commits/seal.json"
_OF_BLOCK = re.compile(r".+/(?:commits/\d+\.json|scores/\d+\.parquet)")


def whole(objects: Objects) -> dict[str, Object]:
    """Objects without those of deposits in progress, and without parts that a seal has replaced."""
    owners = {path: object_deposit(path) for path in objects}
    sealed = {d for path, d in owners.items() if d is not None and path == f"{d}/{_SEAL}"}
    return {
        path: value
        for path, value in objects.items()
        if owners[path] in {None, *sealed} and not _OF_BLOCK.fullmatch(path)
    }


def claimed(objects: Objects, known: Objects) -> dict[str, Object]:
    """Objects without tables of prompts that neither an index nor a seal lists.

    A killed or refused push may have left them at a place that others push to.
    """
    named = {path for path in known if path.startswith("prompts/")}
    for path, value in objects.items():
        if path.endswith(f"/{_SEAL}"):
            with suppress(ValueError, KeyError, TypeError, AttributeError, RecursionError):
                named.update(json.loads(value.text or "")["tables"])
    return {
        path: value
        for path, value in objects.items()
        if not path.startswith("prompts/") or path.removesuffix(".sha256") in named
    }


def deposit_model(folder: str) -> str:
    """The model of a deposit's folder."""
    return unquote(folder.partition("/")[0])


def complete(
    listing: Mapping[str, int],
    known: Objects,
    read: Callable[[list[str]], list[bytes]],
) -> dict[str, Object]:
    """Objects of whole deposits at a place that can list, with or without an index.

    Parameters
    ----------
    listing
        Size in bytes of all files of the place, by path.
    known
        Objects in the index of the place.
    read
        Reads the bytes of small objects that the index does not contain, by path.
    """
    sizes = {path: size for path, size in listing.items() if is_object(path)}
    known = {p: v for p, v in known.items() if v.text is None or is_sound(p, v.text)}
    # Only the attributes of the bank may change.
    by_path = {
        p: v for p, v in known.items() if sizes.get(p) == v.digest.bytes and p != "zarr.json"
    }
    unknown = [p for p in sizes if p not in by_path]
    texts = [p for p in unknown if TEXT.fullmatch(p) and sizes[p] <= MAX_TEXT]
    new = _sound_texts(texts, read)
    by_path |= {p: text_object(text) for p, text in new.items()}
    digests = {p: d for p, d in committed_digests(new).items() if sizes.get(p) == d.bytes}
    by_path |= {p: Object(d) for p, d in digests.items() if p not in by_path}
    tables = [p for p in unknown if object_deposit(p) is None and DATA.fullmatch(p)]
    by_path |= {
        p: Object(compute_digest(data)) for p, data in zip(tables, read(tables), strict=True)
    }
    for path in filter(is_table, [*by_path]):
        beside = f"{path}.sha256"
        if beside in by_path and not _agree(by_path[path], by_path[beside]):
            data, line = read([path, beside])  # one was damaged on the way, or is damaged there
            by_path[path] = Object(compute_digest(data))
            by_path[beside] = text_object(line.decode(errors="replace"))
            if not _agree(by_path[path], by_path[beside]):
                raise DamagedError(
                    f"{path} at the target differs from the digest beside it. Run the same command"
                    f" again. If this error returns, delete {path} and {beside} there."
                )
    return whole(by_path)


def _agree(table: Object, beside: Object) -> bool:
    return (beside.text or "")[:64] == table.digest.sha256


def _sound_texts(paths: list[str], read: Callable[[list[str]], list[bytes]]) -> dict[str, str]:
    """Documents of a place, each compared with its own digest, or DamagedError.

    What is damaged is read once more. A damaged document of a deposit without commits is left out.
    """
    data = dict(zip(paths, read(paths), strict=True))
    doubtful = [path for path in paths if not is_sound(path, data[path].decode(errors="replace"))]
    data |= zip(doubtful, read(doubtful), strict=True)
    committed = {object_deposit(path) for path in paths if "/commits/" in path}
    for path in doubtful:
        if is_sound(path, data[path].decode(errors="replace")):
            continue
        if "/commits/" in path or object_deposit(path) in {None, *committed}:
            raise DamagedError(
                f"{path} differs from its own digest at the target, or was damaged on the way. Run"
                " the same command again. If this error returns, delete the object there."
            )
        del data[path]
    return {path: value.decode() for path, value in data.items()}


def is_sound(path: str, text: str) -> bool:
    """Whether a document agrees with the digest that it contains; others with their form."""
    if path.endswith(".sha256"):
        return bool(_SIDECAR.fullmatch(text))
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return False
    if "/commits/" in path:
        return verify_self_digest(text.encode(), document)
    if path in ("zarr.json", f"{object_deposit(path)}/zarr.json", f"{object_head(path)}/zarr.json"):
        return verify_self_digest(text.encode(), document, "attributes", "logitbank")
    return isinstance(document, dict) and document.get("zarr_format") == 3
