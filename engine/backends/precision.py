"""What a precision of the body asks of torch, Triton and vLLM, by name; imports none of them."""

from logitbank.engine.backends.protocol import ComputeDtype
from logitbank.errors import DeviceError

OVERRIDE = "NVIDIA_TF32_OVERRIDE"
"""NVIDIA's own variable, which decides over whatever a program asks for."""


AMPERE = (8, 0)
"""Compute capability from which on GPUs have TF32."""
_NEXT = "use --compute-dtype float32"
_ALWAYS = {"TORCH_DISABLE_NATIVE_JIT": "1"}
"""PyTorch has kernels in Triton for a few products, which a C compiler is needed for, and which are
no others' products to the last bit."""


def body_dtype(compute_dtype: ComputeDtype) -> str:
    """The torch dtype that a body's numbers are held in: TF32 is a way to multiply float32."""
    return "float32" if compute_dtype == "tf32" else compute_dtype


def value_bytes(compute_dtype: ComputeDtype) -> int:
    """Bytes of one number of a body."""
    return 4 if body_dtype(compute_dtype) == "float32" else 2


def precision_environment(compute_dtype: ComputeDtype) -> dict[str, str]:
    """Environment in which products of float32 are what the name says; for before any import.

    vLLM's attention kernels, and its batch-invariant layers, leave the precision of their products
    to Triton, whose default on a GPU with tensor cores is TF32: ten bits of each operand. Whatever
    the shell says of it is replaced.

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


def require_tf32(compute_dtype: ComputeDtype, capability: tuple[int, int] | None) -> None:
    """Refuse TF32 where an engine's device has none; `capability` is None for a processor.

    Raises
    ------
    DeviceError
        It is asked for there.
    """
    if compute_dtype == "tf32" and (capability is None or capability < AMPERE):
        raise DeviceError(without_tf32(capability))


def without_tf32(capability: tuple[int, int] | None) -> str:
    """Why TF32 is refused, and what to do instead.

    Examples
    --------
    >>> without_tf32((7, 5))
    'this GPU has no TF32: it has compute capability 7.5, not 8.0; use --compute-dtype float32'
    """
    if capability is None:
        return (
            f"a CPU has no TF32, and no NVIDIA GPU is seen here (nvidia-smi); {_NEXT}, or a machine"
            " with an A100 or later"
        )
    has = ".".join(map(str, capability))
    return f"this GPU has no TF32: it has compute capability {has}, not 8.0; {_NEXT}"
