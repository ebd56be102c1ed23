"""What a card, its host and its disk can do at most, and two parts of our way on a card."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from bench.figures import Figure
from logitbank.engine.backends.precision import precision_environment
from logitbank.engine.workers.blocks.reduce import ReducingSink
from logitbank.store.deposits.reduce import BlockReducer
from logitbank.store.format.layout import BlockData, Layout
from logitbank.store.format.schema import Keep, OptionTokens

_OUTPUTS, _ENTRIES = 50_304, 50_277
_MB = 2**20


def device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def seconds(run: Callable[[], object], rounds: int = 5) -> float:
    """Mean time of a call, after two that warm up."""
    for _ in range(2):
        run()
    _wait()
    start = time.perf_counter()
    for _ in range(rounds):
        run()
    _wait()
    return (time.perf_counter() - start) / rounds


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def ceilings(tmp: Path, name: str, *, large: bool = True) -> Iterator[Figure]:
    """Products by shape and dtype, copies between host and device, and the disk."""
    rows, width = (8192, 4096) if large else (64, 32)
    for dtype, tf32 in ((torch.float32, False), (torch.float32, True), (torch.bfloat16, False)):
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("high" if tf32 else "highest")
        label = "tf32" if tf32 else str(dtype).removeprefix("torch.")
        for m, k, n in ((rows // 6, width // 5, width), (rows, width, 4 * width)):
            x, w = (torch.randn(size, device=device(), dtype=dtype) for size in ((m, k), (n, k)))
            spent = seconds(lambda x=x, w=w: functional.linear(x, w))  # type: ignore[misc]
            value = 2 * m * k * n / spent / 1e12
            yield Figure(f"{name}: {m} × {k} × {n} in {label}", value, "TFLOP/s")
        torch.set_float32_matmul_precision(before)
    on_device = torch.empty((512 if large else 1) * _OUTPUTS, dtype=torch.float16, device=device())
    host = torch.zeros_like(on_device, device="cpu")
    copies: dict[str, Callable[[], object]] = {
        "device to new memory": on_device.cpu,
        "device to host": lambda: host.copy_(on_device),
        "host to device": lambda: on_device.copy_(host),
    }
    if torch.cuda.is_available():
        pinned = host.pin_memory()
        copies["device to pinned host"] = lambda: pinned.copy_(on_device, non_blocking=True)
        copies["pinned host to device"] = lambda: on_device.copy_(pinned, non_blocking=True)
    for copy, run in copies.items():
        yield Figure(f"{name}: {copy}", on_device.nbytes / seconds(run) / 1e9, "GB/s")
    content, count = os.urandom((64 if large else 1) * _MB), 16
    start = time.perf_counter()
    with (tmp / "written").open("wb") as file:
        for _ in range(count):
            file.write(content)
        file.flush()
        os.fsync(file.fileno())
    spent = time.perf_counter() - start
    yield Figure(f"{name}: written with fsync", count * len(content) / spent / 1e9, "GB/s")
    for level in ("full", "topk:64", "options"):
        logits = torch.randn(128 if large else 2, _OUTPUTS, device=device())
        spent = seconds(lambda level=level, x=logits: _reduced(x, level, on_gpu=True), rounds=2)  # type: ignore[misc]
        yield Figure(f"{name}: reduction to {level}", 1e6 * spent / len(logits), "µs a row")


def reduction(name: str) -> Iterator[Figure]:
    """The reduction of a device against NumPy's, with ties and padding."""
    rows = 64 if torch.cuda.is_available() else 4
    logits = 4 * torch.randn(rows, _OUTPUTS, generator=torch.Generator().manual_seed(0))
    logits[:, ::7] = logits[:, ::7].round()  # many ties
    for level in ("full", "topk:64", "options"):
        own = _reduced(logits.to(device()), level, on_gpu=True)
        numpy = _reduced(logits, level, on_gpu=False)
        order = ["query", "kind", "rank", "token"]
        frames = [each.scores.sort(order) for each in (own, numpy)]
        equal = frames[0].drop("logsumexp").equals(frames[1].drop("logsumexp"))
        sums = [frame["logsumexp"].to_numpy() for frame in frames]
        worst = float(np.abs(sums[0] - sums[1]).max())
        yield Figure(
            f"{name}: scores at level {level} equal NumPy's",
            *(int(equal), "", "1", equal),
            detail=f"log-sum-exp differs by {worst:.2g} at most",
        )


