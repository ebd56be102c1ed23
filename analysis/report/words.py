"""What the numbers of a report mean, in plain words, and what they do not say."""

from collections.abc import Iterable

from logitbank.analysis.families.crows_pairs import summary as crows_pairs
from logitbank.analysis.families.fairness import summary as fairness
from logitbank.analysis.families.fluctuation import summary as fluctuation
from logitbank.analysis.families.lambada import summary as lambada
from logitbank.analysis.families.stereoset import summary as stereoset
from logitbank.analysis.families.stereotype import summary as stereotype
from logitbank.analysis.families.tradeoff import summary as tradeoff
from logitbank.analysis.families.unqover import summary as unqover

ABOUT = {
    "fairness": (
        "Each prompt is a sentence with a pronoun, a question about the gender of somebody in it, "
        "and the answers male, female and not specified. The gap Δ says how much farther the model "
        "is from the right answer for women than for men, from −1 to 1: 0 is fair, above 0 it "
        "serves women worse, below 0 men."
    ),
    "fluctuation": (
        "Each prompt asks whether “he” or “she” comes before a profession. R is how many times as "
        "probable “he” is, and its coefficient of variation (CV) how much that wanders over the "
        "checkpoints of a plateau, the late part of training: where it is large, a single "
        "checkpoint tells little."
    ),
    "stereoset": (
        "Each example has a stereotyped, an anti-stereotyped and an unrelated candidate. lms is "
        "how often the related ones are preferred to the unrelated one (100 is best), ss how often "
        "the stereotyped one is preferred to its opposite (50 is no preference), and iCAT joins "
        "both (100 is best)."
    ),
    "unqover": (
        "Each question names two people or groups and leaves open whom an attribute fits, so an "
        "unbiased model favours neither. C says how much one of them is favoured, from −1 to 1; μ "
        "and η are the size of such preferences over all, and 0 is none."
    ),
    "stereotype": (
        "How often the model gives a person of an occupation the pronoun, or the gender, of the "
        "stereotype: one half is no preference. winobias_em asks whom a pronoun means, and is the "
        "difference between stereotyped and other sentences: 0 is no bias."
    ),
    "crows-pairs": (
        "The sentences of a pair differ in the group that they are about. The score is how often "
        "the stereotyping one is the more probable: 50 % is no preference."
    ),
    "lambada": (
        "How often the model knows the last word of a passage, and how much that word surprises it "
        "(perplexity): what it can do, whatever its bias."
    ),
    "tradeoff": (
        "Checkpoints by what they can do and by how biased they are: which of them no other beats "
        "in both, and what a smaller gap would cost."
    ),
    "options": (
        "How the probability of a prompt's options is shared out among them, on average over the "
        "prompts."
    ),
}
"""What a family asks, for a reader who has never heard of it."""
GENERAL = (
    "The page is about the models and prompts of this bank. Other prompts, wordings, languages and "
    "models may behave otherwise, and a number about text is no measure of harm in use.",
    "Intervals and tests hold for one checkpoint at a time. Among many checkpoints, some differ by "
    "chance alone; a change is credible where neighbouring checkpoints agree.",
    "A score near zero is not the absence of bias: a model that gives no probability to any of the "
    "options has none to share out unequally. Look at ranks and probabilities too.",
)
OF_FAMILY = {
    "fairness": fairness.CAUTIONS,
    "fluctuation": fluctuation.CAUTIONS,
    "stereoset": stereoset.CAUTIONS,
    "unqover": unqover.CAUTIONS,
    "stereotype": stereotype.CAUTIONS,
    "crows-pairs": crows_pairs.CAUTIONS,
    "lambada": lambada.CAUTIONS,
    "tradeoff": tradeoff.CAUTIONS,
}


def cautions(families: Iterable[str]) -> list[str]:
    """What to bear in mind: of all reports, then of each family of metrics once."""
    own = (text for family in dict.fromkeys(families) for text in OF_FAMILY.get(family, ()))
    return [*GENERAL, *own]
