"""From banks to LAMBADA, stereotype accuracy and CrowS-Pairs: one call per command."""

from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import polars as pl

from logitbank.analysis.families.crows_pairs.metric import CrowsPairs, crows_pairs
from logitbank.analysis.families.evaluation.exports import (
    crows_pairs_exports,
    lambada_exports,
    stereotype_exports,
)
from logitbank.analysis.families.evaluation.figure_data import Evaluation
from logitbank.analysis.families.evaluation.figures import evaluation_figures
from logitbank.analysis.families.evaluation.summary import (
    crows_pairs_summary,
    lambada_summary,
    stereotype_summary,
)
from logitbank.analysis.families.lambada.metric import Lambada, lambada
from logitbank.analysis.families.stereotype.metric import (
    GENDERS,
    PRONOUNS,
    StereotypeAccuracy,
    stereotype_accuracy,
)
from logitbank.analysis.families.stereotype.referents import OWN
from logitbank.analysis.frames.apart import open_banks
from logitbank.analysis.frames.batches import ROWS as DENSE
from logitbank.analysis.frames.expected import expected_pieces, expected_rows
from logitbank.analysis.frames.pieces import check_columns
from logitbank.analysis.frames.sources import bank_frames
from logitbank.analysis.harness.write import write_exports
from logitbank.analysis.results.study import Study, write_study
from logitbank.errors import AbsentError
from logitbank.store import Readable

E = TypeVar("E", bound=Evaluation)
ROWS = 125_000
"""Of a batch: sums over the pieces of prompts take several times the memory of dense arrays."""


def lambada_study(
    banks: Sequence[Path | Readable],
    *,
    prompts: str = "lambada",
    models: Sequence[str] | None = None,
    out: Path | None = None,
    save_results: Path | None = None,
    partial: bool = False,
) -> Study[Lambada]:
    """LAMBADA accuracy and perplexity of the checkpoints in banks.

    Parameters
    ----------
    out
        Folder for tables, figures and the report.
    save_results
        Folder for result files in the layout of lm-evaluation-harness, one per checkpoint.
    partial
        Save results of checkpoints that lack some of what was asked, too.

    Raises
    ------
    LogitbankError
        A bank or prompt set that is not there, what `lambada` refuses, or results to save that are
        partial.
    """
    opened = open_banks(banks)
    frame = frame_of(opened, prompts, models)
    result = lambada(frame, expected=expected_pieces(opened, prompts))
    if save_results is not None:
        write_exports([*lambada_exports(result)], save_results, partial=partial)
    return evaluation_report(
        result, lambada_summary(result), title="LAMBADA during training", banks=opened, out=out
    )


def stereotype_study(
    banks: Sequence[Path | Readable],
    *,
    prompts: str = "stereotype-accuracy",
    winobias: str = "winobias",
    winobias_em: str = "winobias-em",
    models: Sequence[str] | None = None,
    out: Path | None = None,
    save_results: Path | None = None,
    partial: bool = False,
) -> Study[StereotypeAccuracy]:
    """Stereotype accuracy, `sa_gender` with JSD-P, and `winobias_em`, whose prompts a bank has.

    Prompt sets may be absent, not all three. Other parameters are those of `lambada_study`.

    Raises
    ------
    LogitbankError
        A bank that is not there, no such prompts, or what `stereotype_accuracy` refuses.
    """
    opened = open_banks(banks)
    own = _frame_if_there(opened, prompts, models)
    gender = _frame_if_there(opened, winobias, models, rows=DENSE)
    referents, expected = _frame_if_there(opened, winobias_em, models), None
    if own is None and gender is None and referents is None:
        frame_of(opened, prompts, models)  # says what makes them
    if referents is not None:
        check_columns(referents[0], OWN, family="winobias-em")
        expected = expected_pieces(opened, winobias_em, own=OWN)
    result = stereotype_accuracy(
        *(own, gender, referents),
        expected=expected,
        expected_pronouns=None if own is None else expected_rows(opened, prompts, PRONOUNS),
        expected_genders=None if gender is None else expected_rows(opened, winobias, GENDERS),
    )
    if save_results is not None:
        write_exports([*stereotype_exports(result)], save_results, partial=partial)
    return evaluation_report(
        result,
        stereotype_summary(result),
        title="Stereotype accuracy during training",
        banks=opened,
        out=out,
    )


def crows_pairs_study(
    banks: Sequence[Path | Readable],
    *,
    prompts: str = "crows-pairs",
    models: Sequence[str] | None = None,
    out: Path | None = None,
    save_results: Path | None = None,
    partial: bool = False,
) -> Study[CrowsPairs]:
    """CrowS-Pairs of the checkpoints in banks; parameters are those of `lambada_study`.

    Raises
    ------
    LogitbankError
        A bank or prompt set that is not there, or what `crows_pairs` refuses.
    """
    opened = open_banks(banks)
    frame = frame_of(opened, prompts, models)
    result = crows_pairs(frame, expected=expected_pieces(opened, prompts))
    if save_results is not None:
        asked = expected_rows(opened, prompts, ("pair", "score_kind", "bias_type"))
        write_exports([*crows_pairs_exports(result, asked)], save_results, partial=partial)
    return evaluation_report(
        result,
        crows_pairs_summary(result),
        title="CrowS-Pairs during training",
        banks=opened,
        out=out,
    )


def frame_of(
    banks: Sequence[Readable], prompts: str, models: Sequence[str] | None
) -> list[pl.LazyFrame]:
    """The scans of the banks that hold a prompt set, together and in batches.

    Raises
    ------
    AbsentError
        None of the banks has it, or one of the models; says what would make it.
    """
    frame = _frame_if_there(banks, prompts, models)
    if frame is None:
        names = sorted({name for bank in banks for name in bank.prompt_sets()})
        held = f"it has {', '.join(names)}" if names else "it has none"
        alone = f"prompt set {prompts!r} is not in {banks[0].path}; {held}"
        missing = alone if len(banks) == 1 else f"prompt set {prompts!r} is in none of the banks"
        raise AbsentError(
            f"{missing}; make it with `logitbank extract {banks[0].path} --suite … --prompts "
            f"{prompts}`"
        )
    return frame


def _frame_if_there(
    banks: Sequence[Readable], prompts: str, models: Sequence[str] | None, *, rows: int = ROWS
) -> list[pl.LazyFrame] | None:
    holding = [bank for bank in banks if prompts in bank.prompt_sets()]
    if not holding:
        return None
    return bank_frames(holding, prompts, models, rows=rows)


def evaluation_report(
    result: E, summary: list[str], *, title: str, banks: Sequence[Readable], out: Path | None
) -> Study[E]:
    """The study, and its files where a folder is given."""
    report = None
    if out is not None:
        models = {name for table in result.tables().values() for name in table["model"]}
        named = ", ".join(sorted(models))
        provenance = pl.concat([bank.info() for bank in banks], how="diagonal_relaxed")
        report = write_study(
            out,
            result,
            title=f"{title}: {named}",
            summary=summary,
            figures=evaluation_figures(result),
            provenance=provenance,
        )
    return Study(result, tuple(summary), report)
