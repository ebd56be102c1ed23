"""Texts of the tokens of a vocabulary: one table per tokenizer, `tokens/` in a bank."""

from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import ArrayLike

from logitbank.errors import AbsentError, DamagedError, UsageError
from logitbank.store.files import copies, objects
from logitbank.store.format.parquet import PARQUET_ERRORS, check_size
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
"""Column with the texts of tokens."""


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
        raise UsageError(f"Column {missing[0]} of tokens is missing. Columns: {kinds}.")
    if table.is_empty() or table.select(list(TOKENS_SCHEMA)).null_count().sum_horizontal()[0]:
        raise UsageError("A table of tokens needs a row, and a value in every column.")
    if len(invalid := table.filter(pl.col("token").is_duplicated() | (pl.col("token") < 0))):
        raise UsageError(
            f"Token {invalid['token'][0]} is repeated or negative. List each token of the"
            " vocabulary once."
        )


def tokens_in(path: Path) -> pl.DataFrame:
    """The table in a file, verified against its name, or DamagedError."""
    table = _read(path)
    require_content(path, table)
    return table


def _read(path: Path) -> pl.DataFrame:
    try:
        check_size(path)
        table = pl.read_parquet(path, glob=False)
        _check(table)
    except (*PARQUET_ERRORS, OSError, UsageError) as error:
        raise DamagedError(f"{path} is not a table of tokens ({error})") from error
    return table


def tokenizer_texts(root: Path, tokenizer: str) -> pl.DataFrame | None:
    """The texts of a tokenizer's tokens, None if the bank has none; DamagedError."""
    files = [file for file in tokens_files(root) if file.name == tokenizer]
    if not files:
        return None
    require_sound(files[0].path)
    return _read(files[0].path).select(list(TOKENS_SCHEMA))


def tokens(root: Path, name: str | None) -> pl.DataFrame:
    """See `Bank.tokens`."""
    stored = {file.name for file in tokens_files(root)}
    prompts = {file.name for file in prompt_tables.prompt_files(root)}
    if name in stored:
        return require_tokens(root, name)
    if name is not None and name not in prompts:
        raise AbsentError(
            f"{name!r} is neither a prompt set nor a tokenizer of {copies.address(root)}. Prompt"
            f" sets: {', '.join(sorted(prompts)) or 'none'}."
        )
    query_sets = (
        query_tables.query_set_names(root)
        if name is None
        else prompt_tables.linked_query_sets(prompt_tables.scan_prompts(root, name))
    )
    tokenizers = sorted(
        {query_tables.query_set_tokenizer(root, query_set) for query_set in query_sets}
    )
    if len(tokenizers) > 1:
        raise UsageError(
            f"{name or copies.address(root)} has {len(tokenizers)} tokenizers. Name a prompt set of"
            f" one, or one of {', '.join(tokenizers)}."
        )
    if not tokenizers:
        raise AbsentError(f"{copies.address(root)} has no queries yet. Run `logitbank extract`.")
    return require_tokens(root, tokenizers[0])


def require_tokens(root: Path, tokenizer: str) -> pl.DataFrame:
    """The texts of a tokenizer's tokens, or AbsentError, or DamagedError."""
    table = tokenizer_texts(root, tokenizer)
    if table is None:
        raise AbsentError(
            f"{copies.address(root)} has no texts of the tokens of tokenizer {tokenizer[:12]}. Run"
            " the same `logitbank extract` again, which adds them without running a model, or use"
            " token numbers."
        )
    return table


def token_numbers(root: Path, query_set: str, tokens: ArrayLike) -> ArrayLike:
    """Token numbers (v,) int64 of texts; numbers stay as they are.

    Raises UsageError if a text is not exactly one token, and AbsentError if the bank has no texts
    of this tokenizer.
    """
    texts = np.asarray(tokens).tolist()
    if not isinstance(texts, list) or not texts or not all(isinstance(t, str) for t in texts):
        return tokens
    table = require_tokens(root, query_tables.query_set_tokenizer(root, query_set)).sort("token")
    by_text: dict[str, list[int]] = {text: [] for text in texts}
    for text, token in table.filter(pl.col("text").is_in(texts)).select("text", "token").rows():
        by_text[text].append(token)
    for text, found in by_text.items():
        if not found:
            raise UsageError(f"No token has the text {text!r}; {_near(table, text)}.")
        if len(found) > 1:
            numbers = ", ".join(map(str, found[:8]))
            raise UsageError(f"Tokens {numbers} have the text {text!r}. Pass one number.")
    return np.array([by_text[text][0] for text in texts], np.int64)


def _near(table: pl.DataFrame, text: str) -> str:
    """Tokens that differ from a text only in white space or case, for an error."""
    plain = pl.col("text").str.strip_chars(" #").str.to_lowercase()
    near = table.filter(plain == text.strip(" #").lower())["text"].head(4).to_list()
    if near:
        return f"similar tokens: {', '.join(map(repr, near))}"
    return "the tokenizer may split it into several tokens. `Bank.tokens()` lists all tokens"


def token_texts(root: Path) -> pl.Expr:
    """The text of `token` in the tokenizer of `query_set`, null if there is none; read lazily."""
    pairs = pl.struct("query_set", "token")
    return pairs.map_batches(partial(look_up_texts, root), return_dtype=pl.String).alias(COLUMN)


def look_up_texts(root: Path, pairs: pl.Series) -> pl.Series:
    """Texts, `token_text`, of pairs (struct) of `query_set` and `token`; null if there is none."""
    frame = pairs.struct.unnest()
    known = [pl.DataFrame(schema={"query_set": pl.String, "token": pl.Int32, "text": pl.String})]
    for name in frame["query_set"].unique().drop_nulls():
        table = tokenizer_texts(root, query_tables.query_set_tokenizer(root, name))
        # Outputs of other heads are classes, not tokens.
        if table is not None and query_tables.query_set_head(root, name) not in CLASS_HEADS:
            known.append(table.select(pl.lit(name).alias("query_set"), "token", "text"))
    joined = frame.join(
        pl.concat(known), on=["query_set", "token"], how="left", maintain_order="left"
    )
    return joined["text"].rename(COLUMN)
