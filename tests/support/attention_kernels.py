"""vLLM's attention kernel of a GPU, compiled for GPUs that are not here. For a process of its own.

Triton comes with NVIDIA's assembler, which needs no GPU. vLLM's own modules are replaced where the
kernel's file only imports them: the CPU build has no Triton of its own.
"""

import enum
import importlib.util
import logging
import os
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

_OPS = "vllm.v1.attention.ops"
_POINTERS = ("output_ptr", "query_ptr", "key_cache_ptr", "value_cache_ptr")
_INDICES = ("block_tables_ptr", "seq_lens_ptr", "rswa_prefix_lens_ptr", "query_start_len_ptr")
_SCALES = ("k_scale", "v_scale")
_NUMBERS = {"scale": "fp32", "out_scale": "fp32", "softcap": "fp32", "num_seqs": "i32"}
_OFF = (
    *("USE_ALIBI_SLOPES", "USE_ALIBI_SQRT", "USE_QQ_BIAS", "USE_SOFTCAP", "USE_SINKS"),
    *("USE_PER_SEQ_CAUSAL", "USE_MM_PREFIX", "USE_R_SWA", "USE_FP8", "IS_3D"),
)


class Compiled(NamedTuple):
    """What a compiled kernel takes."""

    products: int
    """Instructions of tensor cores, which multiply float32 as TF32."""
    shared: int
    """Bytes of shared memory of a block."""


def compiled(cases: list[tuple[int, int, int]], precision: str, cache: Path) -> list[Compiled]:
    """The float32 kernel for cases of compute capability (90 is 9.0), head size and window.

    `precision` is Triton's default for products of float32; a window of 0 is none.
    """
    os.environ |= {"TRITON_F32_DEFAULT": precision, "TRITON_CACHE_DIR": str(cache)}
    kernel = _kernel()
    return [_compile(kernel, *case) for case in cases]


def _kernel() -> Any:
    import torch
    import triton
    import triton.language as language

    for package in ("vllm", "vllm.v1", "vllm.v1.attention", _OPS):
        _stub(package).__path__ = []
    _stub("vllm.triton_utils", tl=language, triton=triton)
    sys.modules["vllm"].envs = _stub("vllm.envs", VLLM_BATCH_INVARIANT=False)  # type: ignore[attr-defined]
    _stub("vllm.logger", init_logger=logging.getLogger)
    platform = SimpleNamespace(fp8_dtype=lambda: torch.float8_e4m3fn)
    _stub("vllm.platforms", current_platform=platform)
    _stub("vllm.v1.kv_cache_interface", KVQuantMode=enum.IntEnum("KVQuantMode", {"NONE": 0}))
    _load("triton_attention_helpers")
    return _load("triton_unified_attention").kernel_unified_attention


def _stub(name: str, **content: object) -> ModuleType:
    module = sys.modules[name] = ModuleType(name)
    module.__dict__.update(content)
    return module


def _load(name: str) -> Any:
    """A module of vLLM by its file, as the package that contains it is a stub."""
    triton = importlib.util.find_spec("triton")
    assert triton is not None
    assert triton.origin is not None
    full = f"{_OPS}.{name}"
    path = Path(triton.origin).parents[1] / f"{full.replace('.', '/')}.py"
    spec = importlib.util.spec_from_file_location(full, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[full] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _compile(kernel: Any, capability: int, head: int, window: int) -> Compiled:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    grouped = 2 if window else 1
    constants: dict[str, object] = dict.fromkeys(_OFF, False) | {
        "num_query_heads": 8,
        "num_queries_per_kv": grouped,
        "BLOCK_SIZE": 16,
        "TILE_SIZE": 32,
        "HEAD_SIZE": head,
        "HEAD_SIZE_PADDED": triton.next_power_of_2(head),
        "SLIDING_WINDOW": window,
        "USE_CAUSAL": True,
        "MAX_MM_RANGES": 0,
        "R_SWA_WINDOW": 0,
        "stride_k_cache_3": 1,
        "stride_v_cache_3": 1,
        "NUM_SEGMENTS_PER_SEQ": 1,
        "BLOCK_Q": 16 // grouped,
        "BLOCK_M": 16,
    }
    types = dict.fromkeys(_POINTERS, "*fp32") | dict.fromkeys(_INDICES, "*i32")
    types |= dict.fromkeys(_SCALES, "*fp32") | _NUMBERS
    signature: dict[str, str] = {}
    values: dict[tuple[int], object] = {}
    aligned: dict[tuple[int], list[list[object]]] = {}
    for i, name in enumerate(kernel.arg_names):
        parameter = kernel.params[i]
        is_stride = "stride" in name and name not in constants and not parameter.has_default
        if name in types or is_stride:
            signature[name] = types.get(name, "i64")
            if is_stride or name in (*_POINTERS, *_INDICES):
                aligned[(i,)] = [["tt.divisibility", 16]]
            continue
        signature[name] = "constexpr"
        default = parameter.default if parameter.has_default else None
        values[(i,)] = constants.get(name, default)
    source = ASTSource(kernel, signature=signature, constexprs=values, attrs=aligned)
    made = triton.compile(source, target=GPUTarget("cuda", capability, 32))
    return Compiled(made.asm["ptx"].count("mma."), made.metadata.shared)
