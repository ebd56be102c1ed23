"""The engine of a run, from the request, the prompts and the model's config."""

import os
import re
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

from logitbank.engine.backends.contexts import leaf_contexts
from logitbank.engine.backends.engine import Engine, Use, engine_named, engines
from logitbank.engine.backends.gpus import Card, visible_devices
from logitbank.engine.backends.precision import OVERRIDE, require_tf32
from logitbank.engine.backends.protocol import ComputeDtype, EngineName, EngineStart, Task
from logitbank.engine.prompts.tokenize import TokenizedPrompts
from logitbank.engine.request import ExtractRequest
from logitbank.engine.weights.config import ModelConfig
from logitbank.errors import MissingExtraError, PromptError, UsageError
from logitbank.store.format.schema import Query

CPU_BATCHES, GPU_BATCHES = (4096, 64), (8192, 256)
"""Most tokens and sequences of a batch, unless a user sets the tokens."""
NEWEST_TESTED = {"torch": "2.13", "transformers": "5.24"}
"""The newest releases with which the engine's tests passed; see `make anywhere`."""
MIN_SPEEDUP = 1.3
"""`auto` takes the next engine if the first one runs at least this many times as many positions.
One position takes 0.9 to 1.1 times as long in transformers as in vLLM (70M shape, two busy cores),
and its start is quicker. For GPUs this is an estimate."""


def engine_start(request: ExtractRequest) -> EngineStart:
    """The engine that a request names, before prompts and model decide.

    Raises
    ------
    MissingExtraError
        The packages of the engine are not installed.
    UsageError
        This machine does not support the engine, or the precision.
    """
    local = request.ray is None  # On a cluster each worker checks its own machine.
    start = EngineStart(
        choose_engine(
            request.engine,
            compute_dtype=request.compute_dtype,
            deterministic=request.deterministic and local,
        ),
        request.compute_dtype,
        request.deterministic,
        request.trust_remote_code,
    )
    if local:
        check_precision(request.compute_dtype, os.environ)
    return start


