"""From banks to stereotype accuracy, in one call."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import polars as pl

from logitbank.analysis.drawing.paper import PAPER, Paper
from logitbank.analysis.families.fairness.checks import FairnessLabels
from logitbank.analysis.families.fairness.cube import CODED
from logitbank.analysis.families.stereotype.genders import COLUMNS, MEASURE, prepare
from logitbank.analysis.families.stereotype.metric import (
    GENDERS,
    PRONOUNS,
    StereotypeAccuracy,
    asked_genders,
    stereotype_metric,
)
from logitbank.analysis.families.stereotype.summary import stereotype_summary
from logitbank.analysis.frames.apart import Banks, open_banks
from logitbank.analysis.frames.batches import ROWS
from logitbank.analysis.frames.expected import expected_rows
from logitbank.analysis.frames.shared import Wanted, shared_frames
from logitbank.analysis.frames.sources import frame_if_scored, frame_of
from logitbank.analysis.harness import Export, save_exports
from logitbank.analysis.results.finish import finish, models_of
from logitbank.analysis.results.study import Study
from logitbank.store import Bank

WINOBIAS = "winobias"


def stereotype(
    banks: Banks,
    *,
    prompts: str = "stereotype-accuracy",
    winobias: str = WINOBIAS,
    models: Sequence[str] | None = None,
    out: str | Path | None = None,
    paper: Paper = PAPER,
    save_results: str | Path | None = None,
    partial: bool = False,
) -> Study[StereotypeAccuracy]:
    """Stereotype accuracy, and `sa_gender` with JSD-P.

    One of the two prompt sets may be absent. Other parameters are those of
    `logitbank.lambada`.

    Raises
    ------
    LogitbankError
        A bank that is not there, no such prompts, or what `stereotype_metric` refuses.
    """
    opened = open_banks(banks, models=models, prompts=[prompts, winobias])
    scored = frame_if_scored(opened, prompts, models)
    gender = shared_frames(winobias) or winobias_frames(opened, winobias, models)
    if scored is None and gender is None:
        frame_of(opened, prompts, models)  # says what makes them
    result = stereotype_metric(
        scored,
        gender,
        expected_pronouns=None if scored is None else expected_rows(opened, prompts, PRONOUNS),
        expected_genders=None if gender is None else expected_rows(opened, winobias, GENDERS),
    )
    if save_results is not None:
        save_exports(
            [*_exports(result)],
            folder=Path(save_results),
            partial=partial,
        )
    title = f"Stereotype accuracy during training: {models_of(result)}"
    return finish(
        result,
        stereotype_summary(result),
        title=title,
        out=out,
        paper=paper,
        banks=opened,
        prompts=[prompts, winobias],
        models=models,
    )


def winobias_frames(
    banks: Sequence[Bank], winobias: str, models: Sequence[str] | None
) -> Sequence[pl.LazyFrame] | None:
    """What `sa_gender` is made of; None where no bank has the prompt set."""
    return frame_if_scored(banks, winobias, models, rows=ROWS, coded=(*CODED, *COLUMNS))


def wanted_of_winobias(
    banks: Sequence[Bank], prompts: Sequence[str], models: Sequence[str] | None, _: int
) -> list[Wanted]:
    """What a report's other studies of WinoBias are to make for this one as they read it."""
    if WINOBIAS not in prompts:
        return []
    frames = shared_frames(WINOBIAS) or winobias_frames(banks, WINOBIAS, models)
    if not frames or not set(COLUMNS) <= set(frames[0].collect_schema().names()):
        return []
    expected = asked_genders(expected_rows(banks, WINOBIAS, GENDERS))
    made = prepare(expected, FairnessLabels())
    return [Wanted(MEASURE, WINOBIAS, frames, made, COLUMNS)]


def _exports(result: StereotypeAccuracy) -> Iterator[Export]:
    """`sa` and `sa_gender` on Type 2 sentences; each of its own prompt set."""
    names = {
        "accuracy": "acc",
        "accuracy_stderr": "acc_stderr",
        "low": "acc_low",
        "high": "acc_high",
    }
    rows = result.stereotype_accuracy.filter(pl.col("type") == 2).rename(names)
    counted = rows.with_columns(effective="sentences", original="expected")
    tasks = {"sa": "stereotype_accuracy", "sa_gender": "sa_gender"}
    for measure, task in tasks.items():
        yield Export(task, counted.filter(pl.col("measure") == measure), {"acc": "acc"})
