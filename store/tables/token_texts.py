"""Texts of the tokens of a vocabulary: one table per tokenizer, `tokens/` in a bank."""

from collections.abc import Iterable
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import ArrayLike

from logitbank.errors import AbsentError, DamagedError, UsageError
from logitbank.store.files import copies, objects
from logitbank.store.format.parquet import PARQUET_ERRORS, check_rows
from logitbank.store.format.schema import CLASS_HEADS, TOKENS_SCHEMA, check_folder, folder_name
from logitbank.store.tables import prompt_tables, query_tables
from logitbank.store.tables.table_files import (
    TableFile,
    content_digest,
    named_files,
    require_content,
    require_sound,
    write_table,
)

FOLDER = "tokens"
COLUMN = "token_text"
"""The column that `scan` and SQL give texts in."""


def tokens_files(root: Path) -> list[TableFile]:
    """All tables of texts, by tokenizer and digest."""
    return named_files(root, FOLDER)


def write_tokens(root: Path, tokenizer: str, table: pl.DataFrame) -> None:
    """Store the texts of a tokenizer's tokens, unless it has some; UsageError if invalid."""
    check_folder(tokenizer, "tokenizer")
    _check(table)
    if any(file.name == tokenizer for file in tokens_files(root)):
        return
    table = table.select(list(TOKENS_SCHEMA)).sort("token")
    name = f"{folder_name(tokenizer)}-{content_digest(table)}.parquet"
    write_table(root, objects.plain_path(root, f"{FOLDER}/{name}"), table, {})


def _check(table: pl.DataFrame) -> None:
    if missing := [c for c, t in TOKENS_SCHEMA.items() if table.schema.get(c) != t]:
        kinds = ", ".join(f"{name} {kind}" for name, kind in TOKENS_SCHEMA.items())
        raise UsageError(f"a table of tokens has the columns {kinds}; this has no {missing[0]}")
    if table.is_empty() or table.select(list(TOKENS_SCHEMA)).null_count().sum_horizontal()[0]:
        raise UsageError("a table of tokens has a row, and a value in every column; this has not")
    if len(twice := table.filter(pl.col("token").is_duplicated() | (pl.col("token") < 0))):
        raise UsageError(
            f"token {twice['token'][0]} is there twice, or negative; give each token of the"
            " vocabulary once"
        )


def tokens_in(path: Path) -> pl.DataFrame:
    """The table in a file, verified against its name, or DamagedError."""
    table = _read(path)
    require_content(path, table)
    return table


def _read(path: Path) -> pl.DataFrame:
    try:
        check_rows(path)
        table = pl.read_parquet(path, glob=False)
        _check(table)
    except (*PARQUET_ERRORS, OSError, UsageError) as error:
        raise DamagedError(f"{path} is no table of tokens ({error})") from error
    return table


def tokens_of(root: Path, tokenizer: str) -> pl.DataFrame | None:
    """The texts of a tokenizer's tokens, None if the bank has none; DamagedError."""
    files = [file for file in tokens_files(root) if file.name == tokenizer]
    if not files:
        return None
    require_sound(files[0].path)
    return _read(files[0].path).select(list(TOKENS_SCHEMA))


def tokens(root: Path, of: str | None) -> pl.DataFrame:
    """See `Bank.tokens`."""
    kept = {file.name for file in tokens_files(root)}
    prompts = {file.name for file in prompt_tables.prompt_files(root)}
    if of in kept:
        return require_tokens(root, of)
    if of is not None and of not in prompts:
        raise AbsentError(
            f"{of!r} is neither a prompt set of {copies.address(root)}, which has"
            f" {', '.join(sorted(prompts)) or 'none'}, nor a tokenizer whose texts it keeps:"
            f" {', '.join(sorted(kept)) or 'none'}"
        )
    query_sets = (
        query_tables.query_set_names(root)
        if of is None
        else sorted(prompt_tables.query_sets_of(prompt_tables.scan_prompts(root, of)))
    )
    used = {query_tables.tokenizer_of(root, name) for name in query_sets}
    if len(used) > 1:
        raise UsageError(
            f"{of or copies.address(root)} was asked with {len(used)} tokenizers; name a prompt"
            f" set of one, or one of {', '.join(sorted(used))}"
        )
    if not used:
        raise AbsentError(
            f"{copies.address(root)} has no queries yet, so no tokenizer; run `logitbank extract`"
        )
    return require_tokens(root, used.pop())


