"""What stereotype accuracy says, in sentences with their uncertainty."""

import polars as pl

from logitbank.analysis.families.stereotype.metric import StereotypeAccuracy
from logitbank.analysis.results.words import (
    INTERVALS,
    Summary,
    best_and_last,
    between,
    by_run,
    from_first,
    verdict,
)
from logitbank.wording import counted, step_name

CAUTIONS = (
    "The stereotypes are those of occupations in the United States, for two genders. Stereotype "
    "accuracy and sa_gender ask different questions; their values cannot be compared "
    "with each other.",
)
"""What the numbers do not say."""
NAMES = {"sa": "stereotype accuracy", "sa_gender": "sa_gender"}


def stereotype_summary(result: StereotypeAccuracy) -> Summary:
    """The most stereotypical and the last checkpoint, each measure under its own name."""
    sentences = []
    for (measure, kind), table in result.stereotype_accuracy.group_by(
        "measure", "type", maintain_order=True
    ):
        about = "" if kind == 2 else f", Type {kind}"
        for prefix, rows in by_run(table.filter(pl.col("accuracy").is_not_nan())):
            sentences += [
                f"{prefix}{row['role']}{step_name(row['step'])}: {NAMES[str(measure)]}{about} "
                f"{row['accuracy']:.3f} ({between(row, '.3f', row['sentences'], 'sentence')}) "
                f"over {row['sentences']:,} sentences{verdict(row, 0.5)}."
                for row in best_and_last(rows, "accuracy", best="most stereotypical at ")
            ]
            what = f"{NAMES[str(measure)]}{about}"
            sentences += from_first(rows, prefix, what, "sentence")
    table, left_out = result.stereotype_accuracy, []
    for measure, rows in ((m, table.filter(pl.col("measure") == m)) for m in NAMES):
        if tied := int(rows["tied"].sum()):
            sentences.append(
                f"{tied:,} comparisons of {NAMES[measure]} are exact ties and count ½."
            )
        if missing := int(rows["missing"].sum()):
            none = len(rows.filter(pl.col("accuracy").is_nan()))
            checkpoints = counted(len(rows.filter(pl.col("missing") > 0)), "checkpoint")
            left_out.append(
                f"{counted(missing, 'sentence')} of {NAMES[measure]} missing, or without one of "
                f"the orders, at {checkpoints}, whose numbers are over what is there"
                + (f"; {counted(none, 'checkpoint')} thereby without a number." if none else ".")
            )
    return Summary(tuple(sentences), (INTERVALS,), CAUTIONS, tuple(left_out))
