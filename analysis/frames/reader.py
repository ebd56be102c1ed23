"""The reader: the only way from banks to an analysis.

It opens each bank once, and gives the scores of prompt sets, with their prompts, of a few
checkpoints at a time.
"""

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TypeVar

import polars as pl

from logitbank.analysis.frames.banks import (
    Banks,
    PromptColumns,
    check_same_prompts,
    chosen_by,
    listed,
    listed_banks,
    no_prompts,
    open_banks,
    prompt_sets,
    select_models,
)
from logitbank.analysis.frames.batches import (
    ROWS,
    TOKEN_ROWS,
    Batch,
    Batches,
    SetScores,
    chosen_checkpoints,
    divided,
    read_nonempty,
    refuse_duplicates,
    set_scores,
)
from logitbank.analysis.frames.choose import HasPrompts, companion, on_request
from logitbank.analysis.frames.dense import Dense
from logitbank.analysis.frames.expected import (
    SetDeposits,
    Where,
    chosen_rows,
    exclusion_notes,
    expected_rows,
)
from logitbank.analysis.frames.prompt_sums import PromptSums, sum_prompts
from logitbank.errors import AbsentError, UsageError
from logitbank.store import Bank, Deposit, open_bank
from logitbank.store.format.schema import RESERVED_COLUMNS
from logitbank.store.read.choose import Steps
from logitbank.store.tables.prompt_tables import linked_query_sets

T = TypeVar("T")


class ScanCache:
    """Values by key, each computed by the first analysis that needs it.

    A report passes one cache to every analysis. One that no other analysis has is not `shared`.

    >>> cache = ScanCache()
    >>> cache.get("gap", lambda: 1), cache.get("gap", lambda: 2)
    (1, 1)
    """

    def __init__(self, *, shared: bool = True) -> None:
        self.shared = shared
        self._values: dict[Hashable, object] = {}

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """The value of a key; `make` computes it if it is not stored."""
        if key not in self._values:
            self._values[key] = make()
        value: T = self._values[key]  # type: ignore[assignment]
        return value


