"""`logitbank demo`: the main job from nothing, on two series whose truth is known."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from logitbank.cli.output import clean, print_lines, say
from logitbank.cli.screen.extract import ExtractProgress, print_summary
from logitbank.cli.screen.progress import count_progress
from logitbank.errors import UsageError

if TYPE_CHECKING:
    import polars as pl

    from logitbank.engine.prompts.prompt_set import PromptSet


def demo(out: Path, *, engine: Literal["auto", "vllm", "transformers"] = "auto") -> int:
    """Train a tiny causal and a tiny masked series, bank both, analyse them, and report.

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
    from logitbank.analysis.families.fairness import fairness
    from logitbank.analysis.families.fluctuation import fluctuation
    from logitbank.analysis.report.report import report
    from logitbank.engine.plan.engine_choice import choose_engine

    choose_engine(engine)  # before torch is imported, and minutes of training
    from logitbank.engine.demo import masked as demo_masked
    from logitbank.engine.demo.causal import STEPS, train_series
    from logitbank.engine.demo.corpus import SWITCH_STEP, demo_prompts

    masked = demo_masked.masked_demo_prompts()
    bank = out / "toy.zarr"
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"{out} is not empty; remove it or name another folder")
    say(
        f"1 of 3  training a tiny GPT-NeoX for {STEPS} steps; its bias changes at "
        f"step {SWITCH_STEP}"
    )
    with count_progress("training") as training:
        train_series(out / "checkpoints", progress=training)
    say(f"        and {demo_masked.RUNS} runs of a tiny BERT on known pronoun ratios")
    with count_progress("training") as training:
        demo_masked.train_masked_series(out / "masked", progress=training)
    say(f"2 of 3  every checkpoint over every prompt, once → {clean(bank)}")
    for suite, prompts, model in (
        (out / "checkpoints", demo_prompts(), "toy-neox"),
        (out / "masked", masked, "toy-bert"),
    ):
        if not _bank(bank, suite, prompts, model, engine):
            return 1
    say("3 of 3  analysis, offline, from the bank alone")
    fair = fairness([bank], prompts=demo_prompts().name)
    wander = fluctuation([bank], prompts=masked.name, plateaus=[demo_masked.PLATEAU_STEP])
    with count_progress(transient=True) as progress:
        page = report(bank, out / "report.html", progress=progress.about)
    print_lines([*fair.summary, "", *wander.summary])
    print_lines(
        [
            "",
            f"The corpus changed at step {SWITCH_STEP}. {_jump(fair.result.gap, SWITCH_STEP)}",
            f"Ask more:  logitbank show {bank} --prompts {demo_prompts().name}",
            f"           logitbank analyze fairness {bank} --table gap",
            f"Report, to open in a browser: {page}",
        ]
    )
    return 0


def _jump(gap: "pl.DataFrame", switch: int) -> str:
    """What the gap was up to the switch, and at the checkpoint after it."""
    sizes = dict(gap.select("step", "delta_scaled").sort("step").iter_rows())
    after = min(step for step in sizes if step > switch)
    before = max(abs(size) for step, size in sizes.items() if step <= switch)
    return (
        f"The gap, in JSD-P from 0 to 1, stayed within ±{before:.2f} up to there and was "
        f"{sizes[after]:+.2f} at step {after}."
    )


def _bank(
    bank: Path,
    suite: Path,
    prompts: "PromptSet",
    model: str,
    engine: Literal["auto", "vllm", "transformers"],
) -> bool:
    """Run one series into the bank; False where a checkpoint failed."""
    from logitbank.engine.extract import extract

    with ExtractProgress() as progress:
        summary = extract(
            bank, suite=str(suite), prompts=prompts, model=model, engine=engine, on_event=progress
        )
    print_summary(summary, bank=str(bank), dry_run=False)
    return summary.complete
