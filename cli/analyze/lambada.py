"""The command `analyze lambada`."""

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


def lambada(
    banks: Banks,
    out: Out = None,
    width: Width = "double",
    style: Style = None,
    prompts: Prompts = "lambada",
    model: Models = None,
    save_results: SaveResults = None,
    partial: Partial = False,
    by: FilterFile = None,
    table: Table = None,
    form: Format = "table",
) -> None:
    """LAMBADA accuracy and perplexity by checkpoint."""
    from logitbank.cli.screen.tables import print_study

    study = logitbank.lambada(
        [filtered(bank, by) for bank in banks],
        prompts=prompts,
        models=model,
        out=out,
        paper=logitbank.Paper(width, style),
        save_results=save_results,
        partial=partial,
    )
    print_study(study, table=table, form=form)
