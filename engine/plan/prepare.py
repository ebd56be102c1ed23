"""Make the plan of a request: tokenize its prompts and find what is missing in the bank.

Nothing is written. Requests that cannot work fail here, before a model runs.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
import polars as pl

from logitbank.engine.backends.engine import engine_named
from logitbank.engine.backends.gpus import Card, free_memory, listed_cards, visible_devices
from logitbank.engine.backends.precision import value_bytes
from logitbank.engine.backends.protocol import EngineName, EngineSettings, EngineStart, Task
from logitbank.engine.collection import paused_collection
from logitbank.engine.plan.checks import (
    check_engine,
    check_options,
    check_source,
    check_stored,
    same_model,
)
from logitbank.engine.plan.compatibility import Compatibility
from logitbank.engine.plan.engine_choice import (
    batch_sizes,
    borrowed_languages,
    cheaper_engine,
    fitting_engine,
    fitting_task,
    version_notes,
)
from logitbank.engine.plan.parallel import ParallelConfig
from logitbank.engine.plan.plan import (
    DepositPlan,
    Plan,
    assign_queries,
    needed_blocks,
    rows_per_block,
    with_query_rows,
)
from logitbank.engine.plan.sharding import Shard, select_shard
from logitbank.engine.prompts.prompt_set import PromptSet
from logitbank.engine.prompts.tokenize import TokenizedPrompts, prompt_count, tokenized_once
from logitbank.engine.request import ExtractRequest
from logitbank.engine.suites.hub import HubSource
from logitbank.engine.suites.suites import Checkpoint, LocalSource, Suite
from logitbank.engine.tokenizers.tokenizer import Tokenizer, tokenizer_folder
from logitbank.engine.weights.config import ModelConfig
from logitbank.engine.weights.heads import (
    HeadSize,
    divided_head,
    has_head_bias,
    has_next_sentence_head,
    head_sizes,
    is_divided,
)
from logitbank.engine.weights.supported import check_architecture, check_fields
from logitbank.engine.weights.weights import check_plain, check_pointers, weight_file_bytes
from logitbank.errors import PromptError, UsageError
from logitbank.store import Bank, Deposit
from logitbank.store.format.layout import Layout
from logitbank.store.format.queries import QuerySet
from logitbank.store.format.schema import (
    NEXT_SENTENCE_CLASSES,
    CheckpointId,
    Dtype,
    Head,
    Keep,
    Query,
)
from logitbank.store.tables.prompt_tables import (
    prompt_files,
    query_sets_in,
    require_unchanged,
    set_change,
)
from logitbank.wording import KEEP_WITHOUT_STATES

Progress = Callable[[str], None]
"""Called with the name of each step when it begins."""


class BorrowedAdapters(NamedTuple):
    """The checkpoint of the language adapters that a model borrows."""

    source: LocalSource | HubSource
    folder: Path


@dataclass(frozen=True, slots=True)
class Prepared:
    """A plan with everything that running it needs."""

    plan: Plan
    suite: Suite
    settings: EngineSettings
    """Settings of its engines, from the request, the prompts, the model and the machine."""
    first: Path
    """Folder of the checkpoint that config and tokenizer come from."""
    config: ModelConfig
    tokenizer: Tokenizer
    query_sets: Mapping[str, QuerySet]
    """Query sets of the bank and new ones, by name."""
    new_query_sets: tuple[QuerySet, ...]
    tables: tuple[tuple[str, pl.DataFrame], ...]
    """Name and table of each prompt set; `query_set` and `row` already have their final values."""
    sets: Mapping[str, PromptSet]
    """The prompt sets by name, with prompts that the tokenizer skips."""
    special_tokens: Mapping[str, str]
    """Special tokens before the first text of each prompt set, for provenance."""
    notes: tuple[str, ...]
    """Notes for the user, one line each."""
    adapter_source: LocalSource | HubSource | None = None
    """Checkpoint of the borrowed language adapters."""

    @property
    def to_run(self) -> list[Checkpoint]:
        """The checkpoints with missing rows, in the order of the suite."""
        missing = {*self.plan.to_run}
        return [checkpoint for checkpoint in self.suite.checkpoints if checkpoint.id in missing]

    def compatibility(self) -> Compatibility:
        """The comparison of other checkpoints with the first."""
        longest = self.settings.max_length
        return Compatibility(self.config, self.tokenizer, self.first, longest=longest)


@dataclass(frozen=True, slots=True)
class Machines:
    """The machines of the workers, as far as a plan can know them."""

    gpu: bool = False
    """Whether the workers have GPUs."""
    cards: Sequence[Card] = ()
    """GPUs of this machine, if the workers run here."""
    engines: int = 1
    """Number of engines that share a GPU."""

    @classmethod
    def detect(
        cls, parallel: ParallelConfig, *, gpu: bool | None = None, environment: Mapping[str, str]
    ) -> Self:
        """The machines of a run; `gpu` is None if its workers are not known yet."""
        devices = visible_devices(environment)
        return cls(
            bool(devices) if gpu is None else gpu,
            listed_cards(environment) if parallel.ray is None else (),
            -(-parallel.workers // max(1, len(devices))),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanInputs:
    """What the plans of all suites of a run have in common."""

    request: ExtractRequest
    prompts: Sequence[PromptSet]
    bank: Bank | None
    start: EngineStart
    """The engine before prompts and model decide."""
    adapters: BorrowedAdapters | None = None
    machines: Machines = Machines()
    shard: tuple[Shard, Sequence[CheckpointId]] | None = None
    """This shard, and the checkpoints of all suites, which the shards divide."""
    progress: Progress = lambda _: None


class _Model(NamedTuple):
    """A suite's model, by the folder of its first checkpoint."""

    first: Path
    config: ModelConfig
    tokenizer: Tokenizer


