"""Stereotype accuracy: does a model give an occupation the pronoun of its stereotype.

Two quantities, each under its own name: `sa` compares pronouns after a question about the pronoun,
`sa_gender` compares the options *male* and *female* of the gender-prediction prompts.
"""

from collections.abc import Sequence

import polars as pl

from logitbank.analysis.families.fairness import DELTA, JSD_P
from logitbank.analysis.families.fairness.metric import Fairness
from logitbank.analysis.families.fairness.tables import gap_changes, gap_draws
from logitbank.analysis.families.stereotype import ACCURACY, FAMILY
from logitbank.analysis.families.stereotype.tables import (
    TYPE,
    Shares,
    gender_hits,
    over_changes,
    pronoun_hits,
    shares_of,
    with_extremes,
)
from logitbank.analysis.frames.gender_answers import GENDER_COLUMNS, preferences, read_winobias
from logitbank.analysis.frames.items import Items, gather_items
from logitbank.analysis.frames.prompt_sums import CHECKPOINT
from logitbank.analysis.frames.reader import Scores
from logitbank.analysis.results.measured import Measured, changes_of
from logitbank.analysis.stats.measure import View
from logitbank.analysis.stats.summary import BASELINE, summarise
from logitbank.errors import BankError, UsageError

PRONOUNS = ("sentence_id", "order", "type")
"""Columns of the prompts of `sa` that identify its sentences and orders."""
GENDERS = ("prompt_id", "order_seed", *GENDER_COLUMNS)
"""Those of the prompts of `sa_gender`."""


ANSWERS = View(*JSD_P, by="group")
"""JSD-P of the answers male and female, whose difference is the gender gap."""


def stereotype_metric(scores: Scores, *, bootstrap: int = 0) -> Measured:
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
    order = [*CHECKPOINT, "type", "kind"]
    measures, counts = (
        pl.concat(parts).sort(order, nulls_last=True, maintain_order=True)
        for parts in zip(
            *((summarise(each.items, [ACCURACY]), each.counts) for each in shares), strict=True
        )
    )
    tables = {name: view.of(measures) for name, view in FAMILY.views.items()} | {"counts": counts}
    if gendered:
        tables |= _beside_gap(gendered[0], shares, bootstrap)
    return Measured(measures, changes_of(measures, ACCURACY), tables)


def _beside_gap(
    scores: Scores, shares: Sequence[Shares], bootstrap: int
) -> dict[str, pl.DataFrame]:
    """The gender gap of WinoBias, and how far shares move while it changes."""
    answers = read_winobias(scores)
    gap = Fairness.gap.of(summarise(answers.items, [DELTA], changes=False))
    changes = with_extremes(gap_changes([gap_draws(answers, bootstrap)], gap), gap)
    return {
        "jsd_p": ANSWERS.of(summarise(answers.items, JSD_P, changes=False)).drop(*BASELINE),
        "over_change": pl.concat(over_changes(each, changes) for each in shares),
    }


def _pronoun_shares(scores: Scores) -> Shares:
    """The shares of `sa`, made once in a report."""

    def read() -> Shares:
        columns = (*PRONOUNS, "is_answer")
        hits = scores.map_prompts(pronoun_hits, *columns, family=FAMILY.example, by=("option",))
        return shares_of(pl.concat(hits), kind="sa")

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
    return shares_of(gender_hits(items, expected), kind="sa_gender")


def read_items(scores: Scores) -> Items:
    """Whether each sentence prefers the stereotype, of the usual type; none for other prompts."""
    shares = None
    if scores.columns.issuperset(PRONOUNS):
        shares = _pronoun_shares(scores)
    elif scores.columns.issuperset(GENDERS):
        shares = _gender_shares(scores)
    if shares is None:
        return gather_items([])
    return shares.items.only(type=str(TYPE)).pooled("kind", "type")
