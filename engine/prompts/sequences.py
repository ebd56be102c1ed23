"""Prompts with many queries: target words, sentences, and words of several tokens.

Each names texts; `scored_tokens` turns them into queries with the one token that is scored at each,
once a tokenizer is known. Sources: METRICS §5 to §8.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from logitbank.engine.prompts.values import (
    MASK,
    Scalar,
    check_contents,
    check_id,
    masked_text,
    quote,
)
from logitbank.errors import PromptError

if TYPE_CHECKING:
    from logitbank.engine.tokenizers.tokenizer import Tokenizer
    from logitbank.store.format.schema import Head, Query

Kind = Literal["target", "given", "sentence", "masked", "nsp"]
"""How a token is scored: as part of a target, or of a sentence, after its context; after the text
before it; under a mask. `nsp` is a class of a next-sentence head."""
BLANK = "BLANK"
IS_NEXT, IS_OTHER = "next", "other"
"""Options of a next-sentence query."""
_NAMED = 3


class ScoredToken(NamedTuple):
    """One scored token, or class of a next-sentence head."""

    query: "Query"
    token: int | None
    """Null if nothing is scored at the query."""
    text: str | None
    """The token's text, for people."""
    kind: Kind
    option: str | None = "target"


class Encoder(NamedTuple):
    """A tokenizer, and how the texts of a prompt set are encoded with it."""

    tokenizer: "Tokenizer"
    language: str = ""
    """Language adapter, or empty."""
    add_special_tokens: bool | None = None
    """As `PromptSet.add_special_tokens`."""

    def query(
        self,
        ids: tuple[int, ...],
        position: int,
        head: "Head" = "next_token",
        segments: tuple[int, ...] = (),
    ) -> "Query":
        """The query at a position of these ids."""
        # Imported here: it brings polars and zarr (0.4 s), which shell completion does not need.
        from logitbank.store.format.schema import Query

        return Query(ids, position, head, segments, self.language)

    def following(self, ids: tuple[int, ...], start: int, kind: Kind) -> Iterator[ScoredToken]:
        """Each token from `start` on, scored at the position before it; the last is not run."""
        texts = self.tokenizer.decode_each(ids[start:])
        for position, text in enumerate(texts, start):
            yield ScoredToken(self.query(ids[:-1], position - 1), ids[position], text, kind)

    def under_masks(
        self, ids: tuple[int, ...], positions: Iterable[int], texts: Sequence[str]
    ) -> Iterator[ScoredToken]:
        """Each token at these positions under a mask, with all others in place."""
        mask = self.tokenizer.mask_id
        assert mask is not None
        for i in positions:
            query = self.query((*ids[:i], mask, *ids[i + 1 :]), i, "mask")
            yield ScoredToken(query, ids[i], texts[i], "masked")

    def begin_and_ids(self, text: str) -> tuple[int, tuple[int, ...]]:
        """The begin-of-text token, and the ids of a text without special tokens."""
        self.require_begin_token()
        begin = self.tokenizer.begin_id
        ids = tuple(self.tokenizer.encode(text, add_special_tokens=False))
        if begin is None or not ids:
            missing = "begin-of-text token" if ids else "tokens for its text"
            raise PromptError(f"the tokenizer has no {missing}")
        return begin, ids

    def require_begin_token(self) -> None:
        """Refuse to score a first token that follows nothing."""
        if self.add_special_tokens is False:
            raise PromptError(
                "its first token is scored after the begin-of-text token; remove "
                "add_special_tokens=false"
            )


class SequencePrompt(Protocol):
    """A prompt with many queries."""

    @property
    def id(self) -> str:
        """Its name in its set."""
        ...

    @property
    def text(self) -> str:
        """The text that is scored, for people."""
        ...

    @property
    def columns(self) -> Mapping[str, Scalar]:
        """Metadata columns, for grouping."""
        ...

    def scored_tokens(self, encoder: Encoder) -> Iterator[ScoredToken]:
        """Its scored tokens in order, each with its query. Raises PromptError without its id."""
        ...


# Prompts of known sets


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

    def scored_tokens(self, encoder: Encoder) -> Iterator[ScoredToken]:
        """Context and target are encoded together; the target is what follows the context."""
        tokenizer, flag = encoder.tokenizer, encoder.add_special_tokens
        (context,) = contexts(tokenizer, [self.context], add_special_tokens=flag)
        pair = (self.context, self.target)
        (target,) = continuations(tokenizer, [pair], [context], add_special_tokens=flag)
        if target is None:
            raise PromptError(
                f"the target {self.target!r} merges with its context: encoded together, no token "
                "ends where the context does; end the context without a space, and begin the "
                "target with it"
            )
        if not context or not target:
            raise PromptError(
                f"context and target have {len(context)} and {len(target)} tokens; both need at "
                "least one"
            )
        if tokenizer.unknown and tokenizer.unknown.id in target:
            raise PromptError(f"the target {self.target!r} is not in the vocabulary of this model")
        yield from encoder.following((*context, *target), len(context), self.kind)


