"""Sentences of which every token is scored, or those of some words, alone and in pairs.

A causal model scores each token after the begin-of-text token (the end-of-text token where the
vocabulary has no other) and those before it, as lm-evaluation-harness does. A masked model scores
each under a mask of its own, with all others in place: the pseudo-log-likelihood of Salazar et al.
2020 (ACL, "Masked Language Model Scoring").
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from logitbank.engine.prompts.sequences import WorkUnit, check_begun, query_at
from logitbank.engine.prompts.values import MASK, Scalar, check_contents, check_id, quote
from logitbank.errors import PromptError

if TYPE_CHECKING:
    from logitbank.engine.tokenizers.tokenizer import Placed, Tokenizer

Span = tuple[int, int]
"""Characters of a text, from the first up to one that is no more among them, counted from 0."""


@dataclass(frozen=True, slots=True)
class SentenceTokens:
    """Every token of a text, or those of some spans of it; checked when it is built.

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

    def pieces(
        self, tokenizer: "Tokenizer", language: str, add_special_tokens: bool | None = None
    ) -> Iterator[WorkUnit]:
        yield from _pieces(
            self, self.text, tokenizer, language, add_special_tokens, spans=self.spans
        )


@dataclass(frozen=True, slots=True)
class SentencePair:
    """Two sentences that are compared, every token of each; checked when it is built.

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

    def pieces(
        self, tokenizer: "Tokenizer", language: str, add_special_tokens: bool | None = None
    ) -> Iterator[WorkUnit]:
        """The pieces of the one sentence, then those of the other."""
        (first, one), (second, other) = (
            (label, [*_pieces(self, text, tokenizer, language, add_special_tokens)])
            for label, text in self.sentences
        )
        if [(p.query, p.token) for p in one] == [(p.query, p.token) for p in other]:
            raise PromptError(
                f"{self}: its sentences are the same tokens in this vocabulary; give two that "
                "differ"
            )
        for label, pieces in ((first, one), (second, other)):
            yield from (piece._replace(option=label, answer=self.answer) for piece in pieces)


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
    if "score_kind" in prompt.columns:
        raise PromptError(f"{prompt}: column 'score_kind' is one of the bank's own; rename it")


def _pieces(
    prompt: SentenceTokens | SentencePair,
    text: str,
    tokenizer: "Tokenizer",
    language: str,
    add_special_tokens: bool | None,
    *,
    spans: Sequence[Span] = (),
) -> Iterator[WorkUnit]:
    mask, before = tokenizer.mask_id, tokenizer.before_id
    if mask is None:
        check_begun(prompt.id, add_special_tokens)
        add_special_tokens = False
    placed = tokenizer.encode_placed(text, add_special_tokens=add_special_tokens)
    unscored = frozenset() if mask is None else tokenizer.special_ids
    places = [place for place, token in enumerate(placed.ids) if token not in unscored]
    if not places:
        raise PromptError(f"{prompt}: {quote(text)} has no tokens in this vocabulary; change it")
    if spans:
        places = _within(prompt, text, spans, placed, places)
    texts, ids = _texts(text, placed, tokenizer), tuple(placed.ids)
    if mask is not None:
        for i in places:
            query = query_at((*ids[:i], mask, *ids[i + 1 :]), i, "mask", language=language)
            yield WorkUnit(query, ids[i], texts[i], "masked")
        return
    if before is None:
        raise PromptError(
            f"{prompt}: the tokenizer has no begin-of-text token, and none of the end of a text, "
            "for its first token to stand after; name one in tokenizer_config.json"
        )
    context = (before, *ids[: places[-1]])
    for i in places:
        yield WorkUnit(query_at(context, i, language=language), ids[i], texts[i], "sentence")


def _within(
    prompt: SentenceTokens | SentencePair,
    text: str,
    spans: Sequence[Span],
    placed: "Placed",
    places: Sequence[int],
) -> list[int]:
    """Those of the tokens that have a character of a span."""
    if placed.places is None:
        raise PromptError(
            f"{prompt} has spans, and this tokenizer does not say where in a text its tokens are; "
            "leave the spans out, or give the model a tokenizer.json"
        )
    where = placed.places
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
