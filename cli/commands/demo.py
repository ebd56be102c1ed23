"""`logitbank demo`: train, extract and analyse two tiny model series with known biases."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from logitbank.cli.options import Engine
from logitbank.errors import UsageError


def demo(
    out: Annotated[Path, typer.Argument(help="New or empty folder for all files.")] = Path("demo"),
    engine: Annotated[
        Engine, typer.Option(help="Engine; auto uses vLLM if it is installed.")
    ] = "auto",
) -> int:
    """Train tiny models whose bias changes at a known step, evaluate them, and report.

    The exit code is 1 if a checkpoint failed.
    """
    from logitbank.engine.plan.engine_choice import choose_engine

    choose_engine(engine)  # fails early, before minutes of training
    from logitbank.analysis.report.report import report
    from logitbank.cli.output import print_command, print_lines, say
    from logitbank.cli.screen.extract import ExtractProgress, print_summary
    from logitbank.cli.screen.progress import count_progress
    from logitbank.cli.screen.report import print_report
    from logitbank.engine.demo import corpus, train
    from logitbank.engine.extract import extract

    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"{out} is not empty. Remove it, or name another folder.")
    say(
        f"1 of 3: training a tiny GPT-NeoX for {train.STEPS} steps; its training text changes at"
        f" step {corpus.SWITCH_STEP}"
    )
    with count_progress("training") as progress:
        train.train_series(out / "checkpoints", progress=progress)
    say(f"        training {train.MASKED_RUNS} runs of a tiny BERT on known pronoun ratios")
    with count_progress("training") as progress:
        train.train_masked_series(out / "masked", progress=progress)
    bank, prompts = out / "toy.zarr", corpus.demo_prompts()
    say(f"2 of 3: evaluating every checkpoint on every prompt → {bank}")
    for folder, asked, model in (
        ("checkpoints", prompts, "toy-neox"),
        ("masked", corpus.masked_demo_prompts(), "toy-bert"),
    ):
        with ExtractProgress() as events:
            summary = extract(
                bank, suites=out / folder, prompts=asked, model=model, engine=engine,
                on_event=events,
            )  # fmt: skip
        print_summary(summary, bank=str(bank), dry_run=False)
        if not summary.complete:
            return 1
    say("3 of 3: analysing the bank; no model is loaded")
    print_report([bank], partial(report, [bank], out / "report.html"))
    print_lines(["", f"The training text changed at step {corpus.SWITCH_STEP}."])
    print_command(("logitbank", "show", bank, "--prompts", prompts.name), before="Next:  ")
    print_command(("logitbank", "analyze", "fairness", bank, "--table", "gap"), before="       ")
    return 0
