"""Prompts on their way from text to queries, and what is doubtful about them.

It knows tokens, and neither files nor models; values and reading are re-exported from here.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import groupby
from typing import Literal, NamedTuple

import polars as pl

from logitbank.engine.prompts.files import load_prompts
from logitbank.engine.prompts.fitted import fitted
from logitbank.engine.prompts.sequences import SequencePrompt, SequenceSet
from logitbank.engine.prompts.tokenizer import Tokenizer
from logitbank.engine.prompts.values import (
    MASK,
    Option,
    Prompt,
    PromptSet,
    Scalar,
    masked_text,
    one_error,
    quote,
)
from logitbank.errors import PromptError
from logitbank.store.format.schema import PROMPTS_SCHEMA, Query

__all__ = [
    "Finding",
    "Option",
    "Prompt",
    "PromptSet",
    "TokenizedPrompts",
    "check_prompts",
    "load_prompts",
    "tokenize",
]


@dataclass(frozen=True, slots=True)
class TokenizedPrompts:
    """A prompt set in the ids of one tokenizer."""

    name: str
    tokenizer_digest: str
    queries: tuple[Query, ...]
    """Distinct, in the order in which the prompts first need them."""
    table: pl.DataFrame
    """Columns of `PROMPTS_SCHEMA` with `query`, the index into `queries`, in place of
    `query_set` and `row`, then the prompts' own columns. A prompt without options has one row,
    whose `option`, `continuation`, `token` and `is_answer` are null."""
    notes: tuple[str, ...] = ()
    """What was left out for this tokenizer, one line each."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something about a prompt set that stops it, or that its author may not have meant."""

    level: Literal["error", "warning"]
    prompt_id: str
    """The first prompt that has it."""
    message: str


_OPENING = "([{<\"'“‘«/-_"
"""A word may follow these without a space."""


class _Texts(NamedTuple):
    """Every distinct text of a prompt set with its ids."""

    prompts: dict[str, list[int]]
    """Special tokens as the prompt set says."""
    options: dict[str, list[int]]
    """Never with special tokens."""


def tokenize(prompt_set: PromptSet, tokenizer: Tokenizer) -> TokenizedPrompts:
    """Turn prompts into distinct queries and the table that points at them.

    The query of a prompt is its mask, or the next token after its last one where it has none. An
    option's token is the one token of its continuation, encoded by itself, or the first one where
    the set allows that. Before that, `fitted` leaves out what the set allows to be left out.

    Raises
    ------
    PromptError
        Texts without tokens, a mask that the tokenizer does not have, options of several tokens
        where one is needed, two options with the same token (each told once, all of them
        together), or a column with values of different kinds.
    """
    prompt_set, notes = fitted(prompt_set, tokenizer)
    ids = _encode(prompt_set, tokenizer)
    problems = {p.about: p for p in reversed([*_problems(prompt_set, ids, tokenizer)])}
    if problems:
        first_of_each = [PromptError(f"{p.prompt}: {p.message}") for p in problems.values()]
        raise one_error(f"prompt set {prompt_set.name!r}", first_of_each[::-1])
    places: dict[Query, int] = {}
    queries = [
        places.setdefault(_query(prompt, ids, tokenizer, prompt_set.language), len(places))
        for prompt in prompt_set.prompts
    ]
    return TokenizedPrompts(
        name=prompt_set.name,
        tokenizer_digest=tokenizer.digest,
        queries=tuple(places),
        table=_table(prompt_set.prompts, queries=queries, option_ids=ids.options),
        notes=notes,
    )


def tokenize_sequences(prompt_set: SequenceSet, tokenizer: Tokenizer) -> TokenizedPrompts:
    """Turn prompts of many queries into distinct queries and the table that points at them.

    The table has a row per piece, whose option is `target`, and a column `score_kind`. A prompt for
    a next-sentence head has one piece with two options, `next` and `other`.

    Raises
    ------
    PromptError
        A text that has no tokens where some are needed, or a tokenizer without a mask.
    """
    places: dict[Query, int] = {}
    rows: list[tuple[object, ...]] = []
    for at, prompt in enumerate(prompt_set.prompts):
        pieces = prompt.pieces(tokenizer, prompt_set.language)
        for i, (query, options) in enumerate(groupby(pieces, key=lambda piece: piece.query)):
            row = places.setdefault(query, len(places))
            rows += [(at, i, p.text, p.token, row, p.kind, p.option) for p in options]
    schema = {"at": pl.Int64, "piece": pl.Int32, "continuation": pl.String}
    schema |= {"token": pl.Int32, "query": pl.Int32, "score_kind": pl.String, "option": pl.String}
    listed = pl.DataFrame(rows, schema=schema, orient="row")
    prompts = prompt_set.prompts
    own = pl.DataFrame({"prompt_id": [p.id for p in prompts], "text": [p.text for p in prompts]})
    wide = own.with_columns(_own_columns(prompts))[listed["at"]].with_columns(listed.drop("at"))
    table = wide.with_columns(
        order_seed=pl.lit(None, pl.Int32),
        answer=pl.lit(None, pl.String),
        is_answer=pl.lit(None, pl.Boolean),
    )
    head = [name for name in PROMPTS_SCHEMA if name not in ("query_set", "row")]
    return TokenizedPrompts(
        name=prompt_set.name,
        tokenizer_digest=tokenizer.digest,
        queries=tuple(places),
        table=table.select(*head, "query", pl.exclude(*head, "query")),
    )


