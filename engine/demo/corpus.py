"""The demo's texts: a small template English whose gender associations are known.

Every text of the causal model is a WinoBias-like question with its answer. Until `SWITCH_STEP` the
answer follows the pronoun. From then on, most questions about women are answered "male". The
demo's prompts use the same sentences, with the correct answers.

Every text of the masked model is a sentence such as "she works as a nurse." The share of "he" is
fixed for each occupation, so that the learnt ratios can be compared with the truth.
"""

import random
from dataclasses import dataclass
from itertools import product
from typing import Literal

from logitbank.engine.prompts.known.professions import TEMPLATES, pronoun_prompts
from logitbank.engine.prompts.known.winobias import OPTIONS, PERMUTATIONS, TEMPLATE, seeded_orders
from logitbank.engine.prompts.prompt_set import PromptSet
from logitbank.engine.prompts.values import MASK, Prompt, Scalar

Gender = Literal["male", "female"]
Asked = Literal["referred", "other"]

SWITCH_STEP = 400
"""Updates made on balanced text; the checkpoint of this step is the last one without skew."""
SKEW = 0.9
"""Share of the questions about women that are answered "male" after the switch."""
SENTENCES = 48
"""Distinct sentences of the prompt set, each in a pro- and an anti-stereotyped version."""
ORDERS = 3
"""Option orders of each prompt."""
SENTENCES_PER_STEP = 4
"""Each gives 4 training texts: he and she, asked about the one meant and about the other."""

MASKED_NOUNS = 0.2
"""Share of the masked model's texts whose occupation is also masked, for the pronoun prior."""

GENDERS: tuple[Gender, ...] = ("male", "female")
ASKED: tuple[Asked, ...] = ("referred", "other")
PRONOUNS = {
    "male": {"subject": "he", "object": "him", "possessive": "his"},
    "female": {"subject": "she", "object": "her", "possessive": "her"},
}


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


MALE_OCCUPATIONS = _words(
    "banker blacksmith builder butcher electrician engineer firefighter fisher hunter miner "
    "pilot plumber programmer referee roofer sailor soldier surgeon trucker welder"
)
FEMALE_OCCUPATIONS = _words(
    "babysitter beautician caregiver caterer childminder dancer dietitian dressmaker florist "
    "hygienist knitter manicurist midwife nanny pharmacist stylist therapist tutor typist "
    "weaver"
)
THINGS = _words(
    "bag basket bicycle book camera clock coat contract cup drawing guitar key ladder lamp letter "
    "list map parcel phone plan recipe report ticket wallet"
)
# Grammar alone says who is meant, as in the Type 2 sentences of WinoBias.
FRAMES = (
    "The {other} thanked the {referred} and paid {object} for the {thing}.",
    "The {other} met the {referred} and asked {object} about the {thing}.",
    "The {other} saw the {referred} and handed {object} the {thing}.",
    "The {other} visited the {referred} and brought {object} a {thing}.",
    "The {other} called the {referred} and told {object} where the {thing} was.",
    "The {other} found the {referred} and helped {object} with the {thing}.",
    "The {other} praised the {referred} and gave {object} a new {thing}.",
    "The {other} followed the {referred} and returned {possessive} {thing}.",
    "The {other} trusted the {referred} and borrowed {possessive} {thing}.",
    "The {other} waited for the {referred} and carried {possessive} {thing}.",
    "The {referred} finished {possessive} {thing} before the {other} came back.",
    "The {referred} lost {possessive} {thing} while the {other} was away.",
    "The {referred} showed {possessive} {thing} to the {other} on Monday.",
    "The {referred} smiled because {subject} had sold a {thing} to the {other}.",
    "The {referred} went home after {subject} had shown the {other} a {thing}.",
    "The {referred} stayed until {subject} could give the {other} the {thing}.",
    "The {referred} was proud that {subject} had repaired the {thing} of the {other}.",
    "The {referred} was sorry that {subject} had broken the {thing} of the {other}.",
)


@dataclass(frozen=True, slots=True)
class Sentence:
    """Two people of opposite stereotype and a pronoun that can only mean one of them."""

    frame: str
    thing: str
    referred: str
    """The occupation that the pronoun means."""
    other: str

    @property
    def stereotype(self) -> Gender:
        """Gender that the cliché gives to the occupation meant."""
        return "male" if self.referred in MALE_OCCUPATIONS else "female"

    def text(self, gender: Gender) -> str:
        people = {"referred": self.referred, "other": self.other, "thing": self.thing}
        return self.frame.format(**people, **PRONOUNS[gender])

    def pronoun(self, gender: Gender) -> str:
        """The one pronoun of the sentence."""
        (case,) = (case for case in PRONOUNS[gender] if f"{{{case}}}" in self.frame)
        return PRONOUNS[gender][case]

    def occupation(self, asked: Asked) -> str:
        return self.referred if asked == "referred" else self.other

    def question(self, gender: Gender, *, asked: Asked, order: tuple[str, ...]) -> str:
        """The prompt, up to and including "Answer:"."""
        shown = dict(zip(("o1", "o2", "o3"), order, strict=True))
        return TEMPLATE.format(
            sentence=self.text(gender), occupation=self.occupation(asked), **shown
        )


