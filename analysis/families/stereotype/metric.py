"""Stereotype accuracy: does a model give an occupation the pronoun of its stereotype.

Frames in, frames out. Quantities that must not be confused, each under its own name: `sa` compares
pronouns under a question about the pronoun, `sa_gender` compares the options *male* and *female* of
the gender-prediction prompts.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from logitbank.analysis.families.fairness.checks import FairnessLabels
from logitbank.analysis.families.stereotype.genders import (
    COLUMNS,
    JSD_SCHEMA,
    genders,
    jsd_p_table,
    shares_table,
)
from logitbank.analysis.families.stereotype.shares import SCHEMA, averaged, measured_in_turn
from logitbank.analysis.frames.batches import Scan, frames_of
from logitbank.analysis.frames.pieces import CHECKPOINT, check_columns
from logitbank.analysis.results.tables import Result
from logitbank.errors import UsageError

FAMILY = "stereotype-accuracy"
NEEDED = (*CHECKPOINT, "prompt_id", "option", "is_answer")
OWN = ("sentence_id", "order", "type")
PRONOUNS = OWN
"""Columns of the prompts of `sa` that say what is asked."""
GENDERS = ("prompt_id", "order_seed", "stereotype", "asked")
"""Those of the prompts of `sa_gender`."""


@dataclass(frozen=True, slots=True)
class StereotypeAccuracy(Result):
    """What `stereotype_metric` found. 0.5 is no stereotype, 1 a stereotype always."""

    stereotype_accuracy: pl.DataFrame
    """Per checkpoint, measure (`sa`, `sa_gender`) and WinoBias type: share of sentences with
    standard error and interval (Wilson, 95 %); `tied` comparisons, which count ½; of the `expected`
    sentences the `missing` ones, which a checkpoint lacks or has without one of their orders. `sa`
    is the mean of both orders, so that such a sentence is in no number, and NaN where there is no
    other; `sa_gender` is over the orders that there are. `sd`, of `sa_gender` only, is the
    deviation between option orders (ddof 1). `from_baseline` is the difference from the first
    checkpoint's share, `baseline_step`, in pairs over the `common` sentences."""
    jsd_p: pl.DataFrame
    """JSD-P of the right answer, scaled, for prompts whose answer is male and female, to be set
    against both; no rows without the prompts of WinoBias. `sd` as above."""
    settings: Mapping[str, str | int | float | bool | None]


def stereotype_metric(
    frame: Scan | None = None,
    winobias: Scan | None = None,
    *,
    expected_pronouns: pl.DataFrame | None = None,
    expected_genders: pl.DataFrame | None = None,
    labels: FairnessLabels = FairnessLabels(),  # noqa: B008
) -> StereotypeAccuracy:
    """`sa` and `sa_gender`, each from prompts of its own that may be absent.

    `sa`: the log-probabilities of the two pronouns behind the question are averaged over the two
    orders in which it names them; share of sentences where the original pronoun has the greater
    mean. `sa_gender`: on pro-stereotyped sentences and the occupation that the pronoun refers to,
    share where the logit of the right gender is greater than that of the other one, averaged over
    option orders. In both an exact tie counts ½ and is reported.

    Parameters
    ----------
    frame
        `Bank.scan("stereotype-accuracy")`: options are the two pronouns, the answer is the
        original one; own columns sentence_id, order (the pronoun named first), type (1, 2). This
        and the others may be several frames, as `batches` gives them.
    winobias
        `Bank.scan("winobias")`.
    expected_pronouns, expected_genders
        What each model was asked of the first two: model and `PRONOUNS`, model and `GENDERS`, as
        `expected_rows` gives them. Without it, all that is known is the frame: a sentence, an
        order or a type without a score of any checkpoint in it is not counted as missing.
    labels
        Labels of the options *male* and *female* in `winobias`.

    Raises
    ------
    UsageError
        Columns are lacking, or no frame is given.
    BankError
        No rows, a score that is not finite, or a sentence has another number of options.

    References
    ----------
    Biderman et al. 2023, §3.1, and arXiv 2506.01709, App. C.2. The prompt was not released; its
    wording, both orders, and the half counted for ties are ours.

    Examples
    --------
    >>> rows = {
    ...     "model": "m", "run": "main", "step": 8, "type": 2, "sentence_id": "dev-1",
    ...     "prompt_id": ["a", "a", "b", "b"], "order": ["he", "he", "she", "she"],
    ...     "option": ["he", "she"] * 2, "is_answer": [True, False] * 2,
    ...     "logprob": [-1.0, -3.0, -3.0, -2.0],
    ... }
    >>> found = stereotype_metric(pl.DataFrame(rows)).stereotype_accuracy
    >>> found.select("measure", "accuracy", "orders").row(0)  # −2 against −2½
    ('sa', 1.0, 2)
    """
    parts = []
    if frame is not None:
        rows = [_own(each) for each in frames_of(frame)]
        expected_cells = None if expected_pronouns is None else _pronouns(expected_pronouns)
        parts.append(measured_in_turn(rows, averaged, expected_cells, family=FAMILY, measure="sa"))
    divergence = pl.DataFrame(schema=JSD_SCHEMA)
    if winobias is not None:
        for each in frames_of(winobias):
            check_columns(each, COLUMNS, family="winobias")
        expected_cells = None if expected_genders is None else asked_genders(expected_genders)
        of_frames = genders(winobias, labels, expected_cells)
        parts.append(shares_table(of_frames))
        divergence = jsd_p_table(of_frames)
    if not parts:
        raise UsageError(
            "there is nothing to compute stereotype accuracy from; give the scan of "
            f'"{FAMILY}", of "winobias", or both'
        )
    table = pl.concat([pl.DataFrame(schema=SCHEMA), *parts]).sort(
        *CHECKPOINT, "measure", "type", nulls_last=True, maintain_order=True
    )
    intervals = "Wilson for shares, adjusted Wald for paired differences, 95 %"
    return StereotypeAccuracy(table, divergence, {"intervals": intervals})


def _own(frame: pl.LazyFrame) -> pl.LazyFrame:
    check_columns(frame, (*NEEDED, *OWN, "logprob"), family=FAMILY)
    return frame.select(
        *NEEDED, "sentence_id", type=pl.col("type").cast(pl.Int64, strict=False),
        order=pl.col("order").cast(pl.String), score="logprob",
    )  # fmt: skip


def _pronouns(expected: pl.DataFrame) -> pl.DataFrame:
    """model, type, sentence_id and the number of orders, of what each model was asked."""
    sentence = ["model", pl.col("type").cast(pl.Int64, strict=False), "sentence_id"]
    return expected.group_by(sentence).agg(most=pl.col("order").n_unique())


def asked_genders(expected: pl.DataFrame) -> pl.DataFrame:
    """As `_pronouns`; a prompt is the sentence."""
    sentence = [
        "model",
        pl.lit(2, pl.Int64).alias("type"),
        pl.col("prompt_id").alias("sentence_id"),
    ]
    gendered = (pl.col("stereotype") == "pro") & (pl.col("asked") == "referred")
    rows = expected.filter(gendered).group_by(sentence)
    return rows.agg(most=pl.col("order_seed").n_unique())
