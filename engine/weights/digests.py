"""Digests of weights: of all tensors, and of a sample that is quick to read."""

import hashlib
import json
import os
import sys
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from logitbank.engine.weights.weights import stream_weights, weight_files
from logitbank.errors import WeightsError
from logitbank.store.read.copied_weights import CONSTANT

if TYPE_CHECKING:
    import torch

_NICE = 10
"""Scoring goes first where both want a core."""
_VARIED = 16
"""Different values among a thousand that a trained matrix has at least."""
_THREADS = 4
"""SHA-256 takes 0.5 s a GB on one core, longer than the copy to a GPU."""
_AHEAD = 2
"""Threads ahead of a load. By an estimate, scoring 6.9B in bfloat16 takes 5 s on an H100, and one
thread would hash its 13.7 GB in 7 s."""


def sample_digest(folder: Path) -> str | None:
    """16 hex digits that differ for different weights, without reading them all.

    SHA-256 of the weight files' names, sizes and 16 evenly spaced pieces of 4 KiB; it is that of
    any copy of the files. None if the folder contains no weights.
    """
    try:
        files = weight_files(folder)
    except WeightsError:
        return None
    total = hashlib.sha256()
    for path in files:
        size = path.stat().st_size
        total.update(f"{path.name} {size}\n".encode())
        with path.open("rb") as file:
            for i in range(16):
                file.seek(i * max(0, size - 4096) // 15)
                total.update(file.read(4096))
    return total.hexdigest()[:16]


class ContentDigest:
    """SHA-256 of the content of tensors, independent of their files and order.

    Each tensor's digest is over its dtype, shape and raw little-endian bytes; the whole is over
    the sorted names and digests. Two checkpoints with equal digests have equal weights.
    """

    def __init__(self, known: Mapping[str, str] = {}) -> None:
        """`known` are digests of tensors that need not be computed again."""
        self._known = known
        self._digests: dict[str, str] = {}
        self._constant: dict[str, bool] = {}
        """Whether each matrix has few different values, as before training."""

    def update(self, name: str, tensor: "torch.Tensor") -> None:
        """Add one tensor; contiguous CPU memory is hashed in place.

        Raises
        ------
        WeightsError
            The name was added before.
        """
        if name in self._digests:
            raise WeightsError(
                f"tensor {name!r} occurs twice; a checkpoint contains each name once"
            )
        self._digests[name] = ""  # taken, while it is hashed
        self._digests[name] = self._known.get(name) or _tensor_digest(tensor)
        if tensor.ndim > 1:
            flat = tensor.detach().reshape(-1)
            sample = flat[:: max(1, len(flat) // 1024)].double()
            self._constant[name] = len({*sample.tolist()}) < _VARIED

    def watch(
        self, weights: "Iterable[tuple[str, torch.Tensor]]"
    ) -> "Iterator[tuple[str, torch.Tensor]]":
        """Pass tensors on, and add each in another thread.

        When the iteration ends, all tensors are added.
        """
        with ThreadPoolExecutor(_THREADS, "weights-digest") as pool:
            hashed: deque[Future[None]] = deque()
            for name, tensor in weights:
                hashed.append(pool.submit(self.update, name, tensor))
                while len(hashed) > _THREADS:  # each holds a tensor
                    hashed.popleft().result()
                yield name, tensor
            for each in hashed:
                each.result()

    def matrices(self) -> str:
        """Ten hex digits for each matrix, by name; `-` for one with few different values."""
        return " ".join(
            CONSTANT if constant else self._digests[name][:10]
            for name, constant in sorted(self._constant.items())
        )

    def hexdigest(self) -> str:
        """64 hex digits for the tensors added so far."""
        text = json.dumps(sorted(self._digests.items()), separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


def _tensor_digest(tensor: "torch.Tensor") -> str:
    import torch

    dtype = str(tensor.dtype).removeprefix("torch.")
    digest = hashlib.sha256(f"{dtype} {list(tensor.shape)}\n".encode())
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    digest.update(flat.view(torch.uint8).numpy().data)
    return digest.hexdigest()


class DigestsAhead:
    """Digests of a checkpoint's tensors, computed in threads while another one is scored.

    It reads the files, so that the system has them in memory when they are loaded.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._files = folder, _file_states(folder)
        self._digests: dict[str, str] = {}
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="digests-ahead", daemon=True)
        self._thread.start()

    def take(self, folder: Path) -> dict[str, str]:
        """Stop, and return the digests of the tensors in `folder`.

        They are those so far; none if it is another folder or its files have changed.
        """
        self._stopped = True
        self._thread.join()
        current = folder == self._folder and _file_states(folder) == self._files
        return self._digests if current and self._files else {}

    def _run(self) -> None:
        with (
            suppress(WeightsError, OSError),  # raised when the weights are loaded
            ThreadPoolExecutor(_AHEAD, "digests-ahead", initializer=_lower_priority) as pool,
        ):
            hashed: deque[Future[None]] = deque()
            for name, tensor in stream_weights(self._folder):
                if self._stopped:
                    break
                hashed.append(pool.submit(self._add, name, tensor))
                while len(hashed) > _AHEAD:
                    hashed.popleft().result()

    def _add(self, name: str, tensor: "torch.Tensor") -> None:
        self._digests[name] = _tensor_digest(tensor)


def _lower_priority() -> None:
    """Lower the priority of this thread."""
    if sys.platform == "linux":  # elsewhere it would be that of the process
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)


def _file_states(folder: Path) -> list[tuple[object, ...]]:
    """Times and sizes, which change with the files of weights; empty without weights."""
    with suppress(WeightsError, OSError):
        states = [(path, path.stat()) for path in weight_files(folder)]
        return [(path, s.st_ino, s.st_size, s.st_mtime_ns) for path, s in states]
    return []
