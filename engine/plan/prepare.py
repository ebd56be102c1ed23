"""Turn an extraction into a plan: tokenise, look into the bank, refuse what cannot work."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from logitbank.engine.backends.contexts import has_nested_contexts, leaf_contexts
from logitbank.engine.backends.precision import value_bytes
from logitbank.engine.doing import each, step
from logitbank.engine.plan.checks import (
    check_options,
    check_source,
    check_stored,
    check_tokens,
)
from logitbank.engine.plan.engine_choice import cheaper_engine
from logitbank.engine.plan.extraction import Extraction, Prepared, Requested
from logitbank.engine.plan.levels import least_lossless, level_sizes
from logitbank.engine.plan.plan import (
    DepositPlan,
    Plan,
    needed_blocks,
    place,
    placed,
)
from logitbank.engine.plan.task import fitted_settings
from logitbank.engine.plan.throughput import Throughput
from logitbank.engine.prompts.prompt_set import PromptSet, SequenceSet
from logitbank.engine.prompts.tokenize import TokenizedPrompts
from logitbank.engine.tokenizers.tokenizer import Tokenizer, tokenizer_folder
from logitbank.engine.weights.config import ModelConfig
from logitbank.engine.weights.heads import (
    HeadSize,
    divided_head,
    has_next_sentence_head,
    head_sizes,
    is_divided,
)
from logitbank.engine.weights.supported import check_architecture, check_fields
from logitbank.engine.weights.weights import check_plain
from logitbank.errors import PromptError, UsageError
from logitbank.store import Bank
from logitbank.store.format.layout import Layout
from logitbank.store.format.queries import QuerySet
from logitbank.store.format.schema import NEXT_SENTENCE_CLASSES
from logitbank.store.tables.prompt_tables import query_sets_of, require_unchanged
from logitbank.wording import KEPT_OF_LOGITS, readable_bytes


def prepare(
    bank: Bank | None, extraction: Extraction, first: Path, *, gpu: bool = False
) -> Prepared:
    """Tokenise the prompts with the first checkpoint's tokenizer and plan against the bank."""
    check_plain(first)
    config = ModelConfig.read(first)  # before others read it: they believe its sizes
    check_fields(first, trust_remote_code=extraction.settings.trust_remote_code)
    tokenizer = Tokenizer.load(tokenizer_folder(first)).for_task(config.task)
    wanted, skipped = _with_head(extraction, config, first)
    tokenized = tuple(prompts.tokenize(tokenizer) for prompts in wanted)
    for prompts in tokenized:
        check_tokens(prompts, config)
    settings, notes = fitted_settings(
        extraction.settings, tokenized, config, engine_auto=extraction.engine_auto
    )
    check_architecture(first, config, settings.task)
    stored = bank.query_sets() if bank is not None else {}
    queries = list(dict.fromkeys(q for prompts in tokenized for q in prompts.queries))
    leaves = [*leaf_contexts(queries)] if settings.task == "causal" else []
    many = settings.task == "masked" or has_nested_contexts(leaves, queries)
    settings = replace(settings, many_positions=many)
    if extraction.engine_auto:
        settings, why = cheaper_engine(settings, leaves, config, gpu=gpu)
        notes += why
    with step(f"placing {len(queries):,} distinct queries in the bank"):
        placement = place(queries, tokenizer.digest, stored, _homes(bank, tokenized))
    query_sets = dict(stored)
    query_sets |= {query_set.name: query_set for query_set in placement.new}
    places = dict(zip(queries, placement.places, strict=True))
    tables = tuple(
        (p.name, placed(p.table, [places[query] for query in p.queries])) for p in tokenized
    )
    if bank is not None:
        for name, table in tables:  # before a model runs, and in a dry run
            with step(f"comparing prompts of {name} with those of the bank"):
                require_unchanged(bank.path, name, table)
        with step("comparing options with those of the bank"):
            check_options(bank, extraction, tables)
    requested = Requested(
        placement,
        query_sets,
        config,
        Throughput.of(first, gpu=gpu),
        head_sizes(
            first,
            config,
            value_bytes=value_bytes(settings.compute_dtype),
        ),
    )
    if extraction.keep_auto:
        extraction, why = _least_level(bank, extraction, requested)
        notes += why
    deposits = tuple(missing_blocks(bank, extraction, requested))
    plan = Plan(
        deposits,
        checkpoints=len(extraction.suite.checkpoints),
        queries=len(set(placement.places)),
        prompts=sum(_count(prompts) for prompts in tokenized),
        positions=sum(_count(prompts, "piece") for prompts in tokenized),
        orders=max(prompts.table["order_seed"].n_unique() for prompts in tokenized),
    )
    needed = {d.query_set for d in deposits}  # by name: a set's hash goes over all its queries
    longest = max((len(q.ids) for name in needed for q in query_sets[name].queries), default=1)
    # As their layouts say: a deposit that is there may keep more than was asked for.
    states = any(d.layout.width is not None for d in deposits)
    settings = replace(settings, max_length=longest, hidden=states)
    return Prepared(
        *(plan, requested, tables, tokenizer, first, settings),
        adapters=extraction.adapters,
        notes=skipped + notes + tuple(n for p in tokenized for n in p.notes),
        keep=extraction.keep,
        dtype=extraction.dtype,
        special_tokens={
            prompts.name: tokenizer.opening_of(prompts.queries[0].ids) for prompts in tokenized
        },
    )