@dataclass(frozen=True)
class Scores:
    """The scores of prompt sets in banks, and what analyses of one report share of them."""

    banks: Sequence[Bank]
    sets: tuple[str, ...]
    """The prompt sets that are analysed together."""
    models: Sequence[str] | None = None
    """Only these models; all if None."""
    cache: ScanCache = field(default_factory=lambda: ScanCache(shared=False))
    steps: Steps = None
    """Only these steps, or those that a text selects of each model and run; all if None."""
    where: Where | None = None
    """Only prompts with one of these texts in this column; all if None."""
    runs: Sequence[str] | None = None
    """Only these runs; all if None."""

    @property
    def prompts(self) -> str:
        """The prompt set, or the first one."""
        return self.sets[0]

    def of(self, *names: str) -> "Scores":
        """The scores of some of the prompt sets."""
        return replace(self, sets=names)

    @property
    def columns(self) -> frozenset[str]:
        """The columns of the prompts."""
        return frozenset().union(*PromptColumns(self.banks, self.sets).values())

    def require(self, *columns: str, family: str) -> None:
        """Raise UsageError unless the prompts have the columns that a family needs."""
        known = self.columns
        if missing := [name for name in columns if name not in known]:
            raise UsageError(
                f"Prompt set {self.prompts} has no column {', '.join(missing)}, which {family} "
                f"needs. Name {family}, or a set with its columns, with --prompts."
            )

    def group_columns(self, unit: str, *keys: str) -> list[str]:
        """The columns by which prompts may be grouped: each unit has one value, some have the same.

        Columns of a bank and `keys`, which distinguish what a unit consists of, are none.
        """
        names = sorted(self.columns - RESERVED_COLUMNS - {unit, *keys})
        rows = self.expected_rows([unit, *names]).drop("model").unique()
        size = rows[unit].n_unique()
        return [
            name
            for name in names
            if rows.select(unit, name).n_unique() == size
            and rows[name].drop_nulls().n_unique() < size
        ]

    def require_groups(self, name: str, unit: str, *keys: str) -> None:
        """Raise UsageError unless prompts may be grouped by a column."""
        known = self.group_columns(unit, *keys)
        if name not in known:
            why = "is not a column" if name not in self.columns else "is not a column of groups"
            raise UsageError(
                f"--group-by: {name!r} {why} of {self.prompts}. "
                + (f"Columns: {', '.join(known)}." if known else "It has no column of groups.")
            )

    def cached(self, name: Hashable, make: Callable[[], T]) -> T:
        """A value of these scores; `make` computes it if it is not stored."""
        models, runs = (
            None if names is None else tuple(names) for names in (self.models, self.runs)
        )
        steps = self.steps if isinstance(self.steps, int | str | None) else frozenset(self.steps)
        return self.cache.get((name, self.sets, models, runs, steps, self.where), make)

    def prompt_rows(self, bank: Bank, name: str) -> pl.LazyFrame:
        """`Bank.prompts` of a prompt set: the rows of the prompts that are read."""
        return chosen_rows(bank.prompts(name), self.where)

    def deposits(self) -> list[SetDeposits]:
        """The deposits of each prompt set in each bank, of the chosen checkpoints."""
        sets = list[SetDeposits]()
        for bank in self.banks:
            names = [name for name in self.sets if name in bank.prompt_sets]
            deposits = bank.deposits() if names else []  # each is a file
            for name in names:
                linked = linked_query_sets(bank.prompts(name))
                sets.append(SetDeposits(bank, name, [d for d in deposits if d.query_set in linked]))
        chosen = chosen_checkpoints(
            chain(*(each.deposits for each in sets)),
            models=self.models, runs=self.runs, steps=self.steps,
        )  # fmt: skip
        return [
            each._replace(deposits=[d for d in each.deposits if d.checkpoint in chosen])
            for each in sets
        ]

    def excluded(self) -> tuple[str, ...]:
        """Notes about chosen checkpoints that have no score of a prompt set."""
        return exclusion_notes(self.deposits())

    def holding(self) -> Iterator[tuple[Bank, list[Deposit]]]:
        """The banks with scores of the prompt set, and their deposits of it.

        Raises
        ------
        UsageError
            A run is in two banks, or these have other content of one prompt.
        """
        prompts = self.prompts
        check_same_prompts([bank for bank in self.banks if prompts in bank.prompt_sets], prompts)
        seen: dict[tuple[str, str], Bank] = {}
        for bank, _, deposits in self.of(prompts).deposits():
            for model, run in {(d.checkpoint.model, d.checkpoint.run) for d in deposits}:
                if (other := seen.setdefault((model, run), bank)) is not bank:
                    raise UsageError(
                        f"{model} {run} has scores of {prompts!r} in both {other.address} and "
                        f"{bank.address}. Put the banks together with `logitbank merge`."
                    )
            if deposits:
                yield bank, [*deposits]

    def frames(self, *, rows: int = TOKEN_ROWS, coded: Collection[str] = ()) -> Batches:
        """`Bank.scan` of all banks, in frames of about `rows` rows, in the order of each run.

        A frame has whole checkpoints of one model and run. `coded` are text columns that are
        returned as Categorical.

        Raises
        ------
        AbsentError
            None of the banks has a prompt set, or one of the models.
        BankError
            There is no score yet.
        UsageError
            Two banks have other content of one prompt, or the scores of one checkpoint.
        """
        sets = self.deposits()
        if not sets:
            raise AbsentError(no_prompts(self.banks, self.prompts, example=self.prompts))
        if self.models is not None:
            having = {bank.path: bank for bank, _, _ in sets}.values()
            select_models([bank.models for bank in having], self.models, "the banks")  # raises
        scores, sizes = list[SetScores](), list[Mapping[str, int]]()
        for bank, name, deposits in sets:
            table = self.prompt_rows(bank, name)
            rows_of = dict(table.group_by("query_set").len().collect().iter_rows())
            own = [deposit for deposit in deposits if deposit.query_set in rows_of]
            scores.append(set_scores(bank, name, table, own, coded))
            sizes.append(rows_of)
        refuse_duplicates(scores)
        if not any(one.deposits for one in scores):
            models = {*(self.models or ())}
            of_models = [each for each in sets if not models or models & {*each.bank.models}]
            bank, name, _ = (of_models or sets)[0]
            bank.scan(name, models=self.models, runs=self.runs, steps=self.steps)  # raises
        return Batches([Batch(scores, part) for part in divided(scores, sizes, rows)])

    def dense(
        self,
        columns: Sequence[str],
        *,
        of_prompts: Sequence[str] | None = None,
        rows: int = ROWS,
    ) -> Dense:
        """Columns of scores as arrays (checkpoint, token), of a few checkpoints at a time.

        `of_prompts` are columns of the prompts, all if None; `rows` and errors are as for `frames`.
        """
        return Dense(self.frames(rows=rows), columns, of_prompts)

    def map_frames(self, read: Callable[[pl.LazyFrame], T], *, rows: int) -> Iterator[T]:
        """The results of `read` for one frame after another, without frames that have no row."""
        return read_nonempty(self.frames(rows=rows), read)

    def expected_rows(self, columns: Sequence[str]) -> pl.DataFrame:
        """The distinct values of some columns of the prompts, by model: model, then `columns`.

        They are what a model is expected to have, whether or not a checkpoint has a score of it.
        """
        parts = [expected_rows(self.banks, name, columns, self.where) for name in self.sets]
        return pl.concat(parts, how="vertical_relaxed").unique()

    def expected(self, columns: Sequence[str] = (), by: Sequence[str] = ()) -> pl.DataFrame:
        """The number of tokens of prompts: model, prompt_id, `by`, pieces, and these columns."""
        rows = self.expected_rows(("prompt_id", "piece", *by, *columns))
        return rows.group_by("model", "prompt_id", *by).agg(
            pl.col(columns).first(), pieces=pl.col("piece").n_unique().cast(pl.Int64)
        )

    def map_prompts(
        self,
        reduce: Callable[[PromptSums], T],
        *columns: str,
        family: str,
        by: Sequence[str] = (),
        more: Sequence[pl.Expr] = (),
    ) -> list[T]:
        """`reduce` of the sums of prompts, with these columns, of a few checkpoints at a time.

        `family`, `by` and `more` are as for `sum_prompts`.
        """
        self.require(*columns, family=family)
        expected = self.expected(columns, by)

        def read(frame: pl.LazyFrame) -> T:
            sums = sum_prompts(frame, expected, family=family, columns=columns, by=by, more=more)
            return reduce(sums)

        return [*self.map_frames(read, rows=TOKEN_ROWS)]


