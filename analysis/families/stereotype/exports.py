"""What of stereotype accuracy goes into result files, and how much it is.

Rows have `effective` samples, which their numbers are over, of the `original` ones that were asked,
of which some may be `missing`.
"""

from collections.abc import Iterator

import polars as pl

from logitbank.analysis.families.stereotype.metric import StereotypeAccuracy
from logitbank.analysis.harness.write import Export


def stereotype_exports(
    result: StereotypeAccuracy, pronouns: str, genders: str, referents: str
) -> Iterator[Export]:
    """`sa` and `sa_gender` on Type 2 sentences, and `winobias_em`, each of its own prompt set."""
    names = {
        "accuracy": "acc",
        "accuracy_stderr": "acc_stderr",
        "low": "acc_low",
        "high": "acc_high",
    }
    rows = result.stereotype_accuracy.filter(pl.col("type") == 2).rename(names)
    counted = rows.with_columns(effective="sentences", original="expected")
    tasks = (("sa", "stereotype_accuracy", pronouns), ("sa_gender", "sa_gender", genders))
    for measure, task, prompts in tasks:
        yield Export(task, prompts, counted.filter(pl.col("measure") == measure), {"acc": "acc"})
    em = result.winobias_em.rename({"low": "bias_low", "high": "bias_high"}).with_columns(
        effective="pairs", original=pl.col("pairs") + pl.col("missing")
    )
    metrics = {name: name for name in ("em_pro", "em_anti", "bias")}
    yield Export("winobias_em", referents, em, metrics)
