"""Characters that mislead: unseen ones, look-alikes, and traces of another format or encoding."""

import html
import re
import unicodedata
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from logitbank.engine.prompts.values import quote

_UNSEEN = ("Cc", "Cf", "Zl", "Zp", "Zs")
"""Unicode categories of characters that nobody sees: controls, formats, separators and spaces."""
_NOT_PLAIN = re.compile(r"[^\x20-\x7e\n\t]")
_LOST = "\ufffd"
_BLANK = "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0"
"""Other characters without a shape: fillers, blanks and joiners."""
_SELECTORS = ((0xFE00, 0xFE0F), (0xE0100, 0xE01EF))
_EAST_ASIAN = (
    (0x2E80, 0x312F),
    (0x3190, 0xA4CF),
    (0xF900, 0xFAFF),
    (0xFF00, 0xFFEF),
    (0x20000, 0x3FFFF),
)
_UNSPACED = (*_EAST_ASIAN, (0x0E00, 0x109F), (0x1780, 0x17FF), (0x19E0, 0x19FF), (0xA980, 0xA9DF))
"""Scripts without spaces between words: Chinese, Japanese, Thai, Lao, Tibetan, Burmese, Khmer …"""
_JOINED = ((0x0600, 0x0DFF), *_UNSPACED[5:], (0x1800, 0x1CFF), (0xA800, 0xABFF), (0xFB50, 0xFEFE))
"""Scripts in which joiners are part of the spelling: Arabic, Indic, Mongolian …"""
_RIGHT_TO_LEFT = ((0x0590, 0x08FF), (0xFB1D, 0xFDFF), (0xFE70, 0xFEFE), (0x10800, 0x10FFF))
_SPACED = ("LATIN", "CYRILLIC", "GREEK", "ARMENIAN", "GEORGIAN", "DIGIT")
_LIKE_LATIN = frozenset("аеорсухіјѕԁһԛԝьАВЕКМНОРСТУХІЈЅԜ" + "οανρυικΑΒΕΖΗΙΚΜΝΟΡΤΥΧ")
"""Cyrillic and Greek letters that look like Latin ones."""
_BROKEN = re.compile(
    r"\\r\\n|\\n(?!(abla|atural|e|eq|eg|ew\w*|exists|i|mid|oindent|ot\w*|u)\b)|\\[rt](?![a-z])"
)
r"""A written `\n`, and not a command of LaTeX such as `\nu`."""
_ENTITY = re.compile(r"&(#\d+|#[xX][0-9a-fA-F]+|[A-Za-z]\w*);")
_CONTINUED = re.escape(bytes(range(0x80, 0xC0)).decode("cp1252", "ignore")) + "\x81\x8d\x8f\x90\x9d"
_MOJIBAKE = re.compile(
    f"[\xc2\xc3][{_CONTINUED}]|([\xc4-\xdf][{_CONTINUED}]){{2}}|"
    f"[\xe0-\xef][{_CONTINUED}]{{2}}|[\xf0-\xf4][{_CONTINUED}]{{3}}"
)


class Odd(NamedTuple):
    """A likely mistake in the characters of a text."""

    kind: str
    message: str
    """A predicate, for a warning."""


def odd_characters(text: str, context: str = "") -> Iterator[Odd]:
    """Likely mistakes in the characters of a text, the first of each kind.

    `context` is the text that an option continues.

    >>> [odd.kind for odd in odd_characters("he\\u200b caf\\xc3\\xa9 &amp;")]
    ['unseen \\u200b', 'mojibake', 'entity']
    """
    if not text.isascii():
        yield from _unseen(text)
        yield from _look_alikes(text, context)
        if (found := _MOJIBAKE.search(text)) and (meant := _repaired(found[0])):
            reason = f"{quote(meant)} in a wrong encoding. Correct it, and save the file as UTF-8"
            yield Odd("mojibake", f"contains {quote(found[0])}, which is {reason}")
        if _LOST in text:
            yield Odd("lost", f"contains {named(_LOST)} instead of a character; correct it")
    elif unseen := {*_NOT_PLAIN.findall(text)}:
        yield from _unseen("".join(unseen))
    if "\\" in text and (found := _BROKEN.search(text)):
        meant = "a tab" if found[0].endswith("t") else "a line end"
        remedy = f"not as {meant}; write {meant} itself, in CSV in a quoted cell"
        yield Odd("escape", f"contains {found[0]} as letters, {remedy}")
    if "&" in text and (found := _ENTITY.search(text)) and html.unescape(found[0]) != found[0]:
        meant = quote(html.unescape(found[0]))
        yield Odd("entity", f"contains {found[0]}, which is HTML for {meant}; write that")


def _repaired(found: str) -> str:
    """The text that was read in a wrong encoding; empty if it was not."""
    raw = b"".join(bytes([ord(c)]) if ord(c) < 0x100 else c.encode("cp1252") for c in found)
    return raw.decode(errors="ignore")


def _unseen(text: str) -> Iterator[Odd]:
    """Characters that nobody sees, if the script does not need them where they are."""
    for character in sorted({c for c in _NOT_PLAIN.findall(text) if _is_unseen(c)}):
        places = [i for i, c in enumerate(text) if c == character]
        if all(_is_needed(text, i) for i in places):
            continue
        what = "which nobody sees; remove it"
        if unicodedata.category(character) == "Zs":
            what = "which looks like a space; write a space, unless the text is published so"
        yield Odd(f"unseen {character}", f"contains {named(character)}, {what}")


