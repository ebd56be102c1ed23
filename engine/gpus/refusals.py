"""What cannot run on the GPUs at hand, said in one line before anything is loaded."""

import os
from collections.abc import Mapping
from typing import get_args

from logitbank.engine.backends.precision import AMPERE, OVERRIDE, without_tf32
from logitbank.engine.backends.protocol import ComputeDtype, EngineName, EngineSettings
from logitbank.engine.gpus.cards import oldest, visible_cards
from logitbank.engine.gpus.machine import Machine
from logitbank.engine.plan.share import visible_devices
from logitbank.errors import DeviceError, DiskSpaceError, UsageError
from logitbank.wording import readable_bytes

_LEAST_DRIVER = {11: 450, 12: 525, 13: 580}
"""First number of the oldest driver for each CUDA, by NVIDIA's tables."""
_LEAST_FREE = 10**9
"""Bytes: what compiled kernels and downloads in progress may take of a cache's disk, roughly."""


def check_precision(settings: EngineSettings, environment: Mapping[str, str]) -> None:
    """Refuse a precision that this machine's processors do not have.

    Raises
    ------
    UsageError
        It is unknown; or TF32 is asked for on a CPU, on a GPU before Ampere, of kernels that would
        have it in the output head too, or against NVIDIA's own variable.
    """
    named = settings.compute_dtype
    if named not in get_args(ComputeDtype):
        raise UsageError(f"compute dtype {named!r}: use {', '.join(get_args(ComputeDtype))}")
    if named != "tf32":
        return
    if not visible_devices(environment):
        raise UsageError(without_tf32(None))
    card = oldest(visible_cards(environment))
    if card is not None and card.capability is not None and card.capability < AMPERE:
        raise UsageError(without_tf32(card.capability, card.name))
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


def check_machine(engine: EngineName, environment: Mapping[str, str] = os.environ) -> str:
    """Refuse to start an engine on GPUs of a machine that lacks what it needs; a note, or "".

    Raises
    ------
    DeviceError
        The driver is too old, or kernels cannot be compiled.
    DiskSpaceError
        A disk that engines write to is full.
    """
    if not visible_devices(environment):
        return ""
    return refused(Machine.here(environment, vllm=engine == "vllm"), engine)


def refused(machine: Machine, engine: EngineName) -> str:
    """As `check_machine`, of a machine that has been looked at."""
    if not machine.cuda:
        return (
            "this machine has a GPU, and PyTorch here is built for CPUs: the GPU is not used."
            " Install PyTorch for CUDA, or set CUDA_VISIBLE_DEVICES= to say that this is meant"
        )
    major = int(machine.cuda.partition(".")[0])
    least = _LEAST_DRIVER.get(major, max(_LEAST_DRIVER.values()))
    for card in machine.cards[:1]:  # a machine has one driver
        number = card.driver.partition(".")[0]
        # NVIDIA's packages for forward compatibility run newer programs on some: PyTorch knows.
        if number.isdecimal() and int(number) < least and (why := machine.works()):
            raise DeviceError(
                f"the NVIDIA driver is {card.driver}, and PyTorch here is built for CUDA"
                f" {machine.cuda}, which needs {least} or later ({why}); take an image with a newer"
                " driver, or install PyTorch for an older CUDA"
            )
    if engine == "vllm":
        _check_compiler(machine)
    for cache in machine.caches:
        if cache.free < _LEAST_FREE:
            raise DiskSpaceError(
                f"{cache.path} is on a disk with {readable_bytes(cache.free)} free, and engines on"
                f" a GPU write there; set {cache.variable} to a folder on a larger disk"
            )
    return ""


def _check_compiler(machine: Machine) -> None:
    if machine.compiler is None:
        raise DeviceError(
            "vLLM compiles kernels on a GPU and finds no C compiler (gcc, clang, or what CC names);"
            " install one (apt install build-essential), or use --engine transformers"
        )
    if not machine.header.exists():
        raise DeviceError(
            f"vLLM compiles kernels on a GPU and {machine.header} is not there; install Python's"
            " headers (apt install python3-dev), or use --engine transformers"
        )
