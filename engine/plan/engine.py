"""Which engine runs and in batches of which size, by what is asked for and what is installed."""

import importlib.util
import os
from collections.abc import Mapping
from typing import Literal, TypedDict, get_args

from logitbank.engine.backends.precision import OVERRIDE, without_tf32
from logitbank.engine.backends.protocol import ComputeDtype, EngineName, EngineSettings
from logitbank.engine.plan.share import visible_devices
from logitbank.errors import MissingExtraError, UsageError


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


class AskedBatches(TypedDict, total=False):
    """Fields of `EngineSettings`; none where nothing is asked for."""

    max_batch_tokens: int
    max_sequences: int
    sizes_from_memory: bool


def asked_batches(tokens: int | None) -> AskedBatches:
    """Settings of batches of so many tokens, which are not exceeded.

    Raises
    ------
    UsageError
        A size that no batch has.

    Examples
    --------
    >>> asked_batches(8192)
    {'max_batch_tokens': 8192, 'max_sequences': 128, 'sizes_from_memory': False}
    >>> asked_batches(None)
    {}
    """
    if tokens is None:
        return {}
    if tokens < 1:
        raise UsageError(f"batches of {tokens} tokens are not possible; use 1 or more")
    usual = EngineSettings("vllm")
    sequences = min(tokens, max(usual.max_sequences, tokens // usual.max_sequences))
    return {"max_batch_tokens": tokens, "max_sequences": sequences, "sizes_from_memory": False}
