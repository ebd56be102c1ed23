"""Extraction: plan what the bank lacks, run it, and say what happened."""

import importlib.util
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Unpack

from logitbank.engine.backends.protocol import EngineName, EngineSettings
from logitbank.engine.hub.hub import Hub
from logitbank.engine.hub.patience import waits_told
from logitbank.engine.plan.checks import check_space
from logitbank.engine.plan.dealing import agreement, own_share
from logitbank.engine.plan.extraction import Extraction, Prepared
from logitbank.engine.plan.prepare import lacking, prepare
from logitbank.engine.plan.share import Share, visible_devices
from logitbank.engine.plan.spread import Spread
from logitbank.engine.prompts.prompt_set import PromptSet
from logitbank.engine.prompts.registry import OldOptions, prompt_sets
from logitbank.engine.prompts.sequences import SequenceSet
from logitbank.engine.run_log import RunLog
from logitbank.engine.sample import measure
from logitbank.engine.suites.budget import parse_bytes
from logitbank.engine.suites.fetch import bytes_beside
from logitbank.engine.suites.fetcher import Fetcher
from logitbank.engine.suites.suites import (
    HubSource,
    LocalSource,
    Suite,
    duplicate_notes,
    on_hub,
    resolve_suite,
)
from logitbank.engine.workers.events import Note, OnEvent, Planned, Summary
from logitbank.engine.workers.runner import Runner
from logitbank.engine.workers.stopping import Stopping
from logitbank.engine.workers.worker_process import WorkerProcess, log_of_run
from logitbank.errors import MissingExtraError, SuiteError, UsageError
from logitbank.store import Bank
from logitbank.store.change.rescore import rescore_lacking
from logitbank.store.cluster import joined
from logitbank.store.files.objects import holds_something
from logitbank.store.format.schema import Dtype, Keep
from logitbank.store.remote.urls import require_folder

if TYPE_CHECKING:
    from logitbank.engine.workers.ray_worker import RayWorker


