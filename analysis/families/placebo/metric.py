"""What the target and the placebo change in each pair of prompts."""

from typing import NamedTuple

import numpy as np
import polars as pl

from logitbank.analysis.frames.codes import Codes
from logitbank.analysis.frames.expressions import Floats
from logitbank.analysis.frames.items import Items, array_items, gather_items
from logitbank.analysis.frames.reader import Scores
from logitbank.analysis.prompts.scores import PromptScores, prompt_scores
from logitbank.errors import UsageError

EDITS = ("original", "target", "placebo")


def placebo_items(scores: Scores) -> Items:
    r"""What each edit changes in a pair: parts `changed` and `odds`, of `target` and `placebo`.

    `changed` is 1 if the most probable options are not those of the original. `odds` is
    :math:`\frac1k\sum_o|\lambda_o-\lambda_o^{original}|` over the k options, in nats, where
    :math:`\lambda_o=\ln p_o-\ln(1-p_o)` and p is normalized over the options. A pair without a
    score of one of its three texts has no value, and is counted as missing. Prompts without `pair`
    and `edit` are in no pair.

    Raises
    ------
    UsageError
        A pair does not have one text of each edit, or its texts have other options.

    References
    ----------
    Yang et al. 2026, arXiv 2605.01048: an edit counts only against the effect of any edit. Not in
    the paper: the mean over options.
    """
    parts = []
    for bank, deposits in scores.holding():
        models = {deposit.checkpoint.model for deposit in deposits}
        read = prompt_scores(bank, scores.prompts, models=models, steps=scores.steps, few=True)
        parts += [_items(each, scores.prompts) for each in read]
    return gather_items(parts)


def log_odds(logp: Floats) -> Floats:
    """Log-odds of each option among the options of the last axis, in nats.

    It is the log-probability minus the log-sum-exp of the others, which also separates options
    whose normalized probabilities round to 0 and 1.

    >>> log_odds(np.log([[0.2, 0.6]])).round(4).tolist()
    [[-1.0986, 1.0986]]
    >>> log_odds(np.array([[-1.0, -900.0]])).tolist()
    [[899.0, -899.0]]
    """
    others = [np.delete(logp, at, axis=-1) for at in range(logp.shape[-1])]
    rest = np.stack([np.logaddexp.reduce(each, axis=-1) for each in others], axis=-1)
    return np.asarray(logp - rest)


class _Pairs(NamedTuple):
    axes: pl.DataFrame
    """(k) item and order."""
    options: Codes
    """(k, 3, o) the options of each pair's texts, of one number, in one order."""


def _items(scores: PromptScores, name: str) -> Items:
    parts = list[Items]()
    for pairs in _pairs(scores, name):
        logp = scores.logprob[:, pairs.options]  # (c, k, 3, o)
        best = logp == logp.max(axis=3, keepdims=True)
        odds = log_odds(logp)
        values = {
            "changed": (best[:, :, 1:] != best[:, :, :1]).any(axis=3).astype(np.float64),
            "odds": np.abs(odds[:, :, 1:] - odds[:, :, :1]).mean(axis=3),
        }
        missing = np.isnan(logp).any(axis=(2, 3))
        for kind, changes in values.items():
            for at, edit in enumerate(EDITS[1:]):
                axes = pairs.axes.with_columns(part=pl.lit(f"{kind} {edit}"))
                own = np.where(missing, np.nan, changes[:, :, at])
                parts.append(array_items(scores.checkpoints, axes, own))
    return gather_items(parts)


def _pairs(scores: PromptScores, name: str) -> list[_Pairs]:
    """The texts of each pair and option order, by their number of options."""
    texts = scores.prompts.select("pair", "edit", order="order_seed").with_row_index("prompt")
    texts = texts.filter(pl.col("pair").is_not_null() | pl.col("edit").is_not_null())
    if other := sorted({str(edit) for edit in texts["edit"]} - {*EDITS}):
        raise UsageError(f"Prompt set {name} has the edit {other[0]!r}. Use {', '.join(EDITS)}.")
    labels = scores.options.with_row_index("at").group_by("prompt", maintain_order=True)
    options = labels.agg("at", label=pl.col("option").sort(), by="option")
    texts = texts.cast({"prompt": pl.Int64}).join(options, on="prompt", maintain_order="left")
    found: dict[int, list[tuple[str, str, list[list[int]]]]] = {}
    for (pair, order), rows in texts.group_by("pair", "order", maintain_order=True):
        by_edit = {row["edit"]: row for row in rows.iter_rows(named=True)}
        if len(rows) != len(EDITS) or len(by_edit) != len(EDITS):
            raise UsageError(
                f"Pair {pair!r} of {name} has the edits {', '.join(rows['edit'])}. A pair needs "
                f"one text each of {', '.join(EDITS)}."
            )
        each = [by_edit[edit] for edit in EDITS]
        if any(row["label"] != each[0]["label"] or len(row["label"] or ()) < 2 for row in each):
            raise UsageError(
                f"The texts of pair {pair!r} of {name} have other options. Give all three the same "
                "options, two or more."
            )
        at = [
            [dict(zip(row["by"], row["at"], strict=True))[o] for o in row["label"]] for row in each
        ]
        found.setdefault(len(at[0]), []).append(
            (str(pair), "" if order is None else str(order), at)
        )
    return [
        _Pairs(
            pl.DataFrame({"item": [pair for pair, _, _ in own], "order": [o for _, o, _ in own]}),
            np.array([at for _, _, at in own]),
        )
        for own in found.values()
    ]
