"""Refuse the CPU if the run was planned for a GPU, which torch cannot use."""

import socket
from collections.abc import Mapping

from logitbank.engine.backends.gpus import nvidia_smi, visible_devices
from logitbank.errors import DeviceError


def require_usable_gpu(environment: Mapping[str, str]) -> None:
    """Refuse to compute on the CPU while this process may use a GPU. Imports torch.

    Plans count GPUs by the driver, without torch. The CPU would take about a hundred times longer.

    Raises
    ------
    DeviceError
        torch cannot use the GPU: its build is for CPUs, or for a newer driver.
    """
    if not visible_devices(environment):
        return
    import torch

    if torch.cuda.is_available():
        return
    versions = nvidia_smi("--query-gpu=driver_version", "--format=csv,noheader").split()
    driver = f"driver {versions[0]}" if versions else "no driver found by nvidia-smi"
    if torch.version.cuda is None:
        build = "a CPU build"
        remedies = "install a CUDA build of torch (LOGITBANK_GPU=1 make dev)"
    else:
        build = f"a build for CUDA {torch.version.cuda}"
        remedies = (
            "update the driver (CUDA 13 needs 580 or later), install a build of torch for this"
            " driver"
        )
    raise DeviceError(
        f"torch cannot use the NVIDIA GPU of {socket.gethostname()} ({driver}): torch"
        f" {torch.__version__} is {build}. Fix: {remedies}, or set CUDA_VISIBLE_DEVICES= to compute"
        " on the CPU."
    )
