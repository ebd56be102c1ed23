"""What the target and the placebo change in each pair of prompts.

A pair is three texts of own prompts with the columns `pair` and `edit`. Of WinoBias, whose two
versions of a sentence differ in the pronoun, the other version is the target and another option
order the placebo, in questions about the occupation that the pronoun does not refer to.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import polars as pl

from logitbank.analysis.frames.codes import Codes
from logitbank.analysis.frames.expressions import Floats
from logitbank.analysis.frames.items import Items, array_items, gather_items
from logitbank.analysis.frames.reader import Scores
from logitbank.analysis.prompts.scores import PromptScores, read_options
from logitbank.errors import UsageError

EDITS = ("original", "target", "placebo")
WINOBIAS = ("sentence_id", "asked", "occupation", "gender", "order", "paired")
"""Columns of WinoBias that distinguish its versions and orders."""


def placebo_items(scores: Scores) -> Items:
    r"""What each edit changes in a pair: parts `changed` and `odds`, of `target` and `placebo`.

    `changed` is 1 if the most probable options are not those of the original. `odds` is
    :math:`\frac1k\sum_o|\lambda_o-\lambda_o^{original}|` over the k options, in nats, where
    :math:`\lambda_o=\ln p_o-\ln(1-p_o)` and p is normalized over the options. A pair without a
    score of one of its three texts has no value, and is counted as missing. Prompts without `pair`
    and `edit` are in no pair.

    Of WinoBias, only questions count whose answer no pronoun decides, so that neither edit should
    matter. Each version and option order is an original. Its target is the version with the other
    pronoun in the same order, and its placebo the same version in the next order that it has.

    Raises
    ------
    UsageError
        Prompts of another kind; a pair does not have one text of each edit, or its texts have other
        options; WinoBias in one option order.

    References
    ----------
    Yang et al. 2026, arXiv 2605.01048: an edit counts only against the effect of any edit. Not in
    the paper: the mean over options.
    """
    pairs = _edited if scores.columns.issuperset(("pair", "edit")) else _versions
    if pairs is _versions:
        scores.require(*WINOBIAS, family="placebo")
    read = read_options(scores)
    return gather_items([_items(each, pairs(each, scores.prompts)) for each in read])


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
    with np.errstate(invalid="ignore"):  # of prompts without scores
        rest = np.stack([np.logaddexp.reduce(each, axis=-1) for each in others], axis=-1)
    return np.asarray(logp - rest)


class _Pairs(NamedTuple):
    axes: pl.DataFrame
    """(k) item, order and cluster."""
    options: Codes
    """(k, 3, o) the options of each pair's texts, of one number, in one order."""


def _items(scores: PromptScores, found: Sequence[_Pairs]) -> Items:
    parts = list[Items]()
    for pairs in found:
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


def _edited(scores: PromptScores, name: str) -> list[_Pairs]:
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
            _axes([(pair, order, pair) for pair, order, _ in own]),
            np.array([at for _, _, at in own]),
        )
        for own in found.values()
    ]


def _axes(rows: Sequence[tuple[str, str, str]]) -> pl.DataFrame:
    return pl.DataFrame(rows, ["item", "order", "cluster"], orient="row")


def _versions(scores: PromptScores, name: str) -> list[_Pairs]:
    """The versions of each sentence of WinoBias, by option order."""
    labels = scores.options.with_row_index("at").group_by("prompt", maintain_order=True)
    options = labels.agg(pl.col("at").sort_by("option")).cast({"prompt": pl.UInt32})
    texts = (
        scores.prompts.with_row_index("prompt")
        .filter("paired", asked="other")
        .join(options, on="prompt", maintain_order="left")
        .unique([*WINOBIAS], keep="first", maintain_order=True)
        .sort("sentence_id", "occupation", "gender", "order")
        .with_columns(
            following=pl.col("at").shift(-1).over("sentence_id", "occupation", "gender"),
            first=pl.col("at").first().over("sentence_id", "occupation", "gender"),
            orders=pl.len().over("sentence_id", "occupation", "gender"),
            gender=pl.col("gender").replace({"male": "female", "female": "male"}),
            own="gender",
        )
        .filter(pl.col("orders") > 1)
    )
    others = texts.select("sentence_id", "occupation", "order", gender="own", target="at")
    pairs = texts.join(
        others, on=["sentence_id", "occupation", "order", "gender"], maintain_order="left"
    )
    if pairs.is_empty():
        raise UsageError(
            f"{name} has no sentence with both pronouns in two option orders. Extract it as "
            "winobias:orders=all."
        )
    placebo = pl.coalesce("following", "first")
    axes = pairs.select(
        item=pl.format("{} {}", "prompt_id", "order"), order=pl.lit(""), cluster="sentence_id"
    )
    at = pairs.select(pl.concat_list("at", "target", placebo.alias("placebo")))
    return [_Pairs(axes, np.array(at.to_series().to_list()).reshape(len(pairs), len(EDITS), -1))]
