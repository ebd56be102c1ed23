"""Which tables of a result people see on the screen, and which columns; --table gives one whole."""

from collections.abc import Mapping, Sequence

from logitbank.analysis.family import columns, family_of

OTHERS: Mapping[str, Mapping[str, Sequence[str]]] = {
    "Comparison": {
        "logits": columns(
            "query_set rows entries max_logit_difference mean_logit_difference max_kl mean_kl "
            "argmax_changed ranks_changed max_rank_change"
        ),
        "metrics": columns("prompts metric group a b difference"),
        "only": columns("query_set rows_a rows_b only_a only_b"),
    },
    "Debias": {
        "bias": columns(
            "split filter abs_c abs_c_low abs_c_high mu eta positional attributive coverage "
            "instances missing"
        ),
    },
    "DebiasComparison": {
        "comparison": columns("label language condition lms ss icat icat_change abs_c"),
        "unqover": columns(
            "category split mu mu_low mu_high eta abs_c positional attributive coverage_8 "
            "coverage_10 instances missing"
        ),
    },
    "DebiasSearch": {
        "points": columns(
            "kind k regularisation temperature abs_c positional lms ss icat front best"
        ),
    },
}
"""Of results that are no family's, by their class and then by table."""


def brief_of(result: object) -> Mapping[str, Sequence[str]]:
    """The columns to show, by table."""
    family = family_of(result)
    return OTHERS[type(result).__name__] if family is None else family.brief
