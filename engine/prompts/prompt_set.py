"""Prompts that own one query each, under one name."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from logitbank.engine.doing import each
from logitbank.engine.prompts.values import Prompt, one_error
from logitbank.errors import PromptError
from logitbank.store.format.limits import check_name

if TYPE_CHECKING:
    from logitbank.engine.prompts.encoded import Encoded
    from logitbank.engine.prompts.tokenized import TokenizedPrompts
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
        check_name(self.name, "prompt set", error=PromptError)
        if not self.prompts:
            raise PromptError(f"prompt set {self.name!r} is empty; give it at least one prompt")
        seen: set[tuple[str, int | None]] = set()
        for prompt in self.prompts:
            if (prompt.id, prompt.order_seed) in seen:
                raise PromptError(f"{prompt} is there twice; give each prompt its own id")
            seen.add((prompt.id, prompt.order_seed))

    def tokenize(self, tokenizer: "Tokenizer") -> "TokenizedPrompts":
        """Turn prompts into distinct queries and the table that points at them.

        The query of a prompt is its mask, or the next token after its last one where it has none.
        An option is encoded together with the text, as evaluation harnesses do, unless the set has
        `separate_options`; under a mask it is encoded by itself. It is one token, or the first of
        several where the set allows that; where the set allows whole options, it has a row per
        token. Before that, what the set allows to be left out is left out. What its author may not
        have meant is in `notes`.

        Raises
        ------
        PromptError
            Texts without tokens, a mask that the tokenizer does not have, options of several tokens
            where one is needed or that merge with the text, two options with the same tokens (each
            told once, all of them together), or a column with values of different kinds.
        """
        from logitbank.engine.prompts.pieces import option_pieces
        from logitbank.engine.prompts.remarks import remarks, warning_lines
        from logitbank.engine.prompts.tokenized import TokenizedPrompts, option_table

        encoded = self.encoded(tokenizer)
        if first_of_each := {p.about: p for p in reversed([*encoded.problems()])}:
            errors = [PromptError(f"{p.prompt}: {p.message}") for p in first_of_each.values()]
            raise one_error(f"prompt set {self.name!r}", errors[::-1])
        places: dict[Query, int] = {}
        queries, pieces = [], []
        both = zip(encoded.prompts, encoded.options, strict=True)
        for prompt, options in each(both, f"tokenizing {self.name}", len(encoded.prompts)):
            query = encoded.query(prompt, self.language)
            queries.append(places.setdefault(query, len(places)))
            pieces.append(option_pieces(encoded, prompt, options, query, queries[-1], places))
        flag = self.add_special_tokens
        found = remarks(self.prompts, encoded, add_special_tokens=flag)
        return TokenizedPrompts(
            name=self.name,
            queries=tuple(places),
            table=option_table(encoded.prompts, queries=queries, pieces=pieces),
            notes=(
                *encoded.notes,
                *self._scored_whole(encoded),
                *warning_lines(self.name, found),
            ),
        )

    def _scored_whole(self, encoded: "Encoded") -> tuple[str, ...]:
        """A line where some options are scored by several tokens."""
        every, long = set(), set()
        for prompt, options in zip(encoded.prompts, encoded.options, strict=True):
            every |= {option.text for option in prompt.options}
            if not prompt.masks:
                both = zip(prompt.options, options, strict=True)
                long |= {
                    option.text for option, ids in both if ids and len(encoded.scored(ids)) > 1
                }
        if not long:
            return ()
        return (
            f"{self.name}: {len(long):,} of {len(every):,} options are several tokens, and "
            "scored by all of them; sums, means and first tokens are told apart by "
            "`logitbank analyze options --score`",
        )

    def encoded(self, tokenizer: "Tokenizer") -> "Encoded":
        """The prompts that this tokenizer can score, in its ids.

        Raises
        ------
        PromptError
            None of the prompts is left.
        """
        # Imported here: it brings polars, and a shell that completes the names of prompt sets
        # imports this module.
        from logitbank.engine.prompts.conversations import written_out
        from logitbank.engine.prompts.encoded import Encoded
        from logitbank.engine.prompts.fitted import fitted

        talked = any(prompt.messages for prompt in self.prompts)  # templates have special tokens
        prompts = written_out(self.prompts, tokenizer)
        return Encoded.of(
            *fitted(prompts, tokenizer, name=self.name, drop_split=self.drop_split),
            tokenizer,
            add_special_tokens=False if talked else self.add_special_tokens,
            first_token=self.first_token,
            whole_options=self.whole_options,
            separate_options=self.separate_options,
        )
