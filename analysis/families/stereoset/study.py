"""From banks and prediction files to everything that StereoSet has to say, in one call."""

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from logitbank.analysis.drawing.paper import PAPER, Paper
from logitbank.analysis.families.stereoset.files import concat_candidates, write_predictions
from logitbank.analysis.families.stereoset.metric import StereoSet, joined, stereoset_metric
from logitbank.analysis.families.stereoset.scores import Rule
from logitbank.analysis.families.stereoset.sources import (
    PROMPTS,
    candidate_batches,
    file_candidates,
)
from logitbank.analysis.families.stereoset.summary import stereoset_summary
from logitbank.analysis.frames.apart import Banks, open_banks, own_names
from logitbank.analysis.frames.same_prompts import check_same_prompts
from logitbank.analysis.frames.sources import step_given
from logitbank.analysis.results.finish import finish, models_of
from logitbank.analysis.results.study import Study
from logitbank.errors import AbsentError, BankError, UsageError
from logitbank.store import Bank
from logitbank.store.steps import listed


def stereoset(
    banks: Banks = (),
    *,
    predictions: Sequence[str] = (),
    gold: str | Path | None = None,
    prompts: Sequence[str] | None = None,
    models: Sequence[str] | None = None,
    steps: Sequence[str] | None = None,
    out: str | Path | None = None,
    paper: Paper = PAPER,
    score: Sequence[Rule] = ("reference",),
    bootstrap: int = 1000,
    save_predictions: str | Path | None = None,
) -> Study[StereoSet]:
    """Analyse StereoSet in banks and prediction files and, with `out`, write what is found.

    Parameters
    ----------
    banks
        A bank or several: folders, URLs, or what is open.
    predictions
        Prediction files, as a path or NAME=PATH; the name is the model's.
    gold
        StereoSet's file with the labels, for prediction files.
    prompts
        Names of prompt sets in the banks; all that begin with `stereoset` if None.
    models, steps
        Only these, of banks; a step is a number or `release`.
    save_predictions
        File, or folder, to write the scores of banks to, as prediction files.

    Other parameters are those of `logitbank.analysis.stereoset_metric`.

    Raises
    ------
    LogitbankError
        A source that is not there or is none, or what `stereoset_metric` refuses.
    """
    if not banks and not predictions:
        raise UsageError("StereoSet needs a bank, or prediction files (--predictions and --gold)")
    if save_predictions is not None and not banks:
        raise UsageError("--save-predictions writes the scores of a bank; name one")
    gold = None if gold is None else Path(gold)
    from_files = file_candidates(predictions, gold)
    opened = open_banks(banks, models=models, prompts=prompts, family=PROMPTS)
    names = own_names(PROMPTS, opened) if prompts is None else prompts
    for name in names:
        check_same_prompts(opened, name)
    chosen = None if steps is None else [step_given(text, "--step") for text in steps]
    parts, saved, without_rows = [], [], False
    for bank in opened:
        for batch in candidate_batches(
            bank, prompts=prompts, models=models, steps=chosen, rules=score
        ):
            if batch.is_empty():
                without_rows = True
                continue
            parts.append(stereoset_metric(batch, bootstrap=bootstrap))
            saved += [batch] if save_predictions is not None else []
    if without_rows and not parts:
        raise BankError(
            "no candidate of StereoSet is scored; run the same `logitbank extract` again"
        )
    if opened and not parts:
        _say_what_there_is(opened)
    if from_files:
        parts.append(stereoset_metric(concat_candidates(from_files), bootstrap=bootstrap))
    result = joined(parts)
    if save_predictions is not None:
        write_predictions(concat_candidates(saved), Path(save_predictions))
    files = []
    if gold is not None:
        files = [pl.DataFrame({"predictions": list(predictions), "gold": gold.name})]
    return finish(
        result,
        stereoset_summary(result),
        title=f"StereoSet: {models_of(result)}",
        out=out,
        paper=paper,
        banks=opened,
        files=files,
        prompts=names,
        models=models,
        steps=chosen,
    )


def _say_what_there_is(banks: Sequence[Bank]) -> None:
    info = pl.concat([bank.info() for bank in banks]).sort("model", "step", nulls_last=True)
    available = [
        f"{model} at {listed(steps)}"
        for model, steps in info.group_by("model", maintain_order=True)
        .agg(pl.col("step").unique(maintain_order=True))
        .iter_rows()
    ]
    raise AbsentError(f"no bank has such a model and step; there is {'; '.join(available)}")
