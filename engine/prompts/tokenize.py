"""Turn a prompt set into token ids: encode and check texts and options, and list scored rows."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import NamedTuple

import polars as pl

from logitbank.engine.prompts.findings import Finding, once_per_kind, refuse
from logitbank.engine.prompts.prompt_set import PromptSet, SequenceSet
from logitbank.engine.prompts.sequences import (
    Encoder,
    SequencePrompt,
    contexts,
    continuations,
    without_word,
)
from logitbank.engine.prompts.values import (
    KINDS,
    MASK,
    Option,
    Prompt,
    masked_text,
    quote,
)
from logitbank.engine.prompts.warnings import column_warnings, text_warnings
from logitbank.engine.tokenizers.tokenizer import Tokenizer
from logitbank.engine.weights.config import ModelConfig
from logitbank.errors import PromptError, SuiteError
from logitbank.store.format.schema import PROMPTS_SCHEMA, Query
from logitbank.store.tables.prompt_checks import check_prompts

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
    """Skipped prompts, and options of several tokens; one line each."""
    warnings: tuple[str, ...] = ()
    """Likely mistakes; one line each."""


class ScoredRow(NamedTuple):
    """A scored token of the prompt at an index; the token is null for a prompt without options."""

    prompt: int
    piece: int
    option: str | None
    continuation: str | None
    token: int | None
    query: int
    score_kind: str | None = None


def tokenize(prompt_set: PromptSet | SequenceSet, tokenizer: Tokenizer) -> TokenizedPrompts:
    """Turn prompts into distinct queries and the table that points at them.

    The query of a prompt with a text is its mask, or the next token after it without one. A prompt
    with many queries has a row per scored token, whose option is `target`, and a column
    `score_kind`. One for a next-sentence head has one query with two options, `next` and `other`.

    Raises
    ------
    PromptError
        No prompt is left, or the errors of all prompts, once per kind: texts without tokens, a mask
        that the tokenizer does not have, options of several tokens where one is needed or that
        merge with the text, two options with the same tokens, columns with values of two kinds.
    """
    if isinstance(prompt_set, PromptSet):
        return _tokenize_texts(prompt_set, tokenizer)
    return _tokenize_sequences(prompt_set, tokenizer)


def _tokenize_sequences(prompt_set: SequenceSet, tokenizer: Tokenizer) -> TokenizedPrompts:
    prompts = prompt_set.prompts
    queries: dict[Query, int] = {}
    rows: list[ScoredRow] = []
    errors = []
    encoder = Encoder(tokenizer, prompt_set.language, prompt_set.add_special_tokens)
    for i, prompt in enumerate(prompts):
        try:
            scored = [*prompt.scored_tokens(encoder)]
        except PromptError as error:
            errors.append(Finding(str(error), prompt.id, str(error)))
            continue
        pieces: Counter[str | None] = Counter()
        for t in scored:
            # Not by query: several tokens of a word may have one, such as "▁" and the next one.
            index = queries.setdefault(t.query, len(queries))
            rows.append(ScoredRow(i, pieces[t.option], t.option, t.text, t.token, index, t.kind))
            pieces[t.option] += 1
    refuse(f"prompt set {prompt_set.name!r}", once_per_kind(errors))
    table, warnings = _table(prompts, rows), tuple(once_per_kind(column_warnings(prompts)))
    is_masked = tokenizer.mask_id is not None
    notes = (*without_word(prompt_set.name, prompts),) if is_masked else ()
    return TokenizedPrompts(prompt_set.name, tuple(queries), table, notes, warnings)


def _tokenize_texts(prompt_set: PromptSet, tokenizer: Tokenizer) -> TokenizedPrompts:
    encoded, notes = encode(prompt_set, tokenizer)
    prompts, name = encoded.prompts, prompt_set.name
    refuse(f"prompt set {name!r}", once_per_kind(encoded.errors))
    queries: dict[Query, int] = {}
    rows: list[ScoredRow] = []
    for i, (prompt, options) in enumerate(zip(prompts, encoded.options, strict=True)):
        rows += encoded.rows(i, prompt, options, queries)
    table = _table(prompts, rows).drop("score_kind")
    notes = (*notes, *_long_options_note(name, table))
    found = text_warnings(prompt_set.prompts, prompts, encoded.find_mistakes())
    return TokenizedPrompts(name, tuple(queries), table, notes, tuple(once_per_kind(found)))


def tokenized_for(
    prompt_set: PromptSet | SequenceSet, tokenizer: Tokenizer, config: ModelConfig | None
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
    tokenized = tokenize(prompt_set, tokenizer)
    if config is not None:
        check_tokens(tokenized, config)
    count = len(tokenized.queries)
    places = tokenized.table.with_columns(query_set=pl.lit("q"), row="query")
    check_prompts(
        places.select(*PROMPTS_SCHEMA, pl.exclude(*PROMPTS_SCHEMA, "query")), lambda _: count
    )
    return tokenized


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


OptionTokens = tuple[tuple[int, ...] | None, ...]
"""The tokens of each option of a prompt; None if an option merges with the text."""


@dataclass(frozen=True, slots=True)
class EncodedPrompts:
    """The prompts that a tokenizer can score, with the ids of their texts and options."""

    prompt_set: PromptSet
    tokenizer: Tokenizer
    prompts: tuple[Prompt, ...]
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
            return Finding(kind, prompt.id, message)

        if not self.texts[prompt.text]:
            yield error("no tokens", "the text has no tokens in this vocabulary")
        mask_id = self.tokenizer.mask_id
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

    def find_mistakes(self) -> Iterator[Finding]:
        """Options whose token differs from the one in the text where the option fills the mask."""
        required = (
            (prompt, option, tokens)
            for prompt, options in zip(self.prompts, self.options, strict=True)
            if prompt.masks
            for option, tokens in zip(prompt.options, options, strict=True)
            if tokens is not None and not option.optional
        )
        flag = self.prompt_set.add_special_tokens
        while cases := [*islice(required, _BATCH)]:
            filled = [masked_text(_filled(p, o), self.tokenizer.mask_token) for p, o, _ in cases]
            rows = self.tokenizer.encode_many(filled, add_special_tokens=flag)
            for (prompt, option, tokens), row in zip(cases, rows, strict=True):
                position = self.query(prompt).position
                in_text = row[position : position + 1]
                if tuple(in_text) != self.scored(tokens):
                    texts = ", ".join(map(quote, self.tokenizer.decode_each(in_text)))
                    message = (
                        f"option {option.label!r} ({quote(option.text)}) is another token in the "
                        f"text ({texts}); check the space before it"
                    )
                    yield Finding("fills " + option.text, prompt.id, message)

    def _option_problem(
        self, prompt: Prompt, option: Option, tokens: tuple[int, ...] | None
    ) -> str:
        """Why an option cannot be scored; empty if it can."""
        if tokens is None:
            return (
                "merges with the text: no token boundary lies between them. Move the space from "
                "the end of the text to the start of the option"
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


def _filled(prompt: Prompt, option: Option) -> str:
    """The text with the option in place of the scored mask."""
    parts = prompt.text.split(MASK)
    scored = (prompt.mask or 0) + 1
    before, after = MASK.join(parts[:scored]), MASK.join(parts[scored:])
    # The space before a mask is the mask token's if the option brings its own.
    return (before.rstrip(" ") if option.text.startswith(" ") else before) + option.text + after


def encode(prompt_set: PromptSet, tokenizer: Tokenizer) -> tuple[EncodedPrompts, tuple[str, ...]]:
    """Encode each distinct text once and each option after its text, and find errors.

    An option under a mask is encoded by itself. Returns notes about skipped prompts, too.
    """
    flag = prompt_set.add_special_tokens
    prompts, notes = fitted(prompt_set, tokenizer)
    masked = list(dict.fromkeys(p.text for p in prompts if p.masks))
    filled = [masked_text(text, tokenizer.mask_token) for text in masked]
    texts = dict(zip(masked, tokenizer.encode_many(filled, add_special_tokens=flag), strict=True))
    plain = list(dict.fromkeys(p.text for p in prompts if not p.masks))
    texts |= zip(plain, contexts(tokenizer, plain, add_special_tokens=flag), strict=True)
    encoded = EncodedPrompts(prompt_set, tokenizer, prompts, texts)

    alone = list(dict.fromkeys(o.text for p in prompts if p.masks for o in p.options))
    ids = tokenizer.encode_many(alone, add_special_tokens=False)
    under_mask = dict(zip(alone, map(tuple, ids), strict=True))
    for start in range(0, len(prompts), _BATCH):
        batch = prompts[start : start + _BATCH]
        pairs = list(
            dict.fromkeys((p.text, o.text) for p in batch if not p.masks for o in p.options)
        )
        before = [texts[text] for text, _ in pairs]
        found = continuations(tokenizer, pairs, before, add_special_tokens=flag)
        after = dict(zip(pairs, found, strict=True))
        for prompt in batch:
            options: OptionTokens = tuple(
                under_mask[o.text] if prompt.masks else after[prompt.text, o.text]
                for o in prompt.options
            )
            encoded.options.append(options)
            encoded.errors.extend(encoded.find_errors(prompt, options))
    return encoded, notes


def token_texts(tokenizer: Tokenizer, tokens: Sequence[int], text: str) -> list[str]:
    """The part of `text` that belongs to each token.

    If several tokens form one character, the last of them gets it. The parts joined are `text`.
    """
    ends = [0]
    for count in range(1, len(tokens)):
        begun = tokenizer.decode(tokens[:count])
        ends.append(len(begun) if text.startswith(begun) else ends[-1])
    return [text[start:end] for start, end in zip(ends, [*ends[1:], len(text)], strict=True)]


def _long_options_note(name: str, table: pl.DataFrame) -> list[str]:
    """A note if some options are scored by several tokens."""
    options = table.drop_nulls("option").group_by("prompt_id", "order_seed", "option").len("tokens")
    long = options.filter(pl.col("tokens") > 1).height
    if not long:
        return []
    return [
        f"{name}: {long:,} of {options.height:,} options have several tokens, and "
        "all of them are scored. Choose sum, mean or first-token scoring with `logitbank analyze "
        "options --score`."
    ]


# Options and prompts that may be skipped


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


# The table

_ROWS = {
    "prompt": pl.Int32(),
    **{name: PROMPTS_SCHEMA[name] for name in ("piece", "option", "continuation", "token")},
    "query": pl.Int32(),
    "score_kind": pl.String(),
}


def _table(prompts: Sequence[Prompt | SequencePrompt], rows: Sequence[ScoredRow]) -> pl.DataFrame:
    """The columns of every prompt table, then metadata columns, and the score kind."""
    shared = pl.DataFrame(
        {
            "prompt_id": [p.id for p in prompts],
            "order_seed": [getattr(p, "order_seed", None) for p in prompts],
            "text": [p.text for p in prompts],
            "answer": [getattr(p, "answer", None) for p in prompts],
        },
        schema_overrides=PROMPTS_SCHEMA,
    ).with_columns(_metadata(prompts))
    scored = pl.DataFrame(rows, schema=_ROWS, orient="row")
    table = shared[scored["prompt"]].with_columns(scored.drop("prompt"))
    table = table.with_columns(is_answer=pl.col("option") == pl.col("answer"))
    head = [name for name in PROMPTS_SCHEMA if name not in ("query_set", "row")]
    return table.select(*head, "query", pl.exclude(*head, "query"))


def _metadata(prompts: Sequence[Prompt | SequencePrompt]) -> Iterable[pl.Series]:
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
