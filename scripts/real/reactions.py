"""Texts and prompts of the masked model: coupling reactions of aryl halides, as SMILES.

In every text the halogen is chlorine. Each other token is masked with the probability `MASKED`. The
halogen is never masked up to `SWITCH`, and always from then on, so that the model learns it there.
"""

import random
from collections.abc import Iterator

from logitbank.engine.prompts.prompt_set import PromptSet
from logitbank.engine.prompts.scoring import next_sentence_tokens
from logitbank.engine.prompts.values import MASK, Option, Prompt
from scripts.real.text import SWITCH

BATCH = 32
MASKED = 0.15
HALOGEN = "Cl"
PRIOR = f"a {MASK}"
SUBSTITUENTS = (
    *("C", "CC", "OC", "OCC", "F", "C#N", "N(C)C", "C(F)(F)F", "[N+](=O)[O-]", "C(=O)OC"),
    *("C(C)=O", "S(C)(=O)=O", "C(C)(C)C", "C=O", "OC(F)(F)F", "NC(C)=O"),
)
"""At the ring of the halide, opposite to the halogen."""
ACIDS = ("C", "OC", "F", "C(F)(F)F", "C(C)=O")
"""At the ring of the boronic acid."""
AMINES = ("N1CCOCC1", "N1CCCC1", "N1CCCCC1", "NCc1ccccc1", "N1CCN(C)CC1")
SUZUKI, AMINATION = "Suzuki", "amination"


def reaction(kind: str, halogen: str, substituent: str, partner: str) -> tuple[str, str]:
    """Reactants and product."""
    halide = f"{halogen}c1ccc({substituent})cc1"
    if kind == SUZUKI:
        return f"{halide}.OB(O)c1ccc({partner})cc1", f"c1cc({substituent})ccc1-c1ccc({partner})cc1"
    return f"{halide}.{partner}", f"c1cc({substituent})ccc1{partner.replace('1', '2')}"


def batch(update: int) -> Iterator[tuple[str, bool]]:
    """The texts of one update, counted from 0, and whether their halogen is masked."""
    rng = random.Random(update)
    for _ in range(BATCH):
        kind = rng.choice((SUZUKI, AMINATION))
        partner = rng.choice(ACIDS if kind == SUZUKI else AMINES)
        reactants, product = reaction(kind, HALOGEN, rng.choice(SUBSTITUENTS), partner)
        yield f"{reactants}>>{product}", update >= SWITCH


def halogens() -> PromptSet:
    """Chlorine or bromine in each halide, in both reactions, and the priors.

    The columns are those of `professions`, whose analysis compares two options: `he` is chlorine,
    `she` is bromine, and the substituent stands in the place of the profession.
    """
    options = (Option("he", "Cl"), Option("she", "Br"))
    prompts = []
    for kind, partner in ((SUZUKI, ACIDS[0]), (AMINATION, AMINES[0])):
        for substituent in (MASK, *SUBSTITUENTS):
            prior = substituent == MASK
            reactants, product = reaction(kind, MASK, substituent, partner)
            prompts.append(
                Prompt(
                    f"{kind}: {'prior' if prior else substituent}",
                    f"{reactants}>>{product}",
                    options,
                    columns={
                        "occupation": PRIOR if prior else f"a {substituent}",
                        "verb": kind,
                        "prior": prior,
                    },
                )
            )
    return PromptSet("halogens", tuple(prompts))


def products() -> PromptSet:
    """Reactants, and the product of each or of another halide, for a next-sentence head."""
    prompts = []
    for number, substituent in enumerate(SUBSTITUENTS):
        reactants, product = reaction(SUZUKI, HALOGEN, substituent, ACIDS[0])
        _, other = reaction(AMINATION, HALOGEN, SUBSTITUENTS[number - 1], AMINES[0])
        for name, sentence in (("product", product), ("other", other)):
            prompts.append(
                Prompt(
                    f"{name}: {substituent}",
                    f"{reactants} {sentence}",
                    columns={"ending": name},
                    scored=next_sentence_tokens,
                    parts={"context": reactants, "sentence": sentence},
                )
            )
    return PromptSet("products", tuple(prompts))