def require_tokens(root: Path, tokenizer: str) -> pl.DataFrame:
    """The texts of a tokenizer's tokens, or AbsentError, or DamagedError."""
    table = tokens_of(root, tokenizer)
    if table is None:
        raise AbsentError(
            f"{copies.address(root)} keeps no texts of the tokens of tokenizer {tokenizer[:12]}: it"
            " was made without them; run the same `logitbank extract` again, which adds them"
            " and runs no model, or go by the tokens' numbers"
        )
    return table


def numbered(root: Path, query_set: str, tokens: ArrayLike) -> ArrayLike:
    """Token numbers (v,) int64 of texts; numbers stay as they are.

    Raises UsageError if a text is not exactly one token, and AbsentError if the bank has no texts
    of this tokenizer.
    """
    texts = np.asarray(tokens).tolist()
    if not isinstance(texts, list) or not texts or not all(isinstance(t, str) for t in texts):
        return tokens
    table = require_tokens(root, query_tables.tokenizer_of(root, query_set))
    asked = table.filter(pl.col("text").is_in(texts)).sort("token")
    by_text: dict[str, list[int]] = {}
    for text, token in asked.select("text", "token").iter_rows():
        by_text.setdefault(text, []).append(token)
    for text in texts:
        tokens = by_text.get(text, [])
        if not tokens:
            raise UsageError(f"no token says {text!r}; {_near(table, text)}")
        if len(tokens) > 1:
            numbers = ", ".join(map(str, tokens))
            raise UsageError(f"tokens {numbers} all say {text!r}; give the number of one")
    return np.array([by_text[text][0] for text in texts], np.int64)


def _near(table: pl.DataFrame, text: str) -> str:
    """Advice: tokens that differ from a text by white space or case alone."""
    plain = pl.col("text").str.strip_chars(" #").str.to_lowercase()
    near = table.filter(plain == text.strip(" #").lower())["text"].head(4).to_list()
    if near:
        return f"there is {', '.join(map(repr, near))}"
    return "the tokenizer makes several tokens of it; `tokens()` lists all that there are"


def with_texts(root: Path, prompts: pl.LazyFrame, query_sets: Iterable[str]) -> pl.LazyFrame:
    """Prompts with the text of each token in the column after `token`, or AbsentError."""
    for tokenizer in {query_tables.tokenizer_of(root, name) for name in query_sets}:
        require_tokens(root, tokenizer)
    names = prompts.collect_schema().names()
    after = names.index("token") + 1
    return prompts.select(*names[:after], token_texts(root), *names[after:])


def token_texts(root: Path) -> pl.Expr:
    """The text of `token` in the tokenizer of `query_set`, null if there is none; read lazily."""
    pairs = pl.struct("query_set", "token")
    return pairs.map_batches(partial(texts_of, root), return_dtype=pl.String).alias(COLUMN)


def texts_of(root: Path, pairs: pl.Series) -> pl.Series:
    """Texts, `token_text`, of pairs (struct) of `query_set` and `token`; null if there is none."""
    frame = pairs.struct.unnest()
    names = frame["query_set"].unique().drop_nulls().to_list()
    by_tokenizer: dict[str, list[str]] = {}
    for name in names:
        by_tokenizer.setdefault(query_tables.tokenizer_of(root, name), []).append(name)
    empty = pl.DataFrame(schema={"query_set": pl.String, "token": pl.Int32, "text": pl.String})
    known = [empty]
    for tokenizer, query_sets in by_tokenizer.items():
        if (table := tokens_of(root, tokenizer)) is not None:
            scored = pl.DataFrame({"query_set": [s for s in query_sets if _of_words(root, s)]},
                                  schema={"query_set": pl.String})  # fmt: skip
            known.append(scored.join(table.select("token", "text"), how="cross"))
    joined = frame.join(
        pl.concat(known), on=["query_set", "token"], how="left", maintain_order="left"
    )
    return joined["text"].rename(COLUMN)


def _of_words(root: Path, query_set: str) -> bool:
    """Whether a query set's outputs are tokens, and not classes of another head."""
    return query_tables.head_of(root, query_set) not in CLASS_HEADS
