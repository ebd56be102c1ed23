"""Turn an extraction into a plan: tokenise, look into the bank, refuse what cannot work."""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from logitbank.engine.backends.protocol import EngineSettings
from logitbank.engine.plan.pace import Pace
from logitbank.engine.plan.plan import (
    DepositPlan,
    Placement,
    Plan,
    fitting_levels,
    needed_blocks,
    place,
    placed,
)
from logitbank.engine.plan.task import fitted_settings
from logitbank.engine.prompts.prompt_set import PromptSet
from logitbank.engine.prompts.sequences import SequenceSet
from logitbank.engine.prompts.tokenized import TokenizedPrompts
from logitbank.engine.prompts.tokenizer import Tokenizer
from logitbank.engine.suites.suites import Checkpoint, HubSource, LocalSource, Suite
from logitbank.engine.weights.config import ModelConfig
from logitbank.engine.weights.heads import has_next_sentence_head
from logitbank.errors import (
    DiskSpaceError,
    KeepLevelError,
    PromptError,
    SuiteError,
    UsageError,
)
from logitbank.store import Bank, Deposit
from logitbank.store.format.layout import Layout
from logitbank.store.format.schema import NEXT_SENTENCE_CLASSES, Dtype, Keep, QuerySet
from logitbank.wording import readable_bytes


@dataclass(frozen=True, slots=True)
class Extraction:
    """Everything that defines one extraction, checked when built."""

    suite: Suite
    prompt_sets: tuple[PromptSet | SequenceSet, ...]
    settings: EngineSettings
    any_engine: bool = False
    """Another engine than the settings' may be taken where that has no class for the model."""
    adapters: LocalSource | HubSource | None = None
    """Where language adapters that the suite lacks are from; the folder is in the settings."""
    keep: Keep = Keep("full")  # noqa: RUF009 (frozen)
    dtype: Dtype = "float16"
    block_rows: int | None = None

    def __post_init__(self) -> None:
        if not self.suite.checkpoints:
            raise SuiteError(f"suite {self.suite.name!r} has no checkpoints")
        if not self.prompt_sets:
            raise UsageError("no prompt set was given; name one with --prompts")
        names = [prompts.name for prompts in self.prompt_sets]
        if twice := [name for name in names if names.count(name) > 1]:
            raise UsageError(f"two prompt sets are called {twice[0]!r}; rename a file")


@dataclass(frozen=True, slots=True)
class Prepared:
    """A plan with what running it needs."""

    plan: Plan
    placement: Placement
    tables: tuple[tuple[str, pl.DataFrame], ...]
    """Each prompt set's name and its table, which points at queries as the bank will have them."""
    tokenizer: Tokenizer
    config: ModelConfig
    query_sets: Mapping[str, QuerySet]
    first: Path
    """Folder of the checkpoint that tokenizer and config are from."""
    settings: EngineSettings
    """Those of the extraction, with what the prompts and the model decide."""
    adapters: LocalSource | HubSource | None
    """Where borrowed language adapters are from."""
    notes: tuple[str, ...]
    """What the user should know, one line each."""
    pace: Pace
    """Of the engine, about."""


