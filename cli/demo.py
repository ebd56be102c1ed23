"""`logitbank demo`: the main job from nothing, on a series whose truth is known."""

from pathlib import Path
from typing import Literal

from logitbank.cli.show import (
    ExtractProgress,
    TrainingProgress,
    err,
    print_lines,
    print_summary,
)
from logitbank.errors import UsageError


def demo(out: Path, *, engine: Literal["auto", "vllm", "transformers"] = "auto") -> int:
    """Train a tiny series, bank it, analyse it, and name the report.

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
    from logitbank.analysis.study import fairness_study
    from logitbank.engine.extract import choose_engine, extract

    choose_engine(engine)  # before torch is imported, and minutes of training
    from logitbank.engine.demo import STEPS, train_series
    from logitbank.engine.demo_corpus import SWITCH_STEP, demo_prompts

    bank, results = out / "demo.zarr", out / "results"
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"{out} is not empty; remove it or name another folder")
    err.print(
        f"1 of 3  training a tiny GPT-NeoX for {STEPS} steps; its bias changes at "
        f"step {SWITCH_STEP}"
    )
    with TrainingProgress() as training:
        train_series(out / "checkpoints", progress=training)
    err.print(f"2 of 3  every checkpoint over every prompt, once → {bank}")
    with ExtractProgress() as progress:
        summary = extract(
            bank,
            suite=str(out / "checkpoints"),
            prompts=demo_prompts(),
            model="demo",
            engine=engine,
            on_event=progress,
        )
    print_summary(summary, bank=str(bank), dry_run=False)
    if not summary.complete:
        return 1
    err.print("3 of 3  analysis, offline, from the bank alone")
    study = fairness_study([bank], prompts=demo_prompts().name, out=results)
    print_lines(study.summary)
    print_lines(
        [
            "",
            f"The corpus changed at step {SWITCH_STEP}; that is what the gap should show.",
            f"Ask more:  logitbank analyze fairness {bank} --prompts {demo_prompts().name}",
            f"Report:    {study.report}",
        ]
    )
    return 0
