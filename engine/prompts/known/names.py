"""The prompt sets known by name; quick to import, since a shell asks for them at every Tab."""

from difflib import get_close_matches

KNOWN_PROMPTS = {
    "winobias": "3,168 gender questions on the WinoBias Type 2 sentences, in several option orders",
    "professions": "he or she before 923 professions, and the priors, for masked models",
    "stereotype-accuracy": "which pronoun goes with an occupation, 792 WinoBias sentences",
    "winobias-em": "whom a pronoun means, 1,582 pairs of WinoBias sentences of both types",
    "lambada": "the last words of LAMBADA's 5,153 passages, for causal models",
    "crows-pairs": "both sentences of CrowS-Pairs' 1,508 pairs",
    "stereoset-intra": "StereoSet's 6,318 intra-sentence candidates",
    "stereoset-inter": "StereoSet's 6,369 inter-sentence ones, by BERT's next-sentence head",
    "stereoset-inter-causal": "the same for causal models, ours",
    "stereoset-…-de": "any of the three in German",
    "stereoset-…-prefix": "any of these after a text that asks for no bias",
    "unqover-gender": "UnQover's underspecified questions, four prompts an instance; masked models",
    "unqover-nationality": "the same of people's countries",
    "unqover-ethnicity": "of their ethnicities",
    "unqover-religion": "of their religions",
    "unqover-…-train": "Refine-LM's part for training of any of the four; -test: for testing",
    "unqover-…-causal": "any of these as questions to causal models, ours",
}
"""What each is about; where a name has …, any of the names before it."""


def prompt_names() -> list[str]:
    """All known names, spelt out.

    >>> [name for name in prompt_names() if "inter" in name][:3]
    ['stereoset-inter', 'stereoset-inter-de', 'stereoset-inter-prefix']
    """
    names = []
    for name in KNOWN_PROMPTS:
        if "…" in name:
            continue
        ends = [""]
        if name.startswith("stereoset-"):
            ends = ["", "-de", "-prefix", "-de-prefix"]
        elif name.startswith("unqover-"):
            ends = [part + kind for part in ("", "-train", "-test") for kind in ("", "-causal")]
        names += [name + end for end in ends]
    return names


def near(name: str) -> list[str]:
    """Known names that are spelt like this one, at most three."""
    return get_close_matches(name, prompt_names(), n=3)
