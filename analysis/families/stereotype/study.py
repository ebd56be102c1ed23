"""From banks to stereotype accuracy and winobias_em, in one call."""

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from logitbank.analysis.drawing.paper import PAPER, Paper
from logitbank.analysis.families.fairness.checks import FairnessLabels
from logitbank.analysis.families.fairness.cube import CODED
from logitbank.analysis.families.stereotype.exports import stereotype_exports
from logitbank.analysis.families.stereotype.genders import COLUMNS, MEASURE, prepare
from logitbank.analysis.families.stereotype.metric import (
    GENDERS,
    PRONOUNS,
    StereotypeAccuracy,
    asked_genders,
    stereotype_metric,
)
from logitbank.analysis.families.stereotype.referents import OWN
from logitbank.analysis.families.stereotype.summary import stereotype_summary
from logitbank.analysis.frames.apart import Banks, open_banks
from logitbank.analysis.frames.batches import ROWS
from logitbank.analysis.frames.expected import expected_pieces, expected_rows
from logitbank.analysis.frames.pieces import check_columns
from logitbank.analysis.frames.shared import Wanted, shared_frames
from logitbank.analysis.frames.sources import frame_if_scored, frame_of
from logitbank.analysis.harness.save import save_exports
from logitbank.analysis.results.finish import finish, models_of
from logitbank.analysis.results.study import Study
from logitbank.store import Readable
from logitbank.store.cluster import spread

WINOBIAS = "winobias"


@spread
def stereotype(
    banks: Banks,
    *,
    prompts: str = "stereotype-accuracy",
    winobias: str = WINOBIAS,
    winobias_em: str = "winobias-em",
    models: Sequence[str] | None = None,
    out: Path | None = None,
    paper: Paper = PAPER,
    save_results: Path | None = None,
    save_records: Path | None = None,
    partial: bool = False,
    ray: str | None = None,
) -> Study[StereotypeAccuracy]:
    """Stereotype accuracy, `sa_gender` with JSD-P, and `winobias_em`, whose prompts a bank has.

    Prompt sets may be absent, not all three. Other parameters are those of
    `logitbank.lambada`.

    Raises
    ------
    LogitbankError
        A bank that is not there, no such prompts, or what `stereotype_metric` refuses.
    """
    opened = open_banks(banks)
    scored = frame_if_scored(opened, prompts, models)
    gender = shared_frames(winobias) or winobias_frames(opened, winobias, models)
    referents, expected = frame_if_scored(opened, winobias_em, models), None
    if scored is None and gender is None and referents is None:
        frame_of(opened, prompts, models)  # says what makes them
    if referents is not None:
        check_columns(referents[0], OWN, family="winobias-em")
        expected = expected_pieces(opened, winobias_em, columns=OWN)
    result = stereotype_metric(
        *(scored, gender, referents),
        expected=expected,
        expected_pronouns=None if scored is None else expected_rows(opened, prompts, PRONOUNS),
        expected_genders=None if gender is None else expected_rows(opened, winobias, GENDERS),
    )
    if save_results is not None or save_records is not None:
        save_exports(
            [*stereotype_exports(result, prompts, winobias, winobias_em)],
            analysis="stereotype",
            banks=opened,
            results=save_results,
            records=save_records,
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
        prompts=[prompts, winobias, winobias_em],
        models=models,
    )


def winobias_frames(
    banks: Sequence[Readable], winobias: str, models: Sequence[str] | None
) -> Sequence[pl.LazyFrame] | None:
    """What `sa_gender` is made of; None where no bank has the prompt set."""
    return frame_if_scored(banks, winobias, models, rows=ROWS, coded=(*CODED, *COLUMNS))


def wanted_of_winobias(
    banks: Sequence[Readable], prompts: Sequence[str], models: Sequence[str] | None, _: int
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
