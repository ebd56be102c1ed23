"""What LAMBADA says, in sentences with their uncertainty."""

from logitbank.analysis.families.lambada.metric import Lambada
from logitbank.analysis.results.words import (
    INTERVALS,
    Summary,
    best_and_last,
    between,
    by_run,
    from_first,
    missing_sentences,
)
from logitbank.wording import counted, number, step_name

CAUTIONS = ("LAMBADA is one measure of language modelling, on passages of novels in English.",)
"""What the numbers do not say."""


def lambada_summary(result: Lambada) -> Summary:
    """The best and the last checkpoint of every model and run, then counts and cautions."""
    sentences = []
    for prefix, rows in by_run(result.lambada):
        sentences += [
            f"{prefix}{row['role']}{step_name(row['step'])}: LAMBADA accuracy {row['acc']:.3f} "
            f"({between(row, '.3f', row['examples'], 'example')}), perplexity "
            f"{number(row['perplexity'])} per example, over {row['examples']:,} examples."
            for row in best_and_last(rows, "acc")
        ]
        sentences += from_first(rows, prefix, "LAMBADA accuracy", "example")
    tied, inexact = (int(result.lambada[name].sum()) for name in ("tied", "inexact"))
    if tied:
        sentences.append(
            f"{counted(tied, 'time')} "
            "(checkpoint and example) the word shared the largest logit with "
            "another token, which counts as wrong."
        )
    if inexact:
        sentences.append(f"{inexact:,} examples have a rank that was counted among rounded scores.")
    left_out = tuple(missing_sentences(result.checkpoints, "example"))
    return Summary(tuple(sentences), (INTERVALS,), CAUTIONS, left_out)