def batch_sizes(batch_tokens: int | None, *, gpu: bool) -> tuple[int, int]:
    """Most tokens and sequences of a batch; `batch_tokens` are those that a user requests.

    Examples
    --------
    >>> batch_sizes(None, gpu=True), batch_sizes(8192, gpu=True), batch_sizes(16, gpu=False)
    ((8192, 256), (8192, 128), (16, 16))
    """
    if batch_tokens is None:
        return GPU_BATCHES if gpu else CPU_BATCHES
    _, default = CPU_BATCHES
    return batch_tokens, min(batch_tokens, max(default, batch_tokens // default))


def choose_engine(
    name: str, *, compute_dtype: ComputeDtype = "float32", deterministic: bool = False
) -> EngineName:
    """The engine of this name; for `auto` the first that is installed and starts here.

    Raises
    ------
    MissingExtraError
        The packages of the engine are not installed.
    UsageError
        The name is unknown, or the engine does not start like this on this machine.
    """
    named = engines() if name == "auto" else (engine_named(name),)
    if not (installed := [engine for engine in named if engine.is_installed]):
        raise _not_installed(named[-1])
    problems = []
    for engine in installed:
        start = EngineStart(engine.name, compute_dtype, deterministic)
        if not (problem := engine.start_problem(start, os.environ)):
            return engine.name
        problems.append(f"{problem}. Use {engine.advice or 'another machine'}.")
    raise UsageError(problems[0])


def _not_installed(engine: Engine) -> MissingExtraError:
    if not engine.fallback or not engine_named(engine.fallback).is_installed:
        last = engines()[-1]
        packages = " and ".join(last.packages)
        return MissingExtraError(f"Extraction needs {packages}. Fix: {last.install}")
    return MissingExtraError(
        f"The {engine.name} engine is not installed. Fix: {engine.install}, or use {engine.advice}."
    )


def check_precision(compute_dtype: ComputeDtype, environment: Mapping[str, str]) -> None:
    """Refuse a precision that the processors of this machine do not have.

    Raises
    ------
    UsageError
        tf32 without a GPU, or against NVIDIA's own variable.
    """
    if compute_dtype != "tf32":
        return
    if not visible_devices(environment):
        require_tf32(compute_dtype, None)
    if OVERRIDE in environment:
        raise UsageError(
            f"{OVERRIDE}={environment[OVERRIDE]} overrides --compute-dtype tf32. Unset it, or use"
            " --compute-dtype float32."
        )


def fitting_engine(
    start: EngineStart,
    task: Task,
    prompts: Sequence[TokenizedPrompts],
    config: ModelConfig,
    *,
    auto: bool,
    head_bias: bool = False,
    cards: Sequence[Card] = (),
    local: bool = True,
) -> tuple[EngineName, tuple[str, ...]]:
    """The engine that supports prompts and model, and a note if it is not that of `start`.

    With `auto`, the next engine replaces one that does not support the model, or the model on one
    of the `cards`. `head_bias` is whether the LM head has a bias. Without `local`, workers check
    their own machines.

    Raises
    ------
    UsageError
        The engine does not support the model.
    """
    next_sentence = any(each.queries[0].head == "next_sentence" for each in prompts)
    use = Use(config, task, start.compute_dtype, next_sentence, head_bias)
    first = engine_named(start.engine)
    if not (reason := _problem(first, use, cards, local)):
        return first.name, ()
    for engine in _after(first) if auto else ():
        if not _problem(engine, use, cards, local):
            return engine.name, (f"engine: {engine.name} ({reason})",)
    raise UsageError(f"{reason}. Use {first.advice or 'another model'}.")


def _problem(engine: Engine, use: Use, cards: Sequence[Card], local: bool) -> str:
    machine = engine.machine_problem(os.environ) if local else ""
    return engine.model_problem(use, cards) or machine


def _after(engine: Engine) -> list[Engine]:
    """The installed engines that `auto` takes after this one."""
    return [other for other in engines() if other.order > engine.order and other.is_installed]


def cheaper_engine(
    name: EngineName,
    queries: Sequence[Query],
    config: ModelConfig,
    *,
    max_batch_tokens: int,
    gpu: bool,
) -> tuple[EngineName, str]:
    """The engine that has much less to run than the one of this `name`, and a note if it differs.

    `queries` are those of a causal model. Engines give logits that agree to the rounding of the
    compute dtype.
    """
    first = engine_named(name)
    if not (others := _after(first)):
        return name, ""
    leaves = [*leaf_contexts(queries)]
    run = config, max_batch_tokens, gpu
    for other in others:
        if (positions := other.positions(leaves, *run)) is None:
            continue
        tokens = first.positions(leaves, *run)
        if tokens is not None and tokens >= MIN_SPEEDUP * positions:
            return other.name, (
                f"engine: {other.name} (prefix sharing: {positions:,} instead of {tokens:,} token"
                f" positions; --engine {name} overrides this)"
            )
    return name, ""


def version_notes() -> tuple[str, ...]:
    """A note for each package that is newer than the tests have seen."""
    return tuple(
        f"{package} {version(package)} is newer than {tested}, the newest release in our tests."
        f" Compare one checkpoint with {package} {tested}."
        for package, tested in NEWEST_TESTED.items()
        if _release(version(package)) > _release(tested)
    )


def _release(number: str) -> tuple[int, ...]:
    """Major and minor number of a version."""
    return tuple(map(int, re.findall(r"\d+", number)[:2]))


def fitting_task(prompts: Sequence[TokenizedPrompts], config: ModelConfig) -> Task:
    """The task that the prompts need, which is that of the model.

    Raises
    ------
    PromptError
        The prompts need different kinds of model, another kind of model, or the other RoPE factors
        of a longrope model.
    """
    longest = max(len(query.ids) for each in prompts for query in each.queries)
    if config.rope_switch is not None and longest >= config.rope_switch:
        raise PromptError(
            f"A prompt has {longest:,} tokens, and this model uses other RoPE factors from"
            f" {config.rope_switch:,} tokens on, which is not supported. Use shorter prompts."
        )
    tasks: dict[Task, str] = {}
    for each in prompts:
        is_causal = [query.head == "next_token" for query in each.queries]
        named: tuple[tuple[Task, bool], ...] = (("causal", True), ("masked", False))
        for task, causal in named:
            if causal in is_causal:
                first = each.table.filter(query=is_causal.index(causal))["prompt_id"][0]
                tasks.setdefault(task, f"prompt {first!r} of {each.name!r}")
    if len(tasks) > 1:
        raise PromptError(
            f"{tasks['masked']} has a [MASK] and {tasks['causal']} has none, so they need different"
            " kinds of model. Extract them separately."
        )
    ((task, where),) = tasks.items()
    if config.task is not None and config.task != task:
        raise PromptError(
            f"{where} is for a {task} model, but this is a {config.task} model "
            f"({', '.join(config.architectures)}). Choose other prompts or another suite."
        )
    return task


def borrowed_languages(
    prompts: Sequence[TokenizedPrompts], config: ModelConfig, adapter_from: Path | None
) -> tuple[str, ...]:
    """Languages whose adapters come from the checkpoint in `adapter_from`.

    Raises
    ------
    PromptError
        A language adapter is not available, or none is chosen.
    """
    languages = sorted({query.language for each in prompts for query in each.queries})
    if not config.languages:
        if languages != [""]:
            raise PromptError("The model has no language adapters. Remove --language.")
        return ()
    available = ", ".join(config.languages)
    if "" in languages:
        raise PromptError(f"The model has language adapters ({available}). Choose a --language.")
    missing = tuple(language for language in languages if language not in config.languages)
    if not missing:
        return ()
    others = () if adapter_from is None else ModelConfig.read(adapter_from).languages
    if absent := [language for language in missing if language not in others]:
        where = f" or {adapter_from}" if adapter_from else ""
        listed = ", ".join(dict.fromkeys((*config.languages, *others)))
        raise PromptError(
            f"The model{where} has no adapter for {absent[0]!r}, only for {listed}. Use another "
            "checkpoint's with --adapter-from."
        )
    return missing
