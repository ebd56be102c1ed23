"""The options of prompts: which a tokenizer can score, their tokens, and their errors."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from logitbank.engine.prompts.findings import Finding
from logitbank.engine.prompts.prompt_set import PromptSet
from logitbank.engine.prompts.values import (
    MASK,
    Encoder,
    Option,
    Prompt,
    ScoredToken,
    masked_text,
    quote,
)
from logitbank.engine.tokenizers.tokenizer import Tokenizer
from logitbank.errors import PromptError
from logitbank.store.format.schema import Query

_NAMED = 3


@dataclass(slots=True)
class OptionEncoder:
    """Encodes texts and options of many prompts together, which is faster than one by one."""

    prompt_set: PromptSet
    encoder: Encoder
    texts: dict[str, list[int]] = field(default_factory=dict)
    """Ids of each text of the latest prompts."""
    tokens: dict[tuple[str, str], tuple[int, ...] | None] = field(default_factory=dict)
    """All tokens of each option after its text, without special tokens; None if they merge. An
    option under a mask is encoded by itself, after an empty text."""

    def encode(self, prompts: Sequence[Prompt]) -> None:
        """Encode the texts and options of these prompts, and forget those of others."""
        tokenizer, flag = self.encoder.tokenizer, self.encoder.add_special_tokens
        masked = _distinct(p.text for p in prompts if p.masks)
        filled = [masked_text(text, tokenizer.mask_token) for text in masked]
        rows = tokenizer.encode_many(filled, add_special_tokens=flag)
        plain = _distinct(p.text for p in prompts if not p.masks)
        self.texts = dict(zip(masked, rows, strict=True))
        self.texts |= zip(plain, self.encoder.contexts(plain), strict=True)
        alone = _distinct(o.text for p in prompts if p.masks for o in p.options)
        rows = tokenizer.encode_many(alone, add_special_tokens=False)
        self.tokens = {("", text): tuple(row) for text, row in zip(alone, rows, strict=True)}
        pairs = list(
            dict.fromkeys((p.text, o.text) for p in prompts if not p.masks for o in p.options)
        )
        before = [self.texts[text] for text, _ in pairs]
        self.tokens |= zip(pairs, self.encoder.continuations(pairs, before), strict=True)

    def option_tokens(self, prompt: Prompt, option: Option) -> tuple[int, ...] | None:
        """All tokens of an option; None if it merges with the text."""
        return self.tokens["" if prompt.masks else prompt.text, option.text]

    def scored(self, tokens: tuple[int, ...]) -> tuple[int, ...]:
        """The tokens of an option that are scored."""
        return tokens[:1] if self.prompt_set.first_token else tokens

    def query(self, prompt: Prompt) -> Query:
        """The query of a prompt: its scored mask.

        Without a mask, the last token, which predicts the next one.
        """
        ids = tuple(self.texts[prompt.text])
        if not prompt.masks:
            return self.encoder.query(ids, len(ids) - 1)
        masks = [i for i, token in enumerate(ids) if token == self.encoder.tokenizer.mask_id]
        return self.encoder.query(ids, masks[prompt.mask or 0], "mask")

    def scored_tokens(self, prompt: Prompt, _: Encoder) -> Iterator[ScoredToken]:
        """Each scored token of each option; one without a token for a prompt without options."""
        query = self.query(prompt)
        if not prompt.options:
            yield ScoredToken(query, None, None, None)
        for option in prompt.options:
            every = self.option_tokens(prompt, option)
            assert every is not None, "merged options are errors"
            tokens = self.scored(every)
            texts = token_texts(self.encoder.tokenizer, tokens, option.text)
            for n, (token, text) in enumerate(zip(tokens, texts, strict=True)):
                ids = (*query.ids, *tokens[:n])
                later = self.encoder.query(ids, len(ids) - 1, query.head) if n else query
                yield ScoredToken(later, token, text, option.label)

    def errors(self, prompt: Prompt) -> Iterator[Finding]:
        """Every error of one prompt, in order."""

        def error(kind: str, message: str) -> Finding:
            return Finding(kind, prompt.id, message)

        tokenizer = self.encoder.tokenizer
        if not self.texts[prompt.text]:
            yield error("no tokens", "the text has no tokens in this vocabulary")
        mask_id = tokenizer.mask_id
        masks = 0 if mask_id is None else self.texts[prompt.text].count(mask_id)
        if prompt.masks and mask_id is None:
            yield error(
                "no mask token",
                f"the text has a {MASK}, but this model predicts next tokens, or its tokenizer "
                "names no mask token; choose other prompts or another model",
            )
        elif masks != prompt.masks:
            yield error(
                "masks",
                f"the text has {prompt.masks} {MASK}, but {masks} mask tokens after tokenization. "
                f"Write {MASK} for each mask, and remove {tokenizer.mask_token} from the text",
            )
        label_of: dict[tuple[int, ...], str] = {}
        for option in prompt.options:
            tokens = self.option_tokens(prompt, option)
            if problem := self._problem(prompt, option, tokens):
                named = f"option {option.label!r} ({quote(option.text)})"
                yield error("option " + option.text, f"{named} {problem}")
            else:
                scored = self.scored(tokens or ())
                if (other := label_of.setdefault(scored, option.label)) != option.label:
                    text = quote("".join(tokenizer.decode_each(scored)))
                    what = "token" if len(scored) == 1 else "tokens"
                    message = f"options {other!r} and {option.label!r} have the same {what} {text}"
                    yield error(f"same {scored}", message)

    def mistakes(self, prompts: Sequence[Prompt]) -> Iterator[Finding]:
        """Options whose token differs from the one in the text where the option fills the mask."""
        tokenizer = self.encoder.tokenizer
        cases = [(p, o) for p in prompts if p.masks for o in p.options if not o.optional]
        filled = [masked_text(_filled(p, o), tokenizer.mask_token) for p, o in cases]
        flag = self.encoder.add_special_tokens
        rows = tokenizer.encode_many(filled, add_special_tokens=flag)
        for (prompt, option), row in zip(cases, rows, strict=True):
            position = self.query(prompt).position
            in_text = row[position : position + 1]
            if tuple(in_text) != self.scored(self.option_tokens(prompt, option) or ()):
                texts = ", ".join(map(quote, tokenizer.decode_each(in_text)))
                message = (
                    f"option {option.label!r} ({quote(option.text)}) is another token in the "
                    f"text ({texts}); check the space before it"
                )
                yield Finding("fills " + option.text, prompt.id, message)

    def _problem(self, prompt: Prompt, option: Option, tokens: tuple[int, ...] | None) -> str:
        """Why an option cannot be scored; empty if it can."""
        if tokens is None:
            return (
                "merges with the text: no token boundary lies between them. Move the space from "
                "the end of the text to the start of the option"
            )
        if not tokens:
            return "has no token in this vocabulary"
        tokenizer, scored = self.encoder.tokenizer, self.scored(tokens)
        unknown = tokenizer.unknown
        texts = ", ".join(map(quote, tokenizer.decode_each(tokens)))
        if unknown and unknown.id in scored and unknown.text not in option.text:
            return f"is not in this vocabulary: its tokens are {texts}"
        whole = self.prompt_set.whole_options and not prompt.masks
        if len(scored) > 1 and not whole:
            return (
                f"has {len(tokens)} tokens ({texts}), but must have one. Shorten it, or use "
                "FILE:first_token=true"
            )
        return ""


def _distinct(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(texts))


def _filled(prompt: Prompt, option: Option) -> str:
    """The text with the option in place of the scored mask."""
    parts = prompt.text.split(MASK)
    scored = (prompt.mask or 0) + 1
    before, after = MASK.join(parts[:scored]), MASK.join(parts[scored:])
    # The space before a mask is the mask token's if the option brings its own.
    return (before.rstrip(" ") if option.text.startswith(" ") else before) + option.text + after


def token_texts(tokenizer: Tokenizer, tokens: Sequence[int], text: str) -> list[str]:
    """The part of `text` that belongs to each token.

    If several tokens form one character, the last of them gets it. The parts joined are `text`.
    """
    ends = [0]
    for count in range(1, len(tokens)):
        begun = tokenizer.decode(tokens[:count])
        ends.append(len(begun) if text.startswith(begun) else ends[-1])
    return [text[start:end] for start, end in zip(ends, [*ends[1:], len(text)], strict=True)]


def fitted(
    prompt_set: PromptSet, tokenizer: Tokenizer
) -> tuple[tuple[Prompt, ...], tuple[str, ...]]:
    """The prompts of a set that a tokenizer can score, and a note about the others.

    An optional option is skipped if it is not one token, if it is a special token (such as the
    unknown token), or if it has the token of another option of its prompt that is not optional or
    comes before it. With `drop_split`, a prompt is skipped if any other option is not one token, or
    is a special token.

    Raises
    ------
    PromptError
        No prompt is left.
    """
    prompts, drop_split = prompt_set.prompts, prompt_set.drop_split
    if not (drop_split or any(o.optional for p in prompts for o in p.options)):
        return prompts, ()
    single = _single_tokens(prompts, tokenizer)
    split: dict[str, None] = {}
    chosen: dict[int, tuple[Option, ...]] = {}  # prompts that share their options share the tuple
    kept: list[Prompt] = []
    for prompt in prompts:
        several_tokens = [o.text for o in prompt.options if not o.optional and o.text not in single]
        if drop_split and several_tokens:
            split |= dict.fromkeys(several_tokens)
            continue
        key = id(prompt.options)
        if key not in chosen:
            chosen[key] = _chosen(prompt.options, single)
        kept.append(replace(prompt, options=chosen[key]))
    if len(kept) == len(prompts):
        return tuple(kept), ()
    more = f" and {len(split) - _NAMED} more" if len(split) > _NAMED else ""
    options = f"{', '.join(map(quote, [*split][:_NAMED]))}{more}"
    skipped = len(prompts) - len(kept)
    note = (
        f"{prompt_set.name}: {skipped:,} of {len(prompts):,} prompts are skipped, because options "
        f"are not one token of this tokenizer: {options}"
    )
    if not kept:
        raise PromptError(note)
    return tuple(kept), (note,)


def _single_tokens(prompts: Sequence[Prompt], tokenizer: Tokenizer) -> dict[str, int]:
    """Each distinct continuation that is one token, and not a special one."""
    texts = list(dict.fromkeys(o.text for p in prompts for o in p.options))
    rows = tokenizer.encode_many(texts, add_special_tokens=False)
    return {
        text: row[0]
        for text, row in zip(texts, rows, strict=True)
        if len(row) == 1 and row[0] not in tokenizer.special_ids
    }


def _chosen(options: tuple[Option, ...], single: Mapping[str, int]) -> tuple[Option, ...]:
    used = {single.get(option.text) for option in options if not option.optional}
    kept = []
    for option in options:
        token = single.get(option.text)
        if option.optional and (token is None or token in used):
            continue
        used.add(token)
        kept.append(option)
    return tuple(kept)
