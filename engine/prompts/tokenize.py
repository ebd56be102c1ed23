"""From a prompt set to token ids: texts and options are encoded, checked and placed in one pass."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import NamedTuple

import polars as pl

from logitbank.engine.doing import each
from logitbank.engine.prompts.sequences import SequencePrompt, contexts, continuations
from logitbank.engine.prompts.values import (
    MASK,
    Finding,
    Option,
    Prompt,
    Scalar,
    masked_text,
    once_per_kind,
    one_error,
    quote,
)
from logitbank.engine.tokenizers.tokenizer import Tokenizer
from logitbank.errors import PromptError
from logitbank.store.format.schema import PROMPTS_SCHEMA, Query

TEMPLATE = "chat_template"
"""Column with the first 16 hex digits of the SHA-256 of the chat template."""
_NAMED = 3
_BATCH = 5_000
"""Prompts whose options are encoded at once: the ids of all would fill memory."""
_SCORED_WHOLE = (
    "{name}: {long:,} of {all:,} options are several tokens, and scored by all of them; sums, "
    "means and first tokens are told apart by `logitbank analyze options --score`"
)


@dataclass(frozen=True, slots=True)
class TokenizedPrompts:
    """A prompt set in the ids of one tokenizer."""

    name: str
    queries: tuple[Query, ...]
    """Distinct, in the order in which the prompts first need them."""
    table: pl.DataFrame
    """Columns of `PROMPTS_SCHEMA` with `query`, the index into `queries`, in place of
    `query_set` and `row`, then the prompts' own columns. A prompt without options has one row,
    whose `option`, `continuation`, `token` and `is_answer` are null."""
    notes: tuple[str, ...] = ()
    """Prompts that were left out, and warnings; one line each."""


def sequence_error(prompt: SequencePrompt, error: PromptError) -> Finding:
    """An error of a prompt, without the prompt's name."""
    message = str(error).removeprefix(f"prompt {prompt.id!r}: ")
    return Finding("error", message, prompt.id, message)


def tokenized(
    name: str,
    prompts: Sequence[Prompt | SequencePrompt],
    queries: Mapping[Query, int],
    rows: Sequence["ScoredRow"],
    found: Iterable[Finding],
    notes: tuple[str, ...] = (),
) -> TokenizedPrompts:
    """Prompts whose scored tokens are these rows.

    Raises
    ------
    PromptError
        Some findings are errors.
    """
    found = once_per_kind(found)
    lines = {
        level: [f"prompt {f.prompt_id!r}: {f.message}" for f in found if f.level == level]
        for level in ("error", "warning")
    }
    if lines["error"]:
        raise one_error(f"prompt set {name!r}", lines["error"])
    warnings = (f"{name}: {line}" for line in lines["warning"])
    return TokenizedPrompts(name, tuple(queries), _table(prompts, rows), (*notes, *warnings))


