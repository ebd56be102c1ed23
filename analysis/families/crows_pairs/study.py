"""From banks to CrowS-Pairs, in one call."""

from collections.abc import Sequence
from pathlib import Path

from logitbank.analysis.drawing.paper import PAPER, Paper
from logitbank.analysis.families.crows_pairs.exports import crows_pairs_exports
from logitbank.analysis.families.crows_pairs.metric import CrowsPairs, crows_pairs_metric
from logitbank.analysis.families.crows_pairs.summary import crows_pairs_summary
from logitbank.analysis.frames.apart import Banks, open_banks
from logitbank.analysis.frames.expected import expected_pieces, expected_rows
from logitbank.analysis.frames.sources import frame_of
from logitbank.analysis.harness.save import save_exports
from logitbank.analysis.results.finish import finish, models_of
from logitbank.analysis.results.study import Study
from logitbank.store.cluster import spread


@spread
def crows_pairs(
    banks: Banks,
    *,
    prompts: str = "crows-pairs",
    models: Sequence[str] | None = None,
    out: Path | None = None,
    paper: Paper = PAPER,
    save_results: Path | None = None,
    save_records: Path | None = None,
    partial: bool = False,
    ray: str | None = None,
) -> Study[CrowsPairs]:
    """CrowS-Pairs of the checkpoints in banks; parameters are those of `logitbank.lambada`.

    Raises
    ------
    LogitbankError
        A bank or prompt set that is not there, or what `crows_pairs_metric` refuses.
    """
    opened = open_banks(banks)
    frame = frame_of(opened, prompts, models)
    result = crows_pairs_metric(frame, expected=expected_pieces(opened, prompts))
    if save_results is not None or save_records is not None:
        expected = expected_rows(opened, prompts, ("pair", "score_kind", "bias_type"))
        save_exports(
            [*crows_pairs_exports(result, expected, prompts)],
            analysis="crows-pairs",
            banks=opened,
            results=save_results,
            records=save_records,
            partial=partial,
        )
    title = f"CrowS-Pairs during training: {models_of(result)}"
    return finish(
        result,
        crows_pairs_summary(result),
        title=title,
        out=out,
        paper=paper,
        banks=opened,
        prompts=[prompts],
        models=models,
    )
