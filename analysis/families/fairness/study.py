"""From banks to everything that fairness has to say, in one call."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from logitbank.analysis.drawing.paper import PAPER, Paper
from logitbank.analysis.families.fairness.cube import CODED
from logitbank.analysis.families.fairness.message import change_sentence
from logitbank.analysis.families.fairness.metric import Fairness, fairness_metric
from logitbank.analysis.families.fairness.significance import Unit
from logitbank.analysis.families.fairness.summary import fairness_summary
from logitbank.analysis.family import having
from logitbank.analysis.frames.apart import Banks, open_banks
from logitbank.analysis.frames.expected import expected_rows
from logitbank.analysis.frames.expressions import Ties
from logitbank.analysis.frames.shared import shared_frames
from logitbank.analysis.frames.sources import bank_frames, chosen_prompts
from logitbank.analysis.frames.vocab_limit import check_vocab_limit
from logitbank.analysis.results.finish import finish, models_of
from logitbank.analysis.results.study import Study

PROMPTS = having("sentence_id", "paired")


def fairness(
    banks: Banks,
    *,
    prompts: str | None = None,
    models: Sequence[str] | None = None,
    out: str | Path | None = None,
    paper: Paper = PAPER,
    vocab_limit: bool = False,
    ties: Ties = "competition",
    unit: Unit = "prompt",
    bootstrap: int = 1000,
    resample_occupations: bool = False,
    from_step: int | None = None,
    compare: tuple[str, str] | None = None,
    change: tuple[int, int] | None = None,
) -> Study[Fairness]:
    """Analyse fairness in one or several banks and, with `out`, write tables, figures and report.

    Parameters
    ----------
    banks
        A bank or several, which are analysed together: folders, URLs, or what is open.
    prompts
        Name of the prompt set; by default `winobias`, or the only one that has its columns.
    change
        Two steps between which the fairness change is told.

    Other parameters are those of `logitbank.analysis.fairness_metric`.

    Raises
    ------
    LogitbankError
        A bank or prompt set that is not there, what `fairness_metric` refuses, or a
        `vocab_limit` that the banks do not know or an option is beyond.
    """
    opened = open_banks(banks, models=models, prompts=prompts, family=PROMPTS)
    prompts = chosen_prompts(opened, prompts, known="winobias", family_prompts=PROMPTS)
    if vocab_limit:
        check_vocab_limit(opened, prompts, models)
    result = fairness_metric(
        shared_frames(prompts) or bank_frames(opened, prompts, models, coded=CODED),
        vocab_limit=vocab_limit,
        ties=ties,
        unit=unit,
        bootstrap=bootstrap,
        resample_occupations=resample_occupations,
        from_step=from_step,
        compare=compare,
        expected=expected_rows(opened, prompts, ("prompt_id", "order_seed")),
    )
    summary = fairness_summary(result)
    if change is not None:
        changes = (
            f"{rows['model'][0]} {rows['run'][0]}: {change_sentence(rows, *change)}"
            for rows in result.gap.partition_by("model", "run", maintain_order=True)
        )
        summary = replace(summary, findings=(*changes, *summary.findings))
    title = f"Fairness during training: {models_of(result)} on {prompts}"
    return finish(
        result,
        summary,
        title=title,
        out=out,
        paper=paper,
        banks=opened,
        prompts=[prompts],
        models=models,
    )
