"""`extract`: read the prompts of a request, find its checkpoints, and run what is missing."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from logitbank.engine.plan.engine_choice import engine_start
from logitbank.engine.plan.parallel import ParallelConfig
from logitbank.engine.prompts.prompt_set import PromptSet
from logitbank.engine.prompts.registry import prompt_sets, with_companions
from logitbank.engine.request import ExtractRequest
from logitbank.engine.run import run
from logitbank.engine.suites.hub import Hub
from logitbank.engine.suites.suites import (
    Suite,
    listed_suites,
    on_hub,
    require_distinct,
    resolve_suite,
)
from logitbank.engine.watch import watch
from logitbank.engine.workers.events import OnEvent, Preparing, SuiteFailed, Summary
from logitbank.errors import LogitbankError, UsageError
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
    """Evaluate every checkpoint on every prompt and store the logits, except existing results.

    `extract("b.zarr", suites="pythia-70m", prompts="winobias", keep="hidden")`

    Parameters
    ----------
    bank
        Folder of the bank; created if it does not exist.
    request, fields
        What to run: an `ExtractRequest`, or its fields by keyword. `suites` and `prompts` are
        required.
    dry_run
        Make the plan, score some prompts on the first checkpoint to estimate the time, and stop.
        Nothing is stored. On a Ray cluster no time is measured.
    on_event
        Called in this thread with every event, except notes of long waits during planning, which
        come from other threads.

    Raises
    ------
    LogitbankError
        Any problem that is found before something runs. Checkpoints that fail later are in the
        summary.
    """
    if request is None:
        request = ExtractRequest(**fields)
    elif fields:
        raise UsageError(f"Pass a request or its fields, not both: {', '.join(fields)}.")
    if request.watch and dry_run:
        raise UsageError("--dry-run and --watch exclude each other. Remove one.")
    # Quick checks come first, because prompts may have to be downloaded.
    require_new_folder(bank)
    start = engine_start(request)
    parallel = ParallelConfig.detect(workers=request.workers, shard=request.shard, ray=request.ray)
    if request.watch and parallel.shard is not None:
        raise UsageError(
            "--watch cannot run in a SLURM array: each task would run a part of the checkpoints. "
            "Run it outside an array."
        )
    if request.watch:
        return watch(bank, request, _named_sets(request), start, parallel, on_event=on_event)
    on_event(Preparing("reading suites and prompts"))
    listed = listed_suites(request.listed, request.steps)
    if hub is None and any(not isinstance(spec, Suite) and on_hub(spec) for spec, _ in listed):
        hub = Hub()
    suites, failed = list[Suite](), list[SuiteFailed]()
    for spec, steps in listed:
        try:
            if not isinstance(spec, Suite):
                spec = resolve_suite(spec, steps=steps, hub=hub, model=request.model)
            suites.append(spec)
        except LogitbankError as error:
            if len(listed) == 1:
                raise
            failed.append(SuiteFailed(str(spec), str(error)))
            on_event(failed[-1])
    require_distinct(suites)
    return run(
        bank, request, suites, _named_sets(request), start=start, parallel=parallel,
        dry_run=dry_run, hub=hub, failed=failed, on_event=on_event,
    )  # fmt: skip


def _named_sets(request: ExtractRequest) -> Sequence[PromptSet]:
    """The prompt sets of a request, for its language adapter."""
    sets = prompt_sets(with_companions(request.prompts), data=request.data)
    if language := request.language:
        return [replace(p, name=f"{p.name}@{language}", language=language) for p in sets]
    return sets
