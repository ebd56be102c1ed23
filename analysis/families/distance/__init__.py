"""Distances between distributions over the whole vocabulary."""

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Annotated

from logitbank.analysis.families import register
from logitbank.analysis.family import Family, columns
from logitbank.analysis.frames.choose import on_request
from logitbank.analysis.stats.measure import Measure

if TYPE_CHECKING:
    from logitbank.analysis.families.distance.metric import Distances as Distances
    from logitbank.analysis.frames.banks import Banks
    from logitbank.analysis.frames.reader import ScanCache
    from logitbank.analysis.study import Study

NAMES = {
    "js": ("Jensen–Shannon divergence", ".3g"),
    "kl": ("Kullback–Leibler divergence", ".3g"),
    "tv": ("Total variation", ".3f"),
    "top1": ("Same most probable token", ".1%"),
}
REFERENCES = {
    "previous": "from the previous checkpoint",
    "last": "from the last checkpoint",
    "runs": "between runs",
}
MEASURES = (
    Measure(name="entropy", text="Entropy", form=".3f", plus=("entropy",)),
    *(
        Measure(name=part, text=f"{text} {of}", form=form, plus=(part,))
        for reference, of in REFERENCES.items()
        for name, (text, form) in NAMES.items()
        for part in [f"{name}_{reference}"]
    ),
)
PAIRS = tuple(
    Measure(name=name, text=text, form=form, plus=(name,)) for name, (text, form) in NAMES.items()
)


def distance(
    banks: "Banks",
    *,
    prompts: str | None = None,
    models: Sequence[str] | None = None,
    cache: "ScanCache | None" = None,
    ray: Annotated[str | None, "Address of a Ray cluster that does the work, or auto."] = None,
) -> "Study[Distances]":
    """Measure entropy, and distances from other checkpoints, runs and models over the vocabulary.

    Parameters
    ----------
    banks
        As for `logitbank.fairness`. Their checkpoints keep full rows (`--keep full` or `hidden`).
    prompts
        Name of the prompt set, if there are several.
    ray
        Address of a Ray cluster whose CPUs do the work: `HOST:PORT`, or `auto`.

    `models` and `cache` are those of `logitbank.fairness`.

    Raises
    ------
    LogitbankError
        A missing bank or prompt set, or no checkpoint with full rows.
    """
    from logitbank.analysis.families.distance.metric import distance_metric, excluded
    from logitbank.analysis.frames.reader import read_scores
    from logitbank.analysis.results.series import missing_sentences
    from logitbank.analysis.results.studies import make_study

    scores = read_scores(banks, prompts, models, family=FAMILY, cache=cache, rows=True)
    result = distance_metric(scores, ray=ray)
    missing = missing_sentences(result.measures.filter(measure="entropy"), FAMILY.item)
    return make_study(FAMILY, result, scores, missing=[*missing, *excluded(scores)])


FAMILY = Family(
    name="distance",
    title="Distances",
    order=90,
    description=(
        "How far the distribution over the whole vocabulary is from that of the previous and the "
        "last checkpoint, and from that of other runs and models at the same step; its entropy."
    ),
    cautions=(
        "A distance has no direction: it does not show whether a behaviour became better or worse.",
    ),
    notes=(
        "Divergences and entropy are in nats; total variation is from 0 to 1. Rows are "
        "renormalised in float64.",
        "Intervals (95%) are over prompts, pointwise: they do not allow for the number of "
        "checkpoints.",
    ),
    prompts=on_request,
    screen={
        "measures": columns("measure value low high items from_baseline"),
        "pairs": columns("other_model other_run measure value low high items"),
    },
    measures=MEASURES,
    items=lambda scores: import_module(".metric", __name__).read_items(scores),
    charts=lambda result: import_module(".charts", __name__).charts(result),
    findings=lambda result: import_module(".findings", __name__).findings(result),
    analyze=distance,
)
register(FAMILY)
