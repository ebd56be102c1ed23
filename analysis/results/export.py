"""Scores of a prompt set as one tidy file, for R, pandas or a spreadsheet."""

from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import polars as pl

from logitbank.analysis.prompts.lookup import prompt_set
from logitbank.analysis.prompts.scores import prompt_scores
from logitbank.analysis.prompts.view import prompt_rows
from logitbank.analysis.results.query import write
from logitbank.errors import UsageError
from logitbank.store import Bank, open_bank
from logitbank.store.tables.io_source import io_source

COLUMNS = ["model", "run", "step", "prompt_id", "order_seed", "option", "is_answer", "logprob",
           "rank", "option_probability"]  # fmt: skip


def export(
    bank: str | Path | Bank,
    out: str | Path,
    *,
    prompts: str | None = None,
    text: bool = False,
) -> Path:
    """Write the scores of a prompt set as one file, which need not fit in memory.

    Parameters
    ----------
    out
        New file: .csv, .parquet or .jsonl.
    prompts
        Name of the prompt set. A bank with a single prompt set needs none.
    text
        Whether each row has the text of its prompt, after `order_seed`.

    Returns
    -------
    Path
        The file. It has one row per checkpoint, prompt, order and option: model, run, step (null is
        the release), prompt_id, order_seed, option, is_answer, logprob (nats, the sum over the
        option's tokens), rank (null for several tokens), option_probability (normalized over the
        options of the prompt), then the prompt set's `answer`, if it has answers, and its own
        columns. Scores that are missing are null.

    Raises
    ------
    UsageError
        The bank has several prompt sets and none is named, or the file cannot be written.
    BankError
        The bank has no such prompts, or no scores of them.
    """
    opened = open_bank(bank, prompts=prompts)
    frames = _frames(opened, prompt_set(opened, prompts), text=text)
    first = next(frames)
    read = chain([first], frames)
    write(
        io_source(first.schema, lambda wanted, *_: (part.select(wanted) for part in read)),
        Path(out),
    )
    return Path(out)


def _frames(bank: Bank, name: str, *, text: bool) -> Iterator[pl.DataFrame]:
    """The rows of a few checkpoints at a time."""
    for scores in prompt_scores(bank, name, few=True):
        rows = prompt_rows(scores).rename({"share": "option_probability"}).select(COLUMNS)
        own = scores.prompts.drop("prompt_id", "order_seed", "text")
        own = own if own["answer"].is_not_null().any() else own.drop("answer")
        if taken := sorted({*own.columns} & {*COLUMNS, *(["text"] if text else [])}):
            raise UsageError(
                f"{name} has a column {taken[0]!r} of its own, as an export has; rename it"
            )
        at = scores.options["prompt"]
        whole = rows.hstack(pl.concat([own[at]] * len(scores.steps)))
        if text:
            texts = pl.concat([scores.prompts["text"][at]] * len(scores.steps))
            whole = whole.insert_column(COLUMNS.index("option"), texts)
        yield whole