@cache
def _is_unseen(character: str) -> bool:
    is_selector = _is_in(character, _SELECTORS)
    return unicodedata.category(character) in _UNSEEN or character in _BLANK or is_selector


def _is_needed(text: str, at: int) -> bool:
    """Whether an unseen character is part of the spelling at its place."""
    character, before, after = text[at], text[at - 1 : at], text[at + 1 : at + 2]
    match character:
        case "\u200d" | "\u200c":
            joins = character == "\u200d" and _is_symbol(before) and _is_symbol(after)
            return joins or _is_in(before, _JOINED) or _is_in(after, _JOINED)
        case "\u3000":
            return _is_in(before, _EAST_ASIAN) or _is_in(after, _EAST_ASIAN)
        case "\u200b":
            return _is_in(before, _UNSPACED) or _is_in(after, _UNSPACED)
        case "\xa0" | "\u202f":  # French punctuation, and numbers with units
            return after in (*";:!?»%€",) or before == "«" or before.isdigit()
        case "\u2800":
            return any("\u2800" < c <= "\u28ff" for c in text)
        case "\u034f":
            return bool(before) and unicodedata.combining(before) > 0
        case "\u115f" | "\u1160" | "\u3164" | "\uffa0":
            return any(_script(c) == "HANGUL" for c in (before, after) if c and c not in _BLANK)
    if _is_in(character, ((0x200E, 0x200F), (0x061C, 0x061C), (0x202A, 0x202E), (0x2066, 0x2069))):
        return any(_is_in(c, _RIGHT_TO_LEFT) for c in text if c != character)
    if _is_in(character, ((0xE0020, 0xE007F),)):  # flags
        return "\U0001f3f4" in text[:at]
    if _is_in(character, _SELECTORS):
        return _is_symbol(before) or after == "\u20e3" or _is_in(before, _EAST_ASIAN)
    return _is_in(before, _JOINED)  # Mongolian and Khmer


def _is_symbol(character: str) -> bool:
    """Whether a character is an emoji or another symbol, or part of one."""
    is_symbol = character > "\x7f" and unicodedata.category(character)[0] in "SP"
    return is_symbol or (bool(character) and _is_in(character, _SELECTORS))


def _is_in(character: str, ranges: tuple[tuple[int, int], ...]) -> bool:
    return character != "" and any(first <= ord(character) <= last for first, last in ranges)


@cache
def _script(character: str) -> str:
    """The first word of a character's name, which is its script if it is a letter."""
    return unicodedata.name(character, "").partition(" ")[0]


def _look_alikes(text: str, context: str) -> Iterator[Odd]:
    """Letters of other scripts, of other shapes or in several characters, by the first of each."""
    is_latin = any(c.isascii() and c.isalpha() for c in context + text)
    is_cyrillic = any(_script(c) == "CYRILLIC" and c not in _LIKE_LATIN for c in context + text)
    for word in re.findall(r"[^\W\d_]+", text):
        if word.isascii():
            continue
        scripts = {_script(c) for c in word}
        odd = [
            c
            for c in word
            if _script(c) in ("CYRILLIC", "ARMENIAN", "CHEROKEE")
            or (_script(c) == "GREEK" and c in _LIKE_LATIN)
        ]
        whole = is_latin and not is_cyrillic and all(c in _LIKE_LATIN for c in word)
        if odd and ("LATIN" in scripts or (whole and scripts == {"CYRILLIC"})):
            letter = f"{named(odd[0])}, which looks like a Latin letter"
            yield Odd(
                "look-alike", f"contains {quote(word)} with {letter}; use one script in a word"
            )
            break
    if not any(_is_in(c, _EAST_ASIAN[:2]) for c in context + text):
        for character in text:
            if not character.isascii() and (plain := _plain_shape(character)):
                yield Odd("shape", f"contains {named(character)}, not {quote(plain)}; write that")
                break
    found = re.search("[A-Za-zΑ-ωА-я][\u0300-\u036f]", text)
    if found and len(composed := unicodedata.normalize("NFC", found[0])) == 1:
        accent = f"{quote(composed)} as two characters, the second {named(found[0][1])}"
        yield Odd("accent", f"contains {accent}; write one character, as most texts do")


@cache
def _plain_shape(character: str) -> str:
    """The ASCII letter or digit of which a character is another shape; empty without one."""
    plain = unicodedata.normalize("NFKC", character)
    shapes = ("FULLWIDTH", "MATHEMATICAL", "SCRIPT", "DOUBLE-STRUCK", "BLACK-LETTER")
    is_shape = plain.isascii() and plain.isalnum() and _script(character) in shapes
    return plain if is_shape else ""


def needs_space(before: str, after: str) -> bool:
    """Whether a space is usual between two characters of which the second begins a word."""
    return after.isalnum() and _script(after) in _SPACED and not _is_in(before, _UNSPACED)


def named(character: str) -> str:
    """A character for messages.

    >>> named(" "), named(chr(10)), named(chr(0xA0))
    ('U+0020 SPACE', 'U+000A LINE FEED', 'U+00A0 NO-BREAK SPACE')
    """
    names = {"\t": "TAB", "\n": "LINE FEED", "\r": "CARRIAGE RETURN", "\x85": "NEXT LINE"}
    name = names.get(character) or unicodedata.name(character, "CONTROL CHARACTER")
    return f"U+{ord(character):04X} {name}"
