"""Prompts under one name: of one query each, or of many."""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from logitbank.engine.doing import each
from logitbank.engine.prompts.sequences import Encoder, NextSentence, SequencePrompt
from logitbank.engine.prompts.values import Prompt
from logitbank.errors import PromptError
from logitbank.store.format.limits import check_name

if TYPE_CHECKING:
    from logitbank.engine.prompts.tokenize import Encoded, TokenizedPrompts
    from logitbank.engine.tokenizers.tokenizer import Tokenizer
    from logitbank.store.format.schema import Query


@dataclass(frozen=True, slots=True)
class PromptSet:
    """Prompts that are deposited and analysed under one name."""

    name: str
    prompts: tuple[Prompt, ...]
    add_special_tokens: bool | None = None
    """Whether special tokens are put around each text; None leaves it to the tokenizer. None of
    those that end a text stands before an option."""
    first_token: bool = False
    """Whether an option of several tokens is represented by its first."""
    whole_options: bool = False
    """Whether an option of several tokens is scored by all of them, each after those before it;
    first tokens, where they are allowed, are scored alone. An option under a mask is one token."""
    separate_options: bool = False
    """Whether options are encoded apart from their text. Otherwise an option is what text and
    option, encoded together, have beyond the text, as in lm-evaluation-harness; one that merges
    with its text is an error."""
    drop_split: bool = False
    """Whether a prompt is left out where an option, and no optional one, is not one token."""
    language: str = ""
    """Language adapter that its texts go through, for models that have such; else empty."""

    @property
    def next_sentence(self) -> bool:
        """Whether the set needs a model with a next-sentence head: never."""
        return False

    def __post_init__(self) -> None:
        _check(self.name, ((str(p), (p.id, p.order_seed)) for p in self.prompts))

    def tokenize(self, tokenizer: "Tokenizer") -> "TokenizedPrompts":
        """Turn prompts into distinct queries and the table that points at them.

        The query of a prompt is its mask, or the next token after its last one where it has none.
        An option is encoded together with the text, as evaluation harnesses do, unless the set has
        `separate_options`; under a mask it is encoded by itself. It is one token, or the first of
        several where the set allows that; where the set allows whole options, it has a row per
        token. Before that, what the set allows to be left out is left out. `notes` has this and
        likely mistakes of the author.

        Raises
        ------
        PromptError
            Texts without tokens, a mask that the tokenizer does not have, options of several tokens
            where one is needed or that merge with the text, two options with the same tokens, or a
            column with values of different kinds: each once, all of them together.
        """
        # Imported here: it brings polars, and a shell that completes the names of prompt sets
        # imports this module.
        from logitbank.engine.prompts.tokenize import ScoredRow, scored_whole, tokenized
        from logitbank.engine.prompts.warnings import warnings

        encoded = self.encoded(tokenizer)
        flag = self.add_special_tokens
        found = [*encoded.errors, *warnings(self.prompts, encoded, add_special_tokens=flag)]
        queries: dict[Query, int] = {}
        rows: list[ScoredRow] = []
        if not any(finding.level == "error" for finding in found):
            both = zip(encoded.prompts, encoded.options, strict=True)
            placing = each(both, f"tokenizing {self.name}", len(encoded.prompts))
            for i, (prompt, options) in enumerate(placing):
                rows += encoded.rows(i, prompt, options, queries, self.language)
        notes = (*encoded.notes, *scored_whole(self.name, encoded))
        return tokenized(self.name, encoded.prompts, queries, rows, found, notes)

    def encoded(self, tokenizer: "Tokenizer") -> "Encoded":
        """The prompts that this tokenizer can score, in its ids, and their errors.

        Raises
        ------
        PromptError
            No prompt is left, or a conversation cannot be written as a text.
        """
        from logitbank.engine.prompts.tokenize import encode, fitted, with_texts

        chats = any(prompt.messages for prompt in self.prompts)  # templates have special tokens
        prompts = with_texts(self.prompts, tokenizer)
        return encode(
            *fitted(prompts, tokenizer, name=self.name, drop_split=self.drop_split),
            tokenizer,
            add_special_tokens=False if chats else self.add_special_tokens,
            first_token=self.first_token,
            whole_options=self.whole_options,
            separate_options=self.separate_options,
        )


@dataclass(frozen=True, slots=True)
class SequenceSet:
    """Prompts of many queries that are deposited and analysed under one name."""

    name: str
    prompts: tuple[SequencePrompt, ...]
    language: str = ""
    add_special_tokens: bool | None = None
    """Whether special tokens are put around each text; None leaves it to the tokenizer."""

    @property
    def next_sentence(self) -> bool:
        """Whether the set needs a model with a next-sentence head."""
        return isinstance(self.prompts[0], NextSentence)

    def __post_init__(self) -> None:
        _check(self.name, ((f"prompt {p.id!r}", p.id) for p in self.prompts))
        if len({isinstance(prompt, NextSentence) for prompt in self.prompts}) > 1:
            raise PromptError(
                f"prompt set {self.name!r} has prompts for a next-sentence head and others; make "
                "two sets of them"
            )

    def tokenize(self, tokenizer: "Tokenizer") -> "TokenizedPrompts":
        """Turn prompts of many queries into distinct queries and the table that points at them.

        The table has a row per scored token, whose option is `target`, or of a pair the label of
        its sentence, and a column `score_kind`. A prompt for a next-sentence head has one query
        with two options, `next` and `other`.

        Raises
        ------
        PromptError
            A text that has no tokens where some are needed, a span without one, a pair whose
            sentences are the same tokens, or a tokenizer without a mask or a token before a text:
            each once, all of them together.
        """
        from logitbank.engine.prompts.tokenize import ScoredRow, sequence_error, tokenized
        from logitbank.engine.prompts.warnings import sequence_warnings

        queries: dict[Query, int] = {}
        rows: list[ScoredRow] = []
        found = []
        encoder = Encoder(tokenizer, self.language, self.add_special_tokens)
        prompts = each(self.prompts, f"tokenizing {self.name}", len(self.prompts))
        for i, prompt in enumerate(prompts):
            try:
                scored = [*prompt.scored_tokens(encoder)]
            except PromptError as error:
                found.append(sequence_error(prompt, error))
                continue
            for piece, (query, tokens) in enumerate(groupby(scored, key=lambda t: t.query)):
                at = queries.setdefault(query, len(queries))
                rows += [ScoredRow(i, piece, t.option, t.text, t.token, at, t.kind) for t in tokens]
        found += sequence_warnings(self.prompts)
        return tokenized(self.name, self.prompts, queries, rows, found)


def _check(name: str, prompts: Iterable[tuple[str, Hashable]]) -> None:
    """Refuse a set without a name or without prompts, or with one prompt twice."""
    check_name(name, "prompt set", error=PromptError)
    seen: set[Hashable] = set()
    for prompt, key in prompts:
        if key in seen:
            raise PromptError(f"{prompt} is there twice; give each prompt its own id")
        seen.add(key)
    if not seen:
        raise PromptError(f"prompt set {name!r} is empty; give it at least one prompt")
