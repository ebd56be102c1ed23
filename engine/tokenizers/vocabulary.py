"""The texts of the entries of a vocabulary, as the table of a bank.

Decoding each token by itself is not enough: transformers gives a replacement character for bytes
that are not UTF-8, drops the space before a SentencePiece word, and undoes some spacing of
WordPiece.
"""

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import polars as pl

from logitbank.store.format.schema import TOKENS_SCHEMA

WORD_START = "▁"
_BYTE = re.compile(r"<0x([0-9A-F]{2})>")


def vocabulary(backend: Any, special_ids: Collection[int]) -> pl.DataFrame:
    """One row per entry of a `tokenizers.Tokenizer`, ascending, columns of `TOKENS_SCHEMA`.

    Bytes of byte-level vocabularies are read as UTF-8; `▁` of SentencePiece is a space, and its
    `<0xE2>` a byte. Entries of WordPiece stay as they are: `##ing` continues a word.
    """
    tokens = backend.get_added_tokens_decoder()
    added = {i: token.content for i, token in tokens.items()}
    special = {*special_ids, *(i for i, token in tokens.items() if token.special)}
    entry_bytes = entry_decoder(json.loads(backend.to_str()))
    entries = {i: token for token, i in backend.get_vocab().items()} | added
    rows = []
    for i, entry in sorted(entries.items()):
        raw = entry.encode() if i in added else entry_bytes(entry)
        text, is_text = _shown(raw)
        rows.append((i, text, is_text, i in special))
    return pl.DataFrame(rows, schema=TOKENS_SCHEMA, orient="row")


def _shown(raw: bytes) -> tuple[str, bool]:
    """Bytes as text, and whether they are text.

    >>> _shown(" é".encode()), _shown(b" \\xc3")
    ((' é', True), (' \\\\xc3', False))
    """
    text = raw.decode(errors="backslashreplace")
    return text, text.encode() == raw


def has_all_bytes(backend: Any, content: Mapping[str, Any]) -> bool:
    """Whether every byte that UTF-8 uses has an entry."""
    used = [*range(0xC0), *range(0xC2, 0xF5)]
    if "ByteLevel" in {part["type"] for part in _parts(content.get("decoder"))}:
        letters = {byte[0]: letter for letter, byte in _bytes_by_letter().items()}
        entries = [letters[byte] for byte in used]
    elif content["model"].get("byte_fallback"):
        entries = [f"<0x{byte:02X}>" for byte in used]
    else:
        return False
    return all(backend.token_to_id(entry) is not None for entry in entries)


def entry_decoder(content: Mapping[str, Any]) -> Callable[[str], bytes]:
    """The function that turns an entry of the tokenizer with this tokenizer.json into bytes."""
    kinds = {part["type"] for part in _parts(content.get("decoder"))}
    if "ByteLevel" in kinds:
        byte_of = _bytes_by_letter()
        return lambda entry: b"".join(byte_of.get(c, c.encode()) for c in entry)
    if "WordPiece" in kinds:
        return str.encode
    spaces = "Metaspace" in kinds or _replaces_word_start(content)
    as_bytes = bool(content["model"].get("byte_fallback"))

    def entry_bytes(entry: str) -> bytes:
        if as_bytes and (match := _BYTE.fullmatch(entry)):
            return bytes.fromhex(match[1])
        return (entry.replace(WORD_START, " ") if spaces else entry).encode()

    return entry_bytes


def _parts(decoder: Any) -> Iterator[dict[str, Any]]:
    """A decoder, or the decoders of a sequence."""
    if decoder is None:
        return
    if decoder["type"] == "Sequence":
        for inner in decoder["decoders"]:
            yield from _parts(inner)
    else:
        yield decoder


def _replaces_word_start(content: Mapping[str, Any]) -> bool:
    return any(
        part["type"] == "Replace" and part.get("pattern") == {"String": WORD_START}
        for part in _parts(content.get("decoder"))
    )


def _bytes_by_letter() -> dict[str, bytes]:
    """The bytes that GPT-2's byte-level alphabet stands for, by letter.

    Printable bytes of Latin-1 stand for themselves, the others for the letters from U+0100 on.
    Source: openai/gpt-2, `src/encoder.py`, `bytes_to_unicode`.
    """
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    letters = {chr(byte): bytes([byte]) for byte in plain}
    return letters | {chr(0x100 + n): bytes([byte]) for n, byte in enumerate(others)}