def extract(
    bank: str | Path,
    *,
    suite: str | Suite,
    prompts: str | PromptSet | SequenceSet | Sequence[str | PromptSet | SequenceSet],
    steps: str = "all",
    data: Path | None = None,
    language: str = "",
    adapter_from: str | Path | None = None,
    model: str | None = None,
    engine: Literal["auto", "vllm", "transformers"] = "auto",
    keep: str = "full",
    dtype: Dtype = "float16",
    compute_dtype: Literal["float32", "bfloat16", "float16"] = "float32",
    deterministic: bool = False,
    canary_every: int = 50,
    legacy_weights: bool = False,
    trust_remote_code: bool = False,
    title: str = "",
    licence: str = "",
    citation: str = "",
    disk_budget: str | int | None = None,
    dry_run: bool = False,
    sample: bool = False,
    workers: int | Literal["auto"] | None = None,
    shard: str | None = None,
    ray: str | None = None,
    tensor_parallel_size: int = 1,
    hub: Hub | None = None,
    on_event: OnEvent = lambda _: None,
    **old_options: Unpack[OldOptions],
) -> Summary:
    """Run every checkpoint over every prompt that the bank lacks, and deposit the logits.

    Parameters
    ----------
    bank
        Folder of the bank; made if it is not there.
    suite
        A known name, `owner/repo` on the hub, a local folder, or a Suite.
    prompts
        A known set (`winobias`, `professions`, `lambada`, …) or a JSONL, CSV or Parquet file, with
        options of its own after a colon (`winobias:orders=all,splits=dev`); a PromptSet or
        SequenceSet; or several of these.
    steps
        `all`, `log`, `first:last:stride`, a list such as `0,512,last`, or `release`.
    data
        Folder with public data; otherwise `LOGITBANK_DATA`, otherwise downloaded.
    language
        Language adapter that the prompts go through, for models that have such. The prompt set is
        stored as `NAME@LANGUAGE`.
    adapter_from
        Checkpoint whose adapter for `language` is put into models that lack it: a folder, or
        `owner/repo` on the hub.
    model
        Name to store the model under; otherwise that of the suite.
    keep
        `full`, `topk:K` or `options`.
    dtype
        Of the stored log-probabilities. Ranks and log-sum-exp are computed before rounding.
    compute_dtype
        Of the model's body; its head and all reductions are float32.
    deterministic
        The same bits whatever else is run: with vLLM's batch-invariant kernels on a GPU, and
        elsewhere with transformers, one sequence at a time.
    canary_every
        Evaluate one sequence with plain transformers at the first checkpoint and every so many;
        0 for never.
    title, licence, citation
        Of a new bank. One that is there has them already, or gets them by `describe`.
    disk_budget
        Most that weights downloaded here may take of the disk at a time, in bytes or as `100GB`:
        what is done is evicted, and never what was in the cache before.
    dry_run
        Make the plan, tell it, and stop.
    sample
        In a dry run, score some prompts on the first checkpoint to tell how long all will take.
    workers
        Engines that run side by side, each on its own GPU or part of the cores; `auto` takes one
        for each GPU. Otherwise one, or on a Ray cluster `auto`.
    shard
        `i/n`: only this run's part, where n runs fill one bank; otherwise that of a SLURM array.
    ray
        Run the workers on the Ray cluster at this address, `HOST:PORT`; `auto` takes the one that
        this machine belongs to, or starts one here. All its machines must see the bank and the
        checkpoints.
    tensor_parallel_size
        GPUs that one model is spread over; only 1 is possible yet.
    on_event
        Called in this thread with every event; only notes of long waits, while the plan is made,
        may come from the threads that wait.
    old_options
        `orders`, `splits`, `instances` and `first_token`, for all sets that have such an option:
        the old spelling of what now stands with a prompt set.

    Raises
    ------
    LogitbankError
        Whatever is wrong before anything runs. A checkpoint that fails later is in the summary.
    """
    if sample and not dry_run:
        raise UsageError("--sample measures how long a run would take; give --dry-run with it")
    adapters, adapter_folder = None, None
    if adapter_from is not None:
        with waits_told(lambda text: on_event(Note(text))):
            adapters, adapter_folder = _adapters(str(adapter_from), hub, legacy_weights)
    settings = EngineSettings(
        choose_engine(engine, deterministic=deterministic and ray is None),
        compute_dtype=compute_dtype,
        deterministic=deterministic,
        canary_every=canary_every,
        legacy_weights=legacy_weights,
        trust_remote_code=trust_remote_code,
        adapter_from=adapter_folder,
    )
    require_folder(bank)
    budget = None if disk_budget is None else parse_bytes(disk_budget)
    level = Keep.parse(keep)
    if isinstance(suite, str) and not on_hub(suite):  # quick, where prompts may be downloaded
        suite = resolve_suite(suite, steps=steps, model=model)
    sets = prompt_sets(prompts, data=data, old=old_options)
    if language:
        sets = tuple(replace(p, name=f"{p.name}@{language}", language=language) for p in sets)
    if isinstance(suite, str):
        hub = hub or Hub()
        with waits_told(lambda text: on_event(Note(text))):
            suite = resolve_suite(suite, steps=steps, hub=hub, model=model)
    extraction = Extraction(
        suite,
        sets,
        settings,
        any_engine=engine == "auto",
        adapters=adapters,
        keep=level,
        dtype=dtype,
    )
    about = {"title": title, "licence": licence, "citation": citation}
    spread = Spread.here(
        workers=workers, shard=shard, ray=ray, tensor_parallel_size=tensor_parallel_size
    )
    return run(
        *(bank, extraction),
        about=about,
        dry_run=dry_run,
        sample=sample,
        spread=spread,
        disk_budget=budget,
        hub=hub,
        on_event=on_event,
    )