@dataclass(frozen=True, slots=True)
class BlankWord:
    """A sentence with `word` in the place of `BLANK`.

    A masked model scores each token of the word: the tokens before it are in place, one mask stands
    for it, and the tokens after it are absent, not masked. A causal model scores every token of the
    text: the first one after the begin-of-text token alone, the others after the text before them.
    """

    id: str
    text: str
    """The sentence."""
    context: str
    """The sentence with `BLANK` where the word stands."""
    word: str | None
    """None if the sentence does not show it: a masked model then scores no token, and the prompt
    counts as missing."""
    columns: Mapping[str, Scalar] = field(default_factory=dict)
    leading_space: bool = False
    """Whether a masked model's tokenizer encodes the word with a space before it."""

    def scored_tokens(self, encoder: Encoder) -> Iterator[ScoredToken]:
        tokenizer = encoder.tokenizer
        if tokenizer.mask_id is None:
            begin, ids = encoder.begin_and_ids(self.text)
            first = encoder.query((begin,), 0)
            yield ScoredToken(first, ids[0], tokenizer.decode_each(ids[:1])[0], "sentence")
            yield from encoder.following(ids, 1, "sentence")
            return
        if self.word is None:
            yield ScoredToken(self._query(encoder, ""), None, None, "masked", None)
            return
        word = " " + self.word if self.leading_space else self.word
        tokens = tokenizer.encode(word, add_special_tokens=False)
        if not tokens:
            raise PromptError(f"the word {self.word!r} has no tokens")
        for i, (token, text) in enumerate(zip(tokens, tokenizer.decode_each(tokens), strict=True)):
            yield ScoredToken(
                self._query(encoder, tokenizer.decode(tokens[:i])), token, text, "masked"
            )

    def _query(self, encoder: Encoder, before: str) -> "Query":
        """The query of a mask in the place of `BLANK`, after the text of earlier tokens."""
        tokenizer = encoder.tokenizer
        text = self.context.replace(BLANK, before + MASK)
        filled = masked_text(text, tokenizer.mask_token)
        ids = tuple(tokenizer.encode(filled, add_special_tokens=encoder.add_special_tokens))
        if tokenizer.mask_id not in ids:
            raise PromptError(f"{text!r} has no {MASK}")
        return encoder.query(ids, ids.index(tokenizer.mask_id), "mask")


def without_word(name: str, prompts: Sequence[SequencePrompt]) -> list[str]:
    """A note about the candidates of a set that no masked model scores, if there are some."""
    ids = [prompt.id for prompt in prompts if isinstance(prompt, BlankWord) and prompt.word is None]
    if not ids:
        return []
    more = f" and {len(ids) - _NAMED:,} more" if len(ids) > _NAMED else ""
    return [
        f"{name}: masked models leave out {len(ids):,} of {len(prompts):,} candidates, whose words "
        f"are unknown: the sentence differs from its context around {BLANK} "
        f"({', '.join(ids[:_NAMED])}{more}). Give each its word in a field word."
    ]


@dataclass(frozen=True, slots=True)
class SharedTokens:
    """One of two sentences that differ in some tokens.

    A masked model scores each token that both share, under its own mask, the others in place. A
    causal model scores every token after the begin-of-text token and the text before it.
    """

    id: str
    text: str
    other: str
    """The sentence that shares the tokens."""
    columns: Mapping[str, Scalar] = field(default_factory=dict)
    first: bool = True
    """Whether `text` is the first of the two in the search for common blocks. The search is not
    symmetric, and both sides of a pair must score the same tokens."""

    def scored_tokens(self, encoder: Encoder) -> Iterator[ScoredToken]:
        from difflib import SequenceMatcher

        tokenizer, flag = encoder.tokenizer, encoder.add_special_tokens
        if tokenizer.mask_id is None:
            begin, ids = encoder.begin_and_ids(self.text)
            yield from encoder.following((begin, *ids), 1, "sentence")
            return
        ids, other = (
            tuple(tokenizer.encode(text, add_special_tokens=flag))
            for text in (self.text, self.other)
        )
        texts = (ids, other) if self.first else (other, ids)
        blocks = SequenceMatcher(None, *texts, autojunk=False).get_matching_blocks()
        starts = [(block.a if self.first else block.b, block.size) for block in blocks]
        shared = [start + i for start, size in starts for i in range(size)]
        positions = [i for i in shared if ids[i] not in tokenizer.special_ids]
        yield from encoder.under_masks(ids, positions, tokenizer.decode_each(ids))


