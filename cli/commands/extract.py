"""The command `extract`."""

from typing import Annotated, Literal

import typer

import logitbank
from logitbank.cli.complete import prompt_set_names, suite_names
from logitbank.cli.options import BankFolder, Data, Engine, StoredDtype
from logitbank.wording import ASKED_LEVELS

ComputeDtype = Literal["float32", "tf32", "bfloat16", "float16"]


def extract(
    bank: BankFolder,
    prompts: Annotated[
        list[str],
        typer.Option(
            help="A set such as winobias:orders=5, or a JSONL, CSV or Parquet file; repeatable.",
            autocompletion=prompt_set_names,
            rich_help_panel="What to run",
        ),
    ],
    suite: Annotated[
        str,
        typer.Option(
            help="Known suite, owner/repo on the hub, or folder of checkpoints.",
            autocompletion=suite_names,
            rich_help_panel="What to run",
        ),
    ],
    steps: Annotated[
        str,
        typer.Option(
            help="Training steps: all, log, START:STOP:STRIDE, a list, or release.",
            rich_help_panel="What to run",
        ),
    ] = "all",
    watch: Annotated[
        bool,
        typer.Option(
            "--watch",
            help="Look for new checkpoints every minute until interrupted.",
            rich_help_panel="What to run",
        ),
    ] = False,
    data: Data = None,
    language: Annotated[
        str,
        typer.Option(
            help="Language adapter for the prompts, for models with adapters.",
            rich_help_panel="What to run",
        ),
    ] = "",
    adapter_from: Annotated[
        str | None,
        typer.Option(
            help="Folder or owner/repo whose adapter is used for models without one.",
            rich_help_panel="What to run",
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="Name to store the model under.", rich_help_panel="What to run"),
    ] = None,
    engine: Annotated[
        Engine,
        typer.Option(
            help="Engine; auto takes vLLM if installed, unless transformers has less to run.",
            rich_help_panel="How it is run",
        ),
    ] = "auto",
    keep: Annotated[
        str,
        typer.Option(
            help=f"Storage level: {ASKED_LEVELS} (the smaller of the first two).",
            rich_help_panel="What is kept",
        ),
    ] = "full",
    dtype: Annotated[
        StoredDtype | None,
        typer.Option(
            help="Dtype of stored rows; by default float16, or float32 for hidden and auto.",
            rich_help_panel="What is kept",
        ),
    ] = None,
    compute_dtype: Annotated[
        ComputeDtype,
        typer.Option(
            help="Dtype of the model's body; tf32 needs a GPU. The LM head is float32.",
            rich_help_panel="How it is run",
        ),
    ] = "float32",
    deterministic: Annotated[
        bool,
        typer.Option(
            "--deterministic",
            help="Same bits in any batch; slower.",
            rich_help_panel="How it is run",
        ),
    ] = False,
    canary_every: Annotated[
        int,
        typer.Option(
            min=0,
            help="Number of checkpoints between reference checks; 0 for none.",
            rich_help_panel="How it is run",
        ),
    ] = 50,
    trust_remote_code: Annotated[
        bool,
        typer.Option(
            "--trust-remote-code",
            help="Run code that ships with the model.",
            rich_help_panel="How it is run",
        ),
    ] = False,
    workers: Annotated[
        str | None,
        typer.Option(
            help="Number of engines side by side; auto for one per GPU. Default: 1, on Ray auto.",
            rich_help_panel="Machines",
        ),
    ] = None,
    shard: Annotated[
        str | None,
        typer.Option(
            help="Shard i/n of the plan; by default that of a SLURM array.",
            rich_help_panel="Machines",
        ),
    ] = None,
    ray: Annotated[
        str | None,
        typer.Option(
            help="Ray cluster for the workers: auto, or HOST:PORT.", rich_help_panel="Machines"
        ),
    ] = None,
    disk_budget: Annotated[
        str | None,
        typer.Option(
            help="Maximum disk space of downloaded weights, such as 100GB.",
            rich_help_panel="Machines",
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Print the plan, estimate its time, and stop.",
            rich_help_panel="Before it is run",
        ),
    ] = False,
) -> None:
    """Evaluate checkpoints on prompts and store the logits. Existing results are skipped.

    Exit code 3 says that it was interrupted (Ctrl-C, SIGTERM, a job's time over): the same command
    goes on. 1 says that a checkpoint failed.
    """
    from logitbank.cli.screen.extract import ExtractProgress, print_summary

    with ExtractProgress() as progress:
        summary = logitbank.extract(
            bank,
            suite=suite,
            prompts=prompts,
            steps=steps,
            watch=watch,
            data=data,
            language=language,
            adapter_from=adapter_from,
            model=model,
            engine=engine,
            keep=keep,
            dtype=dtype,
            compute_dtype=compute_dtype,
            deterministic=deterministic,
            canary_every=canary_every,
            trust_remote_code=trust_remote_code,
            workers=_workers(workers),
            shard=shard,
            ray=ray,
            disk_budget=disk_budget,
            dry_run=dry_run,
            on_event=progress,
        )
    print_summary(summary, bank=str(bank), dry_run=dry_run)
    raise typer.Exit(summary.exit_code)


def _workers(text: str | None) -> int | Literal["auto"] | None:
    from logitbank.errors import UsageError

    if text is None:
        return None
    if text == "auto":
        return "auto"
    if text.isdecimal():
        return int(text)
    raise UsageError(f"--workers {text!r} is neither a number nor auto")
