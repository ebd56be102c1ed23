"""From banks to stereotype accuracy and winobias_em, in one call."""

from collections.abc import Sequence
from pathlib import Path

from logitbank.analysis.drawing.paper import PAPER, Paper
from logitbank.analysis.families.fairness.cube import CODED
from logitbank.analysis.families.stereotype.exports import stereotype_exports
from logitbank.analysis.families.stereotype.genders import COLUMNS
from logitbank.analysis.families.stereotype.metric import (
    GENDERS,
    PRONOUNS,
    StereotypeAccuracy,
    stereotype_metric,
)
from logitbank.analysis.families.stereotype.referents import OWN
from logitbank.analysis.families.stereotype.summary import stereotype_summary
from logitbank.analysis.frames.apart import Banks, open_banks
from logitbank.analysis.frames.batches import ROWS
from logitbank.analysis.frames.expected import expected_pieces, expected_rows
from logitbank.analysis.frames.pieces import check_columns
from logitbank.analysis.frames.sources import frame_if_scored, frame_of
from logitbank.analysis.harness.save import save_exports
from logitbank.analysis.results.finish import finish, models_of
from logitbank.analysis.results.study import Study
from logitbank.store.cluster import spread


@spread
def stereotype(
    banks: Banks,
    *,
    prompts: str = "stereotype-accuracy",
    winobias: str = "winobias",
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
    gender = frame_if_scored(opened, winobias, models, rows=ROWS, coded=(*CODED, *COLUMNS))
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
        result, stereotype_summary(result), title=title, out=out, paper=paper, banks=opened
    )
