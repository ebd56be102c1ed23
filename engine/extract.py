"""Extraction: a request becomes a plan of what the bank lacks, and the plan is executed."""

import os
import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from logitbank.engine.backends.protocol import EngineSettings
from logitbank.engine.doing import step, steps_told
from logitbank.engine.plan.engine_choice import batch_limits, check_precision, choose_engine
from logitbank.engine.plan.extraction import Extraction
from logitbank.engine.plan.levels import parse_keep
from logitbank.engine.plan.parallel import ParallelConfig
from logitbank.engine.prompts.prompt_set import PromptSet, SequenceSet
from logitbank.engine.prompts.registry import prompt_sets
from logitbank.engine.request import ExtractRequest
from logitbank.engine.run import run
from logitbank.engine.suites.hub import Hub, HubSource
from logitbank.engine.suites.prefetch import parse_bytes
from logitbank.engine.suites.suites import LocalSource, Suite, on_hub, resolve_suite
from logitbank.engine.watch import watch, watched_steps
from logitbank.engine.workers.events import OnEvent, Preparing, Summary
from logitbank.errors import SuiteError, UsageError
from logitbank.store.share.urls import require_new_folder


def extract(
    bank: str | Path,
    request: ExtractRequest | None = None,
    *,
    dry_run: bool = False,
    hub: Hub | None = None,
    on_event: OnEvent = lambda _: None,
    **fields: Any,
) -> Summary:
    """Run every checkpoint over every prompt that the bank lacks, and store the logits.

    `extract("b.zarr", suite="pythia-70m", prompts="winobias", keep="hidden")`

    Parameters
    ----------
    bank
        Folder of the bank; made if it does not exist.
    request, fields
        What to run: an `ExtractRequest`, or its fields by keyword. `suite` and `prompts` are
        required.
    dry_run
        Make the plan, score some prompts on the first checkpoint to estimate the time, and stop.
        Nothing is kept. On a Ray cluster no time is measured.
    on_event
        Called in this thread with every event; only notes of long waits, while the plan is made,
        and of long steps come from other threads.

    Raises
    ------
    LogitbankError
        Whatever is wrong before anything runs. A checkpoint that fails later is in the summary.
    """
    request = ExtractRequest(**fields) if request is None else replace(request, **fields)
    if request.watch and dry_run:
        raise UsageError("--dry-run needs all checkpoints: leave it out with --watch.")
    settings, adapters = _settings(request, hub)
    require_new_folder(bank)
    parallel = ParallelConfig.here(workers=request.workers, shard=request.shard, ray=request.ray)
    suite = request.suite
    if not isinstance(suite, Suite) and not request.watch and not on_hub(str(suite)):
        # Quick, and prompts may have to be downloaded.
        suite = resolve_suite(str(suite), steps=request.steps, model=request.model)
    with steps_told(lambda text: on_event(Preparing(text))), step("reading prompts"):
        sets = _prompt_sets(request)
    if not isinstance(suite, Suite) and not request.watch:
        hub = hub or Hub()
        suite = resolve_suite(str(suite), steps=request.steps, hub=hub, model=request.model)
    level = parse_keep(request.keep, request.dtype)
    define = partial(
        Extraction,
        prompt_sets=sets,
        settings=settings,
        engine_auto=request.engine == "auto",
        adapters=adapters,
        keep=level.keep,
        dtype=level.dtype,
        keep_auto=level.keep_auto,
        parallel=parallel,
        about=request.about,
        disk_budget=None if request.disk_budget is None else parse_bytes(request.disk_budget),
    )
    if isinstance(suite, Suite):
        return run(bank, define(suite), dry_run=dry_run, hub=hub, on_event=on_event)
    return watch(
        bank, Path(suite).expanduser(), define, steps=watched_steps(request.steps),
        model=request.model, stop_at=parallel.stop_at, on_event=on_event,
    )  # fmt: skip


def _settings(
    request: ExtractRequest, hub: Hub | None
) -> tuple[EngineSettings, LocalSource | HubSource | None]:
    """The engine and its settings, and where borrowed language adapters are from."""
    adapters, folder = None, None
    if request.adapter_from is not None:
        adapters, folder = _adapters(request.adapter_from, hub)
    local = request.ray is None  # on a cluster, each worker looks at its own machine
    settings = EngineSettings(
        choose_engine(request.engine, deterministic=request.deterministic and local),
        compute_dtype=request.compute_dtype,
        deterministic=request.deterministic,
        canary_every=request.canary_every,
        **batch_limits(request.batch_tokens),
        trust_remote_code=request.trust_remote_code,
        adapter_from=folder,
    )
    if local:
        check_precision(settings, os.environ)
    return settings, adapters


def _prompt_sets(request: ExtractRequest) -> tuple[PromptSet | SequenceSet, ...]:
    sets = prompt_sets(request.prompts, data=request.data)
    language = request.language
    if not language:
        return sets
    return tuple(replace(p, name=f"{p.name}@{language}", language=language) for p in sets)


def _adapters(spec: str | Path, hub: Hub | None) -> tuple[LocalSource | HubSource, Path]:
    """The checkpoint that language adapters are taken of: where it is from, and its folder here."""
    if (folder := Path(spec).expanduser()).is_dir():
        return LocalSource(folder), folder
    spec = str(spec)
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", spec, re.ASCII):
        raise SuiteError(f"--adapter-from {spec!r} is neither a folder nor owner/name on the hub")
    source = HubSource(spec, "main")
    return source, (hub or Hub()).fetch(source)
