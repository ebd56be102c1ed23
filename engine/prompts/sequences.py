"""Prompts that own many queries: target words, sentences, and words in pieces.

Each names texts; `pieces` turns them into queries with the one token that is scored at each, once
a tokenizer is known. Sources: METRICS §5 to §8.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from logitbank.engine.prompts.joined import contexts, continuations
from logitbank.engine.prompts.values import MASK, Scalar, masked_text
from logitbank.errors import PromptError

if TYPE_CHECKING:
    from logitbank.engine.tokenizers.tokenizer import Tokenizer
    from logitbank.store.format.schema import Head, Query

Kind = Literal["target", "given", "sentence", "masked", "nsp"]
"""How a token is scored: as part of a target, or of a sentence, after its context; after the text
before it; under a mask. `nsp` is a class of a next-sentence head."""


class WorkUnit(NamedTuple):
    """One scored token, or class of a next-sentence head."""

    query: "Query"
    token: int
    text: str
    """The token's text, for people."""
    kind: Kind
    option: str = "target"
    answer: str | None = None
    """The option that is right, where one of several is."""


class SequencePrompt(Protocol):
    """A prompt of many queries."""

    @property
    def id(self) -> str:
        """What tells it from the others of its set."""
        ...

    @property
    def text(self) -> str:
        """What it is about, for people."""
        ...

    @property
    def columns(self) -> Mapping[str, Scalar]:
        """Further columns, kept for grouping."""
        ...

    def pieces(
        self, tokenizer: "Tokenizer", language: str, add_special_tokens: bool | None
    ) -> Iterator[WorkUnit]:
        """Its scored tokens in order, each with the query that it is read from.

        Special tokens are put around a text as `PromptSet.add_special_tokens` says.
        """
        ...


@dataclass(frozen=True, slots=True)
class Continuation:
    """Every token of `target` after `context` and the target tokens before it."""

    id: str
    context: str
    target: str
    columns: Mapping[str, Scalar] = field(default_factory=dict)
    kind: Kind = "target"

    @property
    def text(self) -> str:
        return self.context + self.target

    def pieces(
        self, tokenizer: "Tokenizer", language: str, add_special_tokens: bool | None = None
    ) -> Iterator[WorkUnit]:
        """Context and target are encoded together; the target is what is beyond the context."""
        flag = add_special_tokens
        (context,) = contexts(tokenizer, [self.context], add_special_tokens=flag)
        pair = (self.context, self.target)
        (target,) = continuations(tokenizer, [pair], [context], add_special_tokens=flag)
        if target is None:
            raise PromptError(
                f"prompt {self.id!r}: the target {self.target!r} merges with its context: encoded "
                "together, no token ends where the context does. End the context without a space, "
                "and begin the target with it"
            )
        if not context or not target:
            raise PromptError(
                f"prompt {self.id!r}: context and target are {len(context)} and {len(target)} "
                "tokens; both need at least one"
            )
        if tokenizer.unknown and tokenizer.unknown.id in target:
            raise PromptError(
                f"prompt {self.id!r}: the target {self.target!r} is not in this vocabulary: the "
                "token of unknown words would be scored; use another model"
            )
        ids = (*context, *target)
        yield from _following(ids, range(len(context), len(ids)), tokenizer, language, self.kind)


@dataclass(frozen=True, slots=True)
class Sentence:
    """Every token of a text, for causal models: the first after the begin-of-text token alone,
    the others after the text before them, without that token."""

    id: str
    text: str
    columns: Mapping[str, Scalar] = field(default_factory=dict)
    begun: bool = False
    """Whether the begin-of-text token stands before the other tokens too."""

    def pieces(
        self, tokenizer: "Tokenizer", language: str, add_special_tokens: bool | None = None
    ) -> Iterator[WorkUnit]:
        check_begun(self.id, add_special_tokens)
        ids = tuple(tokenizer.encode(self.text, add_special_tokens=False))
        begin = tokenizer.begin_id
        if begin is None or not ids:
            missing = "begin-of-text token" if ids else "tokens for its text"
            raise PromptError(f"prompt {self.id!r}: the tokenizer has no {missing}")
        if self.begun:
            whole = (begin, *ids)
            yield from _following(whole, range(1, len(whole)), tokenizer, language, "sentence")
            return
        first = query_at((begin,), 0, language=language)
        yield WorkUnit(first, ids[0], tokenizer.pieces(ids[:1])[0], "sentence")
        yield from _following(ids, range(1, len(ids)), tokenizer, language, "sentence")


@dataclass(frozen=True, slots=True)
class MaskedWord:
    """Each piece of `word` in the place of `BLANK`: the pieces before it, and one mask for it.

    The pieces after it are absent, not masked.
    """

    id: str
    context: str
    """Text with `BLANK` where the word stands."""
    word: str
    columns: Mapping[str, Scalar] = field(default_factory=dict)
    leading_space: bool = False
    """Whether the word is encoded with a space before it."""

    @property
    def text(self) -> str:
        return self.context

    def pieces(
        self, tokenizer: "Tokenizer", language: str, add_special_tokens: bool | None = None
    ) -> Iterator[WorkUnit]:
        word = " " + self.word if self.leading_space else self.word
        tokens = tokenizer.encode(word, add_special_tokens=False)
        if not tokens:
            raise PromptError(f"prompt {self.id!r}: the word {self.word!r} has no tokens")
        for i, token in enumerate(tokens):
            before = tokenizer.decode(tokens[:i])
            text = self.context.replace(BLANK, before + MASK)
            ids, position = masked_ids(text, tokenizer, self.id, add_special_tokens)
            query = query_at(ids, position, "mask", language=language)
            yield WorkUnit(query, token, tokenizer.pieces([token])[0], "masked")