@dataclass(frozen=True, slots=True)
class NextSentence:
    """Whether `sentence` follows `context`, by a next-sentence head: the logits of both classes.

    Both, because near certainty one probability would vanish in the rounding of its logit.
    """

    id: str
    context: str
    sentence: str
    columns: Mapping[str, Scalar] = field(default_factory=dict)

    @property
    def text(self) -> str:
        return f"{self.context} {self.sentence}"

    def scored_tokens(self, encoder: Encoder) -> Iterator[ScoredToken]:
        if encoder.add_special_tokens is False:
            raise PromptError(
                "a next-sentence head reads the first special token; remove "
                "add_special_tokens=false"
            )
        ids, segments = encoder.tokenizer.encode_pair(self.context, self.sentence)
        query = encoder.query(tuple(ids), 0, "next_sentence", tuple(segments))
        yield ScoredToken(query, 0, "", "nsp", IS_NEXT)
        yield ScoredToken(query, 1, "", "nsp", IS_OTHER)


# Sentences of prompt files


@dataclass(frozen=True, slots=True)
class SentenceTokens:
    """Every token of a text; validated when it is built.

    A causal model scores each token after the begin-of-text token (or the end-of-text token without
    one) and the tokens before it, as lm-evaluation-harness does. A masked model scores each under a
    mask of its own, with all others in place: the pseudo-log-likelihood of Salazar et al. 2020
    (ACL, "Masked Language Model Scoring"). Its special tokens, including the unknown token, are not
    scored.
    """

    id: str
    text: str
    columns: Mapping[str, Scalar] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_id(self.id, self.text)
        check_contents([self.text], self.columns, str(self))
        if not self.text.strip():
            raise PromptError(f"{self} has an empty sentence")
        if MASK in self.text:
            raise PromptError(f"{self}: sentences have no {MASK}; use a text with options")

    def __str__(self) -> str:
        return f"prompt {self.id!r}"

    def scored_tokens(self, encoder: Encoder) -> Iterator[ScoredToken]:
        tokenizer, flag = encoder.tokenizer, encoder.add_special_tokens
        is_masked = tokenizer.mask_id is not None
        if not is_masked:
            encoder.require_begin_token()
            flag = False
        encoded = tokenizer.encode_with_spans(self.text, add_special_tokens=flag)
        unscored = tokenizer.special_ids if is_masked else ()
        positions = [i for i, token in enumerate(encoded.ids) if token not in unscored]
        if not positions:
            raise PromptError(f"{quote(self.text)} has no tokens in this vocabulary")
        texts, ids = _token_texts(self.text, encoded.spans), tuple(encoded.ids)
        if is_masked:
            yield from encoder.under_masks(ids, positions, texts)
            return
        if tokenizer.before_id is None:
            raise PromptError(
                "the tokenizer has neither a begin-of-text nor an end-of-text token for its first "
                "token to follow; name one in tokenizer_config.json"
            )
        context = (tokenizer.before_id, *ids[:-1])
        for i, token in enumerate(ids):
            yield ScoredToken(encoder.query(context, i), token, texts[i], "sentence")


def _token_texts(text: str, spans: Iterable[tuple[int, int]]) -> list[str]:
    """What each token adds to the text, so that all of them together are the text."""
    texts, done = [], 0
    for _, end in spans:
        texts.append(text[done : max(done, end)])
        done = max(done, end)
    return texts


# Contexts and continuations


def contexts(
    tokenizer: "Tokenizer", texts: Sequence[str], *, add_special_tokens: bool | None
) -> list[list[int]]:
    """Ids of texts that are continued, after the special tokens that begin a text.

    Special tokens that end a text, such as `[SEP]`, are left out, because a continuation would
    follow them. A text that begins with the same special tokens gets no second ones.
    """
    plain = tokenizer.encode_many(texts, add_special_tokens=False)
    opening = [] if add_special_tokens is False else tokenizer.opening
    return [ids if ids[: len(opening)] == opening else [*opening, *ids] for ids in plain]


def continuations(
    tokenizer: "Tokenizer",
    pairs: Sequence[tuple[str, str]],
    before: Sequence[Sequence[int]],
    *,
    add_special_tokens: bool | None,
) -> list[tuple[int, ...] | None]:
    """Ids of the second text of each pair, after the first, whose context is in `before`.

    A continuation is what text and continuation, encoded together, have beyond the text, as in
    lm-evaluation-harness (`TemplateLM._encode_pair`). None if the tokens of the first text are not
    the first tokens of both together.
    """
    both = contexts(tokenizer, [a + b for a, b in pairs], add_special_tokens=add_special_tokens)
    return [
        tuple(ids[len(context) :]) if ids[: len(context)] == [*context] else None
        for ids, context in zip(both, before, strict=True)
    ]