def prepare(
    bank: Bank | None, extraction: Extraction, first: Path, *, gpu: bool = False
) -> Prepared:
    """Tokenise the prompts with the first checkpoint's tokenizer and plan against the bank."""
    config = ModelConfig.read(first)  # before others read it: they believe its sizes
    tokenizer = Tokenizer.load(tokenizer_folder(first))
    wanted, skipped = _with_head(extraction, config, first)
    tokenized = tuple(prompts.tokenize(tokenizer) for prompts in wanted)
    for prompts in tokenized:
        _check_tokens(prompts, config)
    settings, notes = fitted_settings(
        extraction.settings, tokenized, config, any_engine=extraction.any_engine
    )
    stored = bank.query_sets() if bank is not None else {}
    queries = list(dict.fromkeys(q for prompts in tokenized for q in prompts.queries))
    placement = place(queries, tokenizer.digest, stored)
    query_sets = dict(stored)
    query_sets |= {query_set.name: query_set for query_set in placement.new}
    places = dict(zip(queries, placement.places, strict=True))
    tables = tuple(
        (p.name, placed(p.table, [places[query] for query in p.queries])) for p in tokenized
    )
    if bank is not None:
        _check_options(bank, extraction, tables)
    pace = Pace.of(first, gpu=gpu, legacy_weights=extraction.settings.legacy_weights)
    deposits = tuple(lacking(bank, extraction, placement, query_sets, config, pace))
    plan = Plan(
        deposits,
        checkpoints=len(extraction.suite.checkpoints),
        queries=len(queries),
        prompts=sum(_count(prompts) for prompts in tokenized),
        asked=sum(_count(prompts, "piece") for prompts in tokenized),
        orders=max(prompts.table["order_seed"].n_unique() for prompts in tokenized),
    )
    needed = {query_sets[d.query_set] for d in deposits}
    longest = max((len(q.ids) for s in needed for q in s.queries), default=1)
    settings = replace(settings, max_length=longest)
    return Prepared(
        *(plan, placement, tables, tokenizer, config, query_sets, first, settings),
        adapters=extraction.adapters,
        notes=skipped + notes + tuple(note for p in tokenized for note in p.notes),
        pace=pace,
    )


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
    if not asking or has_next_sentence_head(
        first, config, legacy_weights=extraction.settings.legacy_weights
    ):
        return [*sets], ()
    named = ", ".join(config.architectures) or config.model_type
    why = f"the model ({named}) has no next-sentence head"
    if len(asking) == len(sets):
        raise PromptError(
            f"{asking[0].name!r} needs a next-sentence head, and {why}; nothing is left to run"
        )
    notes = tuple(f"{s.name} is skipped: {why}" for s in asking)
    return [s for s in sets if s not in asking], notes


def _check_options(
    bank: Bank, extraction: Extraction, tables: Sequence[tuple[str, pl.DataFrame]]
) -> None:
    """Refuse new options on stored queries whose full rows were not kept."""
    lower: dict[str, Deposit] = {}
    for checkpoint in extraction.suite.checkpoints:
        for deposit in bank.deposits(checkpoint.id):
            if deposit.layout.keep.level != "full" and deposit.committed():
                lower.setdefault(deposit.query_set, deposit)
    if not lower:
        return
    named = [table.select("query_set", "row", "token", "option") for _, table in tables]
    asked = pl.concat(named).drop_nulls().unique(["query_set", "row", "token"])
    for name, deposit in lower.items():
        known = bank.option_tokens(name)
        part = asked.filter(query_set=name).select("row", "token", "option")
        for row, token, option in part.iter_rows():
            if token not in known.of(row):
                raise KeepLevelError(
                    f"option {option!r} is new, and {deposit.checkpoint} keeps "
                    f"{deposit.layout.keep}, not the full rows that it could be read from; "
                    "extract into a new bank"
                )


def lacking(
    bank: Bank | None,
    extraction: Extraction,
    placement: Placement,
    query_sets: Mapping[str, QuerySet],
    config: ModelConfig,
    pace: Pace,
) -> Iterator[DepositPlan]:
    """Blocks that the bank lacks, checkpoint by checkpoint in the suite's order."""
    rows: dict[str, set[int]] = {}
    for name, row in placement.places:
        rows.setdefault(name, set()).add(row)
    scored_rows = {}  # full rows are bounded by their bytes
    if extraction.keep.level != "full":
        scored_rows = {name: pace.block_rows(query_sets[name].queries) for name in rows}
    for checkpoint in extraction.suite.checkpoints:
        there = bank.deposits(checkpoint.id) if bank is not None else []
        # One without a commit is what a run that failed left; it gives way.
        stored = {d.query_set: d for d in there if d.committed()}
        for other in stored.values():
            _check_source(other, checkpoint)
        for name, wanted in rows.items():
            deposit = stored.get(name)
            if deposit is None:
                layout = Layout.plan(
                    queries=len(query_sets[name]),
                    vocab=_outputs(query_sets[name], config),
                    dtype=extraction.dtype,
                    keep=extraction.keep,
                    block_rows=extraction.block_rows or scored_rows.get(name),
                )
                committed: frozenset[int] = frozenset()
            else:
                _check_stored(deposit, extraction)
                layout, committed = deposit.layout, deposit.committed()
            if blocks := needed_blocks(wanted, layout, committed):
                yield DepositPlan(checkpoint.id, name, layout, blocks)


