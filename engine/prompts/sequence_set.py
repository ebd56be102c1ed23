"""Prompts of many queries under one name."""

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from logitbank.engine.doing import each
from logitbank.engine.prompts.sequences import NextSentence, SequencePrompt
from logitbank.engine.prompts.values import one_error
from logitbank.errors import PromptError
from logitbank.store.format.limits import check_name

if TYPE_CHECKING:
    from logitbank.engine.prompts.tokenized import TokenizedPrompts
    from logitbank.engine.tokenizers.tokenizer import Tokenizer
    from logitbank.store.format.schema import Query


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
        check_name(self.name, "prompt set", error=PromptError)
        if not self.prompts:
            raise PromptError(f"prompt set {self.name!r} is empty; give it at least one prompt")
        if len({isinstance(prompt, NextSentence) for prompt in self.prompts}) > 1:
            raise PromptError(
                f"prompt set {self.name!r} has prompts for a next-sentence head and others; make "
                "two sets of them"
            )
        seen: set[str] = set()
        for prompt in self.prompts:
            if prompt.id in seen:
                raise PromptError(f"prompt {prompt.id!r} is there twice; give each its own id")
            seen.add(prompt.id)

    def tokenize(self, tokenizer: "Tokenizer") -> "TokenizedPrompts":
        """Turn prompts of many queries into distinct queries and the table that points at them.

        The table has a row per piece, whose option is `target`, or of a pair the label of its
        sentence, and a column `score_kind`. A prompt for a next-sentence head has one piece with
        two options, `next` and `other`.

        Raises
        ------
        PromptError
            A text that has no tokens where some are needed, a span without one, a pair whose
            sentences are the same tokens, or a tokenizer without a mask or a token before a text:
            each told once, all of them together.
        """
        from logitbank.engine.prompts.remarks import sequence_remarks, warning_lines
        from logitbank.engine.prompts.tokenized import PieceRow, TokenizedPrompts, piece_table

        places: dict[Query, int] = {}
        rows: list[PieceRow] = []
        errors: dict[str, PromptError] = {}
        prompts = each(self.prompts, f"tokenizing {self.name}", len(self.prompts))
        for at, prompt in enumerate(prompts):
            try:
                pieces = [*prompt.pieces(tokenizer, self.language, self.add_special_tokens)]
            except PromptError as error:
                errors.setdefault(said_of(prompt, error), error)
                continue
            for i, (query, options) in enumerate(groupby(pieces, key=lambda piece: piece.query)):
                row = places.setdefault(query, len(places))
                rows += [
                    PieceRow(at, i, p.text, p.token, row, p.kind, p.option, p.answer)
                    for p in options
                ]
        if errors:
            raise one_error(f"prompt set {self.name!r}", [*errors.values()])
        return TokenizedPrompts(
            name=self.name,
            queries=tuple(places),
            table=piece_table(
                rows,
                ids=[prompt.id for prompt in self.prompts],
                texts=[prompt.text for prompt in self.prompts],
                columns=[prompt.columns for prompt in self.prompts],
            ),
            notes=warning_lines(self.name, sequence_remarks(self.prompts)),
        )


def said_of(prompt: SequencePrompt, error: PromptError) -> str:
    """What an error says of a prompt, without the prompt's name."""
    return str(error).removeprefix(f"prompt {prompt.id!r}").lstrip(": ")