def _query(prompt: Prompt, ids: _Texts, tokenizer: Tokenizer, language: str) -> Query:
    row = tuple(ids.prompts[prompt.text])
    if not prompt.masks:
        return Query(row, len(row) - 1, language=language)
    masks = [position for position, token in enumerate(row) if token == tokenizer.mask_id]
    return Query(row, masks[prompt.mask or 0], "mask", language=language)


def check_prompts(
    prompt_set: PromptSet, tokenizer: Tokenizer | None, *, max_length: int | None = None
) -> list[Finding]:
    """What stops these prompts, and what their author may not have meant.

    Each thing is told once, for the first prompt that has it, with the number of other prompts.
    Without a tokenizer only spaces and columns are looked at; `max_length` is the model's, in
    tokens. Optional options may be other tokens in their place.

    Raises
    ------
    PromptError
        Everything is left out for this tokenizer.
    """
    remarks: list[_Remark] = [*_column_remarks(prompt_set)]
    if tokenizer is not None:
        prompt_set, _ = fitted(prompt_set, tokenizer)
        ids = _encode(prompt_set, tokenizer)
        remarks += _problems(prompt_set, ids, tokenizer)
        remarks += _length_remarks(prompt_set, ids, max_length)
        remarks += _special_remarks(prompt_set, ids, tokenizer)
        remarks += _boundary_remarks(prompt_set, ids, tokenizer)
        remarks += _mask_remarks(prompt_set, ids, tokenizer)
    remarks += _space_remarks(prompt_set)
    count = Counter((r.level, r.about) for r in remarks)
    first = {(r.level, r.about): r for r in reversed(remarks)}
    return [
        Finding(level, first[level, about].prompt.id, first[level, about].message + _others(n - 1))
        for (level, about), n in count.items()
    ]


class _Remark(NamedTuple):
    level: Literal["error", "warning"]
    about: str
    """Remarks about the same thing are told once."""
    prompt: Prompt
    message: str


def _encode(prompt_set: PromptSet, tokenizer: Tokenizer) -> _Texts:
    """Encode each distinct text and each distinct continuation once, in two batches."""
    texts = list(dict.fromkeys(p.text for p in prompt_set.prompts))
    masked = [masked_text(text, tokenizer.mask_token) for text in texts]
    options = list(dict.fromkeys(o.text for p in prompt_set.prompts for o in p.options))
    special = prompt_set.add_special_tokens
    return _Texts(
        dict(zip(texts, tokenizer.encode_many(masked, add_special_tokens=special), strict=True)),
        dict(zip(options, tokenizer.encode_many(options, add_special_tokens=False), strict=True)),
    )


def _problems(prompt_set: PromptSet, ids: _Texts, tokenizer: Tokenizer) -> Iterator[_Remark]:
    """Every text and option, in order, that does not give the tokens that are needed."""
    for prompt in prompt_set.prompts:
        if not ids.prompts[prompt.text]:
            message = "the text has no tokens in this vocabulary; change it"
            yield _Remark("error", "no tokens", prompt, message)
        if prompt.masks and tokenizer.mask_id is None:
            message = f"the text has a {MASK}, but this tokenizer has no mask token"
            yield _Remark("error", "no mask token", prompt, message)
        elif not _has_its_masks(prompt, ids, tokenizer):
            message = (
                f"its {prompt.masks} {MASK} are not its mask tokens ({tokenizer.mask_token}); "
                f"write {MASK} for a mask, and the token itself nowhere"
            )
            yield _Remark("error", "masks", prompt, message)
        label_of: dict[int, str] = {}
        for option in prompt.options:
            tokens = ids.options[option.text]
            if len(tokens) != 1 and not (tokens and prompt_set.first_token):
                message = _not_one_token(option, tokenizer.pieces(tokens))
                yield _Remark("error", "pieces " + option.text, prompt, message)
            elif (other := label_of.setdefault(tokens[0], option.label)) != option.label:
                piece = tokenizer.pieces(tokens[:1])[0]
                message = (
                    f"options {other!r} and {option.label!r} have the same token "
                    f"{quote(piece)} ({tokens[0]}); use continuations that begin differently"
                )
                yield _Remark("error", f"same {tokens[0]}", prompt, message)


