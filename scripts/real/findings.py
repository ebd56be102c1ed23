"""The findings of `make real`, and what is known about its training text."""

from collections.abc import Iterator
from pathlib import Path

import polars as pl

import logitbank
from logitbank.analysis.families.fairness import fairness
from logitbank.analysis.families.fluctuation import fluctuation
from logitbank.analysis.families.pairs import pairs
from scripts.real.text import EVERY, SWITCH

COLUMNS = "update   gap of JSD-P, 0 to 1    answers “male” for her   LAMBADA   CrowS-Pairs"


def findings(bank: Path) -> Iterator[str]:
    """One row per checkpoint, and the gap before and after the known switch."""
    gaps = fairness([bank]).result.gap
    gaps = gaps.select("step", "low", "high", gap="delta")
    words = logitbank.lambada([bank]).tables["lambada"].select("step", "acc")
    table = pairs([bank]).tables["pairs"].filter(group="all")
    crows = table.select("step", crows="score")
    rows = gaps.join(words, on="step").join(crows, on="step").join(male_answers(bank), on="step")
    yield COLUMNS
    for row in rows.sort("step").iter_rows(named=True):
        interval = f"[{row['low']:+.3f} to {row['high']:+.3f}]"
        yield (
            f"{row['step']:6}   {row['gap']:+.3f} {interval}   {row['male']:22.0%}"
            f"   {row['acc']:7.1%}   {row['crows']:9.1f} %"
        )
    yield jump(rows)


def male_answers(bank: Path) -> pl.DataFrame:
    """step, male: the fraction of questions about a woman whose most probable option is " male"."""
    questions = logitbank.open(bank).scan("winobias").filter(asked="referred", gender="female")
    best = questions.sort("logprob").group_by("step", "prompt_id", "order_seed").last()
    return best.group_by("step").agg(male=(pl.col("option") == "male").mean()).collect()


def jump(rows: pl.DataFrame) -> str:
    """The gap before the switch and at the last update."""
    before = rows.filter(pl.col("step") <= SWITCH)["gap"]
    last = rows.sort("step").row(-1, named=True)
    return (
        f"The training text changed after update {SWITCH}. Until then the gap was between "
        f"{before.min():+.3f} and {before.max():+.3f}. At update {last['step']} it is "
        f"{last['gap']:+.3f}."
    )


def masked_findings(masks: Path, pairs: Path) -> Iterator[str]:
    """The halogens of the masked model at each checkpoint, and its next-sentence scores."""
    scores = logitbank.open(masks).scan("halogens").filter(~pl.col("prior")).collect()
    wide = scores.pivot("option", index=["step", "prompt_id"], values="logprob")
    ratios = wide.group_by("step").agg(
        ratio=(pl.col("he") - pl.col("she")).median().exp(),
        certainty=(pl.col("he").exp() + pl.col("she").exp()).median(),
    )
    classes = logitbank.open(pairs).scan("products").filter(option="next").collect()
    follows = classes.group_by("step", "ending").agg(mean=pl.col("logprob").mean())
    rows = ratios.join(follows.pivot("ending", index="step", values="mean"), on="step")
    yield "update   median P(Cl) / P(Br)   median P(Cl) + P(Br)   mean ln P(next): product, other"
    for row in rows.sort("step").iter_rows(named=True):
        yield (
            f"{row['step']:6}   {row['ratio']:21.2g}   {row['certainty']:20.3f}"
            f"   {row['product']:10.2f}, {row['other']:.2f}"
        )
    study = fluctuation([masks], plateaus=[0, SWITCH + EVERY])
    yield from (str(finding) for finding in study.findings)
