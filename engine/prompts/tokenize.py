"""Turn a prompt set into token ids: encode and check texts and options, and list scored rows."""

import io
import json
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256

import numpy as np
import polars as pl

from logitbank.engine.cache import remember, remembered
from logitbank.engine.prompts.findings import Finding, once_per_kind, refuse
from logitbank.engine.prompts.options import OptionEncoder, fitted
from logitbank.engine.prompts.prompt_set import PromptSet
from logitbank.engine.prompts.scoring import sentence_tokens
from logitbank.engine.prompts.text_checks import TextChecks
from logitbank.engine.prompts.values import KINDS, Encoder, Prompt, ScoredToken, quote
from logitbank.engine.prompts.warnings import likely_mistakes
from logitbank.engine.tokenizers.tokenizer import Tokenizer
from logitbank.engine.weights.config import ModelConfig
from logitbank.errors import PromptError, SuiteError
from logitbank.store.format.schema import PROMPTS_SCHEMA, Query
from logitbank.store.tables.prompt_checks import check_prompts

_BATCH = 5_000
"""Prompts whose options are encoded at once: the ids of all would fill memory."""
_PLACE = ("position", "head", "segments", "language")
"""Fields of a query but its ids."""


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
    """Skipped prompts, and options of several tokens; one line each."""
    warnings: tuple[str, ...] = ()
    """Likely mistakes; one line each."""


def tokenize(
    prompt_set: PromptSet, tokenizer: Tokenizer, max_length: int | None = None
) -> TokenizedPrompts:
    """Turn prompts into distinct queries and the table that points at them.

    `max_length` is the longest sequence of the model, for ways of scoring that need it.

    The query of a prompt with options is its mask, or the next token after it without one. Other
    prompts have a row per scored token, whose option is `target`, and a column `score_kind`. One
    for a next-sentence head has one query with two options, `next` and `other`.

    Raises
    ------
    PromptError
        No prompt is left, or the errors of all prompts, once per kind: texts without tokens, a mask
        that the tokenizer does not have, options of several tokens where one is needed or that
        merge with the text, two options with the same tokens, columns with values of two kinds.
    """
    name, has_options = prompt_set.name, prompt_set.has_options
    prompts, notes = fitted(prompt_set, tokenizer)
    encoder = Encoder(tokenizer, prompt_set.language, prompt_set.add_special_tokens, max_length)
    options = OptionEncoder(prompt_set, encoder)
    texts = TextChecks(tokenizer)
    queries: dict[Query, int] = {}
    rows = _Rows()
    errors: list[Finding] = []
    mistakes: list[Finding] = []
    for start in range(0, len(prompts), _BATCH):
        batch = prompts[start : start + _BATCH]
        if has_options:
            options.encode(batch)
            errors += (error for prompt in batch for error in options.errors(prompt))
            if errors:
                continue
            mistakes += options.mistakes(batch)
            texts.add(batch, options.plain)
        elif not tokenizer.loses_nothing:
            texts.add(batch, _plain(batch, tokenizer))
        for i, prompt in enumerate(batch, start):
            way = prompt.scored or options.scored_tokens
            try:
                rows.add(i, way(prompt, encoder), queries)
            except PromptError as error:
                errors.append(Finding(str(error), prompt.id, str(error)))
    refuse(f"prompt set {name!r}", once_per_kind(errors))
    table = _table(prompts, rows)
    if has_options:
        table = table.drop("score_kind")
        notes += _long_options_note(name, table)
    if encoder.truncated:
        notes += (
            f"{name}: {encoder.truncated:,} of {len(prompts):,} requests are longer than the "
            "model's context. As in lm-evaluation-harness, they lose the start of their text.",
        )
    if prompt_set.masked_note and tokenizer.mask_id is not None:
        notes += (f"{name}: {prompt_set.masked_note}",)
    warnings = [*_capitals(name, tokenizer)]
    warnings += likely_mistakes(prompt_set, prompts, [*texts.findings, *mistakes])
    return TokenizedPrompts(name, tuple(queries), table, notes, tuple(warnings))


def _plain(prompts: Sequence[Prompt], tokenizer: Tokenizer) -> dict[str, list[int]]:
    """Ids of each text of which not every token is scored, without special tokens."""
    texts = list(dict.fromkeys(p.text for p in prompts if p.scored is not sentence_tokens))
    return dict(zip(texts, tokenizer.encode_many(texts, add_special_tokens=False), strict=True))


def _capitals(name: str, tokenizer: Tokenizer) -> Iterator[str]:
    """A warning about a cased vocabulary whose tokenizer lower-cases every text."""
    if found := tokenizer.unreachable:
        yield (
            f"{name}: the tokenizer lower-cases every text, so the {len(found):,} entries with "
            f"capital letters ({', '.join(map(quote, found[:3]))}, …) are never reached. Set "
            "do_lower_case in tokenizer_config.json to false if the model is cased"
        )


