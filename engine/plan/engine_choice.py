"""The engine of a run, from the request, the prompts and the model's config."""

import importlib.util
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Literal

from logitbank.engine.backends.contexts import LeafContext, prefix_digests
from logitbank.engine.backends.gpu_memory import BLOCK, BLOCK_ON_A_GPU
from logitbank.engine.backends.hf.packs import rows
from logitbank.engine.backends.precision import AMPERE, OVERRIDE, body_dtype, require_tf32
from logitbank.engine.backends.protocol import ComputeDtype, EngineName, EngineStart, Task
from logitbank.engine.backends.vllm.machine import machine_problem
from logitbank.engine.plan.cards import Card
from logitbank.engine.plan.parallel import visible_devices
from logitbank.engine.prompts.tokenize import TokenizedPrompts
from logitbank.engine.request import ExtractRequest
from logitbank.engine.weights.config import ModelConfig
from logitbank.engine.weights.masked import MASKED_FAMILIES
from logitbank.engine.weights.supported import takes_any_attention
from logitbank.errors import MissingExtraError, PromptError, UsageError

PACKED = ("gpt2", "gpt_neox", "llama", "mistral", "olmo", "olmo2", "qwen2", "qwen3", "gemma2")
"""Model types for which packed contexts are tested in transformers."""
CPU_BATCHES, GPU_BATCHES = (4096, 64), (8192, 256)
"""Most tokens and sequences of a batch, unless a user sets the tokens."""
_MUCH_SHARED_MEMORY = ((8, 0), (8, 7), (9, 0), (10, 0), (10, 3))
"""Compute capabilities whose blocks have more than 101,376 bytes of shared memory."""
_WIDE_HEAD = 256
"""Head size at which vLLM's float32 attention with a window takes 116,992 bytes of shared memory,
as compiled by Triton 3.7 and 3.9."""
_WITHOUT_CLASS = "transformers"
"""vLLM's module that runs transformers' own code of a model without a class in vLLM."""
_STATE_SPACE = {
    *("mamba", "mamba2", "falcon_h1", "granitemoehybrid", "jamba", "nemotron_h", "zamba2"),
}
"""vLLM's modules with Mamba's mixer, which keeps −exp(A_log) where the files have A_log."""
NEWEST_TESTED = {"torch": "2.13", "transformers": "5.24"}
"""The newest releases with which the engine's tests passed; see `make anywhere`."""
MIN_SPEEDUP = 1.3
"""`auto` takes transformers instead of vLLM if vLLM runs at least this many times as many
positions. One position takes 0.9 to 1.1 times as long in transformers (70M shape, two busy cores),
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
        choose_engine(request.engine, deterministic=request.deterministic and local),
        request.compute_dtype,
        request.deterministic,
        request.trust_remote_code,
    )
    if local:
        check_precision(start, os.environ)
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
    name: Literal["auto", "vllm", "transformers"], *, deterministic: bool = False
) -> EngineName:
    """The engine of this name; for `auto` vLLM if it is installed.

    Raises
    ------
    MissingExtraError
        The packages of the engine are not installed.
    UsageError
        vLLM has no deterministic kernels without a GPU.
    """
    if any(importlib.util.find_spec(package) is None for package in ("torch", "transformers")):
        raise MissingExtraError(
            'Extraction needs torch and transformers. Fix: pip install "logitbank[engine]"'
        )
    has_vllm = importlib.util.find_spec("vllm") is not None
    if name == "vllm" and not has_vllm:
        raise MissingExtraError(
            'The vllm engine is not installed. Fix: pip install "logitbank[vllm]" on a CUDA '
            "machine, or use --engine transformers."
        )
    no_kernels = deterministic and not visible_devices(os.environ)
    if name == "vllm" and no_kernels:
        raise UsageError(
            "vLLM's batch-invariant kernels need an NVIDIA GPU (compute capability 8.0 or later)."
            " Use --deterministic with --engine transformers."
        )
    if name == "auto":
        return "vllm" if has_vllm and not no_kernels else "transformers"
    return name


def check_precision(start: EngineStart, environment: Mapping[str, str]) -> None:
    """Refuse a precision that the processors of this machine do not have.

    Raises
    ------
    UsageError
        tf32 without a GPU, against NVIDIA's own variable, or with kernels that would also use TF32
        in the LM head.
    """
    if start.compute_dtype != "tf32":
        return
    if not visible_devices(environment):
        require_tf32(start.compute_dtype, None)
    if OVERRIDE in environment:
        raise UsageError(
            f"{OVERRIDE}={environment[OVERRIDE]} overrides --compute-dtype tf32. Unset it, or use"
            " --compute-dtype float32."
        )
    if start.deterministic and start.engine == "vllm":
        raise UsageError(
            "vLLM's batch-invariant kernels would also use TF32 in the LM head. Use --engine"
            " transformers with --deterministic and tf32, or --compute-dtype float32."
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

    With `auto`, transformers replaces vLLM if vLLM does not support the model, or the model on one
    of the `cards`. `head_bias` is whether the LM head has a bias. Without `local`, workers check
    their own machines.

    Raises
    ------
    UsageError
        The engine does not support the model.
    """
    reason = ""
    if start.engine == "vllm":
        reason = _vllm_problem(task, prompts, config, head_bias)
        reason = reason or (machine_problem() if local else "")
        reason = reason or _card_problem(start.compute_dtype, config, cards)
    if not reason:
        return start.engine, ()
    if not auto:
        raise UsageError(f"{reason}. Use --engine transformers.")
    return "transformers", (f"engine: transformers ({reason})",)


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


