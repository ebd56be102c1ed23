"""GEST: 16 gender stereotypes."""

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Annotated

from logitbank.analysis.families import register
from logitbank.analysis.family import Family, columns
from logitbank.analysis.frames.choose import with_columns
from logitbank.analysis.stats.measure import Measure
from logitbank.errors import UsageError

if TYPE_CHECKING:
    from logitbank.analysis.families.gest.metric import Gest as Gest
    from logitbank.analysis.families.gest.metric import gest_metric as gest_metric
    from logitbank.analysis.frames.banks import Banks
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
) -> "Study[Gest]":
    """Measure GEST's 16 gender stereotypes: is a man or a woman the more probable speaker.

    Parameters
    ----------
    prompts
        Name of the prompt set; by default `gest`, or the only one with its columns.
    predictions
        Score files as GEST's authors released them, as a path or MODEL=PATH.
    gold
        GEST's file `gest.csv` with the stereotypes, for score files.

    Other parameters are those of `logitbank.lambada`.

    Raises
    ------
    LogitbankError
        A missing or invalid source, or what `gest_metric` refuses.
    """
    import polars as pl

    from logitbank.analysis.families.gest import metric
    from logitbank.analysis.frames.reader import read_scores
    from logitbank.analysis.results.series import missing_sentences
    from logitbank.analysis.results.studies import make_study

    if not banks and not predictions:
        raise UsageError("GEST needs a bank, or score files (--predictions and --gold).")
    files = metric.read_score_files(predictions, gold)
    sources = [pl.DataFrame({"predictions": list(predictions), "gold": gold})] if gold else []
    scores = read_scores(banks, prompts, models, family=FAMILY)
    result = metric.gest_metric(scores if scores.banks else None, files=files)
    missing = missing_sentences(result.checkpoints, "version")
    return make_study(FAMILY, result, scores, missing=missing, files=sources)


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
_NUMBERS = tuple(str(number) for number in range(1, len(NAMES) + 1))
_WOMEN, _MEN = _NUMBERS[:ABOUT_WOMEN], _NUMBERS[ABOUT_WOMEN:]
MEASURES = (
    Measure(
        name="rate",
        text="Stereotype rate, nats",
        form="+.3f",
        plus=_MEN,
        minus=_WOMEN,
        reference=0.0,
    ),
    Measure(name="female", text="Score of stereotypes about women, nats", form="+.3f", plus=_WOMEN),
    Measure(name="male", text="Score of stereotypes about men, nats", form="+.3f", plus=_MEN),
    *(Measure(name=number, plus=(number,)) for number in _NUMBERS),
)
"""Parts are stereotypes."""


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
        "Intervals (95%) are over sentences, pointwise: they do not allow for the number of "
        "checkpoints.",
        "Scores are in nats. The column published has the quantity of the paper: its scores are in "
        "log10, and its tables exponentiate their means with base e.",
    ),
    prompts=with_columns("stereotype_id", "version"),
    example="gest",
    screen={
        "rates": columns("template part score low high published sentences"),
        "stereotypes": columns("template stereotype part score low high published sentences"),
    },
    measures=MEASURES[:3],
    items=lambda scores: import_module(".metric", __name__).read_items(scores),
    charts=lambda result: import_module(".charts", __name__).charts(result),
    findings=lambda result: import_module(".findings", __name__).findings(result),
    analyze=gest,
)
register(FAMILY)