def read_scores(
    banks: Banks,
    prompts: Sequence[str] | str | None = None,
    models: Sequence[str] | str | None = None,
    steps: Steps = None,
    *,
    family: HasPrompts | None = None,
    cache: ScanCache | None = None,
    rows: bool = False,
) -> Scores:
    """Open banks with the scores of prompt sets.

    Parameters
    ----------
    prompts
        Their names. By default the family chooses them: all of its own, or the one that is
        analysed if it takes only one. Without a family, all.
    models, steps
        Only these; all if None.
    cache
        What the analyses of one report share.
    rows
        Also copy full rows of banks at URLs.

    Raises
    ------
    AbsentError
        No bank has a prompt set, or there are several to choose from.
    LogitbankError
        As `open_banks`.
    """
    models, requested = listed(models), listed(prompts)
    # Without scores first: names and columns choose the prompt sets.
    tables = [open_bank(each, prompts=[]) for each in listed_banks(banks)]
    sets = _chosen(tables, requested, family)
    opened = open_banks(banks, models=models, prompts=sets, rows=rows)
    return Scores(opened, sets, models, cache or ScanCache(shared=False), steps)


def _chosen(
    banks: Sequence[Bank], requested: Sequence[str] | None, family: HasPrompts | None
) -> tuple[str, ...]:
    """The requested prompt sets, or those of the family."""
    available = prompt_sets(banks)
    for name in requested or () if banks else ():
        if name not in available:
            raise _absent(banks, name, family)
    if family is None:
        return tuple(requested or available)
    if not banks:
        return tuple(requested or (family.example,))
    if family.several_prompts:
        chosen = tuple(requested or chosen_by(family.prompts, banks))
        if not chosen:
            raise _absent(banks, "", family)
        return chosen
    if requested or family.example in available:
        name = requested[0] if requested else family.example
        columns = PromptColumns(banks, {name, companion(name)}.intersection(available))
    else:
        columns = PromptColumns(banks)
        name = available[0] if len(available) == 1 else ""
    groups = family.prompts(columns)
    if not name and len(groups) == 1:
        return groups[0]
    if not name:
        raise _absent(banks, family.example, family)
    return next((names for names in groups if names[0] == name), (name,))


def _absent(banks: Sequence[Bank], name: str, family: HasPrompts | None) -> AbsentError:
    """The error that no bank has a prompt set, or any of a family, or that it has several."""
    if family is None:
        return AbsentError(no_prompts(banks, name))
    suitable = [names[0] for names in family.prompts(PromptColumns(banks))]
    if family.prompts is on_request:
        suitable = prompt_sets(banks)
    if suitable:
        text = no_prompts(banks, name, family=family.title, available=suitable)
        return AbsentError(f"{text} Name one with --prompts.")
    return AbsentError(no_prompts(banks, name, family=family.title, example=family.example))