def prefix_sharing(
    leaves: Sequence[LeafContext], config: ModelConfig, *, max_batch_tokens: int, gpu: bool
) -> str:
    """A note of why transformers has less to run than vLLM; empty if it does not.

    `leaves` are the contexts of a causal model that have to be run, in order. Both engines give
    logits that agree to the rounding of the compute dtype.
    """
    if config.model_type not in PACKED:
        return ""
    positions = packed_positions(leaves, most=max_batch_tokens)
    tokens = cached_tokens(leaves, BLOCK_ON_A_GPU if gpu else BLOCK)
    if tokens < MIN_SPEEDUP * positions:
        return ""
    return (
        f"engine: transformers (prefix sharing: {positions:,} instead of {tokens:,} token "
        "positions; --engine vllm overrides this)"
    )


def packed_positions(leaves: Iterable[LeafContext], *, most: int) -> int:
    """Number of positions in all rows of packed contexts.

    Examples
    --------
    >>> packed_positions([LeafContext((5, 6, 7), [2, 0]), LeafContext((5, 6, 8), [1])], most=4096)
    4
    """
    return sum(
        len(leaf.context) - shared for row in rows(leaves, most=most) for leaf, shared in row
    )


def cached_tokens(leaves: Iterable[LeafContext], block: int) -> int:
    """Number of tokens that vLLM runs: those outside of blocks that an earlier context has.

    The block with the last token of a context is always run.

    Examples
    --------
    >>> cached_tokens([LeafContext((5, 6, 7), [2, 0]), LeafContext((5, 6, 8), [1])], 2)
    4
    """
    total, seen = 0, set[bytes]()
    for ids, _ in leaves:
        cached, ends = 0, range(block, len(ids), block)
        for end, prefix in zip(ends, prefix_digests(ids, ends), strict=True):
            if prefix in seen:
                cached = end
            seen.add(prefix)
        total += len(ids) - cached
    return total


def _vllm_problem(
    task: Task, prompts: Sequence[TokenizedPrompts], config: ModelConfig, head_bias: bool
) -> str:
    """Why vLLM would fail on these prompts, or give other logits; empty if nothing is known."""
    if task == "masked" and config.model_type not in MASKED_FAMILIES:
        return f"vLLM runs no masked models of type {config.model_type!r} here"
    if any(each.queries[0].head == "next_sentence" for each in prompts):
        return "vLLM runs no next-sentence heads here"
    if config.not_on_vllm:
        return f"vLLM does not support {config.not_on_vllm[0]} of {config.model_type!r} models"
    known = _vllm_classes()
    modules = {known[name] for name in config.architectures if name in known}
    if known and task == "causal" and config.architectures and not modules:
        if not takes_any_attention(config.model_type):
            return f"vLLM does not have {', '.join(config.architectures)}"
        modules = {_WITHOUT_CLASS}
    if modules & _STATE_SPACE:
        return f"vLLM changes weights of {config.model_type!r} models, so no swap can be proved"
    if head_bias and _WITHOUT_CLASS in modules:
        return f"vLLM cannot load the bias of the LM head of {config.model_type!r} models"
    return ""


@cache
def _vllm_classes() -> Mapping[str, str]:
    """The module of each class that vLLM has; empty without vLLM, which is not imported."""
    found = importlib.util.find_spec("vllm")
    if found is None or found.origin is None:
        return {}
    path = Path(found.origin).parent / "model_executor" / "models" / "registry.py"
    text = path.read_text() if path.is_file() else ""
    return dict(re.findall(r'"(\w+)":\s*\(\s*"([\w.]+)",', text))


def _card_problem(compute_dtype: ComputeDtype, config: ModelConfig, cards: Sequence[Card]) -> str:
    """Why vLLM would not run this model on a card; empty if nothing is known."""
    for card in cards:
        version = ".".join(map(str, card.capability))
        if card.capability < AMPERE:
            return f"vLLM needs compute capability 8.0, and a GPU here has {version}"
        attention, is_float32 = config.attention, body_dtype(compute_dtype) == "float32"
        if attention is None or card.capability in _MUCH_SHARED_MEMORY or not is_float32:
            continue
        if attention.has_window and attention.head_size >= _WIDE_HEAD:
            return (
                f"vLLM's float32 attention needs 116,992 bytes of shared memory for heads of size"
                f" {attention.head_size} with a window, and a GPU of compute capability {version}"
                " has 101,376"
            )
    return ""


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
