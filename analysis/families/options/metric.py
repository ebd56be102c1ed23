"""Any prompt set: accuracy, probabilities and ranks of options, entropy and agreement. Frames in,
items out.

Entropy is read from full vocabulary rows, everything else from scores. A prompt is an item. Axis
letters: `c` checkpoints, `o` options of prompts in one order, `p` prompts, `q` positions.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from itertools import groupby, pairwise
from typing import NamedTuple, get_args

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from logitbank.analysis.families.options import ACCURACY, FAMILY, FURTHER, PROBABILITY, Score
from logitbank.analysis.families.options.findings import findings
from logitbank.analysis.family import Family
from logitbank.analysis.finding import signed
from logitbank.analysis.frames.banks import select_models
from logitbank.analysis.frames.codes import Groups, distinct, numbers_among
from logitbank.analysis.frames.dense import PROMPT_ORDER
from logitbank.analysis.frames.expected import expected_query_sets
from logitbank.analysis.frames.expressions import Floats, check_choice
from logitbank.analysis.frames.items import PARTS, Items, array_items, gather_items
from logitbank.analysis.frames.prompt_sums import CHECKPOINT, FIX_NOT_FINITE
from logitbank.analysis.frames.reader import Scores
from logitbank.analysis.prompts.scores import PromptScores, read_options
from logitbank.analysis.results.measured import OPTION, SETS, Measured, of_table
from logitbank.analysis.stats.measure import Measure
from logitbank.analysis.stats.summary import ALL, Summary
from logitbank.errors import BankError, UsageError
from logitbank.store import Deposit
from logitbank.store.steps import Step, in_order
from logitbank.wording import checkpoint_name

ROWS = 128
"""Vocabulary rows that are in memory at once: those of an inner chunk."""
OPTIONS = 12
"""Different options beyond which only the answer and the others are distinguished."""
MOST_GROUPS = 12
OTHERS = "others"
"""The mean of all other groups, from which a group is subtracted if there are more than two."""


def measure_sets(
    scores: Scores, *, score: Score = "sum", entropy: bool = True, group_by: str | None = None
) -> tuple[Family, Measured]:
    """The measures of prompt sets, and the family with those that findings and charts show.

    Parameters are those of `logitbank.options`. Prompt sets without a deposit of the models, or
    without the column `group_by`, have no rows.

    Raises
    ------
    BankError
        A prompt set or its deposits are missing, or its options were named after full rows were
        kept. An answer has no probability, because its logit is not finite.
    UsageError
        An unknown score. A run is in two banks. A column that cannot group prompts.
    DamagedError
        Stored bytes are not what was committed.
    """
    check_choice("score", score, get_args(Score))
    if group_by is not None:
        grouped = [n for n in scores.sets if group_by in scores.of(n).group_columns("prompt_id")]
        if not grouped:
            scores.require_groups(group_by, "prompt_id")
        scores = scores.of(*grouped)
    where = ", ".join(bank.address for bank in scores.banks)
    select_models([bank.models for bank in scores.banks], scores.models, where)  # raises
    tables, differences = list[pl.DataFrame](), dict[str, Measure]()
    for name in scores.sets:
        own = scores.of(name)
        parts = _parts(own, score, rows=True, entropy=entropy)
        if group_by is None:
            whole = Summary([*FAMILY.measures, *FURTHER], within=[OPTION])
            for items in parts:
                whole.add(items)
            table = whole.table()
        else:
            groups = _groups(own, group_by)
            found = [*_differences(groups["group"].unique().sort())]
            table = _by_group(parts, groups, found)
            differences |= {each.key: each for each in found if OTHERS not in each.key}
        if len(table):
            tables.append(table.insert_column(3, pl.lit(name).alias(SETS)))
    if not tables:
        scores.frames()  # raises
    accuracy, *others = FAMILY.measures
    family = replace(
        FAMILY,
        measures=(accuracy, *differences.values(), *others),
        items=partial(read_items, score=score),
    )
    family = replace(family, findings=partial(findings, family))
    table = pl.concat(tables, how="diagonal").sort(CHECKPOINT, nulls_last=True, maintain_order=True)
    return family, of_table(family, table)


def _by_group(
    parts: Iterable[Items], groups: pl.DataFrame, differences: Sequence[Measure]
) -> pl.DataFrame:
    """The measures of all prompts, of groups, and differences of these, which are of all prompts.

    The prompts of a group are a part of a difference.
    """
    every, apart = (
        Summary(measures, within=[OPTION])
        for measures in ([*FAMILY.measures, *FURTHER], differences)
    )
    for items in parts:
        axes = items.axes.join(groups, on="item", how="left", maintain_order="left")
        grouped = items._replace(axes=axes.select(OPTION, "group", *PARTS)).pooled()
        is_compared = pl.col("group").is_not_null() & pl.col("part").is_in(_COMPARED)
        compared = grouped.chosen(
            grouped.axes.select(is_compared).to_series().arg_true().to_numpy()
        )
        part = pl.format("{} {}", "part", "group").alias("part")
        every.add(grouped)
        apart.add(compared._replace(axes=compared.axes.with_columns(part)).pooled("group"))
    rows = apart.table().with_columns(group=pl.lit(ALL))
    table = pl.concat([every.table().drop_nulls("group"), rows], how="diagonal")
    return table.sort(CHECKPOINT, nulls_last=True, maintain_order=True)


_COMPARED = [ACCURACY.name, PROBABILITY.name]
"""Parts of which groups have differences."""


def _groups(scores: Scores, column: str) -> pl.DataFrame:
    """The `item` and `group` of each prompt that has a value in a column.

    Raises
    ------
    UsageError
        The column has one value, or more than `MOST_GROUPS`.
    """
    rows = scores.expected_rows(["prompt_id", column]).drop_nulls(column)
    groups = rows.select(item="prompt_id", group=pl.col(column).cast(pl.String)).unique()
    if not 1 < (number := groups["group"].n_unique()) <= MOST_GROUPS:
        raise UsageError(
            f"--group-by: {column!r} of {scores.prompts} has {number:,} values. Groups are 2 to "
            f"{MOST_GROUPS}."
        )
    return groups


def _differences(groups: Collection[str]) -> Iterator[Measure]:
    """Each group minus the mean of the others; of two, one minus the other."""
    one, *rest = groups
    pairs = [(name, OTHERS, [*{*groups} - {name}]) for name in groups]
    if len(rest) == 1:
        pairs = [(one, rest[0], rest)]
    for measure in (ACCURACY, PROBABILITY):
        for name, other, others in pairs:
            yield replace(
                measure, group=f"{name} minus {other}", form=signed(measure.form), limits=None,
                plus=(f"{measure.name} {name}",), reference=0.0, meaning="no difference",
                minus=tuple(f"{measure.name} {each}" for each in others),
            )  # fmt: skip


def read_items(scores: Scores, *, score: Score = "sum") -> Items:
    """The items of what needs scores of options alone: accuracy, probabilities and ranks.

    They have the group `option`, which is empty for whole prompts, and each has the part of its
    measure. A value is the mean over option orders; of several options with one label, the sum.
    Prompts of one sentence_id are one cluster.
    """
    return gather_items(_parts(scores, score))


def _parts(
    source: Scores, score: Score, *, rows: bool = False, entropy: bool = False
) -> Iterator[Items]:
    """The items of a few checkpoints at a time; with `rows` also those of positions."""
    for bank, deposits in source.holding():
        scored = read_options(replace(source, banks=[bank]))
        expected = expected_query_sets(bank, source.prompts)
        table = source.prompt_rows(bank, source.prompts).collect() if rows else pl.DataFrame()
        for (model, run), parts in groupby(scored, lambda part: (part.model, part.run)):
            positions = None
            if rows:
                own = table.filter(pl.col("query_set").is_in(list(expected[model])))
                of_run = [
                    d for d in deposits if (d.checkpoint.model, d.checkpoint.run) == (model, run)
                ]
                positions = read_positions(source.prompts, own, of_run)
                last, *_ = positions.read([*positions.deposits][-1])
            for part in parts:
                values = None
                if positions is not None:
                    values = positions.values(part.steps, last, entropy=entropy)
                yield prompt_items(part, _divided(part, score), values)


def _divided(scores: PromptScores, score: Score) -> PromptScores:
    """Log-probabilities per token or character, for the scores that divide by these."""
    text = pl.col("continuation").str.strip_chars_start()
    units = {"token": pl.col("pieces"), "character": text.str.len_chars()}
    if score not in units:
        return scores
    sizes = scores.options.select(units[score].cast(pl.Int64).clip(lower_bound=1)).to_series()
    return replace(scores, logprob=scores.logprob / sizes.to_numpy())


def prompt_items(
    scores: PromptScores, divided: PromptScores, rows: "RowValues | None" = None
) -> Items:
    """The items of a few checkpoints of a model and run; those of options are `divided`."""
    names = [name for name in ("sentence_id", "prompt_id") if name in scores.prompts.columns]
    cluster = pl.coalesce(pl.col(names).cast(pl.String))
    orders = scores.prompts.select(item="prompt_id", cluster=cluster)
    parts = [*_whole(scores, orders, rows), *_choices(divided, orders), *_options(divided, orders)]
    axes = [
        about.select("item", "cluster", option=pl.lit(""), part=pl.lit(name))
        if "option" not in about.columns
        else about.select("item", "cluster", "option", part=pl.lit(name))
        for name, about, _ in parts
    ]
    values = np.hstack([each for *_, each in parts])
    return array_items(scores.checkpoints, pl.concat(axes), values)


_Part = tuple[str, pl.DataFrame, Floats]
"""The name of a part, its items, and their values (c, items)."""


def _whole(scores: PromptScores, orders: pl.DataFrame, rows: "RowValues | None") -> Iterator[_Part]:
    """The correct answer, and the positions of each prompt; NaN if a score of it is missing.

    Ranks are of answers of one token alone.
    """
    about = orders.unique("item", keep="first", maintain_order=True)
    ids, p = about["item"].to_list(), len(about)
    prompt = scores.options["prompt"]
    of_option = numbers_among(orders["item"], ids)[prompt]
    absent = Groups(of_option, p).total(np.isnan(scores.logprob))
    if rows is not None:
        positions = Groups(numbers_among(rows.prompt_ids, ids), p)
        absent += positions.total(np.isnan(rows.top))

    def part(name: str, groups: Groups, values: Floats, which: NDArray[np.bool_]) -> _Part:
        with np.errstate(invalid="ignore", divide="ignore"):
            means = groups.total(values) / groups.sizes
        known = np.where(absent > 0, np.nan, means)[:, which]
        return name, about.filter(pl.Series(which, dtype=pl.Boolean)), known

    asked = scores.options.hstack(scores.prompts.select("answer", "^score_kind$")[prompt])
    correct = asked.select(pl.arg_where(is_correct(asked.columns))).to_series().to_numpy()
    answers = Groups(of_option[correct], p)
    probability = np.exp(scores.logprob[:, correct])
    yield part("answer_probability", answers, probability, answers.sizes > 0)
    ranks = token_ranks(scores)[:, correct]
    single = scores.options["pieces"].to_numpy()[correct] == 1
    of_one_token = answers.total(single[None])[0] == answers.sizes
    yield part("answer_rank", answers, ranks, of_one_token & (answers.sizes > 0))
    if rows is not None:
        for name, values in rows.measures():
            yield part(name, positions, values, np.ones(p, bool))


def _choices(scores: PromptScores, orders: pl.DataFrame) -> Iterator[_Part]:
    """Whether the answer is more probable than every other option, of prompts that have one."""
    answer, share = scores.options["is_answer"].fill_null(False).to_numpy(), scores.share()
    options = Groups(scores.options["prompt"].to_numpy(), len(orders))
    named, others = (options.total(which[None])[0] > 0 for which in (answer, ~answer))
    asked = np.flatnonzero(named & others)
    best, second = (
        options.greatest(np.where(which, share, -np.inf))[:, asked] for which in (answer, ~answer)
    )
    ids = distinct(orders[asked].select("item"))
    of_prompt, about = Groups(ids.codes, len(ids.rows)), orders[asked][ids.rows]
    right = of_prompt.mean(np.where(np.isnan(best), np.nan, best > second))
    tied = of_prompt.total(best == second) > 0
    yield "accuracy", about, right
    yield "tied", about, np.where(np.isnan(right), np.nan, tied)


def _options(scores: PromptScores, orders: pl.DataFrame) -> Iterator[_Part]:
    """The probabilities of each option; rank, of options of one token alone.

    Beyond `OPTIONS` of them, all but the answer are one label, so that both add up to 1.
    """
    label, prompt = pl.col("option").cast(pl.String), scores.options["prompt"]
    if scores.options["option"].n_unique() > OPTIONS:
        answer = pl.col("is_answer").fill_null(False)
        label = pl.when(answer).then(pl.lit("answer")).otherwise(pl.lit("other"))
    labelled = scores.options.select("prompt", "pieces", option=label).hstack(orders[prompt])
    alike = distinct(labelled.select("prompt", "option"))
    of_labels = distinct(labelled[alike.rows].select("item", "option"))
    about = labelled[alike.rows][of_labels.rows]
    together = Groups(alike.codes, len(alike.rows))
    of_prompt = Groups(of_labels.codes, len(of_labels.rows))

    def part(name: str, values: Floats, which: NDArray[np.bool_]) -> _Part:
        """Of options of which some are as `which` in each order."""
        known = of_prompt.total(together.total(which[None]))[0] > 0
        means = of_prompt.mean(together.sum(np.where(which, values, np.nan)))
        return name, about.filter(pl.Series(known, dtype=pl.Boolean)), means[:, known]

    several = labelled["prompt"].is_duplicated().to_numpy()
    alone = (together.sizes == 1)[alike.codes] & (labelled["pieces"] == 1).to_numpy()
    yield part("option_probability", scores.share(), several)
    yield part("probability", np.exp(scores.logprob), np.ones(len(labelled), bool))
    yield part("rank", token_ranks(scores), alone)


def is_correct(columns: Collection[str]) -> pl.Expr:
    """Whether an option is the answer, or the target word of a passage, which has no options."""
    correct = pl.col("is_answer").fill_null(False)
    if "score_kind" not in columns:
        return correct
    target = pl.col("answer").is_null() & (pl.col("score_kind") == "target")
    return correct | target.fill_null(False)


def token_ranks(scores: PromptScores) -> Floats:
    """(c, o) ranks of options of one token, NaN for others and without a score."""
    return np.where(scores.rank > 0, scores.middle_rank, np.nan)


class RowValues(NamedTuple):
    """Values of the rows at the positions of prompts, each (c, q); NaN without a score."""

    prompt_ids: pl.Series
    """(q,)"""
    top: Floats
    """The most probable token."""
    probability: Floats
    """Its probability."""
    agrees: Floats
    """Whether it is that of the last checkpoint."""
    entropy: Floats | None
    """Nats; NaN without full rows, None if they are not read."""

    def measures(self) -> Iterator[tuple[str, Floats]]:
        """The values that are averaged, by the names of their parts."""
        if self.entropy is not None:
            yield "entropy", self.entropy
        yield "top1_agreement", self.agrees
        yield "top1_probability", self.probability


class Positions(NamedTuple):
    """The rows at which the prompts of a model and run are scored, and its deposits."""

    prompt_set: str
    prompt_ids: pl.Series
    """(q,) the prompt of each position; a row of several options is one position."""
    rows: pl.DataFrame
    """query_set, row, position (index): in several query sets if these share tokens."""
    answers: pl.DataFrame
    """prompt_id, query_set, row and token of correct answers."""
    deposits: Mapping[Step, Sequence[Deposit]]
    """The deposits of each step, the release last."""

    def values(self, steps: Sequence[Step], last: Floats, *, entropy: bool) -> RowValues:
        """The values at some steps; `last` are the most probable tokens of the last checkpoint."""
        read = np.array([self.read(step, entropy=entropy) for step in steps])
        top, logprob, entropies = read.transpose(1, 0, 2)
        agrees = np.where(np.isnan(top) | np.isnan(last), np.nan, top == last)
        own = entropies if entropy else None
        return RowValues(self.prompt_ids, top, np.exp(logprob), agrees, own)

    def read(self, step: Step, *, entropy: bool = False) -> Floats:
        """(3, q): the most probable token at a step, of equal ones the first, its log-probability,
        and the entropy.

        NaN where there is no row. `entropy` needs full rows; without it all are NaN.
        """
        found = np.full((3, len(self.prompt_ids)), np.nan)
        deposits = self.deposits[step]
        entropy = entropy and all(each.layout.keep.has_full_rows for each in deposits)
        for deposit in deposits:
            logprob = pl.col("logit").cast(pl.Float64) - pl.col("logsumexp")
            undefined = (pl.col("kind") == "option") & ~(logprob < float("inf"))  # or NaN
            best = (pl.col("kind") == "top") & (pl.col("rank") == 1)
            scores = deposit.scores().filter(best | undefined)
            named = scores.select("kind", "token", row="query", logprob=logprob).collect()
            self._refuse(named.filter(kind="option"), deposit)
            highest = named.filter(kind="top").sort("logprob", "token", descending=[True, False])
            first = highest.unique("row", keep="first", maintain_order=True)
            own = self.rows.filter(query_set=deposit.query_set)
            of_rows = own.join(first, on="row", maintain_order="left")
            at = of_rows["position"].to_numpy()
            found[:2, at] = of_rows.select("token", "logprob").to_numpy().T
            if entropy:
                rows, place = np.unique(of_rows["row"].to_numpy(), return_inverse=True)
                found[2, at] = row_entropies(deposit, rows)[place]
        return found

    def _refuse(self, undefined: pl.DataFrame, deposit: Deposit) -> None:
        """Refuse answers whose logits are not finite: no mean of them is a number."""
        own = self.answers.filter(query_set=deposit.query_set)
        invalid = own.join(undefined, on=["row", "token"], maintain_order="left")
        if len(invalid):
            value, prompts = np.exp(invalid["logprob"][0]), invalid["prompt_id"].n_unique()
            raise BankError(
                f"An answer of {self.prompt_set} has the probability {value} at "
                f"{checkpoint_name(asdict(deposit.checkpoint))} ({prompts:,} such prompts). "
                f"{FIX_NOT_FINITE}"
            )


def read_positions(prompt_set: str, table: pl.DataFrame, deposits: Sequence[Deposit]) -> Positions:
    """The positions of rows of a prompt set, at the deposits of a model and run."""
    places = table.group_by([*PROMPT_ORDER, "option", "piece"], maintain_order=True).agg(
        "query_set", "row"
    )
    unique = places.unique([*PROMPT_ORDER, "query_set", "row"], keep="first", maintain_order=True)
    rows = unique.select("query_set", "row").with_row_index("position")
    by_step: dict[Step, list[Deposit]] = {
        step: [] for step in in_order(deposit.checkpoint.step for deposit in deposits)
    }
    for deposit in deposits:
        by_step[deposit.checkpoint.step].append(deposit)
    return Positions(
        prompt_set, unique["prompt_id"], rows.explode("query_set", "row"),
        table.filter(is_correct(table.columns)).select("prompt_id", "query_set", "row", "token"),
        by_step,
    )  # fmt: skip


def entropies(logprobs: ArrayLike) -> NDArray[np.float64]:
    r"""Entropy of each row, :math:`-\sum_v p_v\ln p_v`, in nats and float64.

    `logprobs` (q, v) are of rows that sum to 1; −inf adds nothing.

    >>> entropies(np.log([[0.5, 0.25, 0.25]])).round(4).tolist()
    [1.0397]
    """
    values = np.asarray(logprobs, dtype=np.float64)
    p = np.exp(values)
    terms: NDArray[np.float64] = np.multiply(p, values, where=p > 0, out=np.zeros_like(p))
    return -np.asarray(terms.sum(axis=1), dtype=np.float64)


def row_entropies(deposit: Deposit, rows: NDArray[np.int64]) -> NDArray[np.float64]:
    """Entropy of some rows (q,) of a deposit that keeps them whole, in their ascending order."""
    found = np.empty(len(rows))
    starts = np.flatnonzero(np.diff(rows // ROWS, prepend=-1))
    for start, stop in pairwise([*starts, len(rows)]):
        found[start:stop] = entropies(deposit.logprobs(rows[start:stop], normalised=True))
    return found