@dataclass(frozen=True, slots=True)
class _Texts:
    """The prompts for one model."""

    sets: Sequence[PromptSet]
    tokenized: Sequence[TokenizedPrompts]
    queries: Sequence[Query]
    """Distinct queries of all sets."""
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Placed:
    """The prompts and their rows in the bank."""

    query_sets: Mapping[str, QuerySet]
    """Query sets of the bank and new ones, by name."""
    new: tuple[QuerySet, ...]
    rows_by_set: Mapping[str, np.ndarray]
    """The requested rows of each query set, distinct."""
    tables: tuple[tuple[str, pl.DataFrame], ...]
    notes: tuple[str, ...]


@paused_collection()
def plan_suite(
    inputs: PlanInputs, suite: Suite, first: Path, planned: Sequence["Prepared"] = ()
) -> Prepared:
    """Plan one suite of a request, by the checkpoint in the folder `first`.

    `planned` are the plans of other suites that are written into the same bank first.

    Raises
    ------
    LogitbankError
        The request cannot work with these prompts, this model and this bank.
    """
    inputs.progress(f"reading config and tokenizer of {suite.name}")
    model = _read_model(first, trust_remote_code=inputs.request.trust_remote_code)
    texts = _tokenize(inputs, model)
    task = fitting_task(texts.tokenized, model.config)
    check_architecture(first, model.config, task)
    languages, language_notes = _languages(inputs.adapters, model, texts)
    engine, engine_notes = _choose_engine(inputs, model, texts, task)
    if inputs.bank is not None:
        inputs.progress("comparing prompts with the bank")
    placed = _place(inputs.bank, model, texts, planned)
    whole, model_note = _plan(inputs, suite, model, texts, placed, engine)
    plan = whole if inputs.shard is None else select_shard(whole, *inputs.shard)
    settings = _settings(inputs, texts, placed, whole, engine, task, languages)
    if plan.rows:
        engine_named(engine).check_memory(settings, first, model.config)
    return Prepared(
        plan,
        suite,
        settings,
        first,
        model.config,
        model.tokenizer,
        placed.query_sets,
        placed.new,
        placed.tables,
        {prompts.name: prompts for prompts in texts.sets},
        {p.name: model.tokenizer.opening_text(p.queries[0].ids) for p in texts.tokenized},
        (
            *(*texts.notes, *language_notes, *engine_notes, *version_notes()),
            *(*placed.notes, *model_note),
            *(note for prompts in texts.tokenized for note in _notes(prompts)),
        ),
        None if inputs.adapters is None else inputs.adapters.source,
    )