def run(
    path: str | Path,
    extraction: Extraction,
    *,
    about: Mapping[str, str] | None = None,
    dry_run: bool = False,
    sample: bool = False,
    spread: Spread = Spread(),  # noqa: B008 (frozen)
    disk_budget: int | None = None,
    hub: Hub | None = None,
    on_event: OnEvent = lambda _: None,
) -> Summary:
    """Carry out an extraction that is already defined. As `extract`."""
    path, start = Path(path), time.monotonic()
    bank = Bank.open(path) if holds_something(path) else None
    if bank is not None:
        _check_about(bank, about or {})
    checkpoints = extraction.suite.checkpoints
    legacy = extraction.settings.legacy_weights
    stopping = Stopping(at=spread.stop_at)

    def note(text: str) -> None:
        on_event(Note(text))

    with stopping.on_sigterm(), waits_told(note), ExitStack() as ends:
        use_log = ends.enter_context(log_of_run(path, alone=spread.shard is None))
        workers = [] if dry_run else _workers(path, extraction, spread, ends)
        fetcher = ends.enter_context(
            Fetcher(
                checkpoints,
                hub,
                legacy_weights=legacy,
                ahead=1 + len(workers),
                disk_budget=disk_budget,
            )
        )
        for worker in workers:
            worker.start()  # its imports take as long as planning
        gpu = workers[0].on_gpu if workers else bool(visible_devices(os.environ))
        prepared = _prepare(bank, extraction, fetcher, note, gpu=gpu)
        if spread.shard is not None:
            prepared = own_share(path, prepared, extraction, spread.shard, dry_run=dry_run)
        notes = [*extraction.suite.notes]
        if hub is not None and any(isinstance(c.source, HubSource) for c in checkpoints):
            notes += duplicate_notes(extraction.suite, hub)
        notes += prepared.notes
        on_event(Planned(prepared.plan, prepared.settings.engine, tuple(notes)))
        summary = Summary(
            prepared.plan, notes=notes, prefix_cache=prepared.settings.has_prefix_cache
        )
        to_run = [c for c in checkpoints if c.id in prepared.plan.to_run]
        downloads = bytes_beside(path, to_run, hub, legacy_weights=legacy, disk_budget=disk_budget)
        check_space(path, prepared, extraction, downloads=downloads)
        if dry_run and sample and prepared.plan.rows:
            count = max(1, spread.workers)  # 0 is for as many as a cluster has room for
            share = Share(0, count if spread.ray is None else 1)

            def make_worker(bank: Path) -> WorkerProcess:
                return WorkerProcess(bank, prepared.settings, share)

            summary.estimate = measure(extraction, prepared, make_worker, workers=count)
        if not dry_run:
            bank = bank or _created(path, about or {})
            record_prompts(bank, prepared)
            for worker in workers:
                worker.use(prepared.settings)
            if prepared.plan.rows:
                use_log()
            try:
                with RunLog.of(path, extraction, prepared, spread, summary) as log:
                    follow = log.beside(on_event)
                    Runner(extraction, prepared, fetcher, workers, summary, follow, stopping).run()
                    if not summary.interrupted:
                        _finish(bank, extraction.suite)
                        _forget_shares(bank, prepared, extraction, spread)
                        with ThreadPoolExecutor(len(workers)) as pool:
                            list(pool.map(lambda worker: worker.stop(), workers))
            except KeyboardInterrupt:
                summary.interrupted = True
    summary.seconds = time.monotonic() - start
    return summary


def _workers(
    path: Path, extraction: Extraction, spread: Spread, ends: ExitStack
) -> Sequence["WorkerProcess | RayWorker"]:
    """The near sides of the workers; what of them is left at the end is killed."""
    handles: Sequence[WorkerProcess | RayWorker]
    if spread.ray is None:
        shares = [Share(i, spread.workers) for i in range(spread.workers)]
        handles = [WorkerProcess(path, extraction.settings, share) for share in shares]
    else:
        from logitbank.engine.workers.ray_worker import RayWorkers

        ray = ends.enter_context(joined(spread.ray))
        cluster = ends.enter_context(RayWorkers(ray, path, spread.workers))
        handles = cluster.handles(extraction.settings)
    for handle in handles:
        ends.enter_context(handle)
    return handles


def _created(path: Path, about: Mapping[str, str]) -> Bank:
    """A new bank, or the one that a run which started at the same time has just made."""
    try:
        return Bank.create(path, **about)
    except UsageError:
        bank = Bank.open(path)
        _check_about(bank, about)
        return bank