@dataclass(frozen=True, slots=True)
class MaskedTokens:
    """Each of some tokens of a text under its own mask, the others in place."""

    id: str
    text: str
    other: str
    """Text with which the scored tokens are shared; the others are not scored."""
    columns: Mapping[str, Scalar] = field(default_factory=dict)
    first: bool = True
    """Whether `text` is the first of the two when their common blocks are looked for: the search is
    not symmetric, and both sides of a pair must score the same tokens."""

    def pieces(
        self, tokenizer: "Tokenizer", language: str, add_special_tokens: bool | None = None
    ) -> Iterator[WorkUnit]:
        assert tokenizer.mask_id is not None
        ids, other = (
            tuple(tokenizer.encode(text, add_special_tokens=add_special_tokens))
            for text in (self.text, self.other)
        )
        shared = _shared(ids, other)[0] if self.first else _shared(other, ids)[1]
        special = tokenizer.special_ids
        for i in (i for i in shared if ids[i] not in special):
            masked = (*ids[:i], tokenizer.mask_id, *ids[i + 1 :])
            query = query_at(masked, i, "mask", language=language)
            yield WorkUnit(query, ids[i], tokenizer.pieces([ids[i]])[0], "masked")


@dataclass(frozen=True, slots=True)
class NextSentence:
    """Whether `sentence` follows `context`, by a next-sentence head: both classes' logits.

    Both, since near certainty the probability of the one would drown in the rounding of its logit.
    """

    id: str
    context: str
    sentence: str
    columns: Mapping[str, Scalar] = field(default_factory=dict)

    @property
    def text(self) -> str:
        return f"{self.context} {self.sentence}"

    def pieces(
        self, tokenizer: "Tokenizer", language: str, add_special_tokens: bool | None = None
    ) -> Iterator[WorkUnit]:
        if add_special_tokens is False:
            raise PromptError(
                f"prompt {self.id!r}: a next-sentence head reads the first special token; leave out"
                " add_special_tokens=false"
            )
        ids, segments = tokenizer.encode_pair(self.context, self.sentence)
        query = query_at(tuple(ids), 0, "next_sentence", tuple(segments), language)
        yield WorkUnit(query, 0, "", "nsp", IS_NEXT)
        yield WorkUnit(query, 1, "", "nsp", IS_OTHER)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A sentence that a masked model and a causal one score in their own ways.

    `masked` says how where the tokenizer has a mask; otherwise it is a `Sentence`.
    """

    id: str
    text: str
    masked: MaskedWord | MaskedTokens
    columns: Mapping[str, Scalar] = field(default_factory=dict)
    begun: bool = False
    """Whether the begin-of-text token stands before the others, as in a `Sentence`."""

    def pieces(
        self, tokenizer: "Tokenizer", language: str, add_special_tokens: bool | None = None
    ) -> Iterator[WorkUnit]:
        if tokenizer.mask_id is not None:
            return self.masked.pieces(tokenizer, language, add_special_tokens)
        sentence = Sentence(self.id, self.text, begun=self.begun)
        return sentence.pieces(tokenizer, language, add_special_tokens)


BLANK = "BLANK"
IS_NEXT, IS_OTHER = "next", "other"
"""Options of a next-sentence query."""


def masked_ids(
    text: str, tokenizer: "Tokenizer", name: str, add_special_tokens: bool | None
) -> tuple[tuple[int, ...], int]:
    """Ids of a text with a `[MASK]`, and where the first is.

    Raises
    ------
    PromptError
        The tokenizer has no mask, or the text holds none.
    """
    if tokenizer.mask_token is None:
        raise PromptError(f"prompt {name!r} needs a mask, and this tokenizer has no mask token")
    filled = masked_text(text, tokenizer.mask_token)
    ids = tuple(tokenizer.encode(filled, add_special_tokens=add_special_tokens))
    for place, token in enumerate(ids):
        if token == tokenizer.mask_id:
            return ids, place
    raise PromptError(f"prompt {name!r}: {text!r} holds no {MASK}")


def check_begun(name: str, add_special_tokens: bool | None) -> None:
    """Refuse a sentence that nothing may stand before, where its first token is scored."""
    if add_special_tokens is False:
        raise PromptError(
            f"prompt {name!r}: its first token is scored after the begin-of-text token; leave out "
            "add_special_tokens=false"
        )


def query_at(
    ids: tuple[int, ...],
    position: int,
    head: "Head" = "next_token",
    segments: tuple[int, ...] = (),
    language: str = "",
) -> "Query":
    """The query at a position of these ids."""
    # Imported here: it brings polars and zarr (0.4 s), and a shell that completes the names of
    # prompt sets imports this module.
    from logitbank.store.format.schema import Query

    return Query(ids, position, head, segments, language)


def _following(
    ids: tuple[int, ...], tokens: range, tokenizer: "Tokenizer", language: str, kind: Kind
) -> Iterator[WorkUnit]:
    """Each of the tokens at these places, read off the position before it; the last is not run."""
    texts = tokenizer.pieces([ids[t] for t in tokens])
    for place, text in zip(tokens, texts, strict=True):
        yield WorkUnit(query_at(ids[:-1], place - 1, language=language), ids[place], text, kind)


def _shared(a: Sequence[int], b: Sequence[int]) -> tuple[list[int], list[int]]:
    """Places in `a` and in `b` of their longest blocks in common."""
    from difflib import SequenceMatcher

    blocks = SequenceMatcher(None, a, b, autojunk=False).get_matching_blocks()
    return (
        [block.a + i for block in blocks for i in range(block.size)],
        [block.b + i for block in blocks for i in range(block.size)],
    )
