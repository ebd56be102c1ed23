"""Turn a prompt set into token ids: encode and check texts and options, and list scored rows."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import NamedTuple

import polars as pl

from logitbank.engine.prompts.prompt_set import PromptSet, SequenceSet
from logitbank.engine.prompts.sequences import Encoder, SequencePrompt, contexts, continuations
from logitbank.engine.prompts.values import (
    MASK,
    Finding,
    Option,
    Prompt,
    Scalar,
    combined_error,
    masked_text,
    once_per_kind,
    quote,
)
from logitbank.engine.prompts.warnings import sequence_warnings, text_warnings
from logitbank.engine.tokenizers.tokenizer import Tokenizer
from logitbank.errors import PromptError
from logitbank.store.format.schema import PROMPTS_SCHEMA, Query

TEMPLATE = "chat_template"
"""Column with the first 16 hex digits of the SHA-256 of the chat template."""
_NAMED = 3
_BATCH = 5_000
"""Prompts whose options are encoded at once: the ids of all would fill memory."""


@dataclass(frozen=True, slots=True)
class TokenizedPrompts:
    """A prompt set in the ids of one tokenizer."""

    name: str
    queries: tuple[Query, ...]
    """Distinct, in the order in which the prompts first need them."""
    table: pl.DataFrame
    """Columns of `PROMPTS_SCHEMA` with `query`, the index into `queries`, instead of `query_set`
    and `row`, then the metadata columns. A prompt without options has one row, whose `option`,
    `continuation`, `token` and `is_answer` are null."""
    notes: tuple[str, ...] = ()
    """Skipped prompts, and warnings; one line each."""


class ScoredRow(NamedTuple):
    """A scored token of the prompt at an index; the token is null for a prompt without options."""

    prompt: int
    piece: int
    option: str | None
    continuation: str | None
    token: int | None
    query: int
    score_kind: str | None = None


class Tokenization(NamedTuple):
    """The scored rows of a prompt set, and what was found on the way."""

    prompts: Sequence[Prompt | SequencePrompt]
    """Without skipped ones."""
    findings: list[Finding]
    """Errors and warnings, once per kind."""
    notes: tuple[str, ...]
    queries: dict[Query, int]
    rows: list[ScoredRow]
    """Empty if there are errors."""
    lengths: list[int]
    """Tokens of the longest query of each prompt; 0 for an invalid sequence."""

    def result(self, name: str) -> TokenizedPrompts:
        """The tokenized prompts.

        Raises
        ------
        PromptError
            All errors, once per kind.
        """
        if errors := [str(f) for f in self.findings if f.level == "error"]:
            raise combined_error(f"prompt set {name!r}", errors)
        warnings = (f"{name}: {finding}" for finding in self.findings)
        table = _table(self.prompts, self.rows)
        return TokenizedPrompts(name, tuple(self.queries), table, (*self.notes, *warnings))


def tokenize(prompt_set: PromptSet | SequenceSet, tokenizer: Tokenizer) -> Tokenization:
    """Encode the prompts of a set, find what is wrong, and list the scored tokens.

    Raises
    ------
    PromptError
        No prompt is left, or a conversation cannot be turned into a text.
    """
    if isinstance(prompt_set, PromptSet):
        return _tokenize_texts(prompt_set, tokenizer)
    return _tokenize_sequences(prompt_set, tokenizer)


def _tokenize_sequences(prompt_set: SequenceSet, tokenizer: Tokenizer) -> Tokenization:
    queries: dict[Query, int] = {}
    rows: list[ScoredRow] = []
    findings = []
    lengths = [0] * len(prompt_set.prompts)
    encoder = Encoder(tokenizer, prompt_set.language, prompt_set.add_special_tokens)
    for i, prompt in enumerate(prompt_set.prompts):
        try:
            scored = [*prompt.scored_tokens(encoder)]
        except PromptError as error:
            findings.append(Finding("error", str(error), prompt.id, str(error)))
            continue
        lengths[i] = max((len(token.query.ids) for token in scored), default=0)
        for piece, (query, tokens) in enumerate(groupby(scored, key=lambda t: t.query)):
            index = queries.setdefault(query, len(queries))
            rows += [ScoredRow(i, piece, t.option, t.text, t.token, index, t.kind) for t in tokens]
    findings += sequence_warnings(prompt_set.prompts)
    findings = once_per_kind(findings)
    return Tokenization(prompt_set.prompts, findings, (), queries, rows, lengths)


def _tokenize_texts(prompt_set: PromptSet, tokenizer: Tokenizer) -> Tokenization:
    encoded = encode(prompt_set, tokenizer)
    findings = [*encoded.errors, *text_warnings(prompt_set.prompts, encoded)]
    queries: dict[Query, int] = {}
    rows: list[ScoredRow] = []
    if not any(finding.level == "error" for finding in findings):
        for i, (prompt, options) in enumerate(zip(encoded.prompts, encoded.options, strict=True)):
            rows += encoded.rows(i, prompt, options, queries)
    notes = (*encoded.notes, *_long_options_note(prompt_set.name, encoded))
    both = zip(encoded.prompts, encoded.options, strict=True)
    lengths = [encoded.length(prompt, options) for prompt, options in both]
    return Tokenization(encoded.prompts, once_per_kind(findings), notes, queries, rows, lengths)


OptionTokens = tuple[tuple[int, ...] | None, ...]
"""The tokens of each option of a prompt; None if an option merges with the text."""


@dataclass(frozen=True, slots=True)
class EncodedPrompts:
    """The prompts that a tokenizer can score, with the ids of their texts and options."""

    prompt_set: PromptSet
    tokenizer: Tokenizer
    prompts: tuple[Prompt, ...]
    notes: tuple[str, ...]
    """Skipped prompts, for people to read."""
    add_special_tokens: bool | None
    texts: Mapping[str, list[int]]
    """Ids of each distinct text."""
    options: list[OptionTokens] = field(default_factory=list)
    """All tokens of the options of each prompt, without special tokens."""
    errors: list[Finding] = field(default_factory=list)

    def scored(self, tokens: tuple[int, ...]) -> tuple[int, ...]:
        """The tokens of an option that are scored."""
        return tokens[:1] if self.prompt_set.first_token else tokens

    def query(self, prompt: Prompt) -> Query:
        """The query of a prompt: its scored mask.

        Without a mask, the last token, which predicts the next one.
        """
        ids, language = tuple(self.texts[prompt.text]), self.prompt_set.language
        if not prompt.masks:
            return Query(ids, len(ids) - 1, language=language)
        masks = [i for i, token in enumerate(ids) if token == self.tokenizer.mask_id]
        return Query(ids, masks[prompt.mask or 0], "mask", language=language)

    def length(self, prompt: Prompt, options: OptionTokens) -> int:
        """Tokens of the longest query of a prompt: the last token of an option is not run."""
        later = 0
        if self.prompt_set.whole_options and not prompt.masks:
            later = max((len(self.scored(tokens)) - 1 for tokens in options if tokens), default=0)
        return len(self.texts[prompt.text]) + later

    def mask_tokens(self, prompt: Prompt) -> int:
        """Number of mask tokens of the text, which should be its number of `[MASK]`."""
        return self.texts[prompt.text].count(self.tokenizer.mask_id)  # type: ignore[arg-type]

    def rows(
        self, index: int, prompt: Prompt, options: OptionTokens, queries: dict[Query, int]
    ) -> Iterator[ScoredRow]:
        """A row for each scored token of the options; new queries are added to `queries`."""
        query = self.query(prompt)
        first = queries.setdefault(query, len(queries))
        if not prompt.options:
            yield ScoredRow(index, 0, None, None, None, first)
        piece = 0  # the first tokens of all options are read from one query
        for option, every in zip(prompt.options, options, strict=True):
            assert every is not None, "merged options are errors"
            tokens = self.scored(every)
            texts = token_texts(self.tokenizer, tokens, option.text)
            yield ScoredRow(index, 0, option.label, texts[0], tokens[0], first)
            for n in range(1, len(tokens)):
                ids = (*query.ids, *tokens[:n])
                later = Query(ids, len(ids) - 1, query.head, query.segments, query.language)
                piece += 1
                place = queries.setdefault(later, len(queries))
                yield ScoredRow(index, piece, option.label, texts[n], tokens[n], place)

    def find_errors(self, prompt: Prompt, options: OptionTokens) -> Iterator[Finding]:
        """Every error of one prompt, in order."""

        def error(kind: str, message: str) -> Finding:
            return Finding("error", kind, prompt.id, message)

        if not self.texts[prompt.text]:
            yield error("no tokens", "the text has no tokens in this vocabulary")
        if prompt.masks and self.tokenizer.mask_id is None:
            yield error(
                "no mask token",
                f"the text has a {MASK}, but this model predicts next tokens, or its tokenizer "
                "names no mask token; choose other prompts or another model",
            )
        elif (masks := self.mask_tokens(prompt)) != prompt.masks:
            yield error(
                "masks",
                f"the text has {prompt.masks} {MASK}, but {masks} mask tokens after tokenization. "
                f"Write {MASK} for each mask, and remove {self.tokenizer.mask_token} from the text",
            )
        label_of: dict[tuple[int, ...], str] = {}
        for option, tokens in zip(prompt.options, options, strict=True):
            if problem := self._option_problem(prompt, option, tokens):
                named = f"option {option.label!r} ({quote(option.text)})"
                yield error("option " + option.text, f"{named} {problem}")
            else:
                scored = self.scored(tokens or ())
                if (other := label_of.setdefault(scored, option.label)) != option.label:
                    text = quote("".join(self.tokenizer.decode_each(scored)))
                    what = "token" if len(scored) == 1 else "tokens"
                    message = f"options {other!r} and {option.label!r} have the same {what} {text}"
                    yield error(f"same {scored}", message)

    def _option_problem(
        self, prompt: Prompt, option: Option, tokens: tuple[int, ...] | None
    ) -> str:
        """Why an option cannot be scored; empty if it can."""
        if tokens is None:
            return (
                "merges with the text: no token boundary lies between them. Move the space from "
                "the end of the text to the start of the option, or use FILE:separate_options=true"
            )
        if not tokens:
            return "has no token in this vocabulary"
        scored, unknown = self.scored(tokens), self.tokenizer.unknown
        texts = ", ".join(map(quote, self.tokenizer.decode_each(tokens)))
        if unknown and unknown.id in scored and unknown.text not in option.text:
            return f"is not in this vocabulary: its tokens are {texts}"
        whole = self.prompt_set.whole_options and not prompt.masks
        if len(scored) > 1 and not whole:
            return (
                f"has {len(tokens)} tokens ({texts}), but must have one. Shorten it, or use "
                "FILE:first_token=true"
            )
        return ""


def encode(prompt_set: PromptSet, tokenizer: Tokenizer) -> EncodedPrompts:
    """Encode each distinct text once and each option after its text, and find errors.

    An option under a mask, and any option with `separate_options`, is encoded by itself.
    """
    chats = any(prompt.messages for prompt in prompt_set.prompts)
    flag = False if chats else prompt_set.add_special_tokens  # templates write special tokens
    prompts, notes = fitted(prompt_set, with_texts(prompt_set.prompts, tokenizer), tokenizer)
    masked = list(dict.fromkeys(p.text for p in prompts if p.masks))
    filled = [masked_text(text, tokenizer.mask_token) for text in masked]
    texts = dict(zip(masked, tokenizer.encode_many(filled, add_special_tokens=flag), strict=True))
    plain = list(dict.fromkeys(p.text for p in prompts if not p.masks))
    texts |= zip(plain, contexts(tokenizer, plain, add_special_tokens=flag), strict=True)
    encoded = EncodedPrompts(prompt_set, tokenizer, prompts, notes, flag, texts)

    def is_separate(prompt: Prompt) -> bool:
        return bool(prompt.masks) or prompt_set.separate_options

    alone = list(dict.fromkeys(o.text for p in prompts if is_separate(p) for o in p.options))
    ids = tokenizer.encode_many(alone, add_special_tokens=False)
    separate = dict(zip(alone, map(tuple, ids), strict=True))
    for start in range(0, len(prompts), _BATCH):
        batch = prompts[start : start + _BATCH]
        joint = [p for p in batch if not is_separate(p)]
        pairs = list(dict.fromkeys((p.text, o.text) for p in joint for o in p.options))
        before = [texts[text] for text, _ in pairs]
        found = continuations(tokenizer, pairs, before, add_special_tokens=flag)
        after = dict(zip(pairs, found, strict=True))
        for prompt in batch:
            options: OptionTokens = tuple(
                separate[o.text] if is_separate(prompt) else after[prompt.text, o.text]
                for o in prompt.options
            )
            encoded.options.append(options)
            encoded.errors.extend(encoded.find_errors(prompt, options))
    return encoded


def token_texts(tokenizer: Tokenizer, tokens: Sequence[int], text: str) -> list[str]:
    """The part of `text` that belongs to each token.

    If several tokens form one character, the last of them gets it. The parts joined are `text`.
    """
    ends = [0]
    for count in range(1, len(tokens)):
        begun = tokenizer.decode(tokens[:count])
        ends.append(len(begun) if text.startswith(begun) else ends[-1])
    return [text[start:end] for start, end in zip(ends, [*ends[1:], len(text)], strict=True)]


def _long_options_note(name: str, encoded: EncodedPrompts) -> list[str]:
    """A note if some options are scored by several tokens."""
    every: set[str] = set()
    long: set[str] = set()
    for prompt, options in zip(encoded.prompts, encoded.options, strict=True):
        every |= {option.text for option in prompt.options}
        if not prompt.masks:
            both = zip(prompt.options, options, strict=True)
            long |= {o.text for o, ids in both if ids and len(encoded.scored(ids)) > 1}
    if not long:
        return []
    return [
        f"{name}: {len(long):,} of {len(every):,} options have several tokens, and all of them are "
        "scored. Choose sum, mean or first-token scoring with `logitbank analyze options --score`."
    ]


# Conversations


def with_texts(prompts: tuple[Prompt, ...], tokenizer: Tokenizer) -> tuple[Prompt, ...]:
    """Prompts with texts instead of messages, by the chat template, and the column `TEMPLATE`."""
    chats = [prompt for prompt in prompts if prompt.messages]
    if not chats:
        return prompts
    if plain := [prompt for prompt in prompts if not prompt.messages]:
        raise PromptError(
            f"{plain[0]} has a text and {chats[0]} has messages, which get special tokens in "
            "different ways. Split them into two files."
        )
    if reserved := [prompt for prompt in prompts if TEMPLATE in prompt.columns]:
        raise PromptError(f"{reserved[0]}: column name {TEMPLATE!r} is reserved; rename it")
    template, text_of = tokenizer.chat_template()
    digest = hashlib.sha256(template.encode()).hexdigest()[:16]
    written: list[Prompt] = []
    for prompt in prompts:
        turns = [turn._asdict() for turn in prompt.messages]
        try:
            text = text_of(turns)
            if not written and any(text_of(turns) != text for _ in range(2)):
                raise PromptError(
                    "the chat template depends on chance, so texts would differ from run to run; "
                    "replace this part of it"
                )
        except PromptError as error:
            raise PromptError(f"{prompt}: {error}") from error
        columns = {**prompt.columns, TEMPLATE: digest}
        written.append(replace(prompt, text=text, messages=(), columns=columns))
    return tuple(written)


# Options and prompts that may be skipped


def fitted(
    prompt_set: PromptSet, prompts: tuple[Prompt, ...], tokenizer: Tokenizer
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
    drop_split = prompt_set.drop_split
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


# The table

_ROWS = {
    "prompt": pl.Int32(),
    **{name: PROMPTS_SCHEMA[name] for name in ("piece", "option", "continuation", "token")},
    "query": pl.Int32(),
    "score_kind": pl.String(),
}


def _table(prompts: Sequence[Prompt | SequencePrompt], rows: Sequence[ScoredRow]) -> pl.DataFrame:
    """The columns of every prompt table, then metadata columns, and the score kind of sequences."""
    shared = pl.DataFrame(
        {
            "prompt_id": [p.id for p in prompts],
            "order_seed": [getattr(p, "order_seed", None) for p in prompts],
            "text": [p.text for p in prompts],
            "answer": [getattr(p, "answer", None) for p in prompts],
        },
        schema_overrides=PROMPTS_SCHEMA,
    ).with_columns(_metadata([p.columns for p in prompts]))
    scored = pl.DataFrame(rows, schema=_ROWS, orient="row")
    if isinstance(prompts[0], Prompt):
        scored = scored.drop("score_kind")
    table = shared[scored["prompt"]].with_columns(scored.drop("prompt"))
    table = table.with_columns(is_answer=pl.col("option") == pl.col("answer"))
    head = [name for name in PROMPTS_SCHEMA if name not in ("query_set", "row")]
    return table.select(*head, "query", pl.exclude(*head, "query"))


def _metadata(columns: Sequence[Mapping[str, Scalar]]) -> Iterable[pl.Series]:
    """The metadata columns, in the order of their first appearance; null where absent."""
    for name in dict.fromkeys(name for values in columns for name in values):
        values = [of_prompt.get(name) for of_prompt in columns]
        kinds = {type(value) for value in values if value is not None}
        if not kinds:
            yield pl.Series(name, values, pl.String)
        elif kinds == {int, float}:
            yield pl.Series(name, values, pl.Float64, strict=False)
        else:
            yield pl.Series(name, values)
