"""`logitbank demo`: train, extract and analyse two tiny model series with known biases."""

from functools import partial
from pathlib import Path
from typing import Literal

from logitbank.analysis.report.report import report
from logitbank.cli.output import print_command, print_lines, say
from logitbank.cli.screen.extract import ExtractProgress, print_summary
from logitbank.cli.screen.progress import count_progress
from logitbank.cli.screen.report import print_report
from logitbank.errors import UsageError


def demo(out: Path, *, engine: Literal["auto", "vllm", "transformers"] = "auto") -> int:
    """Train a tiny causal and a tiny masked series, extract and analyse both, and report.

    Parameters
    ----------
    out
        New or empty folder to work in.
    engine
        As in `extract`.

    Returns
    -------
    int
        The exit code: 0, or 1 if a checkpoint failed.
    """
    from logitbank.engine.plan.engine_choice import choose_engine

    choose_engine(engine)  # fails early, before minutes of training
    from logitbank.engine.demo import masked
    from logitbank.engine.demo.causal import STEPS, train_series
    from logitbank.engine.demo.corpus import SWITCH_STEP, demo_prompts
    from logitbank.engine.extract import extract

    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"{out} is not empty. Remove it, or name another folder.")
    say(
        f"1 of 3: training a tiny GPT-NeoX for {STEPS} steps; its training text changes at step "
        f"{SWITCH_STEP}"
    )
    with count_progress("training") as progress:
        train_series(out / "checkpoints", progress=progress)
    say(f"        training {masked.RUNS} runs of a tiny BERT on known pronoun ratios")
    with count_progress("training") as progress:
        masked.train_masked_series(out / "masked", progress=progress)
    bank = out / "toy.zarr"
    say(f"2 of 3: evaluating every checkpoint on every prompt → {bank}")
    causal_prompts, masked_prompts = demo_prompts(), masked.masked_demo_prompts()
    for suite, prompts, model in (
        (out / "checkpoints", causal_prompts, "toy-neox"),
        (out / "masked", masked_prompts, "toy-bert"),
    ):
        with ExtractProgress() as events:
            summary = extract(
                bank,
                suites=str(suite),
                prompts=prompts,
                model=model,
                engine=engine,
                on_event=events,
            )
        print_summary(summary, bank=str(bank), dry_run=False)
        if not summary.complete:
            return 1
    say("3 of 3: analysing the bank; no model is loaded")
    print_report([bank], partial(report, [bank], out / "report.html"))
    print_lines(["", f"The training text changed at step {SWITCH_STEP}."])
    show = ("logitbank", "show", bank, "--prompts", causal_prompts.name)
    print_command(show, before="Next:  ")
    print_command(("logitbank", "analyze", "fairness", bank, "--table", "gap"), before="       ")
    return 0