def _least_level(
    bank: Bank | None, extraction: Extraction, requested: Requested
) -> tuple[Extraction, tuple[str, ...]]:
    """The extraction at the least level that loses nothing, or at that of what is there."""
    homes = {name for name, _ in requested.placement.places}
    ids = [checkpoint.id for checkpoint in extraction.suite.checkpoints]
    stored = [] if bank is None else [d for each in ids for d in bank.deposits(each)]
    for deposit in stored:
        if deposit.query_set in homes and deposit.committed():
            layout = deposit.layout
            return replace(extraction, keep=layout.keep, dtype=layout.dtype), ()
    deposits = [*missing_blocks(bank, extraction, requested)]
    sizes = level_sizes(deposits)
    if any(d.head is not None and d.head.width != requested.config.shape[1] for d in deposits):
        # Something stands between the model and its head: more than one matrix, it may be.
        sizes = [size for size in sizes if size.keep.array != "hidden"]
    least = least_lossless(sizes, extraction.dtype)
    if least is None or not deposits:
        return extraction, ()
    others = [s for s in sizes if s.keep.whole_rows and s.dtype == least.dtype and s != least]
    beside = "".join(f", {other} {readable_bytes(other.bytes)}" for other in others)
    note = f"{least} takes {readable_bytes(least.bytes)}{beside}: it is taken"
    return replace(extraction, keep=least.keep, dtype=least.dtype), (note,)


def _homes(bank: Bank | None, tokenized: Sequence[TokenizedPrompts]) -> set[str]:
    """The query sets that prompts of these sets are placed in already."""
    if bank is None:
        return set()
    names = {prompts.name for prompts in tokenized}.intersection(bank.prompt_sets)
    return {home for name in names for home in query_sets_of(bank.prompts(name))}


def _with_head(
    extraction: Extraction, config: ModelConfig, first: Path
) -> tuple[list[PromptSet | SequenceSet], tuple[str, ...]]:
    """The prompt sets that the model has a head for, and a line about each other one.

    Raises
    ------
    PromptError
        It has none for any.
    """
    sets = extraction.prompt_sets
    asking = [s for s in sets if s.next_sentence]
    if not asking or has_next_sentence_head(first, config):
        return [*sets], ()
    named = ", ".join(config.architectures) or config.model_type
    why = f"the model ({named}) has no next-sentence head"
    if len(asking) == len(sets):
        raise PromptError(
            f"{asking[0].name!r} needs a next-sentence head, and {why}; nothing is left to run"
        )
    notes = tuple(f"{s.name} is skipped: {why}" for s in asking)
    return [s for s in sets if s not in asking], notes


def missing_blocks(
    bank: Bank | None, extraction: Extraction, requested: Requested
) -> Iterator[DepositPlan]:
    """Blocks that the bank lacks, checkpoint by checkpoint in the suite's order."""
    placement, query_sets, config, pace, heads = requested
    rows: dict[str, set[int]] = {}
    for name, row in placement.places:
        rows.setdefault(name, set()).add(row)
    scored_rows = {}  # rows of a vocabulary are bounded by their bytes
    if extraction.keep.array != "logprobs":
        scored_rows = {name: pace.block_rows(query_sets[name]) for name in rows}
    suite = extraction.suite.checkpoints
    for checkpoint in each(suite, "looking what checkpoints lack", len(suite)):
        deposits = bank.deposits(checkpoint.id) if bank is not None else []
        # One without a commit is what a run that failed left; it gives way.
        stored = {d.query_set: d for d in deposits if d.committed()}
        for other in stored.values():
            check_source(other, checkpoint)
        there = {kind for other in stored.values() for kind in other.spec.heads}
        for name, wanted in rows.items():
            deposit = stored.get(name)
            kind = query_sets[name].queries[0].head
            head = heads.get(kind)
            if head is not None and kind in there:
                head = head._replace(bytes=0)
            if deposit is None:
                if extraction.keep.array == "hidden" and is_divided(kind, config):
                    raise divided_head(checkpoint.id, kind, config)
                layout = Layout.plan(
                    queries=len(query_sets[name]),
                    vocab=_outputs(query_sets[name], config),
                    dtype=extraction.dtype,
                    keep=extraction.keep,
                    block_rows=extraction.block_rows or scored_rows.get(name),
                    width=_width(extraction, head),
                )
                committed: frozenset[int] = frozenset()
            else:
                check_stored(deposit, extraction)
                layout, committed = deposit.layout, deposit.committed()
            if blocks := needed_blocks(wanted, layout, committed):
                yield DepositPlan(checkpoint.id, name, layout, blocks, head)


def _width(extraction: Extraction, head: HeadSize | None) -> int | None:
    """Entries of the states that are kept; None where none are."""
    if extraction.keep.array != "hidden":
        return None
    if head is None:
        raise UsageError(
            f"nothing in {extraction.suite.name} tells how wide its hidden states are; use --keep"
            f" {KEPT_OF_LOGITS}"
        )
    return head.width


def _outputs(query_set: QuerySet, config: ModelConfig) -> int:
    """How many outputs the head that a query set is about has."""
    head = query_set.queries[0].head
    return NEXT_SENTENCE_CLASSES if head == "next_sentence" else config.vocab


def _count(prompts: TokenizedPrompts, *more: str) -> int:
    """Prompts, each option order counted."""
    return prompts.table.select("prompt_id", "order_seed", *more).n_unique()
