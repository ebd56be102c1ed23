"""Extraction: plan what the bank lacks, run it, and say what happened."""

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal

from logitbank.engine.backends.protocol import ComputeDtype, EngineSettings
from logitbank.engine.doing import step, steps_told
from logitbank.engine.plan.engine_choice import batch_limits, check_precision, choose_engine
from logitbank.engine.plan.extraction import Extraction
from logitbank.engine.plan.levels import parse_keep
from logitbank.engine.plan.parallel import ParallelConfig
from logitbank.engine.prompts.registry import Prompts, prompt_sets
from logitbank.engine.run import run
from logitbank.engine.suites.hub import Hub, HubSource
from logitbank.engine.suites.prefetch import parse_bytes
from logitbank.engine.suites.suites import LocalSource, Suite, on_hub, resolve_suite
from logitbank.engine.watch import watch as watch_folder
from logitbank.engine.watch import watched_steps
from logitbank.engine.workers.events import OnEvent, Preparing, Summary
from logitbank.errors import SuiteError, UsageError
from logitbank.store.format.schema import Dtype
from logitbank.store.share.urls import require_new_folder


def extract(
    bank: str | Path,
    *,
    suite: str | Path | Suite,
    prompts: Prompts | Sequence[Prompts],
    steps: str = "all",
    watch: bool = False,
    data: Path | None = None,
    language: str = "",
    adapter_from: str | Path | None = None,
    model: str | None = None,
    engine: Literal["auto", "vllm", "transformers"] = "auto",
    keep: str = "full",
    dtype: Dtype | None = None,
    compute_dtype: ComputeDtype = "float32",
    deterministic: bool = False,
    canary_every: int = 50,
    batch_tokens: int | None = None,
    trust_remote_code: bool = False,
    title: str = "",
    licence: str = "",
    citation: str = "",
    disk_budget: str | int | None = None,
    dry_run: bool = False,
    workers: int | Literal["auto"] | None = None,
    shard: str | None = None,
    ray: str | None = None,
    hub: Hub | None = None,
    on_event: OnEvent = lambda _: None,
) -> Summary:
    """Run every checkpoint over every prompt that the bank lacks, and deposit the logits.

    Parameters
    ----------
    bank
        Folder of the bank; made if it is not there.
    suite
        A known name, `owner/repo` on the hub, a local folder of checkpoints,
        or a Suite.
    prompts
        A known set (`winobias`, `professions`, `lambada`, …) or a JSONL, CSV or Parquet file, with
        options of its own after a colon (`winobias:orders=all,splits=dev`); a PromptSet or
        SequenceSet; or several of these.
    steps
        `all`, `log`, `START:STOP:STRIDE`, a list such as `0,512,last`, or `release`.
    watch
        Look at the suite's folder again every minute, and run each checkpoint that a training has
        saved meanwhile once it is complete, until it is interrupted.
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
        `full`, `hidden`, `topk:K` or `options`; `auto` takes `full` or `hidden`, whichever takes
        less of the disk, heads included.
    dtype
        Of the stored log-probabilities, otherwise float16, or hidden states, otherwise float32, as
        with `auto`. Ranks and log-sum-exp are computed before rounding.
    compute_dtype
        Of the model's body; its head and all reductions are float32. `tf32` is float32 whose
        products are TF32's, on an NVIDIA GPU from Ampere on.
    deterministic
        The same bits whatever else is run: with vLLM's batch-invariant kernels on a GPU, and
        elsewhere with transformers, one sequence at a time.
    canary_every
        Evaluate a few sequences with plain transformers at the first checkpoint and every so
        many; 0 for never.
    batch_tokens
        What one pass of the model runs at most. Without it 4,096 tokens, or on a GPU as much as its
        memory holds; halved where that is too much. No number depends on it but in the last bits.
    title, licence, citation
        Of a new bank. One that is there has them already, or gets them by `describe`.
    disk_budget
        Most that downloads may take of the disk at a time, in bytes or as `100GB`. Each is deleted
        when its checkpoint is done. What was in the cache before stays.
    dry_run
        Make the plan, score some prompts on the first checkpoint to tell how long all will take,
        and stop. Nothing is kept. On a Ray cluster no time is measured.
    workers
        Engines that run side by side, each on its own GPU or part of the cores; `auto` takes one
        for each GPU. Otherwise one, or on a Ray cluster `auto`.
    shard
        `i/n`: only this run's part, where n runs fill one bank; otherwise that of a SLURM array.
    ray
        Run the workers on the Ray cluster at this address, `HOST:PORT`; `auto` takes the one that
        this machine belongs to, or starts one here. All its machines must see the bank and the
        checkpoints.
    on_event
        Called in this thread with every event; only notes of long waits, while the plan is made,
        and of long steps come from other threads.

    Raises
    ------
    LogitbankError
        Whatever is wrong before anything runs. A checkpoint that fails later is in the summary.
    """
    given: dict[str, object] = {"dry-run": dry_run, "disk-budget": disk_budget, "shard": shard}
    given |= {"ray": ray}
    if watch and (others := [name for name, value in given.items() if value]):
        raise UsageError(f"--{others[0]} needs all checkpoints; leave it out with --watch")
    if watch and isinstance(suite, Suite):
        raise UsageError("--watch looks at a folder of checkpoints; give it as --suite")
    adapters: LocalSource | HubSource | None = None
    adapter_folder: Path | None = None
    if adapter_from is not None:
        adapters, adapter_folder = _adapters(adapter_from, hub)
    settings = EngineSettings(
        choose_engine(engine, deterministic=deterministic and ray is None),
        compute_dtype=compute_dtype,
        deterministic=deterministic,
        canary_every=canary_every,
        **batch_limits(batch_tokens),
        trust_remote_code=trust_remote_code,
        adapter_from=adapter_folder,
    )
    if ray is None:  # there, each worker looks at its own machine
        check_precision(settings, os.environ)
    require_new_folder(bank)
    budget = None if disk_budget is None else parse_bytes(disk_budget)
    level = parse_keep(keep, dtype)
    suite = str(suite) if isinstance(suite, Path) else suite
    if (
        isinstance(suite, str) and not watch and not on_hub(suite)
    ):  # quick, where prompts may be downloaded
        suite = resolve_suite(suite, steps=steps, model=model)
    with steps_told(lambda text: on_event(Preparing(text))), step("reading prompts"):
        sets = prompt_sets(prompts, data=data)
    if language:
        sets = tuple(replace(p, name=f"{p.name}@{language}", language=language) for p in sets)
    if isinstance(suite, str) and not watch:
        hub = hub or Hub()
        suite = resolve_suite(suite, steps=steps, hub=hub, model=model)
    define = partial(
        Extraction,
        prompt_sets=sets,
        settings=settings,
        engine_auto=engine == "auto",
        adapters=adapters,
        keep=level.keep,
        dtype=level.dtype,
        keep_auto=level.keep_auto,
    )
    about = {"title": title, "licence": licence, "citation": citation}
    spread = ParallelConfig.here(workers=workers, shard=shard, ray=ray)
    if not isinstance(suite, Suite):
        return watch_folder(
            *(bank, Path(suite).expanduser(), define),
            steps=watched_steps(steps),
            model=model,
            about=about,
            spread=spread,
            on_event=on_event,
        )
    return run(
        *(bank, define(suite)),
        about=about,
        dry_run=dry_run,
        spread=spread,
        disk_budget=budget,
        hub=hub,
        on_event=on_event,
    )


def _adapters(spec: str | Path, hub: Hub | None) -> tuple[LocalSource | HubSource, Path]:
    """The checkpoint that language adapters are taken of: where it is from, and its folder here."""
    if (folder := Path(spec).expanduser()).is_dir():
        return LocalSource(folder), folder
    spec = str(spec)
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", spec, re.ASCII):
        raise SuiteError(f"--adapter-from {spec!r} is neither a folder nor owner/name on the hub")
    source = HubSource(spec, "main")
    return source, (hub or Hub()).fetch(source)
