"""From banks to everything that UnQover has to say, in one call."""

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from logitbank.analysis.drawing.paper import PAPER, Paper
from logitbank.analysis.families.unqover.metric import ASKED, Cells, Unqover, unqover_metric
from logitbank.analysis.families.unqover.summary import unqover_summary
from logitbank.analysis.family import beginning
from logitbank.analysis.frames.apart import Banks, open_banks, own_names
from logitbank.analysis.frames.batches import batches
from logitbank.analysis.frames.expected import expected_rows
from logitbank.analysis.frames.sources import no_model, no_prompts
from logitbank.analysis.results.finish import finish, models_of
from logitbank.analysis.results.study import Study
from logitbank.errors import AbsentError, BankError
from logitbank.store import Bank

PROMPTS = beginning("unqover-")
ROWS = 100_000
"""Of a batch: rows are as wide as their texts."""


def unqover(
    banks: Banks,
    *,
    prompts: Sequence[str] | None = None,
    models: Sequence[str] | None = None,
    topk: int | None = None,
    he_she: bool = False,
    bootstrap: int = 1000,
    cells: Cells = "last",
    out: str | Path | None = None,
    paper: Paper = PAPER,
) -> Study[Unqover]:
    """UnQover of the checkpoints in banks and, with `out`, tables, figures and the report.

    Parameters
    ----------
    banks
        A bank or several, which are analysed together: folders, URLs, or what is open.
    prompts
        Names of prompt sets; all that begin with `unqover-` and have been scored, if None.
    models
        Only these.

    Other parameters are those of `logitbank.analysis.unqover_metric`.

    Raises
    ------
    LogitbankError
        A bank, prompt set or model that is not there, or what `unqover_metric` refuses.
    """
    opened = open_banks(banks, models=models, prompts=prompts, family=PROMPTS)
    frames = _frames(opened, prompts, models)
    names = _prompt_sets(opened, prompts)
    result = unqover_metric(
        frames,
        topk=topk,
        he_she=he_she,
        bootstrap=bootstrap,
        cells=cells,
        expected=expected_instances(opened, names),
    )
    title = f"UnQover: {models_of(result)}"
    return finish(
        result,
        unqover_summary(result),
        title=title,
        out=out,
        paper=paper,
        banks=opened,
        prompts=names,
        models=models,
    )


def expected_instances(banks: Sequence[Bank], names: Sequence[str]) -> pl.DataFrame:
    """The instances that each model was asked in several prompt sets, for `unqover_metric`."""
    parts = [expected_rows(banks, name, ASKED).cast(pl.String) for name in names]
    return pl.concat(parts).unique(["model", "category", "instance"], keep="first")


def _frames(
    banks: Sequence[Bank], prompts: Sequence[str] | None, models: Sequence[str] | None
) -> list[pl.LazyFrame]:
    """Scans of the prompt sets, in batches; a set without a score of any model is left out.

    Sets of a category are put together, such as its train and its test part, and an instance of
    several counts once. Questions to masked and to causal models have the same ids: those stay
    apart.
    """
    names = _prompt_sets(banks, prompts)
    frames: list[pl.LazyFrame] = []
    for causal in (False, True):
        of_kind = [name for name in names if name.endswith("-causal") == causal]
        frames += batches(banks, of_kind, models=models, rows=ROWS)
    available = {m for bank in banks for name in names for m in _models(bank, name)}
    for model in models or ():
        if model not in available:
            raise AbsentError(no_model(model, available, f"the deposits of {', '.join(names)}"))
    if not frames:
        raise BankError(
            f"{banks[0].address} has no deposit of {', '.join(names)} yet; run `logitbank extract`"
        )
    return frames


def _prompt_sets(banks: Sequence[Bank], prompts: Sequence[str] | None) -> list[str]:
    available = {name for bank in banks for name in bank.prompt_sets}
    names = own_names(PROMPTS, banks) if prompts is None else list(prompts)
    absent = [name for name in names if name not in available]
    if absent or not names:
        what = repr(absent[0]) if absent else "of UnQover"
        raise AbsentError(no_prompts(banks, what, make="unqover-gender"))
    return names


def _models(bank: Bank, prompts: str) -> set[str]:
    """Models with a deposit of a prompt set, if there is one."""
    if prompts not in bank.prompt_sets:
        return set()
    return {deposit.checkpoint.model for deposit in bank.deposits_of(prompts)}
