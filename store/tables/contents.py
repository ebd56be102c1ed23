"""The content of a table of any kind, compared with its name."""

from pathlib import Path

import polars as pl

from logitbank.store.tables import prompt_tables, query_tables, token_texts


def check_table(file: Path) -> pl.DataFrame:
    """The rows of a table whose content matches its name, or DamagedError."""
    if file.parent.name == "queries":
        return query_tables.query_set_in(file).to_frame()
    if file.parent.name == token_texts.FOLDER:
        return token_texts.tokens_in(file)
    return prompt_tables.prompts_in(file)
