"""The texts and options of prompts in ids, and what keeps them from being scored."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple, Self

from logitbank.engine.doing import each
from logitbank.engine.prompts.joined import contexts, continuations
from logitbank.engine.prompts.sequences import SequencePrompt
from logitbank.engine.prompts.values import MASK, Option, Prompt, masked_text, quote
from logitbank.engine.tokenizers.tokenizer import Tokenizer
from logitbank.store.format.schema import Query

_BATCH = 5_000
"""Prompts whose texts are encoded with their options at once: of all, the ids would fill memory."""


class Remark(NamedTuple):
    """Something about one prompt that stops its set, or that its author may not have meant."""

    level: Literal["error", "warning"]
    about: str
    """Remarks about the same thing are told once."""
    prompt: Prompt | SequencePrompt
    message: str


OptionTokens = tuple[tuple[int, ...] | None, ...]
"""The tokens of each option of a prompt; None where it cannot be separated from the text."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """Prompts with the ids of every distinct text, and of the options of each."""

    prompts: tuple[Prompt, ...]
    notes: tuple[str, ...]
    """What of their set was left out, for people to read."""
    tokenizer: Tokenizer
    texts: Mapping[str, list[int]]
    """Special tokens as the prompt set says."""
    options: tuple[OptionTokens, ...]
    """All tokens of the options of each prompt, never with special tokens."""
    first_token: bool
    whole_options: bool

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
        separate_options: bool,
    ) -> Self:
        """Encode each distinct text once, and each option after its text.

        An option under a mask, and any option where they are separate, is encoded by itself.
        """
        masked = list(dict.fromkeys(p.text for p in prompts if p.masks))
        plain = list(dict.fromkeys(p.text for p in prompts if not p.masks))
        filled = [masked_text(text, tokenizer.mask_token) for text in masked]
        ids = tokenizer.encode_many(filled, add_special_tokens=add_special_tokens)
        texts = dict(zip(masked, ids, strict=True))
        ids = contexts(tokenizer, plain, add_special_tokens=add_special_tokens)
        texts |= zip(plain, ids, strict=True)

        alone = list(
            dict.fromkeys(o.text for p in prompts if p.masks or separate_options for o in p.options)
        )
        ids = tokenizer.encode_many(alone, add_special_tokens=False)
        by_itself = dict(zip(alone, map(tuple, ids), strict=True))
        options: list[OptionTokens] = []
        same: dict[OptionTokens, OptionTokens] = {}  # most prompts have the same: one object each
        starts = range(0, len(prompts), _BATCH)
        for start in each(starts, "encoding texts with their options", len(starts)):
            batch = prompts[start : start + _BATCH]
            joint = [p for p in batch if not (p.masks or separate_options)]
            pairs = list(dict.fromkeys((p.text, o.text) for p in joint for o in p.options))
            before = [texts[text] for text, _ in pairs]
            found = continuations(tokenizer, pairs, before, add_special_tokens=add_special_tokens)
            after = dict(zip(pairs, found, strict=True))
            for prompt in batch:
                if prompt.masks or separate_options:
                    own: OptionTokens = tuple(by_itself[o.text] for o in prompt.options)
                else:
                    own = tuple(after[prompt.text, o.text] for o in prompt.options)
                options.append(same.setdefault(own, own))
        return cls(
            *(prompts, notes, tokenizer, texts, tuple(options), first_token, whole_options),
        )

    def scored(self, tokens: tuple[int, ...]) -> tuple[int, ...]:
        """Those of an option's tokens that are scored, one after the other."""
        return tokens[:1] if self.first_token else tokens

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
        merged: dict[str, str] = {}
        for prompt, options in zip(self.prompts, self.options, strict=True):
            if not self.texts[prompt.text]:
                message = "the text has no tokens in this vocabulary; change it"
                yield Remark("error", "no tokens", prompt, message)
            if prompt.masks and self.tokenizer.mask_id is None:
                message = (
                    f"the text has a {MASK}, and this model has no mask: it predicts next tokens, "
                    "or its tokenizer names no mask token; choose other prompts or another model"
                )
                yield Remark("error", "no mask token", prompt, message)
            elif not self.has_its_masks(prompt):
                message = (
                    f"its {prompt.masks} {MASK} are not its mask tokens "
                    f"({self.tokenizer.mask_token}); "
                    f"write {MASK} for a mask, and the token itself nowhere"
                )
                yield Remark("error", "masks", prompt, message)
            yield from self._option_problems(prompt, options, merged)

    def _option_problems(
        self, prompt: Prompt, options: OptionTokens, merged: dict[str, str]
    ) -> Iterator[Remark]:
        label_of: dict[tuple[int, ...], str] = {}
        for option, tokens in zip(prompt.options, options, strict=True):
            named = f"option {option.label!r} ({quote(option.text)})"
            if tokens is None:
                if option.text not in merged:  # the first prompt that has it is told
                    merged[option.text] = f"{named} {self._merged(prompt.text, option.text)}"
                yield Remark("error", "merges " + option.text, prompt, merged[option.text])
            elif problem := self._token_problem(prompt, option, tokens):
                yield Remark("error", "tokens " + option.text, prompt, f"{named} {problem}")
            else:
                scored = self.scored(tokens)
                if (other := label_of.setdefault(scored, option.label)) != option.label:
                    yield self._same(prompt, other, option, scored)

    def _token_problem(self, prompt: Prompt, option: Option, tokens: tuple[int, ...]) -> str:
        """Why these tokens of an option cannot be scored; empty where they can."""
        if not tokens:
            return "is no token in this vocabulary; change it"
        pieces, unknown = _quoted(self.tokenizer.pieces(tokens)), self.tokenizer.unknown
        if unknown and unknown.id in self.scored(tokens) and unknown.text not in option.text:
            return (
                f"is not in this vocabulary: its tokens ({pieces}) include that of unknown words, "
                "whose probability is not the option's; change it"
            )
        whole = self.whole_options and not prompt.masks
        if len(tokens) > 1 and not (whole or self.first_token):
            return (
                f"is {len(tokens)} tokens ({pieces}); one is needed. Shorten it, or score its "
                "first token only (first_token)"
            )
        return ""

    def _merged(self, text: str, option: str) -> str:
        """Both splits of an option that the tokenizer joins to the end of its text."""
        ids = self.tokenizer.encode_many([text, text + option], add_special_tokens=False)
        differ = (at for at, (a, b) in enumerate(zip(*ids, strict=False)) if a != b)
        same = next(differ, min(map(len, ids)))
        texts = _entries(self.tokenizer)  # decoded alone, many lose the space before them
        alone, together = (_quoted(texts[token] for token in row[same:][:4]) for row in ids)
        return (
            f"merges with the text: the text alone ends in the tokens {alone or 'before it'}, with "
            f"the option it goes on with {together or 'none'}. End the text without a space and "
            "begin the option with it, or encode the two separately (separate_options)"
        )

    def _same(self, prompt: Prompt, other: str, option: Option, tokens: tuple[int, ...]) -> Remark:
        """Two options that the model could not tell apart."""
        text = quote("".join(self.tokenizer.pieces(tokens)))
        which = f"token {text} ({tokens[0]})" if len(tokens) == 1 else f"tokens ({text})"
        message = (
            f"options {other!r} and {option.label!r} have the same {which}; use continuations "
            f"that {'begin differently' if len(tokens) == 1 else 'differ'}"
        )
        return Remark("error", f"same {tokens}", prompt, message)


@lru_cache(maxsize=1)
def _entries(tokenizer: Tokenizer) -> Mapping[int, str]:
    return dict(tokenizer.vocabulary().select("token", "text").iter_rows())


def _quoted(pieces: Iterable[str]) -> str:
    return ", ".join(map(quote, pieces))
