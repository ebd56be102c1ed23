"""Stereotype accuracy: does a model give an occupation the pronoun of its stereotype.

Two quantities, each under its own name: `sa` compares pronouns after a question about the pronoun,
`sa_gender` compares the options *male* and *female* of the gender-prediction prompts.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import polars as pl

from logitbank.analysis.families.fairness import DELTA
from logitbank.analysis.families.fairness.metric import Fairness
from logitbank.analysis.families.fairness.tables import answer_jsd_p, gap_changes, gap_draws
from logitbank.analysis.families.stereotype.tables import (
    SCHEMA,
    TYPE,
    Shares,
    gender_hits,
    over_changes,
    pronoun_hits,
    share_table,
    with_extremes,
)
from logitbank.analysis.frames.batches import TOKEN_ROWS
from logitbank.analysis.frames.gender_answers import GENDER_COLUMNS, preferences, read_winobias
from logitbank.analysis.frames.items import Items, gather_items
from logitbank.analysis.frames.prompt_sums import CHECKPOINT
from logitbank.analysis.frames.reader import Scores
from logitbank.analysis.results.tables import Result
from logitbank.analysis.stats.summary import summarise
from logitbank.errors import BankError, UsageError

PRONOUNS = ("sentence_id", "order", "type")
"""Columns of the prompts of `sa` that identify its sentences and orders."""
GENDERS = ("prompt_id", "order_seed", *GENDER_COLUMNS)
"""Those of the prompts of `sa_gender`."""


@dataclass(frozen=True, slots=True)
class StereotypeAccuracy(Result):
    """Results of `stereotype_metric`. 0.5 is no stereotype, 1 a stereotype always."""

    measures: pl.DataFrame
    """The accuracy of each kind (`sa`, `sa_gender`) and type, as `summarise` returns them."""
    stereotype_accuracy: pl.DataFrame
    """Per checkpoint, measure (`sa`, `sa_gender`) and WinoBias type: share of sentences with
    standard error and interval (Wilson, 95 %); `tied` comparisons, which count ½; of the `expected`
    sentences the `missing` ones, which a checkpoint lacks or has without one of their orders. `sa`
    is the mean of both orders, so that such a sentence is in no number, and NaN where there is no
    other; `sa_gender` is over the orders that there are. `sd`, of `sa_gender` only, is the
    deviation between option orders (ddof 1). `from_baseline` is the difference from the first
    checkpoint's share, `baseline_step`, paired over the `common` sentences."""
    settings: Mapping[str, str | int | float | bool | None]
    jsd_p: pl.DataFrame | None = None
    """JSD-P of the answers male and female (`group`), scaled, whose difference is the gender gap.
    None without WinoBias."""
    over_change: pl.DataFrame | None = None
    """Per change point of the gap, measure and type: how the share moves from the checkpoint
    `before` the change to the one `after` it, paired over sentences. Of a run without a significant
    one, between the smallest and the largest gap (`kind` is `extremes`). None without WinoBias."""


def stereotype_metric(scores: Scores, *, bootstrap: int = 0) -> StereotypeAccuracy:
    """`sa` and `sa_gender`, each from prompts of its own that may be absent.

    `sa`: the log-probabilities of the two pronouns behind the question are averaged over the two
    orders in which it names them; share of sentences where the original pronoun has the greater
    mean. `sa_gender`: on pro-stereotyped sentences and the occupation that the pronoun refers to,
    share where the logit of the correct gender is greater than that of the other one, averaged over
    option orders. In both an exact tie counts ½ and is reported.

    Parameters
    ----------
    scores
        Of a prompt set such as `stereotype-accuracy`, whose options are the two pronouns and whose
        answer is the original one, with the columns `PRONOUNS`; of `winobias`; or of both.
    bootstrap
        Number of resamples of the sentences, for the change points of the gender gap.

    Raises
    ------
    UsageError
        Two prompt sets are of one kind, or columns are lacking.
    BankError
        No rows, a score that is not finite, or a prompt with another number of options.

    References
    ----------
    Biderman et al. 2023, §3.1, and arXiv 2506.01709, App. C.2. The prompt was not released; its
    wording, both orders, and the half counted for ties are ours.
    """
    sets = [scores.of(name) for name in scores.sets]
    pronouns = [each for each in sets if each.columns.issuperset(PRONOUNS)]
    gendered = [each for each in sets if each not in pronouns]
    for kind in (pronouns, gendered):
        if len(kind) > 1:
            names = " and ".join(each.prompts for each in kind)
            raise UsageError(f"{names} are of one kind. Name one prompt set of each.")
    shares = [*map(_pronoun_shares, pronouns)]
    for each in gendered:
        each.require(*GENDERS, family="winobias")
        if (found := _gender_shares(each)) is None:
            raise BankError(
                "The answer of a pro-stereotyped prompt about the referred occupation is not a "
                "gender. Name one prompt set whose answers are."
            )
        shares.append(found)
    table = pl.concat([pl.DataFrame(schema=SCHEMA), *(each.table for each in shares)]).sort(
        *CHECKPOINT, "measure", "type", nulls_last=True, maintain_order=True
    )
    measures = pl.concat([each.measures for each in shares], how="diagonal").sort(
        *CHECKPOINT, "kind", "type", nulls_last=True, maintain_order=True
    )
    settings = {"intervals": "Wilson for shares, adjusted Wald for paired differences, 95 %"}
    if not gendered:
        return StereotypeAccuracy(measures, table, settings)
    answers = read_winobias(gendered[0])
    gap = Fairness.gap.of(summarise(answers.items, [DELTA], changes=False))
    changes = with_extremes(gap_changes([gap_draws(answers, bootstrap)], gap), gap)
    return StereotypeAccuracy(
        measures,
        table,
        settings,
        answer_jsd_p(answers.items).rename({"value": "jsd_p"}),
        pl.concat(over_changes(each, changes) for each in shares),
    )


def _pronoun_shares(scores: Scores) -> Shares:
    """The shares of `sa`, made once in a report."""

    def read() -> Shares:
        sentence = ["model", pl.col("type").cast(pl.Int64, strict=False), "sentence_id"]
        rows = scores.expected_rows(PRONOUNS)
        expected = rows.group_by(sentence).agg(most=pl.col("order").n_unique())
        hits = scores.map_frames(partial(pronoun_hits, expected=expected), rows=TOKEN_ROWS)
        return share_table(pl.concat(hits), expected, measure="sa")

    return scores.cached("stereotype", read)


def _gender_shares(scores: Scores) -> Shares | None:
    """The shares of `sa_gender`; None if an answer is not a gender."""
    items = preferences(read_winobias(scores))
    if items is None:
        return None
    asked = scores.expected_rows(GENDERS).filter(stereotype="pro", asked="referred")
    sentence = ["model", pl.lit(TYPE, pl.Int64).alias("type"), pl.col("prompt_id")]
    expected = asked.group_by(sentence).agg(most=pl.col("order_seed").n_unique())
    expected = expected.rename({"prompt_id": "sentence_id"})
    return share_table(gender_hits(items), expected, measure="sa_gender")


def read_items(scores: Scores) -> Items:
    """Whether each sentence prefers the stereotype, of the usual type; none for other prompts."""
    shares = None
    if scores.columns.issuperset(PRONOUNS):
        shares = _pronoun_shares(scores)
    elif scores.columns.issuperset(GENDERS):
        shares = _gender_shares(scores)
    if shares is None:
        return gather_items([])
    return shares.items.only(type=str(TYPE)).pooled("type")
