"""Prove that the weights in an engine are those of a file.

Engines fuse, split, transpose, pad and repack tensors, so names and shapes cannot be compared. The
multiset of element bit patterns does not change. Its first two power sums modulo 2^64 are a
fingerprint: they add up over fused tensors, do not depend on order, and zeros (padding) add
nothing. A tensor that kept its old values changes the sums.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import torch

from logitbank.engine.weights.heads import is_embedding, is_head
from logitbank.errors import WeightsError

# Buffers that checkpoints contain and that models compute themselves.
_BUFFER = re.compile(
    r"(rotary_emb(eddings)?\.(inv_freq|cos_cached|sin_cached)|\.(attn|attention)\.(bias|masked_bias)"
    r"|(^|\.)position_ids)$"
)
CPU = torch.device("cpu")
_CHUNK = 1 << 20
_INTEGER = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}

Fingerprint = tuple[int, int]


def fingerprint(tensor: torch.Tensor) -> Fingerprint:
    """First and second power sum, modulo 2^64, of the elements' bit patterns."""
    bits = tensor.detach().contiguous().view(-1).view(_INTEGER[tensor.element_size()])
    if bits.device.type == "cpu":
        return _fingerprint_on_cpu(bits.numpy())
    # In chunks, because an int64 copy of a whole embedding is gigabytes. New memory for each chunk
    # would take longer than the sums, and each number that is read from a GPU stops the host.
    sums = torch.zeros(2, dtype=torch.int64, device=bits.device)
    memory = torch.empty(min(_CHUNK, len(bits)), dtype=torch.int64, device=bits.device)
    for chunk in torch.split(bits, _CHUNK):
        wide = memory[: len(chunk)].copy_(chunk)
        sums[0] += wide.sum()
        sums[1] += wide.mul_(wide).sum()
    first, second = sums.tolist()
    return first % 2**64, second % 2**64


def _fingerprint_on_cpu(bits: np.ndarray) -> Fingerprint:
    """The same in one thread: those of torch wait for each other at each of many short sums."""
    first = second = 0
    memory = np.empty(min(_CHUNK, len(bits)), np.int64)
    for start in range(0, len(bits), _CHUNK):
        chunk = bits[start : start + _CHUNK]
        wide = memory[: len(chunk)]
        wide[:] = chunk
        first, second = first + int(wide.sum()), second + int(wide @ wide)
    return first % 2**64, second % 2**64


def add(*parts: Fingerprint) -> Fingerprint:
    """Fingerprint of tensors taken together."""
    return sum(p[0] for p in parts) % 2**64, sum(p[1] for p in parts) % 2**64


def parameter_names(names: Iterable[str]) -> frozenset[str]:
    """Names of a checkpoint's tensors without buffers, which models compute themselves."""
    return frozenset(name for name in names if not _BUFFER.search(name))


@dataclass
class Ledger:
    """Fingerprints of the tensors that an engine gets from a file.

    Parameters
    ----------
    dtype
        The dtype of the engine, in which tensors are fingerprinted.
    tied
        Whether the output head shares the input embedding.
    device
        Tensors are copied to this device in the file's dtype, then cast and fingerprinted there.
    """

    dtype: torch.dtype
    tied: bool
    device: torch.device = CPU
    marks: dict[str, Fingerprint] = field(default_factory=dict)
    embedding: Fingerprint | None = None
    has_head: bool = False

    @property
    def total(self) -> Fingerprint:
        """Fingerprint of all tensors together."""
        return add(*self.marks.values())

    def empty(self) -> "Ledger":
        """A ledger with the same settings and no tensors."""
        return Ledger(self.dtype, self.tied, self.device)

    def record(
        self, weights: Iterable[tuple[str, torch.Tensor]]
    ) -> Iterator[tuple[str, torch.Tensor]]:
        """Pass weights on, cast to the engine's dtype; a tied embedding comes again as the head."""
        shared = None
        for name, tensor in weights:
            if _BUFFER.search(name):
                continue
            cast = tensor.to(self.device)
            cast = cast.to(self.dtype) if tensor.is_floating_point() else cast
            mark = fingerprint(cast)
            if name in self.marks:
                raise WeightsError(
                    f"tensor {name!r} occurs twice; a checkpoint contains each name once"
                )
            self.marks[name] = mark
            self.has_head |= is_head(name)
            if self.tied and is_embedding(name) and self.embedding is None:
                self.embedding, shared = mark, cast
            yield name, cast
        if self.tied and not self.has_head and shared is not None:
            # Without it a tied head keeps the previous checkpoint's weights after a swap.
            yield "lm_head.weight", shared

    def check(self, loaded: Fingerprint, *, checkpoint: str, instead: str) -> None:
        """Compare with the weights in the engine, each parameter counted under each of its names.

        `instead` is advice to the user for a checkpoint that this engine cannot prove.

        Raises
        ------
        WeightsError
            The engine has other weights.
        """
        total = self.total
        allowed = {total}
        if self.embedding is not None and not self.has_head:
            allowed.add(add(total, self.embedding))
        if self.embedding is not None and self.has_head:
            minus = tuple((t - e) % 2**64 for t, e in zip(total, self.embedding, strict=True))
            allowed.add((minus[0], minus[1]))
        if loaded not in allowed:
            raise WeightsError(
                f"{checkpoint}: after the swap the engine's weights are not those of the file "
                f"({len(self.marks)} tensors; fingerprint {total[0]:016x}, engine {loaded[0]:016x}"
                f"). Nothing was scored with them; {instead}, and report this architecture"
            )
