"""What vLLM does not run. Imports no vLLM, so that plans can be refused."""

import importlib.util
import os
import re
import shutil
import sysconfig
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from logitbank.engine.backends.engine import Use
from logitbank.engine.backends.gpus import Card, is_divided, visible_devices
from logitbank.engine.backends.precision import AMPERE, body_dtype
from logitbank.engine.backends.protocol import ComputeDtype, EngineStart
from logitbank.engine.weights.config import ModelConfig
from logitbank.engine.weights.masked import MASKED_FAMILIES
from logitbank.engine.weights.supported import takes_any_attention

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
_WITHOUT_SWITCHES = {
    "gpt2": ("add_cross_attention", "scale_attn_by_inverse_layer_idx", "reorder_and_upcast_attn"),
}
"""Config fields by model type that vLLM's classes refuse to start with if they are true."""


def start_problem(start: EngineStart, environment: Mapping[str, str]) -> str:
    """Why vLLM cannot be deterministic on this machine, or in this precision."""
    if not start.deterministic:
        return ""
    if not visible_devices(environment):
        return "vLLM's batch-invariant kernels need an NVIDIA GPU (compute capability 8.0 or later)"
    if start.compute_dtype == "tf32":
        return "vLLM's batch-invariant kernels would also use TF32 in the LM head"
    return ""


def model_problem(use: Use, cards: Sequence[Card] = ()) -> str:
    """Why vLLM would fail on this model, or on one of these GPUs, or give other logits."""
    return _class_problem(use) or _card_problem(use.compute_dtype, use.config, cards)


def _class_problem(use: Use) -> str:
    config, task = use.config, use.task
    if task == "masked" and config.model_type not in MASKED_FAMILIES:
        return f"vLLM runs no masked models of type {config.model_type!r} here"
    if use.next_sentence:
        return "vLLM runs no next-sentence heads here"
    for switch in _WITHOUT_SWITCHES.get(config.model_type, ()):
        if switch in config.switches:
            return f"vLLM does not support {switch} of {config.model_type!r} models"
    known = known_classes()
    modules = {known[name] for name in config.architectures if name in known}
    if known and task == "causal" and config.architectures and not modules:
        if not takes_any_attention(config.model_type):
            return f"vLLM does not have {', '.join(config.architectures)}"
        modules = {_WITHOUT_CLASS}
    if modules & _STATE_SPACE:
        return f"vLLM changes weights of {config.model_type!r} models, so no swap can be proved"
    if use.head_bias and _WITHOUT_CLASS in modules:
        return f"vLLM cannot load the bias of the LM head of {config.model_type!r} models"
    return ""


@cache
def known_classes() -> Mapping[str, str]:
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


def machine_problem(environment: Mapping[str, str] = os.environ) -> str:
    """Why vLLM would fail on the GPUs of this machine; empty if nothing is known."""
    if not (names := visible_devices(environment)):
        return ""
    if any(map(is_divided, names)):
        # Its NVML code takes the number of a part within its card for that of a card: issues
        # 46132 and 41776 of vLLM.
        return "vLLM 0.32 does not find the parts of a divided GPU (MIG)"
    return _compiler_problem(environment)


def _compiler_problem(environment: Mapping[str, str]) -> str:
    """Why Triton cannot compile vLLM's kernels; it looks for a compiler and headers as here."""
    named, path = environment.get("CC"), environment.get("PATH")
    if not any(shutil.which(each, path=path) for each in ([named] if named else ["gcc", "clang"])):
        wanted = f"CC={named}, which is no program here" if named else "gcc or clang"
        return f"vLLM compiles kernels for a GPU and needs a C compiler: {wanted} (install gcc)"
    scheme = sysconfig.get_default_scheme()
    if scheme == "posix_local":  # Debian's, for which Triton takes the usual one
        scheme = "posix_prefix"
    header = Path(sysconfig.get_path("include", scheme)) / "Python.h"
    if not header.is_file():
        return f"vLLM compiles kernels for a GPU and needs {header} (install python3-dev)"
    return ""