OptionTokens = tuple[tuple[int, ...] | None, ...]
"""The tokens of each option of a prompt; None where an option merges with the text."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """The prompts that a tokenizer can score, with the ids of their texts and options."""

    prompts: tuple[Prompt, ...]
    notes: tuple[str, ...]
    """Prompts that were left out, for people to read."""
    tokenizer: Tokenizer
    first_token: bool
    whole_options: bool
    texts: Mapping[str, list[int]]
    """Ids of each distinct text, with special tokens as the prompt set says."""
    options: list[OptionTokens] = field(default_factory=list)
    """All tokens of the options of each prompt, without special tokens."""
    errors: list[Finding] = field(default_factory=list)
    """Texts and options, in order, that do not give the tokens that are needed."""

    def scored(self, tokens: tuple[int, ...]) -> tuple[int, ...]:
        """The tokens of an option that are scored."""
        return tokens[:1] if self.first_token else tokens

    def query(self, prompt: Prompt, language: str = "") -> Query:
        """The scored mask of a prompt, or the next token after its last one without a mask."""
        row = tuple(self.texts[prompt.text])
        if not prompt.masks:
            return Query(row, len(row) - 1, language=language)
        masks = [at for at, token in enumerate(row) if token == self.tokenizer.mask_id]
        return Query(row, masks[prompt.mask or 0], "mask", language=language)

    def has_its_masks(self, prompt: Prompt) -> bool:
        """Whether each `[MASK]` of the text, and nothing else, is a mask token."""
        return self.texts[prompt.text].count(self.tokenizer.mask_id) == prompt.masks  # type: ignore[arg-type]

    def rows(
        self,
        at: int,
        prompt: Prompt,
        options: OptionTokens,
        queries: dict[Query, int],
        language: str,
    ) -> Iterator["ScoredRow"]:
        """A row for each scored token of the options; new queries are added to `queries`."""
        query = self.query(prompt, language)
        first = queries.setdefault(query, len(queries))
        if not prompt.options:
            yield ScoredRow(at, 0, None, None, None, first)
        later = 0  # the first tokens of all options are read from one query
        for option, every in zip(prompt.options, options, strict=True):
            assert every is not None, "merged options are errors"
            tokens = self.scored(every)
            for n, text in enumerate(token_texts(self.tokenizer, tokens, option.text)):
                place, later = first, later + (n > 0)
                if n:
                    ids = (*query.ids, *tokens[:n])
                    after = Query(ids, len(ids) - 1, query.head, query.segments, language)
                    place = queries.setdefault(after, len(queries))
                yield ScoredRow(at, later if n else 0, option.label, text, tokens[n], place)


def encode(
    prompts: tuple[Prompt, ...],
    notes: tuple[str, ...],
    tokenizer: Tokenizer,
    *,
    add_special_tokens: bool | None,
    first_token: bool,
    whole_options: bool,
    separate_options: bool,
) -> Encoded:
    """Encode each distinct text once and each option after its text, and find what is wrong.

    An option under a mask, and any option with `separate_options`, is encoded by itself.
    """
    flag = add_special_tokens
    masked = list(dict.fromkeys(p.text for p in prompts if p.masks))
    filled = [masked_text(text, tokenizer.mask_token) for text in masked]
    texts = dict(zip(masked, tokenizer.encode_many(filled, add_special_tokens=flag), strict=True))
    plain = list(dict.fromkeys(p.text for p in prompts if not p.masks))
    texts |= zip(plain, contexts(tokenizer, plain, add_special_tokens=flag), strict=True)
    encoded = Encoded(prompts, notes, tokenizer, first_token, whole_options, texts)

    def is_separate(prompt: Prompt) -> bool:
        return bool(prompt.masks) or separate_options

    alone = list(dict.fromkeys(o.text for p in prompts if is_separate(p) for o in p.options))
    ids = tokenizer.encode_many(alone, add_special_tokens=False)
    by_itself = dict(zip(alone, map(tuple, ids), strict=True))
    same: dict[OptionTokens, OptionTokens] = {}  # most prompts have the same: one object each
    errors = _Errors(encoded)
    starts = range(0, len(prompts), _BATCH)
    for start in each(starts, "encoding texts with their options", len(starts)):
        batch = prompts[start : start + _BATCH]
        joint = [p for p in batch if not is_separate(p)]
        pairs = list(dict.fromkeys((p.text, o.text) for p in joint for o in p.options))
        before = [texts[text] for text, _ in pairs]
        found = continuations(tokenizer, pairs, before, add_special_tokens=flag)
        after = dict(zip(pairs, found, strict=True))
        for prompt in batch:
            own: OptionTokens = tuple(
                by_itself[o.text] if is_separate(prompt) else after[prompt.text, o.text]
                for o in prompt.options
            )
            encoded.options.append(same.setdefault(own, own))
            encoded.errors.extend(errors.of(prompt, own))
    return encoded


class _Errors:
    """The errors of the texts and options of encoded prompts."""

    def __init__(self, encoded: Encoded) -> None:
        self._encoded, self._tokenizer = encoded, encoded.tokenizer
        self._merged: dict[str, str] = {}

    def of(self, prompt: Prompt, options: OptionTokens) -> Iterator[Finding]:
        """Every error of one prompt, in order."""

        def error(kind: str, message: str) -> Finding:
            return Finding("error", kind, prompt.id, message)

        if not self._encoded.texts[prompt.text]:
            yield error("no tokens", "the text has no tokens in this vocabulary; change it")
        if prompt.masks and self._tokenizer.mask_id is None:
            yield error(
                "no mask token",
                f"the text has a {MASK}, and this model has no mask: it predicts next tokens, "
                "or its tokenizer names no mask token; choose other prompts or another model",
            )
        elif not self._encoded.has_its_masks(prompt):
            yield error(
                "masks",
                f"its {prompt.masks} {MASK} are not its mask tokens "
                f"({self._tokenizer.mask_token}); "
                f"write {MASK} for a mask, and the token itself nowhere",
            )
        label_of: dict[tuple[int, ...], str] = {}
        for option, tokens in zip(prompt.options, options, strict=True):
            named = f"option {option.label!r} ({quote(option.text)})"
            if tokens is None:
                if option.text not in self._merged:  # only the first prompt is reported
                    self._merged[option.text] = self._merges(prompt.text, option.text)
                yield error("merges " + option.text, f"{named} {self._merged[option.text]}")
            elif problem := self._token_problem(prompt, option, tokens):
                yield error("tokens " + option.text, f"{named} {problem}")
            else:
                scored = self._encoded.scored(tokens)
                if (other := label_of.setdefault(scored, option.label)) != option.label:
                    yield error(f"same {scored}", self._same(other, option, scored))

    def _token_problem(self, prompt: Prompt, option: Option, tokens: tuple[int, ...]) -> str:
        """Why these tokens of an option cannot be scored; empty if they can."""
        if not tokens:
            return "is no token in this vocabulary; change it"
        texts, unknown = _quoted(self._tokenizer.pieces(tokens)), self._tokenizer.unknown
        scored = self._encoded.scored(tokens)
        if unknown and unknown.id in scored and unknown.text not in option.text:
            return (
                f"is not in this vocabulary: its tokens ({texts}) include that of unknown words, "
                "whose probability is not the option's; change it"
            )
        whole = self._encoded.whole_options and not prompt.masks
        if len(scored) > 1 and not whole:
            return (
                f"is {len(tokens)} tokens ({texts}); one is needed. Shorten it, or score its "
                "first token only (first_token)"
            )
        return ""

    def _merges(self, text: str, option: str) -> str:
        """Both splits of an option that the tokenizer joins to the end of its text."""
        ids = self._tokenizer.encode_many([text, text + option], add_special_tokens=False)
        differ = (at for at, (a, b) in enumerate(zip(*ids, strict=False)) if a != b)
        same = next(differ, min(map(len, ids)))
        texts = _entries(self._tokenizer)  # decoded alone, many lose the space before them
        alone, together = (_quoted(texts[token] for token in row[same:][:4]) for row in ids)
        return (
            f"merges with the text: the text alone ends in the tokens {alone or 'before it'}, with "
            f"the option it goes on with {together or 'none'}. End the text without a space and "
            "begin the option with it, or encode the two separately (separate_options)"
        )

    def _same(self, other: str, option: Option, tokens: tuple[int, ...]) -> str:
        """Two options that the model cannot tell apart."""
        text = quote("".join(self._tokenizer.pieces(tokens)))
        which = f"token {text} ({tokens[0]})" if len(tokens) == 1 else f"tokens ({text})"
        return (
            f"options {other!r} and {option.label!r} have the same {which}; use continuations "
            f"that {'begin differently' if len(tokens) == 1 else 'differ'}"
        )


@lru_cache(maxsize=1)
def _entries(tokenizer: Tokenizer) -> Mapping[int, str]:
    return dict(tokenizer.vocabulary().select("token", "text").iter_rows())


def _quoted(texts: Iterable[str]) -> str:
    return ", ".join(map(quote, texts))


def token_texts(tokenizer: Tokenizer, tokens: Sequence[int], text: str) -> list[str]:
    """What each token adds to the text that all of them are.

    A character of several tokens is the last one's, so that the texts put together are the text.
    """
    ends = [0]
    for count in range(1, len(tokens)):
        begun = tokenizer.decode(tokens[:count])
        ends.append(len(begun) if text.startswith(begun) else ends[-1])
    return [text[start:end] for start, end in zip(ends, [*ends[1:], len(text)], strict=True)]


def scored_whole(name: str, encoded: Encoded) -> list[str]:
    """A line if some options are scored by several tokens."""
    every: set[str] = set()
    long: set[str] = set()
    for prompt, options in zip(encoded.prompts, encoded.options, strict=True):
        every |= {option.text for option in prompt.options}
        if not prompt.masks:
            both = zip(prompt.options, options, strict=True)
            long |= {o.text for o, ids in both if ids and len(encoded.scored(ids)) > 1}
    return [_SCORED_WHOLE.format(name=name, long=len(long), all=len(every))] if long else []


# Conversations


def with_texts(prompts: tuple[Prompt, ...], tokenizer: Tokenizer) -> tuple[Prompt, ...]:
    """Prompts with texts in place of messages, by the chat template, and the column `TEMPLATE`."""
    chats = [prompt for prompt in prompts if prompt.messages]
    if not chats:
        return prompts
    if plain := [prompt for prompt in prompts if not prompt.messages]:
        raise PromptError(
            f"{plain[0]} has a text and {chats[0]} has messages: special tokens are put around "
            "the one, and by its template around the other; make two files of them"
        )
    template, text_of = tokenizer.chat_template()
    digest = hashlib.sha256(template.encode()).hexdigest()[:16]
    written = []
    for prompt in prompts:
        if TEMPLATE in prompt.columns:
            raise PromptError(
                f"{prompt}: column {TEMPLATE!r} is where the template's digest goes; rename it"
            )
        try:
            text = text_of([turn._asdict() for turn in prompt.messages])
        except PromptError as error:
            raise PromptError(f"{prompt}: {error}") from error
        columns = {**prompt.columns, TEMPLATE: digest}
        written.append(replace(prompt, text=text, messages=(), columns=columns))
    return tuple(written)


# Options and prompts that may be left out


def fitted(
    prompts: tuple[Prompt, ...], tokenizer: Tokenizer, *, name: str, drop_split: bool
) -> tuple[tuple[Prompt, ...], tuple[str, ...]]:
    """The prompts of the set `name` that a tokenizer can score, and a line about the others.

    An optional option goes where it is not one token, a special token (such as that of unknown
    words), or the token of another option of its prompt that is not optional or comes before it.
    With `drop_split` a prompt goes where any other option is not one token, or a special one.

    Raises
    ------
    PromptError
        No prompt would be left.
    """
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
    why = f"options that are not one token of this tokenizer: {_quoted([*split][:_NAMED])}{more}"
    if not kept:
        raise PromptError(
            f"{name}: no prompt is left; each has {why}. Use another prompt set or model"
        )
    out = len(prompts) - len(kept)
    return tuple(kept), (f"{name}: {out:,} of {len(prompts):,} prompts are left out, for {why}",)


def _single_tokens(prompts: Sequence[Prompt], tokenizer: Tokenizer) -> dict[str, int]:
    """Each distinct continuation that is one token, and none of the special ones."""
    texts = list(dict.fromkeys(o.text for p in prompts for o in p.options))
    rows = tokenizer.encode_many(texts, add_special_tokens=False)
    return {
        text: row[0]
        for text, row in zip(texts, rows, strict=True)
        if len(row) == 1 and row[0] not in tokenizer.special_ids
    }


def _chosen(options: tuple[Option, ...], single: Mapping[str, int]) -> tuple[Option, ...]:
    taken = {single.get(option.text) for option in options if not option.optional}
    kept = []
    for option in options:
        token = single.get(option.text)
        if option.optional and (token is None or token in taken):
            continue
        taken.add(token)
        kept.append(option)
    return tuple(kept)


# The table


class ScoredRow(NamedTuple):
    """A scored token of the prompt at an index; the token is null for a prompt without options."""

    at: int
    piece: int
    option: str | None
    continuation: str | None
    token: int | None
    query: int
    score_kind: str | None = None


_ROWS = {
    "at": pl.Int32(),
    **{name: PROMPTS_SCHEMA[name] for name in ("piece", "option", "continuation", "token")},
    "query": pl.Int32(),
    "score_kind": pl.String(),
}


def _table(prompts: Sequence[Prompt | SequencePrompt], rows: Sequence[ScoredRow]) -> pl.DataFrame:
    """The columns of every prompt table, then the prompts' own, and the kind of sequences."""
    shared = pl.DataFrame(
        {
            "prompt_id": [p.id for p in prompts],
            "order_seed": [getattr(p, "order_seed", None) for p in prompts],
            "text": [p.text for p in prompts],
            "answer": [getattr(p, "answer", None) for p in prompts],
        },
        schema_overrides=PROMPTS_SCHEMA,
    ).with_columns(_own_columns([p.columns for p in prompts]))
    listed = pl.DataFrame(rows, schema=_ROWS, orient="row")
    if isinstance(prompts[0], Prompt):
        listed = listed.drop("score_kind")
    table = shared[listed["at"]].with_columns(listed.drop("at"))
    table = table.with_columns(is_answer=pl.col("option") == pl.col("answer"))
    head = [name for name in PROMPTS_SCHEMA if name not in ("query_set", "row")]
    return table.select(*head, "query", pl.exclude(*head, "query"))


def _own_columns(columns: Sequence[Mapping[str, Scalar]]) -> list[pl.Series]:
    """The prompts' own columns, in the order of their first appearance; null where absent."""
    names = dict.fromkeys(name for of_prompt in columns for name in of_prompt)
    return [_column(name, [of_prompt.get(name) for of_prompt in columns]) for name in names]


def _column(name: str, values: list[Scalar]) -> pl.Series:
    kinds = {type(v) for v in values if v is not None}
    if not kinds:
        return pl.Series(name, values, pl.String)
    if kinds == {int, float}:
        return pl.Series(name, values, pl.Float64, strict=False)
    return pl.Series(name, values)
