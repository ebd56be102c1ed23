"""What vLLM needs of a machine with a GPU. Imports no vLLM, so that plans can be refused."""

import os
import shutil
import sysconfig
from collections.abc import Mapping
from pathlib import Path

from logitbank.engine.plan.parallel import is_divided, visible_devices
from logitbank.errors import DeviceError


def machine_problem(environment: Mapping[str, str] = os.environ) -> str:
    """Why vLLM would fail on the GPUs of this machine; empty if nothing is known."""
    if not (names := visible_devices(environment)):
        return ""
    if any(map(is_divided, names)):
        # Its NVML code takes the number of a part within its card for that of a card: issues
        # 46132 and 41776 of vLLM.
        return "vLLM 0.32 does not find the parts of a divided GPU (MIG)"
    return _compiler_problem(environment)


def require_machine(environment: Mapping[str, str] = os.environ) -> None:
    """Refuse to start vLLM where it would fail.

    Raises
    ------
    DeviceError
        vLLM would fail on the GPUs of this machine.
    """
    if problem := machine_problem(environment):
        raise DeviceError(f"{problem}. Use --engine transformers.")


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
