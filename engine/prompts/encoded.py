"""The texts and options of prompts in ids, and what keeps them from being scored."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Self

from logitbank.engine.prompts.sequences import SequencePrompt
from logitbank.engine.prompts.values import MASK, Option, Prompt, masked_text, quote
from logitbank.engine.tokenizers.tokenizer import Tokenizer
from logitbank.store.format.schema import Query


class Remark(NamedTuple):
    """Something about one prompt that stops its set, or that its author may not have meant."""

    level: Literal["error", "warning"]
    about: str
    """Remarks about the same thing are told once."""
    prompt: Prompt | SequencePrompt
    message: str


@dataclass(frozen=True, slots=True)
class Encoded:
    """Prompts with the ids of every distinct text and continuation."""

    prompts: tuple[Prompt, ...]
    notes: tuple[str, ...]
    """What of their set was left out, for people to read."""
    tokenizer: Tokenizer
    texts: Mapping[str, list[int]]
    """Special tokens as the prompt set says."""
    options: Mapping[str, list[int]]
    """Never with special tokens."""
    first_token: bool
    tails: Mapping[tuple[str, str], list[int] | None]
    """For the texts and options that are scored by all their tokens, by text and continuation: the
    tokens of the continuation when both are encoded together; None where they merge."""

    @classmethod
    def of(
        cls,
        prompts: tuple[Prompt, ...],
        notes: tuple[str, ...],
        tokenizer: Tokenizer,
        *,
        add_special_tokens: bool | None,
        first_token: bool,
        whole_options: bool,
    ) -> Self:
        """Encode each distinct text and each distinct continuation once, in a few batches."""
        texts = list(dict.fromkeys(p.text for p in prompts))
        masked = [masked_text(text, tokenizer.mask_token) for text in texts]
        options = list(dict.fromkeys(o.text for p in prompts for o in p.options))
        text_ids = tokenizer.encode_many(masked, add_special_tokens=add_special_tokens)
        option_ids = tokenizer.encode_many(options, add_special_tokens=False)
        long = {option for option, ids in zip(options, option_ids, strict=True) if len(ids) > 1}
        pairs = dict.fromkeys(
            (p.text, o.text) for p in prompts if not p.masks for o in p.options if o.text in long
        )
        whole = [*pairs] if whole_options and not first_token else []
        tails = {pair: _tail(*ids) for pair, ids in joined(tokenizer, whole).items()}
        return cls(
            prompts,
            notes,
            tokenizer,
            dict(zip(texts, text_ids, strict=True)),
            dict(zip(options, option_ids, strict=True)),
            first_token,
            tails,
        )

    def tokens(self, prompt: Prompt, option: Option) -> Sequence[int]:
        """The tokens of an option that are scored after a prompt, one after the other."""
        whole = self.tails.get((prompt.text, option.text))
        return self.options[option.text][:1] if whole is None else whole

    def query(self, prompt: Prompt, language: str = "") -> Query:
        """The prompt's mask, or the next token after its last one where it has none."""
        row = tuple(self.texts[prompt.text])
        if not prompt.masks:
            return Query(row, len(row) - 1, language=language)
        masks = [at for at, token in enumerate(row) if token == self.tokenizer.mask_id]
        return Query(row, masks[prompt.mask or 0], "mask", language=language)

    def has_its_masks(self, prompt: Prompt) -> bool:
        """Whether each `[MASK]` of the text, and nothing else, is a mask token."""
        masks = sum(token == self.tokenizer.mask_id for token in self.texts[prompt.text])
        return masks == prompt.masks

    def problems(self) -> Iterator[Remark]:
        """Every text and option, in order, that does not give the tokens that are needed."""
        for prompt in self.prompts:
            if not self.texts[prompt.text]:
                message = "the text has no tokens in this vocabulary; change it"
                yield Remark("error", "no tokens", prompt, message)
            if prompt.masks and self.tokenizer.mask_id is None:
                message = f"the text has a {MASK}, but this tokenizer has no mask token"
                yield Remark("error", "no mask token", prompt, message)
            elif not self.has_its_masks(prompt):
                message = (
                    f"its {prompt.masks} {MASK} are not its mask tokens "
                    f"({self.tokenizer.mask_token}); "
                    f"write {MASK} for a mask, and the token itself nowhere"
                )
                yield Remark("error", "masks", prompt, message)
            yield from self._option_problems(prompt)

    def _option_problems(self, prompt: Prompt) -> Iterator[Remark]:
        label_of: dict[tuple[int, ...], str] = {}
        for option in prompt.options:
            tokens = self.options[option.text]
            whole = (prompt.text, option.text) in self.tails
            if whole and not self.tails[prompt.text, option.text]:
                message = (
                    f"option {option.label!r} ({quote(option.text)}) merges with the text: "
                    "encoded together, no token ends where the text does. End the text without "
                    "a space, and begin the option with it"
                )
                yield Remark("error", "merges " + option.text, prompt, message)
                continue
            if not whole and len(tokens) != 1 and not (tokens and self.first_token):
                message = _not_one_token(option, self.tokenizer.pieces(tokens))
                yield Remark("error", "pieces " + option.text, prompt, message)
                continue
            scored = tuple(self.tokens(prompt, option))
            if (other := label_of.setdefault(scored, option.label)) != option.label:
                yield self._same(prompt, other, option, scored)

    def _same(self, prompt: Prompt, other: str, option: Option, tokens: tuple[int, ...]) -> Remark:
        """Two options that the model could not tell apart."""
        text = quote("".join(self.tokenizer.pieces(tokens)))
        which = f"token {text} ({tokens[0]})" if len(tokens) == 1 else f"tokens ({text})"
        message = (
            f"options {other!r} and {option.label!r} have the same {which}; use continuations "
            f"that {'begin differently' if len(tokens) == 1 else 'differ'}"
        )
        return Remark("error", f"same {tokens}", prompt, message)


class Joined(NamedTuple):
    """A text and what continues it, in ids without special tokens."""

    text: list[int]
    """The text alone."""
    both: list[int]
    """Text and continuation, encoded together."""


def joined(tokenizer: Tokenizer, pairs: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Joined]:
    """Each text and continuation, by both; each text is encoded once."""
    texts = list(dict.fromkeys(text for text, _ in pairs))
    alone = dict(zip(texts, tokenizer.encode_many(texts, add_special_tokens=False), strict=True))
    both = tokenizer.encode_many([t + o for t, o in pairs], add_special_tokens=False)
    return {pair: Joined(alone[pair[0]], ids) for pair, ids in zip(pairs, both, strict=True)}


def _tail(text: list[int], both: list[int]) -> list[int] | None:
    """What text and continuation have beyond the text; None where they merge."""
    return both[len(text) :] if both[: len(text)] == text else None


def _not_one_token(option: Option, pieces: Sequence[str]) -> str:
    tokens = f"{len(pieces)} tokens ({', '.join(map(quote, pieces))})" if pieces else "no token"
    return (
        f"option {option.label!r} ({quote(option.text)}) is {tokens}; one is needed. "
        "Shorten it, or allow first tokens with --first-token"
    )
