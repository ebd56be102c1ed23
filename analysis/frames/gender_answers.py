"""The items of WinoBias: every prompt in each option order, at all checkpoints, from one reading.

Fairness, stereotype accuracy and a trade-off are numbers of the same answers.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import polars as pl

from logitbank.analysis.frames.batches import ROWS
from logitbank.analysis.frames.codes import Codes
from logitbank.analysis.frames.expressions import (
    Floats,
    jsd_parts,
    scaled,
    three_way_correct,
)
from logitbank.analysis.frames.items import Flags, Items
from logitbank.analysis.frames.prompt_sums import CHECKPOINT
from logitbank.analysis.frames.reader import Scores
from logitbank.analysis.frames.score_arrays import (
    CODED,
    LABELS,
    PromptAxes,
    ScoreArrays,
    map_score_arrays,
)

GENDER_COLUMNS = ("stereotype", "asked")
"""Columns of the prompts in which the preference of the stereotype is looked for."""
JSD_P = tuple(f"jsd_p {label}" for label in LABELS)
"""Contributions of the options to the divergence, scaled; see `jsd_parts`."""
QUANTITIES = (*JSD_P, "rank", "top", "first")
"""Quantities of an item; `top` and `first`: the answer is the only maximum of the vocabulary, and
of the options."""
PREFERS = "prefers"
"""1 if the gender of the stereotype has the greater logit, ½ for a tie, else 0: of pro-stereotyped
prompts about the referred occupation."""


def part_name(quantity: str, gold: str) -> str:
    """The part of a measure with this quantity of the prompts with this correct answer."""
    return f"{quantity} | {gold}"


class Layout(NamedTuple):
    """Where the items of a quantity and a correct answer are in rows of `Items.values`."""

    axes: PromptAxes
    orders: Codes
    """Numbers of the option orders, sorted as text."""
    prompts: Mapping[str, Codes]
    """Sorted numbers of each part's prompts. Its items are all of them in each order."""

    @property
    def columns(self) -> dict[str, slice]:
        """The items of each part."""
        ends = np.cumsum([len(self.orders) * len(own) for own in self.prompts.values()])
        starts = [0, *ends[:-1]]
        return {name: slice(*at) for name, *at in zip(self.prompts, starts, ends, strict=True)}

    def items(self) -> pl.DataFrame:
        """The axes of items, as `Items` has them."""
        prompts = self.axes.prompts.select(
            cluster=pl.coalesce("sentence_id", "prompt_id"), item="prompt_id"
        )
        texts = ["" if seed is None else str(seed) for seed in self.axes.seeds]
        orders = pl.DataFrame({"order": [texts[at] for at in self.orders]})
        return pl.concat(
            pl.select(part=pl.lit(name)).join(orders, how="cross").join(prompts[own], how="cross")
            for name, own in self.prompts.items()
        )

    def rows(self, quantities: Mapping[str, Floats | Flags]) -> Floats:
        """Rows (c, items) of quantities (c, s, p)."""
        number, columns = len(next(iter(quantities.values()))), self.columns
        width = max(own.stop for own in columns.values())
        rows = np.empty((number, width), np.result_type(*quantities.values()))
        for name, own in self.prompts.items():
            values = quantities[name.split(" | ")[0]][:, self.orders[:, None], own]
            rows[:, columns[name]] = values.reshape(number, -1)
        return rows


def _layout(axes: PromptAxes, *, stereotypes: bool) -> Layout:
    names = axes.prompts.select(pl.coalesce("sentence_id", "prompt_id"), item="prompt_id")
    place = (
        names.select(pl.arg_sort_by("sentence_id", "item")).to_series().to_numpy().astype(np.int64)
    )
    by_gold = {label: place[axes.gold[place] == at] for at, label in enumerate(LABELS)}
    parts = {part_name(q, gold): own for q in QUANTITIES for gold, own in by_gold.items()}
    if stereotypes:
        about = (pl.col("stereotype") == "pro") & (pl.col("asked") == "referred")
        chosen = axes.prompts.select(about.fill_null(False)).to_series().to_numpy()
        for gold, own in by_gold.items():
            parts[part_name(PREFERS, gold)] = own[chosen[own]]
    texts = ["" if seed is None else str(seed) for seed in axes.seeds]
    orders = np.array(sorted(range(len(texts)), key=texts.__getitem__), np.int64)
    return Layout(axes, orders, {name: parts[name] for name in sorted(parts)})


class Answers(NamedTuple):
    """The answers of all checkpoints."""

    items: Items
    """Parts are those of `part_name`, for `QUANTITIES`, and `PREFERS` if the prompts have
    `GENDER_COLUMNS`."""
    layout: Layout
    tied: Codes
    """(c, 3) correct answers of each gold option that share their logit."""
    inexact: Codes
    """(c, 3) and those whose rank is a lower bound."""
    expected: Mapping[str, int]
    """How many prompts each model is expected to have; every order counts."""

    def values(self, quantity: str, gold: str) -> Floats:
        """(c, s, n) of the n prompts with a correct answer, NaN without a score."""
        own = self.layout.columns[part_name(quantity, gold)]
        shape = (len(self.items.values), len(self.layout.orders), -1)
        n = (own.stop - own.start) // max(1, len(self.layout.orders))
        return self.items.values[:, own].reshape(*shape[:2], n)

    def scored(self, gold: str) -> Flags:
        """(c, s, n) whether a prompt with this correct answer has a score."""
        return np.asarray(~np.isnan(self.values("first", gold)))

    @property
    def pairs(self) -> tuple[Codes, Codes]:
        """The prompts of `values` of male and of female gold that are versions of a sentence."""
        axes = self.layout.axes
        place = np.zeros(len(axes.gold), np.int64)
        for gold in LABELS:
            own = self.layout.prompts[part_name("rank", gold)]
            place[own] = np.arange(len(own))
        male, female = axes.pairs
        return place[male], place[female]


