"""Prompts under one name."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from logitbank.engine.prompts.scoring import next_sentence_tokens
from logitbank.engine.prompts.values import Prompt
from logitbank.errors import PromptError
from logitbank.store.format.limits import check_name

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True, slots=True)
class PromptSet:
    """Prompts that are stored and analysed under one name."""

    name: str
    prompts: tuple[Prompt, ...]
    add_special_tokens: bool | None = None
    """Whether special tokens are put around each text; None leaves it to the tokenizer. None of
    those that end a text stands before an option."""
    first_token: bool = False
    """Whether an option of several tokens is represented by its first."""
    whole_options: bool = False
    """Whether an option of several tokens is scored by all of them, each after those before it.
    `first_token` takes precedence. An option under a mask is one token."""
    drop_split: bool = False
    """Whether a prompt is skipped if an option that is not optional is not one token."""
    language: str = ""
    """Language adapter for its texts, for models with adapters; otherwise empty."""
    masked_note: str = ""
    """A note about what masked models leave out, or empty."""
    warnings: tuple[str, ...] = ()
    """Likely mistakes in the file that it was read from, one line each."""
    notes: tuple[str, ...] = ()
    """Lines of `prompts check`, such as its size in other units."""

    @property
    def has_options(self) -> bool:
        """Whether options are scored, and not what other ways of scoring list."""
        return self.prompts[0].scored is None

    @property
    def next_sentence(self) -> bool:
        """Whether the set needs a model with a next-sentence head."""
        return self.prompts[0].scored is next_sentence_tokens

    def __post_init__(self) -> None:
        check_name(self.name, "prompt set", error=PromptError)
        if not self.prompts:
            raise PromptError(f"prompt set {self.name!r} is empty")
        seen: set[object] = set()
        for prompt in self.prompts:
            key = prompt.id if prompt.order_seed is None else (prompt.id, prompt.order_seed)
            if key in seen:
                raise PromptError(f"{prompt} is repeated; give each prompt its own id")
            seen.add(key)
        ways = {(p.scored is None, p.scored is next_sentence_tokens): p for p in self.prompts}
        if len(ways) > 1:
            one, other, *_ = ways.values()
            raise PromptError(
                f"prompt set {self.name!r}: {one} and {other} are scored in different ways. Split "
                "options, sentences, and prompts for a next-sentence head into different sets"
            )

    def content(self) -> "pl.DataFrame":
        """Prompts, orders and options before any tokenizer skips some, as columns `CONTENT`.

        Without options, which other ways of scoring list, there is no column of them.
        """
        import polars as pl

        from logitbank.store.format.schema import PROMPTS_SCHEMA
        from logitbank.store.tables.prompt_tables import CONTENT

        # A list of each column: a tuple for each row would take most of the memory of a plan.
        each = [p for p in self.prompts for _ in p.options or (None,)]
        none: list[str | None] = [None]
        labels = ([o.label for o in p.options] or none for p in self.prompts)
        columns = {
            "prompt_id": [p.id for p in each],
            "order_seed": [p.order_seed for p in each],
            "option": [label for of_prompt in labels for label in of_prompt],
        }
        frame = pl.DataFrame(columns, schema={name: PROMPTS_SCHEMA[name] for name in CONTENT})
        return frame if self.has_options else frame.drop("option")