class _Rows:
    """The scored tokens of all prompts, in columns: objects for each would fill memory."""

    def __init__(self) -> None:
        self.prompt, self.piece, self.query = array("i"), array("i"), array("i")
        self.token: list[int | None] = []
        self.option: list[str | None] = []
        self.text: list[str | None] = []
        self.kind: list[str | None] = []
        self._known: dict[str | None, str | None] = {}

    def add(self, prompt: int, scored: Iterable[ScoredToken], queries: dict[Query, int]) -> None:
        """A row for each scored token of a prompt; new queries are added to `queries`."""
        seen: set[str | None] = set()
        latest = 0
        for t in scored:
            # Not by query: several tokens of a word may have one, such as "▁" and the next one.
            piece = (
                latest + 1 if t.option in seen else 0
            )  # the first tokens of all options share one
            latest = max(latest, piece)
            seen.add(t.option)
            self.prompt.append(prompt)
            self.piece.append(piece)
            self.query.append(queries.setdefault(t.query, len(queries)))
            self.token.append(t.token)
            self.option.append(t.option)
            self.text.append(self._known.setdefault(t.text, t.text))
            self.kind.append(t.kind)

    def frame(self) -> pl.DataFrame:
        """A row per scored token: prompt, columns of `PROMPTS_SCHEMA`, query, and score kind."""
        columns = {
            "prompt": pl.Series(np.frombuffer(self.prompt, np.int32), dtype=pl.Int32),
            "piece": np.frombuffer(self.piece, np.int32),
            "option": self.option,
            "continuation": self.text,
            "token": self.token,
            "query": np.frombuffer(self.query, np.int32),
            "score_kind": self.kind,
        }
        schema = {name: PROMPTS_SCHEMA.get(name, pl.Int32()) for name in columns}
        return pl.DataFrame(columns, schema={**schema, "score_kind": pl.String()})


def tokenized_for(
    prompt_set: PromptSet, tokenizer: Tokenizer, config: ModelConfig | None
) -> TokenizedPrompts:
    """As `tokenize`, with every check that needs neither weights nor a bank.

    `prompts check` and `extract` both call it, so that they find the same errors.

    Raises
    ------
    PromptError
        As `tokenize`; prompts over the model's length limit.
    SuiteError
        Tokens outside the model's vocabulary.
    UsageError
        A table that no bank takes.
    """
    tokenized = tokenize(prompt_set, tokenizer, None if config is None else config.max_length)
    if config is not None:
        check_tokens(tokenized, config)
    count = len(tokenized.queries)
    places = tokenized.table.with_columns(query_set=pl.lit("q"), row="query")
    check_prompts(
        places.select(*PROMPTS_SCHEMA, pl.exclude(*PROMPTS_SCHEMA, "query")), lambda _: count
    )
    return tokenized


def tokenized_once(
    prompts: PromptSet, tokenizer: Tokenizer, config: ModelConfig | None
) -> TokenizedPrompts:
    """As `tokenized_for`, or what it has given for equal prompts, tokenizer and config.

    15,840 prompts take three seconds. A way of scoring that is not logitbank's own may change, and
    is run each time. Raises as `tokenized_for`.
    """
    content, ways = sha256(repr(replace(prompts, prompts=prompts.prompts[:1])).encode()), set()
    for prompt in prompts.prompts:
        way = prompt.scored and f"{prompt.scored.__module__}.{prompt.scored.__qualname__}"
        ways.add(way)
        content.update(f"{prompt!r} {way}\n".encode())
    if any(way and not way.startswith("logitbank.engine.") for way in ways):
        return tokenized_for(prompts, tokenizer, config)
    key = [content.hexdigest(), tokenizer.identity, repr(config)]
    if (known := remembered(key)) is not None:
        return _parsed(known)
    tokenized = tokenized_for(prompts, tokenizer, config)
    remember(key, _bytes(tokenized))
    return tokenized


def _bytes(tokenized: TokenizedPrompts) -> bytes:
    """A line of JSON and a table, as `_parsed` reads them."""
    line = _line(tokenized)
    table = io.BytesIO()
    tokenized.table.write_ipc(table, compression="zstd")
    return b"".join([line, b"\n", table.getbuffer()])


def _line(tokenized: TokenizedPrompts) -> bytes:
    sequences: dict[tuple[int, ...], int] = {}  # queries of one text share its ids
    numbers = [sequences.setdefault(q.ids, len(sequences)) for q in tokenized.queries]
    queries = [numbers, *([getattr(q, name) for q in tokenized.queries] for name in _PLACE)]
    plain = [tokenized.name, [*sequences], queries, tokenized.notes, tokenized.warnings]
    return json.dumps(plain).encode()


