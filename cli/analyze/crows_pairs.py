"""The command `analyze crows-pairs`."""

import logitbank
from logitbank.cli.options import (
    Banks,
    FilterFile,
    Format,
    Models,
    Out,
    Partial,
    Prompts,
    SaveResults,
    Style,
    Table,
    Width,
    filtered,
)


def crows_pairs(
    banks: Banks,
    out: Out = None,
    width: Width = "double",
    style: Style = None,
    prompts: Prompts = "crows-pairs",
    model: Models = None,
    save_results: SaveResults = None,
    partial: Partial = False,
    by: FilterFile = None,
    table: Table = None,
    form: Format = "table",
) -> None:
    """CrowS-Pairs scores by checkpoint and bias type, for masked and causal models."""
    from logitbank.cli.screen.tables import print_study

    study = logitbank.crows_pairs(
        [filtered(bank, by) for bank in banks],
        prompts=prompts,
        models=model,
        out=out,
        paper=logitbank.Paper(width, style),
        save_results=save_results,
        partial=partial,
    )
    print_study(study, table=table, form=form)
