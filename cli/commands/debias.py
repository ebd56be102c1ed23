"""The commands `debias train`, `debias apply`, `debias compare` and `debias erase`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

import logitbank
from logitbank.cli.options import BankPath, Format, Models, Out, Table, new_app
from logitbank.wording import counted

if TYPE_CHECKING:
    from logitbank.analysis.study import Study

app = new_app("Train, apply and compare debiasing filters.")

Preset = Literal["bert", "roberta", "causal"]
Mode = Literal["keep_tail", "truncate"]
UnqoverPrompts = Annotated[str, typer.Option(help="UnQover's prompt set, such as unqover-gender.")]
Model = Annotated[str | None, typer.Option(help="Model; by default the only one.")]
Run = Annotated[str | None, typer.Option(help="Run of the model; by default the only one.")]
Step = Annotated[
    int | None, typer.Option(help="Training step; by default the last, or the release.")
]
HeShe = Annotated[bool, typer.Option("--he-she", help="Count he/she also as mentions of the name.")]


@app.command("train")
def debias_train(
    bank: BankPath,
    out: Annotated[Path, typer.Option(help="File for the filter (.safetensors).")],
    prompts: UnqoverPrompts = "unqover-gender",
    split: Annotated[str, typer.Option(help="Part to train on: train, test or all.")] = "train",
    k: Annotated[
        int | None,
        typer.Option(
            "--k",
            min=1,
            help="Number of highest logits that the filter reads.",
            show_default="8; 10 for preset causal",
        ),
    ] = None,
    preset: Annotated[
        Preset | None,
        typer.Option(
            help="Published training settings for models of this kind.", show_default=False
        ),
    ] = None,
    mode: Annotated[
        Mode | None,
        typer.Option(
            help="Other tokens: keep their probability, or get 0.",
            show_default="keep_tail; truncate with --preset",
        ),
    ] = None,
    regularisation: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="Strength of regularisation towards the identity matrix; only without --preset.",
            show_default="0",
        ),
    ] = None,
    model: Model = None,
    run: Run = None,
    step: Step = None,
    he_she: HeShe = False,
    table: Table = None,
    form: Format = "table",
) -> None:
    """Train a debiasing filter on UnQover instances in a bank. No model is loaded."""
    from logitbank.analysis.debias.results import Debias
    from logitbank.analysis.results.tables import table_names
    from logitbank.cli.output import print_study, require_table

    require_table(table, form, table_names(Debias))
    training = None
    if regularisation is not None:
        training = logitbank.analysis.Training(regularisation=regularisation)
    study = logitbank.analysis.debias_train(
        bank, prompts=prompts, k=k, training=training, preset=preset, mode=mode,
        split=None if split == "all" else split, model=model, run=run, step=step, he_she=he_she,
        out=out,
    )  # fmt: skip
    print_study(study, table=table, form=form)


@app.command("apply")
def debias_apply(
    bank: BankPath,
    by: Annotated[Path, typer.Option("--filter", help="File of a filter.")],
    out: Annotated[Path, typer.Option(help="Bank to write.")],
    name: Annotated[
        str | None,
        typer.Option(
            help="Name of the filtered model.", show_default="the model and a description"
        ),
    ] = None,
) -> None:
    """Write a bank with a model's distributions after a filter. Run it again to resume."""
    from logitbank.cli.output import print_lines
    from logitbank.cli.screen.progress import count_progress

    with count_progress("filtering") as progress:
        done = logitbank.store.apply_filter(bank, by, out, name=name, progress=progress)
    lines = [f"{out}: {counted(done.deposits, 'deposit')} of {done.model}."]
    if done.bounds:
        lines.append(
            f"The ranks of {done.bounds:,} of {counted(done.options, 'score')} are bounds. The bank"
            " lists too few tokens, or its full rows are rounded. For exact ranks, extract with a"
            " larger --keep topk:K."
        )
    print_lines(lines)


@app.command("compare")
def debias_compare(
    bank: BankPath,
    by: Annotated[
        list[Path] | None,
        typer.Option("--filter", help="File of a trained filter; repeatable.", show_default=False),
    ] = None,
    model: Models = None,
    step: Annotated[
        int | None, typer.Option(help="Training step to compare; by default all.")
    ] = None,
    out: Out = None,
    table: Table = None,
    form: Format = "table",
) -> None:
    """Compare trained filters with no filter, untrained filters and a debiasing prefix.

    The prefix is that of StereoSet prompts in the bank (such as `stereoset-intra-prefix`).
    """
    _require_table(table, form)
    study = logitbank.analysis.debias_compare(bank, by or [], models=model, step=step)
    _show(study, out, table, form)


@app.command("erase")
def debias_erase(
    bank: BankPath,
    prompts: Annotated[str, typer.Option(help="Prompt set that has the label.")],
    label: Annotated[
        str, typer.Option(help="Column of these prompts to erase, such as the gender.")
    ],
    model: Model = None,
    step: Step = None,
    out: Out = None,
    table: Table = None,
    form: Format = "table",
) -> None:
    """Erase a label from hidden states of a bank with LEACE, and compare before and after.

    The bank needs --keep hidden. The new logits become a model of their own in it.
    """
    _require_table(table, form)
    study = logitbank.analysis.debias_erase(
        bank, prompts=prompts, label=label, model=model, step=step
    )
    _show(study, out, table, form)


def _require_table(table: str | None, form: str) -> None:
    """Raise UsageError for an unknown table of a comparison."""
    from logitbank.analysis.debias.results import DebiasComparison
    from logitbank.analysis.results.tables import table_names
    from logitbank.cli.output import require_table

    require_table(table, form, table_names(DebiasComparison))


def _show(study: "Study[Any]", out: Path | None, table: str | None, form: str) -> None:
    """Save a comparison, if a folder is named, and print it."""
    from logitbank.cli.output import print_study, say

    if out is not None:
        say(f"Report: {study.save(out)}")
    print_study(study, table=table, form=form)
