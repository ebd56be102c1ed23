"""Which engine runs and in batches of which size, by what is asked for and what is installed."""

import importlib.util
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Literal, TypedDict, get_args

from logitbank.engine.backends.contexts import LeafContext, prefix_digests
from logitbank.engine.backends.hf.packs import rows
from logitbank.engine.backends.precision import OVERRIDE, without_tf32
from logitbank.engine.backends.protocol import ComputeDtype, EngineName, EngineSettings
from logitbank.engine.plan.parallel import visible_devices
from logitbank.engine.weights.config import ModelConfig
from logitbank.errors import MissingExtraError, UsageError

PACKED = ("gpt2", "gpt_neox", "llama", "mistral", "olmo", "olmo2", "qwen2", "qwen3", "gemma2")
"""Model types of which it is tested that transformers packs their contexts."""
BLOCK, BLOCK_ON_A_GPU = 32, 16
"""Tokens of a block of vLLM's prefix cache; it shares whole blocks."""
MIN_SPEEDUP = 1.3
"""How many times the positions vLLM has to run before transformers is taken for it: of one position
it takes 0.9 to 1.1 times as long (70M shape, two busy cores), and its start is quicker. On a GPU
this is an estimate: both run the same products there."""


def cheaper_engine(
    settings: EngineSettings, leaves: Sequence[LeafContext], config: ModelConfig, *, gpu: bool
) -> tuple[EngineSettings, tuple[str, ...]]:
    """The settings with the engine that has less to run, and a line where that is not theirs.

    `leaves` are the contexts that have to be run, in order, if the model is a causal one.
    Both give logits that agree to rounding. Below float32, where packing may be refused by what it
    does to a checkpoint's logits, the settings stay as they are.
    """
    known = config.model_type in PACKED and settings.task == "causal"
    plain = settings.compute_dtype == "float32" and not settings.deterministic
    if settings.engine != "vllm" or not (known and plain):
        return settings, ()
    positions = packed_positions(leaves, most=settings.max_batch_tokens)
    tokens = cached_tokens(leaves, BLOCK_ON_A_GPU if gpu else BLOCK)
    if tokens < MIN_SPEEDUP * positions:
        return settings, ()
    note = (
        f"transformers is used: of these prompts it runs {positions:,} positions, as it shares "
        f"their beginnings to the token, where vLLM would run {tokens:,}; --engine vllm takes vLLM"
    )
    return replace(settings, engine="transformers"), (note,)


def packed_positions(leaves: Iterable[LeafContext], *, most: int) -> int:
    """Positions of all rows of packed contexts.

    Examples
    --------
    >>> packed_positions([LeafContext((5, 6, 7), [2, 0]), LeafContext((5, 6, 8), [1])], most=4096)
    4
    """
    return sum(
        len(leaf.context) - shared for row in rows(leaves, most=most) for leaf, shared in row
    )


def cached_tokens(leaves: Iterable[LeafContext], block: int) -> int:
    """Tokens that vLLM runs: all that are not in blocks that a context before has, too.

    A block that has the last token of a context is not taken for it.

    Examples
    --------
    >>> cached_tokens([LeafContext((5, 6, 7), [2, 0]), LeafContext((5, 6, 8), [1])], 2)
    4
    """
    total, seen = 0, set[bytes]()
    for ids, _ in leaves:
        cached, ends = 0, range(block, len(ids), block)
        for end, beginning in zip(ends, prefix_digests(ids, ends), strict=True):
            if beginning in seen:
                cached = end
            seen.add(beginning)
        total += len(ids) - cached
    return total


def choose_engine(
    name: Literal["auto", "vllm", "transformers"],
    *,
    deterministic: bool = False,
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


def check_precision(settings: EngineSettings, environment: Mapping[str, str]) -> None:
    """Refuse a precision that this machine's processors do not have.

    Raises
    ------
    UsageError
        It is unknown; or TF32 is asked for on a CPU, of kernels that would have it in the output
        head too, or against NVIDIA's own variable.
    """
    named = settings.compute_dtype
    if named not in get_args(ComputeDtype):
        raise UsageError(f"compute dtype {named!r}: use {', '.join(get_args(ComputeDtype))}")
    if named != "tf32":
        return
    if not visible_devices(environment):
        raise UsageError(without_tf32(None))
    if OVERRIDE in environment:
        raise UsageError(
            f"{OVERRIDE}={environment[OVERRIDE]} decides over --compute-dtype tf32: unset it, or"
            " use --compute-dtype float32"
        )
    if settings.deterministic and settings.engine == "vllm":
        raise UsageError(
            "vLLM's batch-invariant kernels would multiply the output head in TF32, too; use"
            " --engine transformers with --deterministic and tf32, or --compute-dtype float32"
        )


class BatchLimits(TypedDict, total=False):
    """Fields of `EngineSettings`; none where nothing is asked for."""

    max_batch_tokens: int
    max_sequences: int
    larger_on_gpu: bool


def batch_limits(tokens: int | None) -> BatchLimits:
    """Settings of batches of so many tokens, which are not exceeded.

    Raises
    ------
    UsageError
        A size that no batch has.

    Examples
    --------
    >>> batch_limits(8192)
    {'max_batch_tokens': 8192, 'max_sequences': 128, 'larger_on_gpu': False}
    >>> batch_limits(None)
    {}
    """
    if tokens is None:
        return {}
    if tokens < 1:
        raise UsageError(f"batches of {tokens} tokens are not possible; use 1 or more")
    usual = EngineSettings("vllm")
    sequences = min(tokens, max(usual.max_sequences, tokens // usual.max_sequences))
    return {"max_batch_tokens": tokens, "max_sequences": sequences, "larger_on_gpu": False}