def _check_about(bank: Bank, about: Mapping[str, str]) -> None:
    for name, value in about.items():
        if value and bank.attributes.get(name) != value:
            raise UsageError(
                f"{bank.path} is there, with {name} {bank.attributes.get(name)!r}; leave out"
                f" --{name}, or change it with `logitbank describe {bank.path} --{name} …`"
            )


def _prepare(
    bank: Bank | None,
    extraction: Extraction,
    fetcher: Fetcher,
    note: Callable[[str], None],
    *,
    gpu: bool,
) -> Prepared:
    """Plan by the first checkpoint whose config and tokenizer can be read."""
    refused: SuiteError | None = None
    # Not by all: each of 154 revisions of a hub that is out of reach fails slowly.
    for index in range(min(3, len(extraction.suite.checkpoints))):
        try:
            first = fetcher.folder(index, on_wait=note)
            return prepare(bank, extraction, first, gpu=gpu)
        except SuiteError as error:
            refused = refused or error
            fetcher.done(index)
    assert refused is not None
    raise refused


def _adapters(
    spec: str, hub: Hub | None, legacy_weights: bool
) -> tuple[LocalSource | HubSource, Path]:
    """The checkpoint that adapters are taken from, and its folder here."""
    if (folder := Path(spec).expanduser()).is_dir():
        return LocalSource(folder), folder
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", spec, re.ASCII):
        raise SuiteError(f"--adapter-from {spec!r} is neither a folder nor owner/name on the hub")
    fetched = (hub or Hub()).fetch(spec, "main", legacy_weights=legacy_weights)
    return HubSource(spec, "main"), fetched


def choose_engine(
    name: Literal["auto", "vllm", "transformers"], *, deterministic: bool = False
) -> EngineName:
    """The engine asked for, or vLLM where it is installed.

    Raises
    ------
    MissingExtraError
        If the packages of the engine are not installed.
    UsageError
        If vLLM is to be deterministic where there is no GPU.
    """
    if (
        importlib.util.find_spec("torch") is None
        or importlib.util.find_spec("transformers") is None
    ):
        raise MissingExtraError(
            'extraction needs torch and transformers: pip install "logitbank[engine]"'
        )
    has_vllm = importlib.util.find_spec("vllm") is not None
    if name == "vllm" and not has_vllm:
        raise MissingExtraError(
            'the vllm engine is not installed: pip install "logitbank[vllm]" on a CUDA machine, '
            "or use --engine transformers"
        )
    no_kernels = deterministic and not visible_devices(os.environ)
    if name == "vllm" and no_kernels:
        raise UsageError(
            "vLLM's batch-invariant kernels need an NVIDIA GPU (compute capability 8.0 or later);"
            " run --deterministic with --engine transformers, which takes one sequence at a time"
        )
    if name == "auto":
        return "vllm" if has_vllm and not no_kernels else "transformers"
    return name


def record_prompts(bank: Bank, prepared: Prepared) -> None:
    """Put the new query sets and the prompt tables, pointing at their queries, into the bank."""
    for query_set in prepared.placement.new:
        bank.add_query_set(query_set)
    for name, table in prepared.tables:
        bank.add_prompts(name, table)


def _forget_shares(bank: Bank, prepared: Prepared, extraction: Extraction, spread: Spread) -> None:
    """Remove what the shares agreed on, once the bank has all of it."""
    if spread.shard is None:
        return
    about = (prepared.placement, prepared.query_sets, prepared.config, prepared.pace)
    if not any(lacking(bank, extraction, *about)):
        agreement(bank.path, prepared, extraction, spread.shard).unlink(missing_ok=True)


def _finish(bank: Bank, suite: Suite) -> None:
    """Seal what was interrupted before its seal; read options that no pass listed from the rows."""
    for checkpoint in suite.checkpoints:
        for deposit in bank.deposits(checkpoint.id):
            if deposit.complete and not deposit.sealed:
                with bank.begin(deposit.spec) as writer:
                    writer.seal()
            # Options that other calls named for lower keep levels were refused when planning.
            if deposit.layout.keep.level == "full":
                rescore_lacking(bank.path, deposit)