def preferences(answers: Answers) -> Items | None:
    """The items of `PREFERS`; None without `GENDER_COLUMNS`, or if an answer is not a gender."""
    male, female, neutral = (part_name(PREFERS, gold) for gold in LABELS)
    if len(answers.layout.prompts.get(neutral, [0])):
        return None
    which = answers.items.axes["part"].is_in([male, female]).arg_true()
    return answers.items.chosen(which.to_numpy().astype(np.int64))


class _Block(NamedTuple):
    """Arrays that are kept of one frame."""

    layout: Layout
    checkpoints: pl.DataFrame
    values: Floats
    counts: Codes
    """(2, c, 3) tied and inexact."""


def read_winobias(scores: Scores) -> Answers:
    """The answers of a prompt set of WinoBias, read once in a report.

    Raises
    ------
    UsageError, BankError
        As `map_score_arrays`.
    """
    return scores.cached("winobias", lambda: _read(scores))


def _read(scores: Scores) -> Answers:
    stereotypes = scores.columns.issuperset(GENDER_COLUMNS)

    def prepare(axes: PromptAxes) -> Callable[[ScoreArrays], _Block]:
        layout = _layout(axes, stereotypes=stereotypes)
        return lambda data: _block(data, layout)

    blocks = map_score_arrays(
        scores.frames(rows=ROWS, coded=CODED), prepare,
        columns=GENDER_COLUMNS if stereotypes else (),
    )  # fmt: skip
    layout, checkpoints = blocks[0].layout, pl.concat(block.checkpoints for block in blocks)
    counts = np.concatenate([block.counts for block in blocks], axis=1)
    order = checkpoints.select(pl.arg_sort_by(CHECKPOINT, nulls_last=True)).to_series().to_numpy()
    row = np.argsort(order)
    values = np.empty((len(checkpoints), blocks[0].values.shape[1]))
    end = len(values)
    while blocks:  # each is let go when it is copied
        block = blocks.pop()
        values[row[end - len(block.values) : end]] = block.values
        end -= len(block.values)
    cells = scores.expected_rows(("prompt_id", "order_seed"))
    known = _expected(layout, cells, checkpoints["model"].unique().to_list())
    items = Items(checkpoints[order].select(CHECKPOINT), layout.items(), values, known)
    number = dict(cells.group_by("model").len().iter_rows())
    tied, inexact = counts[:, order]
    return Answers(items, layout, tied, inexact, number)


def _block(data: ScoreArrays, layout: Layout) -> _Block:
    gold = data.gold
    missing = np.isnan(data.logits[:, :, np.arange(len(gold)), gold])
    jsd_p = scaled(jsd_parts(data.logits, gold))
    quantities = {
        **{name: jsd_p[..., at] for at, name in enumerate(JSD_P)},
        "rank": data.ranks,
        "top": np.where(missing, np.nan, data.top),
        "first": np.where(missing, np.nan, three_way_correct(data.logits, gold)),
    }
    if part_name(PREFERS, LABELS.male) in layout.prompts:
        p, answer = np.arange(len(gold)), np.minimum(gold, 1)
        own, other = data.logits[:, :, p, answer], data.logits[:, :, p, 1 - answer]
        quantities[PREFERS] = np.where(missing, np.nan, (own > other) + 0.5 * (own == other))
    counts = [
        [flags[:, :, gold == at].sum(axis=(1, 2)) for at in range(len(LABELS))]
        for flags in (data.tied, data.inexact)
    ]
    return _Block(
        layout, data.checkpoints, layout.rows(quantities), np.array(counts).transpose(0, 2, 1)
    )


def _expected(layout: Layout, expected: pl.DataFrame, models: list[str]) -> dict[str, Flags]:
    """Whether the prompt set has each item for a model; keys are models."""
    s, p = len(layout.axes.seeds), len(layout.axes.prompts)
    prompts = layout.axes.prompts.select("prompt_id").with_row_index("p")
    seeds = pl.DataFrame({"order_seed": pl.Series(layout.axes.seeds, dtype=pl.Int64)})
    known = (
        expected.select("model", "prompt_id", pl.col("order_seed").cast(pl.Int64))
        .join(prompts, on="prompt_id")
        .join(seeds.with_row_index("s"), on="order_seed", nulls_equal=True)
    )
    cells = {model: np.zeros((s, p), bool) for model in models}
    for model, cell in cells.items():
        own = known.filter(model=model)
        cell[own["s"].to_numpy(), own["p"].to_numpy()] = True
    return {
        model: layout.rows(dict.fromkeys((*QUANTITIES, PREFERS), own[None]))[0]
        for model, own in cells.items()
    }


def has_genders(scores: Scores) -> bool:
    """Whether the options of a prompt set are `LABELS`."""
    return set(scores.expected_rows(("option",))["option"]) == set(LABELS)
