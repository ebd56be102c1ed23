"""CrowS-Pairs as prompts with many queries."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from logitbank.engine.prompts.datasets import public_file
from logitbank.engine.prompts.findings import read_each
from logitbank.engine.prompts.known_set import KnownSet
from logitbank.engine.prompts.prompt_set import PromptSet
from logitbank.engine.prompts.rows import read_rows
from logitbank.engine.prompts.scoring import shared_tokens
from logitbank.engine.prompts.values import Prompt, Scalar
from logitbank.errors import PromptError

DIRECTIONS = ("stereo", "antistereo")
_COLUMNS = ("sent_more", "sent_less", "stereo_antistereo", "bias_type")
_REMEDY = "Use CrowS-Pairs' own file."


def crows_pairs(data: Path | None = None) -> PromptSet:
    """Both sentences of each of the 1,508 pairs.

    Masked models score each shared token under its own mask (Nangia et al. 2020). Causal models
    score every token after the begin-of-text token, as lm-evaluation-harness does. Columns: `pair`,
    `side` (more, less), `direction` (stereo, antistereo), `bias_type`.
    """
    path = public_file("crows-pairs", "crows_pairs_anonymized.csv", data)
    rows = read_rows(path, _COLUMNS[:2])
    prompts = []
    for number, row in enumerate(read_each(path, rows, _pair, what="pairs", remedy=_REMEDY)):
        both = {"first": row["sent_more"], "second": row["sent_less"]}
        for side, text in zip(("more", "less"), both.values(), strict=True):
            columns: dict[str, Scalar] = {
                "pair": number,
                "side": side,
                "direction": row["stereo_antistereo"],
                "bias_type": row["bias_type"],
            }
            prompts.append(
                Prompt(f"{number}-{side}", text, columns=columns, scored=shared_tokens, parts=both)
            )
    return PromptSet("crows-pairs", tuple(prompts))


def _pair(row: Mapping[str, Any]) -> Mapping[str, str]:
    """A row that has every column and a direction."""
    missing = [name for name in _COLUMNS if not isinstance(row.get(name), str) or not row[name]]
    if missing or row["stereo_antistereo"] not in DIRECTIONS:
        name = (*missing, "stereo_antistereo")[0]
        raise PromptError(f"not a CrowS-Pairs row: {name} is {row.get(name)!r}")
    return row


KNOWN = KnownSet(
    pattern="crows-pairs",
    about="both sentences of CrowS-Pairs' 1,508 pairs",
    size="3,016",
    license="CC BY-SA 4.0",
    analysis="pairs",
    make=crows_pairs,
)
