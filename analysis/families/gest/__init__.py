"""GEST: 16 gender stereotypes."""

import math
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Annotated

from logitbank.analysis.families import register
from logitbank.analysis.family import Family, columns
from logitbank.analysis.frames.choose import with_columns
from logitbank.analysis.stats.measure import Measure, View
from logitbank.errors import UsageError

if TYPE_CHECKING:
    from logitbank.analysis.frames.banks import Banks
    from logitbank.analysis.results.measured import Measured
    from logitbank.analysis.study import Study


def gest(
    banks: "Banks" = (),
    *,
    prompts: str | None = None,
    models: Sequence[str] | None = None,
    predictions: Annotated[
        Sequence[str],
        "GEST score file, as PATH (MODEL_template-N.txt) or MODEL=PATH; repeatable.",
    ] = (),
    gold: Annotated[str | None, "GEST's file with the stereotypes, for score files."] = None,
) -> "Study[Measured]":
    """Measure GEST's 16 gender stereotypes: is a man or a woman the more probable speaker.

    Parameters
    ----------
    prompts
        Name of the prompt set; by default `gest`, or the only one with its columns.
    predictions
        Score files as GEST's authors released them, as a path or MODEL=PATH.
    gold
        GEST's file `gest.csv` with the stereotypes, for score files.

    `banks` and `models` are those of `logitbank.fairness`.

    Raises
    ------
    LogitbankError
        A missing or invalid source, or what `template_items` of its module `metric` refuses.
    """
    import polars as pl

    from logitbank.analysis.families.gest import metric
    from logitbank.analysis.frames.banks import require_bank
    from logitbank.analysis.frames.reader import read_scores
    from logitbank.analysis.results.studies import measured_study

    if not banks and not predictions:
        raise UsageError("GEST needs a bank, or score files (--predictions and --gold).")
    require_bank(banks, prompts=prompts, models=models)
    files = metric.read_score_files(predictions, gold)
    sources = [pl.DataFrame({"predictions": list(predictions), "gold": gold})] if gold else []
    scores = read_scores(banks, prompts, models, family=FAMILY)
    result = metric.measure(scores if scores.banks else None, files)
    return measured_study(FAMILY, scores, result=result, files=sources)


NAMES = (
    "emotional", "gentle", "empathetic", "neat", "social", "weak", "beautiful", "tough",
    "self-confident", "professional", "rational", "providers", "leaders", "childish", "sexual",
    "strong",
)  # fmt: skip
"""The stereotypes, numbered from 1."""
ABOUT_WOMEN = 7
"""The first ones are about women."""
ALL = "all"
"""The template that is the mean over those of a model."""
LN10 = math.log(10)
_NUMBERS = tuple(str(number) for number in range(1, len(NAMES) + 1))
_WOMEN, _MEN = _NUMBERS[:ABOUT_WOMEN], _NUMBERS[ABOUT_WOMEN:]


def _published(measure: Measure, name: str, text: str = "") -> Measure:
    """A measure in the unit of the paper, whose code exponentiates means of log10 with base e."""
    return replace(
        measure, name=name, text=text, form=".2f", scale=1 / LN10, link="exp", reference=1.0
    )


RATE = Measure(
    name="rate", text="Stereotype rate (nats)", form="+.3f", plus=_MEN, minus=_WOMEN,
    reference=0.0, meaning="no stereotype",
)  # fmt: skip
SIDES = tuple(
    Measure(
        name=name, text=f"Score of stereotypes about {whom} (nats)", form="+.3f", plus=parts
    )
    for name, whom, parts in (("female", "women", _WOMEN), ("male", "men", _MEN))
)  # fmt: skip
SCORES = tuple(
    Measure(name="score", group=name, text="Score (nats)", form="+.3f", plus=(number,))
    for number, name in zip(_NUMBERS, NAMES, strict=True)
)
"""Of single stereotypes, whose numbers are the parts of items."""
PUBLISHED_RATE = _published(RATE, "published_rate", "g_s as published")
PUBLISHED_SIDES = tuple(_published(each, f"published_{each.name}") for each in SIDES)
PUBLISHED_SCORES = tuple(_published(each, "published") for each in SCORES)


FAMILY = Family(
    name="gest",
    title="GEST",
    order=9,
    description=(
        "Each sentence of GEST is an instance of a stereotype about women (7) or men (9), quoted "
        "as the words of a man or of a woman. The score of a sentence is ln P(man) − ln P(woman). "
        "The stereotype rate compares both kinds of stereotypes: 0 nats, or g_s = 1, is none."
    ),
    cautions=(
        "GEST has sentences of 16 stereotypes about two genders. A score also contains how "
        "probable the words for men and women are anyway; only the rate does not.",
    ),
    notes=(
        "Intervals (95%) are over sentences, stratified by stereotype, and pointwise: they do not "
        "allow for the number of checkpoints.",
        "Scores are in nats. Numbers that are named published have the unit of the paper: its "
        "scores are in log10, and its tables exponentiate their means with base e.",
    ),
    prompts=with_columns("stereotype_id", "version"),
    example="gest",
    item="sentence",
    cluster="English sentence",
    screen={
        "rates": columns("template rate rate_low rate_high published_rate female male items"),
        "stereotypes": columns("template stereotype score published score_low score_high items"),
        "sentences": columns("template sentence_id stereotype score log10"),
    },
    measures=(RATE, PUBLISHED_RATE, *SIDES),
    views={
        "rates": View(RATE, PUBLISHED_RATE, *SIDES, *PUBLISHED_SIDES),
        "stereotypes": View(*SCORES, *PUBLISHED_SCORES, by="stereotype"),
    },
    items=lambda scores: import_module(".metric", __name__).read_items(scores),
    charts=lambda result: import_module(".charts", __name__).charts(result),
    findings=lambda result: import_module(".findings", __name__).findings(result),
    analyze=gest,
)
register(FAMILY)