def _reduced(logits: torch.Tensor, level: str, *, on_gpu: bool) -> BlockData:
    """A block of these rows by the way of a GPU, which also runs on a CPU, or by NumPy."""
    count, outputs = logits.shape
    layout = Layout.plan(
        queries=count, vocab=outputs, dtype="float16", keep=Keep.parse(level), block_rows=count
    )
    draw = np.random.default_rng(0)
    options = OptionTokens.build([draw.choice(_ENTRIES, 3, replace=False) for _ in range(count)])
    reducer = BlockReducer(layout, 0, options=options, vocab_entries=_ENTRIES)
    sink = ReducingSink(reducer)
    if on_gpu:
        sink._reduce_on_gpu(range(count), logits)
    else:
        sink(range(count), logits)
    return sink.finish()


def attention_error(name: str) -> Iterator[Figure]:
    """vLLM's and torch's attention in float32 against float64; TF32 would differ by about 3e-4.

    transformers calls torch's with a mask, which multiplies as three TF32 products on a card. A CPU
    runs torch's without a mask instead of vLLM's, which is a Triton kernel.
    """
    os.environ |= precision_environment("float32")  # as workers do, before Triton compiles
    own = vllm_attention if torch.cuda.is_available() else _torch_attention
    for head in (32, 64, 80, 128, 256):
        generator = torch.Generator().manual_seed(0)
        shape = (3, 4 if own is _torch_attention else 300, 38, 8, head)
        query, key, value = torch.randn(shape, generator=generator).to(device())
        query = 3 * query
        exact = _torch_attention(query.double(), key.double(), value.double())
        for whose, attention in (("vLLM", own), ("torch with a mask", _masked_attention)):
            found = attention(query, key, value).double()
            error = float((found - exact).norm() / exact.norm())
            label = f"{name} by {whose}, heads of {head}: relative error"
            yield Figure(label, error, "", "≤ 1e-6", error <= 1e-6)


def _torch_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Causal attention of sequences (n, tokens, heads, size)."""
    first, second, third = (each.transpose(1, 2) for each in (q, k, v))
    made = functional.scaled_dot_product_attention(first, second, third, is_causal=True)
    return made.transpose(1, 2)


def _masked_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """The same with a mask that is added, as packed contexts have."""
    first, second, third = (each.transpose(1, 2) for each in (q, k, v))
    length = q.shape[1]
    mask = torch.full((length, length), -torch.inf, dtype=q.dtype, device=q.device).triu(1)
    made = functional.scaled_dot_product_attention(first, second, third, attn_mask=mask)
    return made.transpose(1, 2)


def vllm_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """The same by vLLM's Triton kernel, with keys and values in blocks of 16 tokens."""
    from vllm.v1.attention.ops.triton_unified_attention import unified_attention

    arguments = attention_arguments(q, k, v)
    unified_attention(**arguments)
    made: torch.Tensor = arguments["out"]
    return made.view(q.shape)


def attention_arguments(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> dict[str, Any]:
    """Arguments of vLLM's kernel for sequences of one length."""
    count, length, heads, size = q.shape
    block = 16
    blocks = -(-length // block)
    padding = (0, 0, 0, 0, 0, blocks * block - length)
    caches = [
        functional.pad(each, padding).reshape(count * blocks, block, heads, size).contiguous()
        for each in (k, v)
    ]
    table = torch.arange(count * blocks, device=q.device, dtype=torch.int32).view(count, blocks)
    scales = torch.ones(count, heads, device=q.device)
    return {
        "q": q.reshape(-1, heads, size).contiguous(),
        "k": caches[0],
        "v": caches[1],
        "out": torch.empty(count * length, heads, size, device=q.device),
        "cu_seqlens_q": torch.arange(
            0, count * length + 1, length, device=q.device, dtype=torch.int32
        ),
        "max_seqlen_q": length,
        "seqused_k": torch.full((count,), length, device=q.device, dtype=torch.int32),
        "max_seqlen_k": length,
        "softmax_scale": size**-0.5,
        "causal": True,
        "window_size": (-1, -1),
        "block_table": table,
        "softcap": 0,
        "q_descale": None,
        "k_descale": scales,
        "v_descale": scales,
    }
