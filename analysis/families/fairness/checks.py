"""What the rows of a scan must be, so that they fill a cube."""

from functools import reduce
from typing import NamedTuple

import numpy as np
import polars as pl

from logitbank.analysis.frames.expressions import (
    Floats,
)
from logitbank.analysis.frames.pieces import AGAIN
from logitbank.errors import BankError, UsageError
from logitbank.wording import checkpoint_name


class FairnessLabels(NamedTuple):
    """Labels of the three options, in the order of the option axis."""

    male: str = "male"
    female: str = "female"
    neutral: str = "not specified"


def check_columns(frame: pl.LazyFrame, needed: tuple[str, ...]) -> None:
    names = frame.collect_schema().names()
    if missing := [name for name in needed if name not in names]:
        raise UsageError(
            f"the prompts lack {', '.join(missing)}, which fairness needs: it asks WinoBias's "
            "questions (extract --prompts winobias); ask others with bank.scan(...) in Python"
        )


def check_prompts(rows: pl.DataFrame) -> None:
    if count := rows["prompt_id"].null_count():
        raise UsageError(f"{count:,} rows have no prompt_id; every score needs one")


def check_options(rows: pl.DataFrame, frame: pl.LazyFrame, labels: FairnessLabels) -> None:
    codes = rows["option"]
    if codes.null_count() or codes.n_unique() < len(labels):
        options = frame.select(pl.col("option").cast(pl.String).unique().sort()).collect()
        values = ", ".join(repr(value) for value in options.to_series().to_list())
        raise UsageError(
            f"the options are {values} but fairness needs {', '.join(map(repr, labels))}; "
            'scan the "winobias" prompts, or pass labels=FairnessLabels(male, female, neutral)'
        )


def check_cells(
    logits: Floats,
    rows: pl.DataFrame,
    *,
    checkpoints: pl.DataFrame,
    prompts: pl.DataFrame,
    labels: FairnessLabels,
) -> None:
    if rows["logit"].null_count() or not rows["logit"].is_finite().all():
        row = rows.filter(~pl.col("logit").is_finite().fill_null(False))
        raise BankError(
            f"prompt {row['prompt_id'][0]!r} of {checkpoint_name(row.row(0, named=True))} has "
            f"the logit {row['logit'][0]} ({len(row)} such rows); {AGAIN}"
        )
    present = ~np.isnan(logits)
    if (surplus := len(rows) - int(np.count_nonzero(present))) > 0:
        raise UsageError(
            f"{surplus} rows score a checkpoint, prompt, order and option that another row scores; "
            "scan one prompt set, and one piece of each prompt"
        )
    options = reduce(np.add, np.moveaxis(present.view(np.int8), -1, 0))
    partial = np.argwhere((options > 0) & (options < len(labels)))
    if len(partial):
        c, s, p = (int(i) for i in partial[0])
        missing = ", ".join(repr(labels[o]) for o in np.flatnonzero(~present[c, s, p]))
        checkpoint = checkpoint_name(checkpoints.row(c, named=True))
        raise BankError(
            f"prompt {prompts['prompt_id'][p]!r} of {checkpoint} has no score for "
            f"option {missing} ({len(partial)} such prompts); extract its options again"
        )
