"""The commands about the inputs of `extract`: `fetch`, `suites` and `prompts`."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import logitbank
from logitbank.cli.complete import prompt_set_names, suite_names
from logitbank.cli.options import Format, new_app
from logitbank.wording import counted, readable_bytes

if TYPE_CHECKING:
    from logitbank.engine.suites.fetch import Fetched

app = new_app("List, show and check prompt sets.", no_args_is_help=False)

Prompts = Annotated[
    str,
    typer.Argument(
        help="Known prompt set, such as winobias, or a prompt file.",
        autocompletion=prompt_set_names,
    ),
]


@app.callback(invoke_without_command=True)
def prompts(context: typer.Context, form: Format = "table") -> None:
    """List, show and check prompt sets."""
    if context.invoked_subcommand is None:
        import polars as pl

        from logitbank.cli.output import print_frame
        from logitbank.engine.prompts.registry import known_sets

        rows = [
            (each.pattern, each.size, each.license, each.analysis, re.split("[,;] ", each.about)[0])
            for each in known_sets()
        ]
        columns = ("name", "prompts", "license", "analysis", "content")
        print_frame(pl.DataFrame(rows, schema=columns, orient="row"), form)


@app.command()
def show(
    prompts: Prompts,
    top: Annotated[int, typer.Option(min=1, help="Number of prompts to show.")] = 3,
) -> None:
    """Print the first prompts of a set exactly as they are scored."""
    from logitbank.cli.output import print_lines

    print_lines(logitbank.engine.prompts_show(prompts, top=top))


@app.command()
def check(
    prompts: Prompts,
    tokenizer: Annotated[
        Path | None, typer.Option(help="Checkpoint folder with the tokenizer for the check.")
    ] = None,
) -> None:
    """Check a prompt set for errors and likely mistakes."""
    from logitbank.cli.output import print_lines
    from logitbank.cli.screen.progress import busy

    with busy(f"checking {prompts}"):
        checked = logitbank.engine.prompts_check(prompts, tokenizer=tokenizer)
    print_lines(checked.lines)
    raise typer.Exit(1 if checked.failed else 0)


def suites(form: Format = "table") -> None:
    """List the checkpoint suites known by name."""
    import polars as pl

    from logitbank.cli.output import print_frame

    columns = ("name", "repo", "description")
    rows = [tuple(getattr(s, c) for c in columns) for s in logitbank.engine.known_suites()]
    print_frame(pl.DataFrame(rows, schema=columns, orient="row"), form)


def fetch(
    suite: Annotated[
        str | None,
        typer.Option(help="Known suite, or owner/repo on the Hub.", autocompletion=suite_names),
    ] = None,
    prompts: Annotated[
        list[str] | None,
        typer.Option(help="Known prompt set; repeatable.", autocompletion=prompt_set_names),
    ] = None,
    steps: Annotated[
        str, typer.Option(help="Training steps: all, log, START:STOP:STRIDE, a list, or release.")
    ] = "all",
) -> None:
    """Download checkpoints and prompts, to run extract later without a network."""
    from logitbank.cli.screen.progress import byte_progress

    with byte_progress("downloading") as progress:
        done = logitbank.fetch(suite, prompts=prompts or (), steps=steps, progress=progress)
    _print_fetched(done)
    if done.complete:
        _print_next_command(suite, steps, prompts)
    raise typer.Exit(0 if done.complete else 1)


def _print_fetched(done: "Fetched") -> None:
    from logitbank.cli.output import print_lines, say

    for note in done.notes:
        say(f"Note: {note}")
    for checkpoint, message in done.failed.items():
        say(f"Failed: {checkpoint}: {message}")
    if done.prompts:
        print_lines([f"Prompt sets downloaded: {', '.join(done.prompts)}."])
    if total := len(done.folders) + len(done.failed):
        print_lines([
            f"{len(done.folders):,} of {counted(total, 'checkpoint')} downloaded"
            f" ({readable_bytes(done.bytes)} in {done.seconds:,.1f} s)."
        ])  # fmt: skip
    if done.failed:
        print_lines(["Run the same command to resume."])


def _print_next_command(suite: str | None, steps: str, prompts: list[str] | None) -> None:
    from logitbank.cli.output import print_command, print_lines

    words = ["--suite", suite or "SUITE"]
    words += ["--steps", steps] if steps != "all" else []
    for name in prompts or ["FILE"]:
        words += ["--prompts", name]
    print_command(
        ("HF_HUB_OFFLINE=1", "logitbank", "extract", "BANK", *words),
        before="To run offline: ",
    )
    print_lines(["The home folder, HF_HOME and XDG_CACHE_HOME must stay the same."])