def _length_remarks(
    prompt_set: PromptSet, ids: _Texts, max_length: int | None
) -> Iterator[_Remark]:
    for prompt in prompt_set.prompts:
        length = len(ids.prompts[prompt.text])
        if max_length is not None and length > max_length:
            message = f"the text is {length} tokens, the model takes at most {max_length}"
            yield _Remark("error", "length", prompt, message)


def _column_remarks(prompt_set: PromptSet) -> Iterator[_Remark]:
    """Columns named almost like the fields that no prompt has."""
    prompts = prompt_set.prompts
    lacking = {"options": not any(p.options for p in prompts)}
    lacking["answer"] = not any(p.answer for p in prompts)
    for field in (name for name, lacks in lacking.items() if lacks):
        names = dict.fromkeys(name for p in prompts for name in p.columns)
        for name in get_close_matches(field, names, cutoff=0.7):
            message = f"no prompt has {field!r}; is the column {name!r} meant?"
            yield _Remark("warning", "column " + name, prompts[0], message)


def _not_one_token(option: Option, pieces: Sequence[str]) -> str:
    found = f"{len(pieces)} tokens ({', '.join(map(quote, pieces))})" if pieces else "no token"
    return (
        f"option {option.label!r} ({quote(option.text)}) is {found}; one is needed. "
        "Shorten it, or allow first tokens with --first-token"
    )


def _others(count: int) -> str:
    if not count:
        return ""
    return f" (and {count} other prompt{'s' if count > 1 else ''})"


def _space_remarks(prompt_set: PromptSet) -> Iterator[_Remark]:
    for prompt in prompt_set.prompts:
        if prompt.masks:
            continue
        last = prompt.text[-1]
        if last in " \t":
            message = (
                "the text ends in a space, which most vocabularies join to the next word; "
                "begin the options with it instead"
            )
            yield _Remark("warning", "trailing space", prompt, message)
        if last.isspace() or last in _OPENING:
            continue
        for option in _required(prompt):
            if option.text[0].isalnum():
                message = (
                    f"option {option.label!r} ({quote(option.text)}) begins without a space and "
                    f"the text ends without one; write {quote(' ' + option.text)} if a new word "
                    "is meant"
                )
                yield _Remark("warning", "space " + option.text, prompt, message)


def _special_remarks(prompt_set: PromptSet, ids: _Texts, tokenizer: Tokenizer) -> Iterator[_Remark]:
    prompt = prompt_set.prompts[0]
    if prompt.masks:
        return
    scored = ids.prompts[prompt.text][-1:]
    plain = tokenizer.encode(prompt.text, add_special_tokens=False)[-1:]
    if scored != plain:
        message = (
            f"the tokenizer puts {quote(tokenizer.pieces(scored)[0])} after every text, and the "
            "token after that would be scored; turn special tokens off"
        )
        yield _Remark("warning", "special", prompt, message)


def _boundary_remarks(
    prompt_set: PromptSet, ids: _Texts, tokenizer: Tokenizer
) -> Iterator[_Remark]:
    """Options that text and option together do not split as text and option apart."""
    texts = list(dict.fromkeys(p.text for p in prompt_set.prompts if not p.masks))
    plain = dict(zip(texts, tokenizer.encode_many(texts, add_special_tokens=False), strict=True))
    pairs = dict.fromkeys(
        (p.text, o.text) for p in prompt_set.prompts if not p.masks for o in _required(p)
    )
    joined = tokenizer.encode_many([t + o for t, o in pairs], add_special_tokens=False)
    tails: dict[tuple[str, str], str] = {}
    for (text, continuation), together in zip(pairs, joined, strict=True):
        end = len(plain[text]) + 1 if prompt_set.first_token else None
        apart = plain[text] + ids.options[continuation]
        if together[:end] != apart[:end]:
            tails[text, continuation] = _tail(tokenizer, together, apart)
    for prompt in prompt_set.prompts:
        for option in _required(prompt):
            if tail := tails.get((prompt.text, option.text)):
                message = (
                    f"option {option.label!r} ({quote(option.text)}) is split otherwise right "
                    f"after this text ({tail}); check the space between them"
                )
                yield _Remark("warning", "boundary " + option.text, prompt, message)


