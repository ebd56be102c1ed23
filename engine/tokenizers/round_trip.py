"""What of a text its tokens do not give back: characters that a vocabulary does not have.

Compared are the text as the tokenizer's normalizer writes it (which may lower-case it, or remove
accents) and the entries of its tokens, without spaces, which vocabularies treat differently.
"""

import json
import re
import unicodedata
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from logitbank.engine.tokenizers.vocabulary import WORD_START, entry_decoder, has_all_bytes

_SPACES = re.compile(f"[ {WORD_START}]+")
_WHITE_SPACE = re.compile(rf"[\s{WORD_START}]+")


class RoundTrip:
    """Compares texts with their tokens, for one `tokenizers.Tokenizer`.

    Attributes
    ----------
    loses_nothing
        Whether the tokens of every text give it back.
    unknown
        Tokens that stand for what is not in the vocabulary.
    """

    def __init__(
        self, backend: Any, content: Mapping[str, Any], unknown: tuple[int, str] | None
    ) -> None:
        """`content` is its tokenizer.json, and `unknown` the unknown token and its text."""
        model = content["model"]
        self._prefix: str = model.get("continuing_subword_prefix") or ""
        self._suffix: str = model.get("end_of_word_suffix") or ""
        self._added: dict[int, str] = {
            i: token.content for i, token in backend.get_added_tokens_decoder().items()
        }
        self._bytes_of: Callable[[str], bytes] = entry_decoder(content)
        self._entry: Callable[[int], str | None] = backend.id_to_token
        self._normalizer = backend.normalizer
        self._ignored = _WHITE_SPACE if _drops_line_ends(backend.pre_tokenizer) else _SPACES
        # The model may name another one than the tokenizer.
        own = model.get("unk_id") if model.get("unk_id") is not None else model.get("unk_token")
        own = backend.token_to_id(own) if isinstance(own, str) else own
        token, self._unknown_text = unknown or (None, "")
        self.unknown = frozenset(i for i in (token, own) if i is not None)
        self._known: dict[int, bytes] = {}
        removes = "Removed" in json.dumps(content.get("pre_tokenizer"))
        self._marks_lost = own is not None and not removes
        self.loses_nothing = not removes and has_all_bytes(backend, content)

    def lost(self, text: str, ids: Sequence[int]) -> str:
        """The characters of a text that its tokens do not have, each once; empty without any."""
        if self.loses_nothing or (self._marks_lost and self.unknown.isdisjoint(ids)):
            return ""
        # One that is written in the text is not lost.
        given = self._plain(text.replace(self._unknown_text, "") if self._unknown_text else text)
        joined = b"".join(map(self._entry_bytes, ids)).decode(errors="replace")
        if given == (found := self._plain(joined)):
            return ""
        missing, at = [], 0
        for character in given:  # what is left of a text is in its order
            if found[at : at + 1] == character:
                at += 1
            else:
                missing.append(character)
        return "".join(dict.fromkeys(missing))

    def _plain(self, text: str) -> str:
        if self._normalizer is not None:
            text = self._normalizer.normalize_str(text)
        plain = self._ignored.sub("", text)
        return plain if plain.isascii() else unicodedata.normalize("NFC", plain)

    def _entry_bytes(self, token: int) -> bytes:
        if (known := self._known.get(token)) is None:
            known = self._known[token] = self._read(token)
        return known

    def _read(self, token: int) -> bytes:
        if token in self.unknown:
            return b""
        if token in self._added:
            return self._added[token].encode()
        entry = self._entry(token) or ""
        if self._prefix and len(entry) > len(self._prefix):
            entry = entry.removeprefix(self._prefix)
        return self._bytes_of(entry.removesuffix(self._suffix))


def _drops_line_ends(pre_tokenizer: Any) -> bool:
    """Whether line ends only separate words, and are no part of them."""
    if pre_tokenizer is None:
        return False
    words = pre_tokenizer.pre_tokenize_str("a\nb")
    return sum(len(word.lstrip(WORD_START)) for word, _ in words) < 3


def unreachable_capitals(backend: Any, special: Collection[int]) -> list[str]:
    """Entries with capital letters, if the tokenizer lower-cases every text."""
    if backend.normalizer is None or "A" in backend.normalizer.normalize_str("A"):
        return []
    added = backend.get_added_tokens_decoder()
    return sorted(
        entry
        for entry, i in backend.get_vocab().items()
        if i not in special and i not in added and entry != entry.lower() and entry[:1] not in "[<"
    )
