"""The command `extract`. Its parameters are the list of its options."""

from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer

import logitbank
from logitbank.cli.complete import prompt_set_names, suite_names
from logitbank.cli.options import BankFolder, Engine, StoredDtype
from logitbank.wording import KEEP_LEVELS

ComputeDtype = Literal["float32", "tf32", "bfloat16", "float16"]
INPUT = partial(typer.Option, rich_help_panel="Checkpoints and prompts")
ENGINE = partial(typer.Option, rich_help_panel="Engine")
STORAGE = partial(typer.Option, rich_help_panel="Storage")
MACHINES = partial(typer.Option, rich_help_panel="Machines")


def extract(
    bank: BankFolder,
    prompts: Annotated[
        list[str],
        INPUT(
            help="Known set such as winobias:orders=5, or JSONL, CSV or Parquet file; repeatable.",
            autocompletion=prompt_set_names,
        ),
    ],
    suite: Annotated[
        list[str],
        INPUT(
            help="Known suite, owner/repo on the Hub, or folder of checkpoints; repeatable. @FILE:"
            " one in each line, with its own steps=… if needed.",
            autocompletion=suite_names,
        ),
    ],
    steps: Annotated[
        str, INPUT(help="Training steps: all, log, START:STOP:STRIDE, a list, or release.")
    ] = "all",
    watch: Annotated[
        bool,
        INPUT(
            "--watch", help="Repeated search for new checkpoints, every minute until interrupted."
        ),
    ] = False,
    data: Annotated[
        Path | None,
        INPUT(help="Folder with public prompt data; by default LOGITBANK_DATA, or a download."),
    ] = None,
    language: Annotated[
        str, INPUT(help="Language adapter for the prompts, for models with adapters.")
    ] = "",
    adapter_from: Annotated[
        str | None,
        INPUT(help="Folder or owner/repo whose adapter is used for models without one."),
    ] = None,
    model: Annotated[str | None, INPUT(help="Name to store the model of one suite under.")] = None,
    engine: Annotated[
        Engine,
        ENGINE(
            help="Engine. auto: vLLM if it is installed and supports the model; otherwise, or if"
            " prompts share enough tokens, transformers.",
        ),
    ] = "auto",
    keep: Annotated[str, STORAGE(help=f"Storage level: {KEEP_LEVELS}.")] = "full",
    dtype: Annotated[
        StoredDtype | None,
        STORAGE(help="Stored dtype; by default float16, or float32 for hidden."),
    ] = None,
    compute_dtype: Annotated[
        ComputeDtype,
        ENGINE(help="Dtype of the model's body; tf32 needs a GPU. The LM head is float32."),
    ] = "float32",
    deterministic: Annotated[
        bool,
        ENGINE("--deterministic", help="Bit-identical results for any batch composition; slower."),
    ] = False,
    canary_every: Annotated[
        int,
        ENGINE(help="Number of checkpoints between reference checks; 0 for none."),
    ] = 10,
    trust_remote_code: Annotated[
        bool,
        ENGINE("--trust-remote-code", help="Permission to run code that ships with the model."),
    ] = False,
    workers: Annotated[
        str | None,
        MACHINES(
            help="Number of parallel engines; auto for one per GPU. Default: 1, or auto on Ray."
        ),
    ] = None,
    shard: Annotated[
        str | None, MACHINES(help="Shard i/n of the plan; by default that of a SLURM array.")
    ] = None,
    ray: Annotated[
        str | None, MACHINES(help="Ray cluster for the workers: auto, or HOST:PORT.")
    ] = None,
    disk_budget: Annotated[
        str | None, MACHINES(help="Maximum disk space of downloaded weights, such as 100GB.")
    ] = None,
    dry_run: Annotated[
        bool, INPUT("--dry-run", help="Plan and time estimate only; nothing is stored.")
    ] = False,
) -> None:
    """Evaluate checkpoints on prompts and store the logits. Existing results are skipped.

    Exit code 1 means that a checkpoint or a suite failed. Exit code 3 means that the run was
    interrupted (Ctrl-C, SIGTERM, or the time limit of a job). Run the same command to resume.
    """
    from logitbank.cli.screen.extract import ExtractProgress, print_summary

    with ExtractProgress() as progress:
        progress.phase("reading suites and prompts")  # before the engine is imported
        request = logitbank.engine.ExtractRequest(
            suites=suite,
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
            workers=workers,
            shard=shard,
            ray=ray,
            disk_budget=disk_budget,
        )
        summary = logitbank.extract(bank, request, dry_run=dry_run, on_event=progress)
    print_summary(summary, bank=str(bank), dry_run=dry_run)
    raise typer.Exit(summary.exit_code)
