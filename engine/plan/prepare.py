"""Make the plan of a request: tokenize its prompts and find what is missing in the bank.

Nothing is written. Requests that cannot work fail here, before a model runs.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import polars as pl

from logitbank.engine.backends.contexts import leaf_contexts
from logitbank.engine.backends.precision import value_bytes
from logitbank.engine.backends.protocol import EngineSettings, EngineStart
from logitbank.engine.plan.cards import Card, check_memory, free_memory
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
    engine_start,
    fitting_engine,
    fitting_task,
    prefix_sharing,
    version_notes,
)
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
from logitbank.engine.prompts.tokenize import TokenizedPrompts, tokenized_once
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
from logitbank.store.format.schema import NEXT_SENTENCE_CLASSES, CheckpointId, Dtype, Head, Keep
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
    contents: Mapping[str, pl.DataFrame]
    """Prompts and options of each prompt set, also of those that the tokenizer skips."""
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


def make_plan(
    request: ExtractRequest,
    suite: Suite,
    prompts: Sequence[PromptSet],
    bank: Bank | None,
    first: Path,
    *,
    planned: Sequence["Prepared"] = (),
    start: EngineStart | None = None,
    adapters: BorrowedAdapters | None = None,
    shard: tuple[Shard, Sequence[CheckpointId]] | None = None,
    gpu: bool = False,
    cards: Sequence[Card] = (),
    engines: int = 1,
    progress: Progress = lambda _: None,
) -> Prepared:
    """Plan one suite of a request, by the checkpoint in the folder `first`.

    `planned` are the plans of other suites that are written into the same bank first. `shard` has
    the checkpoints of all suites, which the shards divide. `start` is `engine_start` by default.
    `gpu` is whether the workers have GPUs, and `cards` are those of this machine, if they run here.
    So many `engines` share a card.

    Raises
    ------
    LogitbankError
        The request cannot work with these prompts, this model and this bank.
    """
    progress(f"reading config and tokenizer of {suite.name}")
    start = start or engine_start(request)
    check_pointers(first, tokenizer_folder(first))
    check_plain(first)
    config = ModelConfig.read(first)  # before the others, which expect a valid file
    check_fields(first, trust_remote_code=request.trust_remote_code)
    tokenizer = Tokenizer.load(tokenizer_folder(first)).for_task(config.task)
    sets, notes = supported_sets(prompts, config, first)
    tokenized = [_tokenized(each, tokenizer, config, progress) for each in sets]
    task = fitting_task(tokenized, config)
    check_architecture(first, config, task)
    adapter_folder = None if adapters is None else adapters.folder
    languages = borrowed_languages(tokenized, config, adapter_folder)
    if adapters is not None and not languages:
        notes += (f"--adapter-from {adapters.folder} is not needed: no adapter is missing",)
    tokens, sequences = batch_sizes(request.batch_tokens, gpu=gpu)
    is_auto = request.engine == "auto"
    engine, more = fitting_engine(
        *(start, task, tokenized, config),
        auto=is_auto,
        head_bias=has_head_bias(first),
        cards=cards,
        local=request.ray is None,
    )
    notes += (*more, *version_notes())

    if bank is not None:
        progress("comparing prompts with the bank")
    queries = list(dict.fromkeys(q for prompts in tokenized for q in prompts.queries))
    if is_auto and (engine, task) == ("vllm", "causal") and not request.deterministic:
        leaves = [*leaf_contexts(queries)]
        if note := prefix_sharing(leaves, config, max_batch_tokens=tokens, gpu=gpu):
            engine, notes = "transformers", (*notes, note)
    stored = {} if bank is None else bank.query_sets()
    used = _used_query_sets(bank, tokenized)
    for each in planned:
        stored |= {new.name: new for new in each.new_query_sets}
        used |= {name for _, table in each.tables for name in table["query_set"].drop_nulls()}
    placement = assign_queries(queries, tokenizer.digest, stored, used)
    query_sets = {**stored, **{new.name: new for new in placement.new}}
    rows_by_set: dict[str, set[int]] = {}
    for name, row in placement.query_rows:
        rows_by_set.setdefault(name, set()).add(row)
    query_rows = dict(zip(queries, placement.query_rows, strict=True))
    tables = tuple(
        (p.name, with_query_rows(p.table, [query_rows[query] for query in p.queries]))
        for p in tokenized
    )
    contents = {prompts.name: prompts.content() for prompts in sets}
    if bank is not None:
        for name, table in tables:
            require_unchanged(bank.path, name, table)
            if (change := set_change(bank.path, name, contents[name])) is not None:
                notes += (str(change),)
        progress(f"finding missing results of {len(suite.checkpoints):,} checkpoints")
    present = {c.id: [] if bank is None else bank.deposits(c.id) for c in suite.checkpoints}
    if bank is not None:
        check_options(bank, present, tables)
        if not any(present.values()) and (model := same_model(bank, suite.checkpoints[0])):
            notes += (
                f"{bank.path.name} has model {model!r} with these checkpoints; add --model {model}"
                " to extend it",
            )
    sizes = head_sizes(first, config, value_bytes=value_bytes(request.compute_dtype))
    planner = _Planner(
        present, suite, config, query_sets, rows_by_set, sizes, request.compute_dtype, engine
    )
    keep, dtype = request.level
    block_rows = dict.fromkeys(rows_by_set, request.block_rows)
    if request.block_rows is None and keep.array != "logprobs":  # those are limited by their bytes
        size = weight_file_bytes(first)
        block_rows = {name: rows_per_block(size, query_sets[name], gpu=gpu) for name in rows_by_set}
    deposits = (*planner.missing(planner.layouts(keep, dtype, block_rows)),)
    plan = Plan(
        deposits,
        checkpoints=len(suite.checkpoints),
        queries=sum(map(len, rows_by_set.values())),
        prompts=sum(p.table.select("prompt_id", "order_seed").n_unique() for p in tokenized),
        orders=max(p.table["order_seed"].n_unique() for p in tokenized),
    )
    requested = plan.checkpoints * plan.queries
    plan = replace(plan, existing=max(0, requested - plan.rows))  # blocks may have more rows
    if shard is not None:
        plan = select_shard(plan, *shard)
    needed = {d.query_set for d in deposits}  # by name: the hash of a set reads all its queries
    longest = max((len(q.ids) for name in needed for q in query_sets[name].queries), default=1)
    settings = EngineSettings(
        engine,
        task,
        next_sentence=any(p.queries[0].head == "next_sentence" for p in tokenized),
        # By the layouts: an existing deposit may keep more than was requested.
        hidden=any(d.layout.width is not None for d in deposits),
        compute_dtype=request.compute_dtype,
        max_batch_tokens=tokens,
        max_sequences=sequences,
        gpu_memory=free_memory(cards, engines) if plan.rows else None,
        max_length=longest,
        deterministic=request.deterministic,
        canary_every=request.canary_every,
        trust_remote_code=request.trust_remote_code,
        adapter_from=adapter_folder,
        adapter_languages=languages,
    )
    check_memory(settings, first, config)
    return Prepared(
        plan,
        suite,
        settings,
        first,
        config,
        tokenizer,
        query_sets,
        placement.new,
        tables,
        contents,
        {p.name: tokenizer.opening_text(p.queries[0].ids) for p in tokenized},
        (*notes, *(note for p in tokenized for note in _notes(p))),
        None if adapters is None else adapters.source,
    )


def _tokenized(
    prompts: PromptSet, tokenizer: Tokenizer, config: ModelConfig, progress: Progress
) -> TokenizedPrompts:
    progress(f"tokenizing {len(prompts.prompts):,} prompts of {prompts.name}")
    return tokenized_once(prompts, tokenizer, config)


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
    rows_by_set: Mapping[str, set[int]]
    """The requested rows of each query set."""
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
