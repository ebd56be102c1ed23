"""What of stereotype accuracy goes into result files, and how much it is.

Rows have `effective` samples, which their numbers are over, of the `original` ones that were asked,
of which some may be `missing`.
"""

from collections.abc import Iterator

import polars as pl

from logitbank.analysis.families.stereotype.metric import StereotypeAccuracy
from logitbank.analysis.harness.write import Export


def stereotype_exports(result: StereotypeAccuracy) -> Iterator[Export]:
    """`sa` and `sa_gender` on Type 2 sentences, and `winobias_em`."""
    names = {"accuracy": "acc", "accuracy_stderr": "acc_stderr"}
    rows = result.stereotype_accuracy.filter(pl.col("type") == 2).rename(names)
    counted = rows.with_columns(effective="sentences", original="expected")
    for measure, task in (("sa", "stereotype_accuracy"), ("sa_gender", "sa_gender")):
        yield Export(task, counted.filter(pl.col("measure") == measure), {"acc": "acc"})
    em = result.winobias_em.with_columns(
        effective="pairs", original=pl.col("pairs") + pl.col("missing")
    )
    yield Export("winobias_em", em, {name: name for name in ("em_pro", "em_anti", "bias")})