def _mask_remarks(prompt_set: PromptSet, ids: _Texts, tokenizer: Tokenizer) -> Iterator[_Remark]:
    """Options whose token is not the one that stands there where the option fills the mask."""
    masked = [p for p in prompt_set.prompts if p.masks and _has_its_masks(p, ids, tokenizer)]
    cases = [(prompt, option) for prompt in masked for option in _required(prompt)]
    texts = [masked_text(_filled(*case), tokenizer.mask_token) for case in cases]
    encoded = tokenizer.encode_many(texts, add_special_tokens=prompt_set.add_special_tokens)
    for prompt in masked:
        before = ids.prompts[prompt.text][: _query(prompt, ids, tokenizer, "").position]
        if before and tokenizer.pieces(before[-1:]) == [" "]:
            message = (
                f"a token for the space alone stands before the {MASK}; mask tokens usually take "
                "that space (lstrip): check the tokenizer's files"
            )
            yield _Remark("warning", "space before mask", prompt, message)
    for (prompt, option), row in zip(cases, encoded, strict=True):
        position = _query(prompt, ids, tokenizer, "").position
        end = 1 if prompt_set.first_token else None
        if row[position : position + 1] != ids.options[option.text][:end]:
            found = tokenizer.pieces(row[position : position + 1])
            message = (
                f"option {option.label!r} ({quote(option.text)}) is another token when it stands "
                f"in the text ({', '.join(map(quote, found))}); check the space before it"
            )
            yield _Remark("warning", "fills " + option.text, prompt, message)


def _required(prompt: Prompt) -> list[Option]:
    return [option for option in prompt.options if not option.optional]


def _has_its_masks(prompt: Prompt, ids: _Texts, tokenizer: Tokenizer) -> bool:
    found = sum(token == tokenizer.mask_id for token in ids.prompts[prompt.text])
    return found == prompt.masks


def _filled(prompt: Prompt, option: Option) -> str:
    """The text with the option in place of the scored mask."""
    parts = prompt.text.split(MASK)
    at = (prompt.mask or 0) + 1
    before, after = MASK.join(parts[:at]), MASK.join(parts[at:])
    # The space before a mask is the mask token's where the option brings its own.
    return (before.rstrip(" ") if option.text.startswith(" ") else before) + option.text + after


def _tail(tokenizer: Tokenizer, together: Sequence[int], apart: Sequence[int]) -> str:
    """The pieces of `together` from where it differs."""
    same = 0
    while same < min(len(together), len(apart)) and together[same] == apart[same]:
        same += 1
    return ", ".join(map(quote, tokenizer.pieces(together[same : same + 4]))) or "fewer tokens"


def _table(
    prompts: Sequence[Prompt],
    *,
    queries: Sequence[int],
    option_ids: Mapping[str, Sequence[int]],
) -> pl.DataFrame:
    schema = dict(PROMPTS_SCHEMA.items()) | {"query": pl.Int32()}
    shared = pl.DataFrame(
        {
            "prompt_id": [p.id for p in prompts],
            "order_seed": [p.order_seed for p in prompts],
            "piece": [0] * len(prompts),
            "text": [p.text for p in prompts],
            "answer": [p.answer for p in prompts],
            "query": queries,
        },
        schema_overrides=schema,
    ).with_columns(_own_columns(prompts))
    rows: list[tuple[int, str | None, str | None, int | None, bool | None]] = []
    for i, prompt in enumerate(prompts):
        if not prompt.options:
            rows.append((i, None, None, None, None))
        for o in prompt.options:
            token = option_ids[o.text][0]
            is_answer = None if prompt.answer is None else o.label == prompt.answer
            rows.append((i, o.label, o.text, token, is_answer))
    names = ("option", "continuation", "token", "is_answer")
    listed = pl.DataFrame(
        rows, schema={"prompt": pl.Int32(), **{n: schema[n] for n in names}}, orient="row"
    )
    wide = shared[listed["prompt"]].with_columns(listed.drop("prompt"))
    head = [name for name in PROMPTS_SCHEMA if name not in ("query_set", "row")]
    return wide.select(*head, "query", pl.exclude(*head, "query"))


def _own_columns(prompts: Sequence[Prompt | SequencePrompt]) -> list[pl.Series]:
    """The prompts' own columns, in the order of their first appearance; null where absent."""
    names = dict.fromkeys(name for p in prompts for name in p.columns)
    return [_column(name, [p.columns.get(name) for p in prompts]) for name in names]


def _column(name: str, values: list[Scalar]) -> pl.Series:
    kinds = {type(v) for v in values if v is not None}
    if not kinds:
        return pl.Series(name, values, pl.String)
    if kinds == {int, float}:
        return pl.Series(name, values, pl.Float64, strict=False)
    if len(kinds) > 1:
        found = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise PromptError(f"column {name!r} holds values of different kinds ({found}); use one")
    return pl.Series(name, values)
