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
_EXPLAINED = 20
"""Options whose overlap with their text is explained: an error lists twenty."""


@dataclass(slots=True)
class OptionEncoder:
    """Encodes texts and options of many prompts together, which is faster than one by one."""

    prompt_set: PromptSet
    encoder: Encoder
    texts: dict[str, list[int]] = field(default_factory=dict)
    """Ids of each text of the latest prompts."""
    plain: dict[str, list[int]] = field(default_factory=dict)
    """As `texts`, without special tokens around a text."""
    tokens: dict[tuple[str, str], tuple[int, ...] | None] = field(default_factory=dict)
    """All tokens of each option after its text, without special tokens; None if they merge. An
    option under a mask is encoded by itself, after an empty text."""
    placed: dict[tuple[str, int, str], tuple[int, ...]] = field(default_factory=dict)
    """Tokens of options at a mask that have one token in their text, but several by themselves."""
    _explained: set[str] = field(default_factory=set)

    def encode(self, prompts: Sequence[Prompt]) -> None:
        """Encode the texts and options of these prompts, and forget those of others."""
        tokenizer, flag = self.encoder.tokenizer, self.encoder.add_special_tokens
        masks = {p.text: p.masks > 0 for p in prompts}
        filled = [masked_text(t, tokenizer.mask_token) if masks[t] else t for t in masks]
        rows = tokenizer.encode_many(filled, add_special_tokens=False)
        self.plain = dict(zip(masks, rows, strict=True))
        around = tokenizer.around if flag is not False else lambda _, row: row
        self.texts = {
            text: (around if masks[text] else self.encoder.begun)(whole, row)
            for text, whole, row in zip(masks, filled, rows, strict=True)
        }
        alone = _distinct(o.text for p in prompts if p.masks for o in p.options)
        rows = tokenizer.encode_many(alone, add_special_tokens=False)
        self.tokens = {("", text): tuple(row) for text, row in zip(alone, rows, strict=True)}
        pairs = list(
            dict.fromkeys((p.text, o.text) for p in prompts if not p.masks for o in p.options)
        )
        before = [self.texts[text] for text, _ in pairs]
        self.tokens |= zip(pairs, self.encoder.continuations(pairs, before), strict=True)
        self.placed = self._placed(prompts) if tokenizer.mask_id is not None else {}

    def _placed(self, prompts: Sequence[Prompt]) -> dict[tuple[str, int, str], tuple[int, ...]]:
        """The tokens that options have in their text, if they begin with a word mark elsewhere.

        SentencePiece may begin an option by itself with a lone word mark. A text that has no space
        before the mask, such as a Japanese one, has no mark there.
        """
        tokenizer = self.encoder.tokenizer
        cases = {
            (p.text, p.mask or 0, o.text)
            for p in prompts
            if p.masks
            for o in p.options
            if len(tokens := self.tokens["", o.text] or ()) > 1
            and not tokenizer.decode(tokens[:1]).strip()
        }
        placed = {}
        for text, mask, option in cases:
            parts = text.split(MASK)
            before, after = (
                masked_text(MASK.join(some), tokenizer.mask_token)
                for some in (parts[: mask + 1], parts[mask + 1 :])
            )
            if before[-1:].isspace() or option[0].isspace():
                continue
            ids, spans = tokenizer.encode_with_spans(
                before + option + after, add_special_tokens=False
            )
            start, end = len(before), len(before) + len(option)
            inside = [i for i, (first, last) in enumerate(spans) if first < end and start < last]
            if not inside or spans[inside[0]][0] < start or end < spans[inside[-1]][1]:
                continue  # a token has more than the option
            tokens = tuple(ids[i] for i in inside)
            if len(tokens) > 1 and not tokenizer.decode(tokens[:1]).strip():
                tokens = tokens[1:]
            placed[text, mask, option] = tokens
        return placed

    def option_tokens(self, prompt: Prompt, option: Option) -> tuple[int, ...] | None:
        """All tokens of an option; None if it merges with the text."""
        if not prompt.masks:
            return self.tokens[prompt.text, option.text]
        placed = self.placed.get((prompt.text, prompt.mask or 0, option.text))
        return self.tokens["", option.text] if placed is None else placed

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
            # Few messages are shown, and finding a remedy takes a while.
            kind = "option " + option.text
            if tokens is None and (kind in self._explained or len(self._explained) == _EXPLAINED):
                yield error(kind, "")
                continue
            self._explained |= {kind} if tokens is None else set()
            if problem := self._problem(prompt, option, tokens):
                named = f"option {option.label!r} ({quote(option.text)})"
                yield error(kind, f"{named} {problem}")
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
        cases = [
            (p, o)
            for p in prompts
            if p.masks
            for o in p.options
            if not o.optional and (p.text, p.mask or 0, o.text) not in self.placed
        ]
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
            return self.encoder.overlap(prompt.text, option.text)
        if not tokens:
            return "has no token in this vocabulary"
        tokenizer, scored = self.encoder.tokenizer, self.scored(tokens)
        texts = ", ".join(map(quote, tokenizer.decode_each(tokens)))
        lost = tokenizer.lost(option.text, tokens)
        if lost and (scored == tokens or not self._is_known(scored)):
            return f"is not in this vocabulary: its tokens {texts} are without {quote(lost)}"
        whole = self.prompt_set.whole_options and not prompt.masks
        if len(scored) > 1 and not whole:
            return (
                f"has {len(tokens)} tokens ({texts}), but must have one. Shorten it, or use "
                "FILE:first_token=true"
            )
        return ""

    def _is_known(self, tokens: tuple[int, ...]) -> bool:
        """Whether a first token is a part of its option."""
        unknown = self.encoder.tokenizer.unknown
        is_unknown = unknown is not None and unknown.id in tokens
        return not is_unknown and bool(self.encoder.tokenizer.decode(tokens).strip())


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
        if len(row) == 1 and row[0] not in tokenizer.special_ids and not tokenizer.lost(text, row)
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
