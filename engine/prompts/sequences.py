"""Prompts that own many queries: target words, sentences, and words of several tokens.

Each names texts; `scored_tokens` turns them into queries with the one token that is scored at
each, once a tokenizer is known. Sources: METRICS §5 to §8.
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
    from logitbank.engine.tokenizers.tokenizer import Placed, Tokenizer
    from logitbank.store.format.schema import Head, Query

Kind = Literal["target", "given", "sentence", "masked", "nsp"]
"""How a token is scored: as part of a target, or of a sentence, after its context; after the text
before it; under a mask. `nsp` is a class of a next-sentence head."""
Span = tuple[int, int]
"""Characters of a text, from the first up to one that is no more among them, counted from 0."""
BLANK = "BLANK"
IS_NEXT, IS_OTHER = "next", "other"
"""Options of a next-sentence query."""


class ScoredToken(NamedTuple):
    """One scored token, or class of a next-sentence head."""

    query: "Query"
    token: int
    text: str
    """The token's text, for people."""
    kind: Kind
    option: str = "target"


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
        # Imported here: it brings polars and zarr (0.4 s), and a shell that completes the names of
        # prompt sets imports this module.
        from logitbank.store.format.schema import Query

        return Query(ids, position, head, segments, self.language)

    def following(self, ids: tuple[int, ...], start: int, kind: Kind) -> Iterator[ScoredToken]:
        """Each token from `start` on, read off the position before it; the last is not run."""
        texts = self.tokenizer.pieces(ids[start:])
        for place, text in enumerate(texts, start):
            yield ScoredToken(self.query(ids[:-1], place - 1), ids[place], text, kind)

    def under_masks(
        self, ids: tuple[int, ...], places: Iterable[int], texts: Sequence[str]
    ) -> Iterator[ScoredToken]:
        """Each token at these places under a mask of its own, with all others in place."""
        mask = self.tokenizer.mask_id
        assert mask is not None
        for i in places:
            query = self.query((*ids[:i], mask, *ids[i + 1 :]), i, "mask")
            yield ScoredToken(query, ids[i], texts[i], "masked")

    def refuse_without_opening(self, prompt: str) -> None:
        """Refuse to score a first token that nothing may stand before."""
        if self.add_special_tokens is False:
            raise PromptError(
                f"prompt {prompt!r}: its first token is scored after the begin-of-text token; "
                "leave out add_special_tokens=false"
            )


class SequencePrompt(Protocol):
    """A prompt of many queries."""

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
        """Further columns, kept for grouping."""
        ...

    def scored_tokens(self, encoder: Encoder) -> Iterator[ScoredToken]:
        """Its scored tokens in order, each with the query that it is read from."""
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
        """Context and target are encoded together; the target is what is beyond the context."""
        tokenizer, flag = encoder.tokenizer, encoder.add_special_tokens
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
        yield from encoder.following((*context, *target), len(context), self.kind)


@dataclass(frozen=True, slots=True)
class Sentence:
    """Every token of a text, for causal models: the first after the begin-of-text token alone,
    the others after the text before them, without that token."""

    id: str
    text: str
    columns: Mapping[str, Scalar] = field(default_factory=dict)
    begun: bool = False
    """Whether the begin-of-text token stands before the other tokens too."""

    def scored_tokens(self, encoder: Encoder) -> Iterator[ScoredToken]:
        encoder.refuse_without_opening(self.id)
        tokenizer = encoder.tokenizer
        ids = tuple(tokenizer.encode(self.text, add_special_tokens=False))
        begin = tokenizer.begin_id
        if begin is None or not ids:
            missing = "begin-of-text token" if ids else "tokens for its text"
            raise PromptError(f"prompt {self.id!r}: the tokenizer has no {missing}")
        if self.begun:
            ids = (begin, *ids)
        else:
            first = encoder.query((begin,), 0)
            yield ScoredToken(first, ids[0], tokenizer.pieces(ids[:1])[0], "sentence")
        yield from encoder.following(ids, 1, "sentence")