def _parsed(data: bytes) -> TokenizedPrompts:
    plain, _, table = data.partition(b"\n")
    name, sequences, queries, notes, warnings = json.loads(plain)
    for i, sequence in enumerate(sequences):  # one after the other: lists take as much memory again
        sequences[i] = tuple(sequence)
    return TokenizedPrompts(
        name,
        tuple(
            Query(sequences[sequence], position, head, tuple(segments), language)
            for sequence, position, head, segments, language in zip(*queries, strict=True)
        ),
        pl.read_ipc(io.BytesIO(table)),
        tuple(notes),
        tuple(warnings),
    )


def check_tokens(prompts: TokenizedPrompts, config: ModelConfig) -> None:
    """Refuse prompts over the model's length limit, and tokens outside its vocabulary."""
    if config.max_length is not None:
        long = [i for i, q in enumerate(prompts.queries) if len(q.ids) > config.max_length]
        if long:
            name = prompts.table.filter(query=long[0])["prompt_id"][0]
            raise PromptError(
                f"Prompt {name!r} of {prompts.name!r} has {len(prompts.queries[long[0]].ids)} "
                f"tokens, but the model takes at most {config.max_length} ({len(long):,} contexts "
                "are longer). Shorten or remove them: nothing is truncated."
            )
    tokens = prompts.table["token"].max()
    sequences = {id(q.ids): q.ids for q in prompts.queries}  # shared by positions of one text
    largest = max(map(max, sequences.values()))
    largest = max(largest, tokens if isinstance(tokens, int) else 0)
    if largest >= config.vocab:
        raise SuiteError(
            f"The tokenizer gives token {largest}, but the model has {config.vocab} entries. The "
            "tokenizer files belong to another model."
        )


def _long_options_note(name: str, table: pl.DataFrame) -> tuple[str, ...]:
    """A note if some options are scored by several tokens."""
    piece, first = table["piece"], table["option"].is_not_null() & (table["piece"] == 0)
    long = int((first.shift(1, fill_value=False) & (piece > 0)).sum())
    if not long:
        return ()
    return (
        f"{name}: {long:,} of {first.sum():,} options have several tokens, and "
        "all of them are scored. Choose sum, mean or first-token scoring with `logitbank analyze "
        "options --score`.",
    )


# The table


def prompt_count(table: pl.DataFrame) -> int:
    """Number of prompts and orders of a table, in which the rows of each are neighbours."""
    names = ("prompt_id", "order_seed")
    differs = pl.any_horizontal(pl.col(name).ne_missing(pl.col(name).shift(1)) for name in names)
    return int(table.select(differs.slice(1).sum()).item()) + 1


def _table(prompts: Sequence[Prompt], rows: _Rows) -> pl.DataFrame:
    """The columns of every prompt table, then metadata columns, and the score kind."""
    shared = pl.DataFrame(
        {
            "prompt_id": [p.id for p in prompts],
            "order_seed": [p.order_seed for p in prompts],
            "text": [p.text for p in prompts],
            "answer": [p.answer for p in prompts],
        },
        schema_overrides=PROMPTS_SCHEMA,
    ).with_columns(_metadata(prompts))
    scored = rows.frame()
    table = shared[scored["prompt"]].with_columns(scored.drop("prompt"))
    table = table.with_columns(is_answer=pl.col("option") == pl.col("answer"))
    head = [name for name in PROMPTS_SCHEMA if name not in ("query_set", "row")]
    return table.select(*head, "query", pl.exclude(*head, "query"))


def _metadata(prompts: Sequence[Prompt]) -> Iterable[pl.Series]:
    """The metadata columns, in the order of their first appearance; null where absent."""
    for name in dict.fromkeys(name for prompt in prompts for name in prompt.columns):
        values = [prompt.columns.get(name) for prompt in prompts]
        types = {type(value) for value in values if value is not None}
        if len({KINDS[each] for each in types}) > 1:
            firsts: dict[str, str] = {}
            for prompt, value in zip(prompts, values, strict=True):
                if value is not None:
                    firsts.setdefault(KINDS[type(value)], prompt.id)
            found = " and ".join(f"{kind} in prompt {first!r}" for kind, first in firsts.items())
            raise PromptError(f"Column {name!r} has {found}. Use one kind.")
        if not types:
            yield pl.Series(name, values, pl.String)
        elif types == {int, float}:
            yield pl.Series(name, values, pl.Float64, strict=False)
        else:
            yield pl.Series(name, values)