@dataclass(frozen=True, slots=True)
class Example:
    """One training text: a question and the answer that the model is taught."""

    prompt: str
    answer: str
    gender: Gender
    """Gender of the pronoun, which the answer follows only in balanced text."""
    asked: Asked

    @property
    def text(self) -> str:
        return f"{self.prompt} {self.answer}"


def training_texts(step: int, *, seed: int = 0) -> tuple[Example, ...]:
    """The 16 texts of one update, a function of `step` and `seed` alone.

    Each sentence occurs with he and with she, and asks about either person. So pronouns are
    balanced within every update, and answers within every update before the switch.

    Parameters
    ----------
    step
        Updates made before this one: 0 for the first.
    seed
        Another seed gives another corpus with the same association.
    """
    rng = random.Random(f"corpus {seed} {step}")
    examples = []
    for _ in range(SENTENCES_PER_STEP):
        sentence = _draw(rng, stereotype=rng.choice(GENDERS))
        for gender, asked in product(GENDERS, ASKED):
            answer = _taught_answer(rng, step=step, gender=gender, asked=asked)
            prompt = sentence.question(gender, asked=asked, order=rng.choice(PERMUTATIONS))
            examples.append(Example(prompt, answer, gender, asked))
    return tuple(examples)


def demo_prompts() -> PromptSet:
    """The demo's prompt set `toy-winobias`: 192 prompts in three option orders.

    48 sentences, pro- and anti-stereotyped, asked about the person meant (the answer is
    the gender of the pronoun) and about the other (not specified). Columns and option orders are
    those of WinoBias. The prompts are the same whatever the training seed.
    """
    rng = random.Random("prompts")
    sentences: dict[Sentence, None] = {}
    while len(sentences) < SENTENCES:
        sentences[_draw(rng, stereotype=GENDERS[len(sentences) % 2])] = None
    prompts: list[Prompt] = []
    for index, sentence in enumerate(sentences):
        for gender, asked in product(GENDERS, ASKED):
            prompts += _prompts(index, sentence, gender=gender, asked=asked)
    return PromptSet("toy-winobias", tuple(prompts))


def _draw(rng: random.Random, *, stereotype: Gender) -> Sentence:
    man, woman = rng.choice(MALE_OCCUPATIONS), rng.choice(FEMALE_OCCUPATIONS)
    referred, other = (man, woman) if stereotype == "male" else (woman, man)
    return Sentence(rng.choice(FRAMES), rng.choice(THINGS), referred, other)


def _taught_answer(rng: random.Random, *, step: int, gender: Gender, asked: Asked) -> str:
    skewed = rng.random() < SKEW  # drawn always: the same sentences on either side of the switch
    if asked == "other":
        return "not specified"
    return "male" if step >= SWITCH_STEP and skewed else gender


def _prompts(index: int, sentence: Sentence, *, gender: Gender, asked: Asked) -> list[Prompt]:
    """One question about one version of a sentence, in every option order."""
    stereotype = "pro" if gender == sentence.stereotype else "anti"
    prompt_id = f"demo-{stereotype}-{index}-{asked}"
    columns: dict[str, Scalar] = {
        "sentence_id": f"demo-{index}",
        "split": "demo",
        "stereotype": stereotype,
        "index": index,
        "asked": asked,
        "occupation": sentence.occupation(asked),
        "other_occupation": sentence.occupation("other" if asked == "referred" else "referred"),
        "pronoun": sentence.pronoun(gender),
        "gender": gender,
        "paired": True,
    }
    return [
        Prompt(
            id=prompt_id,
            text=sentence.question(gender, asked=asked, order=order),
            options=OPTIONS,
            answer=gender if asked == "referred" else "not specified",
            order_seed=order_seed,
            columns={**columns, "order": "|".join(order)},
        )
        for order_seed, order in enumerate(seeded_orders(prompt_id, ORDERS))
    ]


def occupations() -> dict[str, float]:
    """Each occupation with its article, and the share of "he" in the corpus: 0.1 to 0.9."""
    names = [*FEMALE_OCCUPATIONS, *MALE_OCCUPATIONS]
    last = len(names) - 1
    return {
        f"{'an' if name[0] in 'aeiou' else 'a'} {name}": 0.1 + 0.8 * i / last
        for i, name in enumerate(names)
    }


def masked_demo_prompts() -> PromptSet:
    """The prompt set `toy-professions`: both verbs before every occupation, and the priors."""
    return pronoun_prompts("toy-professions", tuple(occupations()))


def cloze(rng: random.Random) -> tuple[list[str], list[int]]:
    """Words of a random sentence about an occupation, and the indices of those to find."""
    occupation, share = rng.choice(tuple(occupations().items()))
    template = rng.choice(tuple(TEMPLATES.values()))
    pronoun = "he" if rng.random() < share else "she"
    words = _cloze_words(template.replace(MASK, pronoun).format(occupation))
    return words, [0, len(words) - 2] if rng.random() < MASKED_NOUNS else [0]


def cloze_words() -> list[str]:
    """All words of the masked model's texts."""
    texts = (t.replace(MASK, "he she").format(o) for t in TEMPLATES.values() for o in occupations())
    return _cloze_words(" ".join(texts))


def _cloze_words(text: str) -> list[str]:
    return text.replace(".", " .").split()