def _outputs(query_set: QuerySet, config: ModelConfig) -> int:
    """Of the head that a query set is about."""
    head = query_set.queries[0].head
    return NEXT_SENTENCE_CLASSES if head == "next_sentence" else config.vocab


def _check_source(deposit: Deposit, checkpoint: Checkpoint) -> None:
    """Refuse to take another model's deposit for this one's because their names are the same."""
    stored = deposit.spec.provenance.get("source")
    asked = checkpoint.source.describe()
    if not isinstance(stored, dict):
        return
    for key in ("repo", "sample"):
        if key in stored and key in asked and stored[key] != asked[key]:
            raise SuiteError(
                f"the bank has {checkpoint.id} from another source ({key} {stored[key]}, not "
                f"{asked[key]}); store this suite under another name with --model"
            )


def _check_stored(deposit: Deposit, extraction: Extraction) -> None:
    """Refuse to go on with a deposit that is stored otherwise than asked."""
    layout, made = deposit.layout, deposit.spec.provenance
    if not layout.keep.covers(extraction.keep):
        raise KeepLevelError(
            f"{deposit.checkpoint} is in the bank at keep level {layout.keep}, less than "
            f"the {extraction.keep} asked for; use --keep {layout.keep} or a new bank"
        )
    computed = made.get("compute_dtype", extraction.settings.compute_dtype)
    for option, there, asked in (
        ("dtype", layout.dtype, extraction.dtype),
        ("compute-dtype", computed, extraction.settings.compute_dtype),
    ):
        if there != asked:
            raise UsageError(
                f"{deposit.checkpoint} is in the bank with --{option} {there}, not {asked}; ask "
                f"for that, or extract into a new bank"
            )


def _count(prompts: TokenizedPrompts, *more: str) -> int:
    """Prompts, each option order counted."""
    return prompts.table.select("prompt_id", "order_seed", *more).n_unique()


def _check_tokens(prompts: TokenizedPrompts, config: ModelConfig) -> None:
    """Refuse prompts over the model's limit and tokens beyond its vocabulary."""
    if config.max_length is not None:
        long = [i for i, q in enumerate(prompts.queries) if len(q.ids) > config.max_length]
        if long:
            names = prompts.table.filter(query=long[0])["prompt_id"]
            raise PromptError(
                f"prompt {names[0]!r} of {prompts.name!r} is {len(prompts.queries[long[0]].ids)} "
                f"tokens, the model takes at most {config.max_length}; queries over "
                f"it: {len(long)}. Nothing is cut: shorten or remove them"
            )
    tokens = prompts.table["token"].max()
    beyond = max(max(q.ids) for q in prompts.queries)
    beyond = max(beyond, tokens if isinstance(tokens, int) else 0)
    if beyond >= config.vocab:
        raise SuiteError(
            f"the tokenizer gives id {beyond}, but the model has {config.vocab} entries; the "
            "tokenizer files are not this model's"
        )


def check_space(
    path: Path, prepared: Prepared, extraction: Extraction, *, downloads: int = 0
) -> None:
    """Refuse a plan larger than the free disk, naming the keep levels that fit.

    `downloads` is what checkpoints will take of the same disk, in bytes.
    """
    parent = next(p for p in (path, *path.absolute().parents) if p.exists())
    whole, needed = shutil.disk_usage(parent).free, prepared.plan.bytes
    free = max(0, whole - downloads)
    if needed <= free:
        return
    beside = (
        f", of which {readable_bytes(downloads)} are for checkpoints to download (--disk-budget "
        "limits them)"
        if downloads
        else ""
    )
    fits = fitting_levels(prepared.plan.rows, prepared.config.vocab, free)
    options = "; these fit: " + ", ".join(fits) if fits else "; no keep level fits"
    raise DiskSpaceError(
        f"the plan needs {readable_bytes(needed)} ({prepared.plan.rows:,} rows at keep level "
        f"{extraction.keep}, {extraction.dtype}) and {parent} has {readable_bytes(whole)} free"
        f"{beside}{options}. Or choose fewer --steps"
    )


def tokenizer_folder(folder: Path) -> Path:
    """The checkpoint's own folder, or the suite's where only that has tokenizer files."""
    names = ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "vocab.json")
    for candidate in (folder, folder.parent, folder.parent.parent):
        if any((candidate / name).exists() for name in names):
            return candidate
    return folder
