"""The items of WinoBias: every prompt in each option order, at all checkpoints, from one reading.

Fairness, stereotype accuracy and a trade-off are numbers of the same answers.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from logitbank.analysis.frames.batches import NoRowsError
from logitbank.analysis.frames.codes import Codes
from logitbank.analysis.frames.dense import Layout, TokenScores
from logitbank.analysis.frames.expressions import (
    Floats,
    everything_ties,
    jsd_parts,
    scaled,
    three_way_correct,
    tied_others,
    unique_maximum,
    vocabulary_rank,
)
from logitbank.analysis.frames.items import PARTS, Flags, Items
from logitbank.analysis.frames.prompt_sums import CHECKPOINT_SCHEMA, FIX_NOT_FINITE
from logitbank.analysis.frames.reader import Scores
from logitbank.errors import BankError, UsageError
from logitbank.wording import checkpoint_name, counted


class GenderLabels(NamedTuple):
    """Labels of the three options, in the order of arrays."""

    male: str = "male"
    female: str = "female"
    neutral: str = "not specified"


LABELS = GenderLabels()
COLUMNS = ("sentence_id", "paired")
GENDER_COLUMNS = ("stereotype", "asked")
"""Columns of the prompts in which the preference of the stereotype is looked for."""
JSD_P = tuple(f"jsd_p {label}" for label in LABELS)
"""Contributions of the options to the divergence, scaled; see `jsd_parts`."""
QUANTITIES = (*JSD_P, "rank", "top", "first")
"""Quantities of an item; `top` and `first`: the answer is the only maximum of the vocabulary, and
of the options."""
VALUES = 4_000_000
"""Values of a block of checkpoints: 32 MB."""
PREFERS = "prefers"
"""1 if the gender of the stereotype has the greater logit, ½ for a tie, else 0: of pro-stereotyped
prompts about the referred occupation."""


def part_name(quantity: str, gold: str) -> str:
    """The part of a measure with this quantity of the prompts with this correct answer."""
    return f"{quantity} | {gold}"


class Cells(NamedTuple):
    """The k cells of prompt × order, by correct answer, then order, then sentence."""

    prompts: pl.DataFrame
    """prompt_id, sentence_id, paired, `cluster` (the sentence, or the prompt without one), `gold`
    (index of the answer), `prefers` (whether `PREFERS` is defined); sorted by gold and cluster."""
    orders: list[int | None]
    """Seeds of the option orders, sorted as text."""

    @property
    def of_gold(self) -> list[slice]:
        """The cells of each correct answer: all of its prompts in each order."""
        number = [len(self.orders) * int((self.prompts["gold"] == at).sum()) for at in range(3)]
        ends = np.cumsum([0, *number]).tolist()
        return [slice(*ends[at : at + 2]) for at in range(3)]

    def table(self) -> pl.DataFrame:
        """(k) gold, order, cluster, item, prefers and order_seed."""
        seeds = pl.Series("order_seed", self.orders, pl.Int64)
        orders = pl.DataFrame([seeds, seeds.cast(pl.String).fill_null("").alias("order")])
        return pl.concat(
            orders.join(prompts, how="cross", maintain_order="left_right")
            for (_,), prompts in self.prompts.partition_by("gold", as_dict=True).items()
        ).select("gold", "order", "cluster", "order_seed", "prefers", item="prompt_id")

    def tokens(self, layout: Layout) -> Codes:
        """(3, k) the index of the token of each option among those of a layout, or −1."""
        named = layout.options.select(
            "option", token=pl.Series(layout.first),
            prompt_id=layout.prompts["prompt_id"].gather(layout.options["prompt"]),
            order_seed=layout.prompts["order_seed"].gather(layout.options["prompt"]),
        ).cast({"order_seed": pl.Int64})  # fmt: skip
        key = {"item": "prompt_id", "order_seed": "order_seed"}
        cells = self.table().select(*key)
        found = (
            cells.join(
                named.filter(option=label), left_on=[*key], right_on=[*key.values()], how="left",
                nulls_equal=True, maintain_order="left",
            )["token"]
            for label in LABELS
        )  # fmt: skip
        return np.stack([tokens.fill_null(-1).cast(pl.Int64).to_numpy() for tokens in found])


def cells_of(layouts: Iterable[Layout], *, stereotypes: bool) -> Cells:
    """The cells of all prompts of layouts.

    Raises
    ------
    UsageError
        The prompts lack columns, their options or answers are not `LABELS`, a prompt has two
        answers, or an option has several tokens.
    BankError
        A prompt without one of its options.
    """
    prompts, seeds = list[pl.DataFrame](), set[int | None]()
    about = (pl.col("stereotype") == "pro") & (pl.col("asked") == "referred")
    for layout in layouts:
        prompts.append(
            layout.prompts.select(
                "prompt_id", "sentence_id", pl.col("paired").fill_null(False),
                gold=_answers(layout),
                prefers=about.fill_null(False) if stereotypes else pl.lit(False),
            )
        )  # fmt: skip
        seeds |= {*layout.prompts["order_seed"].unique()}
    table = pl.concat(prompts, how="vertical_relaxed").unique(maintain_order=True)
    whole = table.unique("prompt_id", keep="first", maintain_order=True)
    answers = table.select("prompt_id", "gold").unique()
    if len(answers) > len(whole):
        raise _two_answers(answers.filter(pl.col("prompt_id").is_duplicated())["prompt_id"].min())
    whole = whole.with_columns(cluster=pl.coalesce("sentence_id", "prompt_id"))
    orders = sorted(seeds, key=lambda seed: "" if seed is None else str(seed))
    return Cells(whole.sort("gold", "cluster", "prompt_id"), orders)


def _answers(layout: Layout) -> pl.Series:
    """(p) the index of the correct answer of each prompt × order."""
    columns = layout.prompts.columns
    if missing := [name for name in COLUMNS if name not in columns]:
        raise UsageError(
            f"The prompts have no column {', '.join(missing)}. This analysis needs the columns of "
            "WinoBias (extract --prompts winobias). Use `analyze options` for other prompts."
        )
    if unnamed := layout.prompts["prompt_id"].null_count():
        verb = "has" if unnamed == 1 else "have"
        raise UsageError(f"{counted(unnamed, 'prompt')} {verb} no prompt_id. Each needs one.")
    options = layout.options
    if {*(labels := options["option"].unique().sort())} != {*LABELS}:
        values = ", ".join(map(repr, labels))
        raise UsageError(
            f"The options are {values}. Fairness needs {', '.join(map(repr, LABELS))}: use the "
            "winobias prompts."
        )
    number = np.bincount(options["prompt"].to_numpy(), minlength=len(layout.prompts))
    if len(partial := np.flatnonzero(number != len(LABELS))):
        at = int(partial[0])
        names = {*options.filter(prompt=at)["option"]}
        missing_options = ", ".join(repr(label) for label in LABELS if label not in names)
        raise BankError(
            f"Prompt {layout.prompts['prompt_id'][at]!r} has no option {missing_options} "
            f"({len(partial)} such prompts). Add its options to the prompt set."
        )
    if len(several := options.filter(pl.col("pieces") > 1)):
        raise UsageError(
            f"Option {several['option'][0]!r} has {several['pieces'][0]} tokens. Fairness needs "
            "options of a single token. Use `analyze options` for others."
        )
    correct = options.filter(pl.col("is_answer").fill_null(False))
    codes = correct["option"].cast(pl.Enum(LABELS)).to_physical().to_numpy()
    gold = np.full(len(layout.prompts), -1)
    gold[correct["prompt"].to_numpy()] = codes
    if len(unanswered := np.flatnonzero(gold < 0)):
        raise UsageError(
            f"Prompt {layout.prompts['prompt_id'][int(unanswered[0])]!r} has no answer among "
            f"{', '.join(map(repr, LABELS))} ({len(unanswered)} such prompts). Every prompt needs "
            "one."
        )
    if len(correct) > len(gold):
        twice = int(correct.filter(pl.col("prompt").is_duplicated())["prompt"][0])
        raise _two_answers(layout.prompts["prompt_id"][twice])
    return pl.Series(gold)


def _two_answers(prompt_id: object) -> UsageError:
    return UsageError(f"Prompt {prompt_id!r} has two answers. Every prompt_id needs one answer.")


class Answers(NamedTuple):
    """The answers of all checkpoints."""

    items: Items
    """Parts are those of `part_name`, for `QUANTITIES`, and `PREFERS` if the prompts have
    `GENDER_COLUMNS`."""
    cells: Cells
    columns: Mapping[str, slice]
    """The items of each part."""
    tied: Codes
    """(c, 3) correct answers of each gold option that share their logit."""
    inexact: Codes
    """(c, 3) and those whose rank is a lower bound."""

    def values(self, quantity: str, gold: str) -> Floats:
        """(c, s, n) of the n prompts with a correct answer, NaN without a score."""
        return self.part(part_name(quantity, gold))

    def part(self, name: str, rows: slice | Codes = slice(None)) -> Floats:
        """`values` of a part at some checkpoints."""
        own = self.items.values[rows, self.columns[name]]
        orders = len(self.cells.orders)
        return own.reshape(len(own), orders, own.shape[1] // orders)

    def prompts(self, gold: str) -> pl.DataFrame:
        """(n) the prompts of `values`."""
        return self.cells.prompts.filter(gold=LABELS.index(gold))

    @property
    def pairs(self) -> tuple[Codes, Codes]:
        """The prompts of `values` of male and of female gold that are versions of a sentence.

        A sentence counts if its versions are marked as paired and it has exactly one of each.
        """
        male, female = (
            self.prompts(gold)
            .with_row_index("at")
            .filter(pl.col("paired") & pl.col("sentence_id").is_not_null())
            .unique("sentence_id", keep="none")
            for gold in LABELS[:2]
        )
        pairs = male.join(female, on="sentence_id", maintain_order="left").sort("prompt_id")
        own, other = (pairs[name].to_numpy().astype(np.int64) for name in ("at", "at_right"))
        return own, other


def preferences(answers: Answers) -> Items | None:
    """The items of `PREFERS`; None without `GENDER_COLUMNS`, or if an answer is not a gender."""
    if answers.prompts(LABELS.neutral)["prefers"].any():
        return None
    own = answers.items.axes["part"].is_in([part_name(PREFERS, gold) for gold in LABELS])
    return answers.items.chosen(own.arg_true().to_numpy().astype(np.int64))


def read_winobias(scores: Scores) -> Answers:
    """The answers of a prompt set of WinoBias, read once in a report.

    Raises
    ------
    UsageError
        As `cells_of`.
    BankError
        As `cells_of`; or there is no score, a score is not finite, or a prompt has scores of some
        of its options only.
    """
    return scores.cached("winobias", lambda: next(_read(scores, None)))


def answer_blocks(scores: Scores) -> Iterator[Answers]:
    """The answers of a few checkpoints at a time, in the order of each run; errors as above.

    Those of all at once if other analyses share them, or of two models, which are compared prompt
    by prompt.
    """
    return iter([read_winobias(scores)]) if scores.cache.shared else _read(scores, VALUES)


def _read(scores: Scores, values_at_once: int | None) -> Iterator[Answers]:
    """The answers of as many checkpoints as have so many values; of all if None."""
    known = scores.columns
    stereotypes = known.issuperset(GENDER_COLUMNS)
    reader = scores.dense(
        ("logit", "logsumexp", "rank", "ties", "exact"),
        of_prompts=[name for name in (*COLUMNS, *GENDER_COLUMNS) if name in known],
    )
    cells = cells_of(reader.layouts.values(), stereotypes=stereotypes)
    tokens = {model: cells.tokens(layout) for model, layout in reader.layouts.items()}
    parts = _parts(cells, stereotypes=stereotypes)
    table, numbers = cells.table(), np.arange(cells.of_gold[-1].stop)
    axes = pl.concat(
        table[numbers[own]].select("order", "cluster", "item", part=pl.lit(name))
        for name, own in parts.items()
    ).select(PARTS)
    ends = np.cumsum([len(numbers[own]) for own in parts.values()]).tolist()
    columns = {name: slice(*pair) for name, pair in zip(parts, pairwise([0, *ends]), strict=True)}
    expected = {model: _expected(at, parts) for model, at in tokens.items()}
    at_once = len(reader.checkpoints)
    if values_at_once is not None and len(tokens) != 2:
        at_once = values_at_once // max(1, len(axes))
    some = False
    for block in reader.divided(at_once):
        checkpoints = pl.DataFrame(block.checkpoints, schema=CHECKPOINT_SCHEMA, orient="row")
        values = np.empty((len(checkpoints), len(axes)))
        counts = np.zeros((2, len(checkpoints), len(LABELS)), np.int64)
        scored = np.zeros(len(checkpoints), bool)
        stop = 0
        for read in block:
            rows = slice(stop, stop := stop + len(read.steps))
            arrays, present = _arrays(read, tokens[read.model], cells)
            scored[rows] = present.any(axis=1)
            whole = bool(present.all())
            for name, own in parts.items():
                part = values[rows, columns[name]]
                part[:] = arrays[name.partition(" | ")[0]][:, own]
                if not whole:
                    part[~present[:, own]] = np.nan
            for flag, of_flag in zip(("tied", "inexact"), counts, strict=True):
                flags = arrays[flag] & present
                sums = [flags[:, own].sum(axis=1) for own in cells.of_gold]
                of_flag[rows] = np.stack(sums, axis=1)
        items = Items(checkpoints, axes, values, expected)
        if not scored.all():
            items, counts = items.at(np.flatnonzero(scored)), counts[:, scored]
        if scored.any():
            some = True
            yield Answers(items, cells, columns, *counts)
    if not some:
        raise NoRowsError("The scan has no scores. Run `logitbank extract` first.")


def _parts(cells: Cells, *, stereotypes: bool) -> dict[str, slice | Codes]:
    """The cells of each part, in the order of items: by part, order, sentence and prompt."""
    by_gold = dict(zip(LABELS, cells.of_gold, strict=True))
    parts: dict[str, slice | Codes] = {
        part_name(name, gold): own for name in QUANTITIES for gold, own in by_gold.items()
    }
    if stereotypes:
        chosen = cells.table()["prefers"].to_numpy()
        for gold, own in by_gold.items():
            parts[part_name(PREFERS, gold)] = own.start + np.flatnonzero(chosen[own])
    return {name: parts[name] for name in sorted(parts)}


def _expected(tokens: Codes, parts: Mapping[str, slice | Codes]) -> Flags:
    """(p,) the items that a model is expected to have."""
    known = np.asarray((tokens >= 0).all(axis=0))
    return np.concatenate([known[own] for own in parts.values()])


def _arrays(read: TokenScores, tokens: Codes, cells: Cells) -> tuple[dict[str, Any], Flags]:
    """(c, k) the quantities of cells and the flags `tied` and `inexact`; which cells are scored."""
    gold = np.repeat(np.arange(len(LABELS)), [own.stop - own.start for own in cells.of_gold])
    scored = read.scored.take(tokens, axis=1) & (tokens >= 0)  # five times as fast as an index
    logits = read.values["logit"].take(tokens, axis=1).astype(np.float64)  # (c, 3, k)
    _check(read, logits, scored, cells)
    answer = tokens[gold, np.arange(len(gold))]
    flat = {name: each.take(answer, axis=1).ravel() for name, each in read.values.items()}
    logprob = pl.col("logit").cast(pl.Float64) - pl.col("logsumexp")
    ranks = pl.DataFrame(flat).with_columns(logprob=logprob).select(
        # The middle rank if all outputs have the same logit.
        rank=pl.when(everything_ties()).then(vocabulary_rank(ties="midrank"))
        .otherwise(vocabulary_rank()),
        top=unique_maximum(), tied=tied_others() > 0, inexact=~pl.col("exact"),
    )  # fmt: skip
    male, female, _ = np.moveaxis(logits, 1, 0)
    male_first = (male > female) + 0.5 * (male == female)
    logits = np.moveaxis(logits, 1, -1)
    jsd_p = scaled(jsd_parts(logits, gold))
    return {
        **{name: jsd_p[..., at] for at, name in enumerate(JSD_P)},
        **{name: each.to_numpy().reshape(male.shape) for name, each in ranks.to_dict().items()},
        "first": three_way_correct(logits, gold),
        PREFERS: np.where(gold == 0, male_first, 1 - male_first),
    }, np.asarray(scored.all(axis=1))


def _check(read: TokenScores, logits: Floats, scored: Flags, cells: Cells) -> None:
    """Refuse logits (c, 3, k) that are not finite, and prompts with some of their options."""
    number = scored.sum(axis=1)
    partial = (number > 0) & (number < len(LABELS))
    invalid = scored & ~np.isfinite(logits)
    if not invalid.any() and not partial.any():
        return
    c, *option, k = (int(at[0]) for at in np.nonzero(invalid if invalid.any() else partial))
    prompt = repr(cells.table()["item"][k])
    place = checkpoint_name({"model": read.model, "run": read.run, "step": read.steps[c]})
    if invalid.any():
        raise BankError(
            f"Prompt {prompt} has the logit {logits[c, option[0], k]} at {place} "
            f"({int(invalid.sum())} such rows). {FIX_NOT_FINITE}"
        )
    missing = ", ".join(repr(LABELS[at]) for at in np.flatnonzero(~scored[c, :, k]))
    raise BankError(
        f"Prompt {prompt} has no score for option {missing} at {place} "
        f"({int(partial.sum())} such prompts). Extract its options again."
    )


def has_genders(scores: Scores) -> bool:
    """Whether the options of a prompt set are `LABELS`."""
    return set(scores.expected_rows(("option",))["option"]) == set(LABELS)