def _read_model(first: Path, *, trust_remote_code: bool) -> _Model:
    check_pointers(first, tokenizer_folder(first))
    check_plain(first)
    config = ModelConfig.read(first)  # before the others, which expect a valid file
    check_fields(first, trust_remote_code=trust_remote_code)
    return _Model(first, config, Tokenizer.load(tokenizer_folder(first)).for_task(config.task))


def _tokenize(inputs: PlanInputs, model: _Model) -> _Texts:
    """The supported prompt sets as tokens."""
    sets, notes = supported_sets(inputs.prompts, model.config, model.first)
    tokenized = []
    for prompts in sets:
        inputs.progress(f"tokenizing {len(prompts.prompts):,} prompts of {prompts.name}")
        tokenized.append(tokenized_once(prompts, model.tokenizer, model.config))
    queries: Sequence[Query] = tokenized[0].queries
    if len(tokenized) > 1:
        queries = list(dict.fromkeys(q for prompts in tokenized for q in prompts.queries))
    return _Texts(sets, tokenized, queries, notes)


def _languages(
    adapters: BorrowedAdapters | None, model: _Model, texts: _Texts
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Languages of borrowed adapters, and a note if none is borrowed."""
    folder = None if adapters is None else adapters.folder
    languages = borrowed_languages(texts.tokenized, model.config, folder)
    if folder is None or languages:
        return languages, ()
    return (), (f"--adapter-from {folder} is not needed: no adapter is missing",)


def _choose_engine(
    inputs: PlanInputs, model: _Model, texts: _Texts, task: Task
) -> tuple[EngineName, tuple[str, ...]]:
    """The engine that supports the model and, with `auto`, has least to run; and notes."""
    request, machines = inputs.request, inputs.machines
    is_auto = request.engine == "auto"
    engine, notes = fitting_engine(
        *(inputs.start, task, texts.tokenized, model.config),
        auto=is_auto,
        head_bias=has_head_bias(model.first),
        cards=machines.cards,
        local=request.ray is None,
    )
    if is_auto and task == "causal" and not request.deterministic:
        tokens, _ = batch_sizes(request.batch_tokens, gpu=machines.gpu)
        engine, note = cheaper_engine(
            engine,
            texts.queries,
            model.config,
            max_batch_tokens=tokens,
            gpu=machines.gpu,
        )
        notes += (note,) if note else ()
    return engine, notes


def _place(bank: Bank | None, model: _Model, texts: _Texts, planned: Sequence[Prepared]) -> _Placed:
    """Find the queries in the bank, and compare prompt sets with those of the same names."""
    stored = {} if bank is None else bank.query_sets()
    used = _used_query_sets(bank, texts.tokenized)
    for each in planned:
        stored |= {new.name: new for new in each.new_query_sets}
        used |= {name for _, table in each.tables for name in table["query_set"].drop_nulls()}
    placement = assign_queries(texts.queries, model.tokenizer.digest, stored, used)
    query_rows = placement.query_rows
    rows_by_set = {
        str(name): rows["row"].unique().to_numpy()
        for (name,), rows in query_rows.group_by("query_set", maintain_order=True)
    }
    found = [query_rows]
    if len(texts.tokenized) > 1:
        index = {query: i for i, query in enumerate(texts.queries)}
        found = [query_rows[[index[query] for query in p.queries]] for p in texts.tokenized]
    tables = tuple(
        (p.name, with_query_rows(p.table, rows))
        for p, rows in zip(texts.tokenized, found, strict=True)
    )
    notes: tuple[str, ...] = ()
    for prompts, (name, table) in zip(texts.sets, tables, strict=True):
        if bank is None:
            continue
        require_unchanged(bank.path, name, table)
        if (change := set_change(bank.path, name, prompts.content())) is not None:
            notes += (str(change),)
    return _Placed(
        {**stored, **{new.name: new for new in placement.new}},
        placement.new,
        rows_by_set,
        tables,
        notes,
    )


def _plan(
    inputs: PlanInputs,
    suite: Suite,
    model: _Model,
    texts: _Texts,
    placed: _Placed,
    engine: EngineName,
) -> tuple[Plan, tuple[str, ...]]:
    """The missing blocks, and a note if the bank has the checkpoints under another name."""
    request, bank, notes = inputs.request, inputs.bank, tuple[str, ...]()
    present = {c.id: [] if bank is None else bank.deposits(c.id) for c in suite.checkpoints}
    if bank is not None:
        inputs.progress(f"finding missing results of {len(suite.checkpoints):,} checkpoints")
        check_options(bank, present, placed.tables)
        if not any(present.values()) and (name := same_model(bank, suite.checkpoints[0])):
            notes = (
                f"{bank.path.name} has model {name!r} with these checkpoints; add --model {name}"
                " to extend it",
            )
    compute_dtype = request.compute_dtype
    sizes = head_sizes(model.first, model.config, value_bytes=value_bytes(compute_dtype))
    planner = _Planner(
        *(present, suite, model.config, placed.query_sets, placed.rows_by_set, sizes),
        *(compute_dtype, engine),
    )
    block_rows = _block_rows(inputs, model, placed)
    deposits = (*planner.missing(planner.layouts(*request.level, block_rows)),)
    plan = Plan(
        deposits,
        checkpoints=len(suite.checkpoints),
        queries=sum(map(len, placed.rows_by_set.values())),
        prompts=sum(prompt_count(p.table) for p in texts.tokenized),
        orders=max(p.table["order_seed"].n_unique() for p in texts.tokenized),
    )
    requested = plan.checkpoints * plan.queries
    # Blocks may have more rows than are requested.
    return replace(plan, existing=max(0, requested - plan.rows)), notes


def _block_rows(inputs: PlanInputs, model: _Model, placed: _Placed) -> dict[str, int | None]:
    """Rows of a block of each query set; None for rows that are limited by their bytes."""
    request = inputs.request
    if request.block_rows is not None or request.level[0].array == "logprobs":
        return dict.fromkeys(placed.rows_by_set, request.block_rows)
    size = weight_file_bytes(model.first)
    return {
        name: rows_per_block(size, placed.query_sets[name], gpu=inputs.machines.gpu)
        for name in placed.rows_by_set
    }


def _settings(
    inputs: PlanInputs,
    texts: _Texts,
    placed: _Placed,
    plan: Plan,
    engine: EngineName,
    task: Task,
    languages: tuple[str, ...],
) -> EngineSettings:
    """Settings of the engines that run a plan, or any shard of it."""
    request, machines = inputs.request, inputs.machines
    needed = {d.query_set for d in plan.deposits}  # the hash of a set would read all its queries
    lengths = (len(query.ids) for name in needed for query in placed.query_sets[name].queries)
    tokens, sequences = batch_sizes(request.batch_tokens, gpu=machines.gpu)
    return EngineSettings(
        engine,
        task,
        next_sentence=any(p.queries[0].head == "next_sentence" for p in texts.tokenized),
        # By the layouts: an existing deposit may keep more than was requested.
        hidden=any(deposit.layout.width is not None for deposit in plan.deposits),
        compute_dtype=request.compute_dtype,
        max_batch_tokens=tokens,
        max_sequences=sequences,
        gpu_memory=free_memory(machines.cards, machines.engines),
        max_length=max(lengths, default=1),
        deterministic=request.deterministic,
        canary_every=request.canary_every,
        trust_remote_code=request.trust_remote_code,
        adapter_from=None if inputs.adapters is None else inputs.adapters.folder,
        adapter_languages=languages,
    )


def _notes(prompts: TokenizedPrompts) -> list[str]:
    return [*prompts.notes, *(f"{prompts.name}: {warning}" for warning in prompts.warnings)]


def supported_sets(
    sets: Sequence[PromptSet], config: ModelConfig, first: Path
) -> tuple[list[PromptSet], tuple[str, ...]]:
    """The supported prompt sets, and a note for each skipped one; PromptError if all are."""
    unsupported = [s for s in sets if s.next_sentence]
    if not unsupported or has_next_sentence_head(first, config):
        return [*sets], ()
    named = ", ".join(config.architectures) or config.model_type
    reason = f"the model ({named}) has no next-sentence head"
    if len(unsupported) == len(sets):
        raise PromptError(f"{unsupported[0].name!r} cannot be run: {reason}.")
    notes = tuple(f"{s.name} is skipped: {reason}" for s in unsupported)
    return [s for s in sets if s not in unsupported], notes


def _used_query_sets(bank: Bank | None, tokenized: Sequence[TokenizedPrompts]) -> set[str]:
    """Query sets of the stored tables of these prompt sets, former ones included."""
    names = {prompts.name for prompts in tokenized}
    files = [] if bank is None else prompt_files(bank.path)
    return {name for file in files if file.name in names for name in query_sets_in(file.path)}


@dataclass(frozen=True, slots=True)
class _Planner:
    """Finds the blocks that are missing, for one keep level after another."""

    present: Mapping[CheckpointId, Sequence[Deposit]]
    """Deposits of each checkpoint in the bank."""
    suite: Suite
    config: ModelConfig
    query_sets: Mapping[str, QuerySet]
    rows_by_set: Mapping[str, np.ndarray]
    """The requested rows of each query set, distinct."""
    head_sizes: Mapping[Head, HeadSize]
    compute_dtype: str
    engine: str

    def head_kind(self, query_set: str) -> Head:
        return self.query_sets[query_set].queries[0].head

    def layouts(
        self, keep: Keep, dtype: Dtype, block_rows: Mapping[str, int | None]
    ) -> dict[str, Layout]:
        """The layout of a new deposit of each requested query set."""
        layouts = {}
        for name in self.rows_by_set:
            kind, width = self.head_kind(name), None
            if keep.array == "hidden":
                if is_divided(kind, self.config):
                    raise divided_head(self.suite.checkpoints[0].id, kind, self.config)
                if (head := self.head_sizes.get(kind)) is None:
                    raise UsageError(
                        f"The width of the hidden states of {self.suite.name} is unknown. Use "
                        f"--keep {KEEP_WITHOUT_STATES}."
                    )
                width = head.width
            is_pair = kind == "next_sentence"
            layouts[name] = Layout.plan(
                queries=len(self.query_sets[name]),
                vocab=NEXT_SENTENCE_CLASSES if is_pair else self.config.vocab,
                dtype=dtype,
                keep=keep,
                block_rows=block_rows[name],
                width=width,
            )
        return layouts

    def missing(self, layouts: Mapping[str, Layout]) -> Iterator[DepositPlan]:
        """Missing blocks, checkpoint by checkpoint; existing deposits keep their own layout."""
        for checkpoint in self.suite.checkpoints:
            # A deposit without a commit is left by a failed run, and is replaced.
            stored = {d.query_set: d for d in self.present[checkpoint.id] if d.committed()}
            for deposit in stored.values():
                check_source(deposit, checkpoint)
            stored_heads = {kind for deposit in stored.values() for kind in deposit.spec.heads}
            for name, rows in self.rows_by_set.items():
                kind = self.head_kind(name)
                head = self.head_sizes.get(kind)
                if head is not None and kind in stored_heads:
                    head = head._replace(bytes=0)
                layout, committed = layouts[name], frozenset[int]()
                if (existing := stored.get(name)) is not None:
                    check_stored(existing, layout, self.compute_dtype)
                    layout, committed = existing.layout, existing.committed()
                    if existing.lacks_head:  # the head is written before a block
                        committed -= {layout.blocks - 1}
                if blocks := needed_blocks(rows, layout, committed):
                    if existing is not None and not existing.complete:
                        check_engine(existing, self.engine)
                    yield DepositPlan(checkpoint.id, name, layout, blocks, head)
