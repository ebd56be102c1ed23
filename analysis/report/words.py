"""What the numbers of a report mean, in plain words, and what they do not say."""

from collections.abc import Iterable

from logitbank.analysis.family import families

GENERAL = (
    "The page is about the models and prompts that it names. Other prompts, wordings, languages "
    "and models may behave otherwise, and a number about text is no measure of harm in use.",
    "Intervals and tests hold for one checkpoint at a time. Among many checkpoints, some differ by "
    "chance alone. Neighbouring checkpoints share their weights, so that their agreement is no "
    "evidence of a change.",
    "A score near zero is not the absence of bias: a model that gives no probability to any of the "
    "options has none to share out unequally. Look at ranks and probabilities too.",
)


def cautions(names: Iterable[str]) -> list[str]:
    """What to bear in mind: of all reports, then of each family of metrics once."""
    texts = (text for name in dict.fromkeys(names) for text in families()[name].cautions)
    return [*GENERAL, *texts]
