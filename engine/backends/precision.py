"""Settings of torch, Triton and vLLM for a compute dtype; imports none of them."""

from logitbank.engine.backends.protocol import ComputeDtype, EngineStart
from logitbank.errors import DeviceError

OVERRIDE = "NVIDIA_TF32_OVERRIDE"
"""NVIDIA's variable, which overrides the settings of a program."""
AMPERE = (8, 0)
"""Lowest compute capability of GPUs with TF32."""
_ALWAYS = {"TORCH_DISABLE_NATIVE_JIT": "1"}
"""PyTorch's Triton kernels for a few products need a C compiler and differ in the last bits."""


def body_dtype(compute_dtype: ComputeDtype) -> str:
    """The torch dtype of a body's numbers: TF32 is a way to multiply float32."""
    return "float32" if compute_dtype == "tf32" else compute_dtype


def value_bytes(compute_dtype: ComputeDtype) -> int:
    """Bytes of one number of a body."""
    return 4 if body_dtype(compute_dtype) == "float32" else 2


def precision_environment(compute_dtype: ComputeDtype) -> dict[str, str]:
    """Environment variables that set the precision of float32 products, before any import.

    vLLM's attention kernels and batch-invariant layers use Triton's precision, whose default on a
    GPU with tensor cores is TF32: ten bits of each operand. Values of the shell are replaced.

    Examples
    --------
    >>> precision_environment("tf32")["VLLM_FLOAT32_MATMUL_PRECISION"]
    'high'
    >>> precision_environment("bfloat16")["TRITON_F32_DEFAULT"]
    'ieee'
    """
    if compute_dtype == "tf32":
        return _ALWAYS | {"TRITON_F32_DEFAULT": "tf32", "VLLM_FLOAT32_MATMUL_PRECISION": "high"}
    return _ALWAYS | {
        "TRITON_F32_DEFAULT": "ieee",
        "VLLM_FLOAT32_MATMUL_PRECISION": "highest",
        OVERRIDE: "0",
    }


def torch_environment(start: EngineStart) -> dict[str, str]:
    """Variables of an engine's process; CUDA reads that of `deterministic` at its start."""
    workspace = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"} if start.deterministic else {}
    return precision_environment(start.compute_dtype) | workspace


def require_tf32(compute_dtype: ComputeDtype, capability: tuple[int, int] | None) -> None:
    """Refuse TF32 on a device without it; `capability` is None for a CPU.

    Raises
    ------
    DeviceError
        TF32 is requested on a device without it.
    """
    if compute_dtype != "tf32" or (capability is not None and capability >= AMPERE):
        return
    if capability is None:
        raise DeviceError(
            "A CPU has no TF32, and this machine has no visible NVIDIA GPU. Fix: use"
            " --compute-dtype float32, or a machine with an A100 or later."
        )
    version = ".".join(map(str, capability))
    raise DeviceError(
        f"This GPU has no TF32: its compute capability is {version}, not 8.0 or higher. Fix: use"
        " --compute-dtype float32."
    )