@dataclass(frozen=True, slots=True)
class MaskedWord:
    """Each token of `word` in the place of `BLANK`: the tokens before it, and one mask for it.

    The tokens after it are absent, not masked.
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

    def scored_tokens(self, encoder: Encoder) -> Iterator[ScoredToken]:
        tokenizer, flag = encoder.tokenizer, encoder.add_special_tokens
        if tokenizer.mask_token is None:
            raise PromptError(
                f"prompt {self.id!r}: it needs a mask, and this tokenizer has no mask token"
            )
        word = " " + self.word if self.leading_space else self.word
        tokens = tokenizer.encode(word, add_special_tokens=False)
        if not tokens:
            raise PromptError(f"prompt {self.id!r}: the word {self.word!r} has no tokens")
        for i, token in enumerate(tokens):
            text = self.context.replace(BLANK, tokenizer.decode(tokens[:i]) + MASK)
            filled = masked_text(text, tokenizer.mask_token)
            ids = tuple(tokenizer.encode(filled, add_special_tokens=flag))
            if tokenizer.mask_id not in ids:
                raise PromptError(f"prompt {self.id!r}: {text!r} holds no {MASK}")
            query = encoder.query(ids, ids.index(tokenizer.mask_id), "mask")
            yield ScoredToken(query, token, tokenizer.pieces([token])[0], "masked")


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

    def scored_tokens(self, encoder: Encoder) -> Iterator[ScoredToken]:
        tokenizer = encoder.tokenizer
        ids, other = (
            tuple(tokenizer.encode(text, add_special_tokens=encoder.add_special_tokens))
            for text in (self.text, self.other)
        )
        shared = _shared(ids, other)[0] if self.first else _shared(other, ids)[1]
        places = [i for i in shared if ids[i] not in tokenizer.special_ids]
        yield from encoder.under_masks(ids, places, tokenizer.pieces(ids))


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

    def scored_tokens(self, encoder: Encoder) -> Iterator[ScoredToken]:
        if encoder.add_special_tokens is False:
            raise PromptError(
                f"prompt {self.id!r}: a next-sentence head reads the first special token; leave out"
                " add_special_tokens=false"
            )
        ids, segments = encoder.tokenizer.encode_pair(self.context, self.sentence)
        query = encoder.query(tuple(ids), 0, "next_sentence", tuple(segments))
        yield ScoredToken(query, 0, "", "nsp", IS_NEXT)
        yield ScoredToken(query, 1, "", "nsp", IS_OTHER)


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

    def scored_tokens(self, encoder: Encoder) -> Iterator[ScoredToken]:
        sentence = Sentence(self.id, self.text, begun=self.begun)
        scored = sentence if encoder.tokenizer.mask_id is None else self.masked
        return scored.scored_tokens(encoder)


# Sentences and pairs of users' files, checked when they are built. A causal model scores each token
# after the begin-of-text token (the end-of-text token where the vocabulary has no other) and those
# before it, as lm-evaluation-harness does. A masked model scores each under a mask of its own, with
# all others in place: the pseudo-log-likelihood of Salazar et al. 2020 (ACL, "Masked Language Model
# Scoring").


@dataclass(frozen=True, slots=True)
class SentenceTokens:
    """Every token of a text, or those of some spans of it.

    Special tokens of a masked model, that of unknown words among them, are not scored.
    """

    id: str
    text: str
    columns: Mapping[str, Scalar] = field(default_factory=dict)
    spans: tuple[Span, ...] = ()
    """Only tokens that have a character of these are scored, each of them as a whole; every token
    where there are none."""

    def __post_init__(self) -> None:
        _check(self, self.text)
        for start, end in self.spans:
            if not 0 <= start < end <= len(self.text):
                what = "empty" if start == end else "outside its text"
                raise PromptError(
                    f"{self}: span [{start}, {end}] is {what}; give the first of the characters 0 "
                    f"to {len(self.text) - 1}, and the one after the last"
                )

    def __str__(self) -> str:
        return f"prompt {self.id!r}"

    def scored_tokens(self, encoder: Encoder) -> Iterator[ScoredToken]:
        return _every_token(self, self.text, encoder, spans=self.spans)


@dataclass(frozen=True, slots=True)
class SentencePair:
    """Two sentences that are compared, every token of each.

    They are two options of one prompt, so that what compares options compares them.
    """

    id: str
    sentences: tuple[tuple[str, str], tuple[str, str]]
    """The label and the text of each."""
    answer: str | None = None
    """Label of the one that should be the more probable, where one should."""
    columns: Mapping[str, Scalar] = field(default_factory=dict)

    def __post_init__(self) -> None:
        labels, texts = zip(*self.sentences, strict=True)
        _check(self, *texts)
        if not all(label.strip() for label in labels) or labels[0] == labels[1]:
            raise PromptError(
                f"{self}: its sentences are called {labels[0]!r} and {labels[1]!r}; give each a "
                "name of its own"
            )
        if self.answer is not None and self.answer not in labels:
            raise PromptError(
                f"{self}: answer {self.answer!r} is neither {labels[0]!r} nor {labels[1]!r}"
            )

    def __str__(self) -> str:
        return f"prompt {self.id!r}"

    @property
    def text(self) -> str:
        """Both sentences, on a line each."""
        return "\n".join(text for _, text in self.sentences)

    def scored_tokens(self, encoder: Encoder) -> Iterator[ScoredToken]:
        """The tokens of the one sentence, then those of the other."""
        one, other = ([*_every_token(self, text, encoder)] for _, text in self.sentences)
        if [(t.query, t.token) for t in one] == [(t.query, t.token) for t in other]:
            raise PromptError(
                f"{self}: its sentences are the same tokens in this vocabulary; give two that "
                "differ"
            )
        for (label, _), tokens in zip(self.sentences, (one, other), strict=True):
            yield from (token._replace(option=label) for token in tokens)


def _check(prompt: SentenceTokens | SentencePair, *texts: str) -> None:
    check_id(prompt.id, texts[0])
    for text in texts:
        if not text.strip():
            raise PromptError(f"{prompt} has an empty sentence; remove it or write it")
        if MASK in text:
            raise PromptError(
                f"{prompt}: its sentence has a {MASK}, and every token of a sentence is scored; "
                "write the word there, or make it a text with options"
            )
    check_contents(texts, prompt.columns, str(prompt))


def _every_token(
    prompt: SentenceTokens | SentencePair,
    text: str,
    encoder: Encoder,
    *,
    spans: Sequence[Span] = (),
) -> Iterator[ScoredToken]:
    """Every token of a text, or those of its spans."""
    tokenizer, flag = encoder.tokenizer, encoder.add_special_tokens
    mask = tokenizer.mask_id
    if mask is None:
        encoder.refuse_without_opening(prompt.id)
        flag = False
    placed = tokenizer.encode_placed(text, add_special_tokens=flag)
    unscored = frozenset() if mask is None else tokenizer.special_ids
    places = [place for place, token in enumerate(placed.ids) if token not in unscored]
    if not places:
        raise PromptError(f"{prompt}: {quote(text)} has no tokens in this vocabulary; change it")
    if spans:
        places = _within(prompt, text, spans, placed, places)
    texts, ids = _texts(text, placed, tokenizer), tuple(placed.ids)
    if mask is not None:
        yield from encoder.under_masks(ids, places, texts)
        return
    if tokenizer.before_id is None:
        raise PromptError(
            f"{prompt}: the tokenizer has no begin-of-text token, and none of the end of a text, "
            "for its first token to stand after; name one in tokenizer_config.json"
        )
    context = (tokenizer.before_id, *ids[: places[-1]])
    for i in places:
        yield ScoredToken(encoder.query(context, i), ids[i], texts[i], "sentence")


def _within(
    prompt: SentenceTokens | SentencePair,
    text: str,
    spans: Sequence[Span],
    placed: "Placed",
    places: Sequence[int],
) -> list[int]:
    """The tokens that have a character of a span."""
    where = placed.places
    if where is None:
        raise PromptError(
            f"{prompt}: it has spans, and this tokenizer does not say where in a text its tokens "
            "are; leave the spans out, or give the model a tokenizer.json"
        )
    chosen: set[int] = set()
    for start, end in spans:
        own = [i for i in places if where[i][0] < end and start < where[i][1]]
        if not own:
            raise PromptError(
                f"{prompt}: span [{start}, {end}] ({quote(text[start:end])}) is part of no token "
                "that is scored; widen it"
            )
        chosen.update(own)
    return sorted(chosen)


def _texts(text: str, placed: "Placed", tokenizer: "Tokenizer") -> list[str]:
    """What each token adds to the text, so that all of them together are the text."""
    if placed.places is None:
        return tokenizer.pieces(placed.ids)
    texts, done = [], 0
    for _, end in placed.places:
        texts.append(text[done : max(done, end)])
        done = max(done, end)
    return texts


# Contexts and continuations


def contexts(
    tokenizer: "Tokenizer", texts: Sequence[str], *, add_special_tokens: bool | None
) -> list[list[int]]:
    """Ids of texts that something continues, after the special tokens that begin a text.

    Special tokens that end a text, such as `[SEP]`, are left out, since a continuation would stand
    behind them. A text that begins with the same special tokens itself gets no second ones.
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
    """Ids of the second text of each pair, after the first one, whose context is in `before`.

    A continuation is what text and continuation, encoded together, have beyond the text, as in
    lm-evaluation-harness (`TemplateLM._encode_pair`). None where the tokens of the first text are
    not the first tokens of both together.
    """
    both = contexts(tokenizer, [a + b for a, b in pairs], add_special_tokens=add_special_tokens)
    return [
        tuple(ids[len(context) :]) if ids[: len(context)] == [*context] else None
        for ids, context in zip(both, before, strict=True)
    ]


def _shared(a: Sequence[int], b: Sequence[int]) -> tuple[list[int], list[int]]:
    """Places in `a` and in `b` of their longest blocks in common."""
    from difflib import SequenceMatcher

    blocks = SequenceMatcher(None, a, b, autojunk=False).get_matching_blocks()
    return (
        [block.a + i for block in blocks for i in range(block.size)],
        [block.b + i for block in blocks for i in range(block.size)],
    )
