"""Passes that are recorded once for each shape and then replayed: one launch in place of hundreds.

A replay runs the kernels of the recorded pass on the addresses that it had, and nothing of Python.
So inputs are copied to where they were, weights are swapped in place, and what is handed out is a
copy. **None of this has met a card**: it is asked for by `LOGITBANK_CUDA_GRAPHS=1`, and what a
graph gives is compared with the pass itself before it is believed.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

import torch

from logitbank.engine.backends.hf.shapes import Shape
from logitbank.errors import UsageError

AGAIN = 2
"""Passes of a shape before it is recorded: most shapes come once, at the end of a set."""
MOST = 8
"""Shapes that are recorded at most; each keeps its outputs, of 1,024 × 50,304 logits 206 MB."""
PART = 3
"""Nothing more is recorded where graphs hold more than this part of what is free: a quarter of
what was."""
_ASKED = "LOGITBANK_CUDA_GRAPHS"

Outputs = tuple[torch.Tensor, torch.Tensor | None]
"""Logits of a batch's queries, and what was multiplied to make them."""


class Recording(NamedTuple):
    """A pass that can be run again."""

    replay: Callable[[], None]
    outputs: Outputs
    """Written by each replay."""
    bytes: int
    """Of the device's memory, which it holds until it is forgotten."""


class Recorder(Protocol):
    """What a device has to offer for it."""

    def record(self, work: Callable[[], Outputs]) -> Recording: ...

    @property
    def free_bytes(self) -> int: ...


class _Graph:
    def __init__(self, sent: torch.Tensor, recording: Recording) -> None:
        self.sent, self.recording = sent, recording
        self.proved = False


class Graphs:
    """Runs passes, by a graph where their shape has one.

    A graph's first replay, and the first of all after weights were swapped, is run without it too;
    if one bit differs there are no graphs from then on. So too where a pass cannot be recorded.
    """

    def __init__(
        self, run: Callable[[Shape, torch.Tensor], Outputs], open_recorder: Callable[[], Recorder]
    ) -> None:
        """`run` is a pass of inputs that were sent, as `PackedInputs.of` reads them."""
        self._run, self._open_recorder = run, open_recorder
        self._recorder = open_recorder()
        self._seen = Counter[Shape]()
        self._graphs: dict[Shape, _Graph] = {}
        self._new_weights = False
        self.refused = ""
        """Why there are none any more."""
        self.replayed = 0
        """Passes whose outputs a graph gave."""

    def outputs(self, shape: Shape, sent: torch.Tensor) -> Outputs:
        """What a pass gives, in memory of its own."""
        graph = self._graphs.get(shape)
        if graph is None:
            outputs = self._run(shape, sent)
            self._seen[shape] += 1
            if self._worth(shape):
                self._record(shape, sent)
            return outputs
        graph.sent.copy_(sent)
        graph.recording.replay()
        logits, hidden = graph.recording.outputs
        replayed = logits.clone(), None if hidden is None else hidden.clone()
        if graph.proved and not self._new_weights:
            self.replayed += 1
            return replayed
        outputs = self._run(shape, sent)
        if _same_bits(replayed, outputs):
            graph.proved, self._new_weights = True, False
        else:
            self._refuse(f"one of {shape.rows} × {shape.width} tokens gave other logits")
        return outputs

    def weights_changed(self) -> None:
        self._new_weights = True

    def forget(self) -> None:
        """Give back the memory of all graphs; shapes are recorded anew when they come again."""
        self._seen.clear()
        self._graphs.clear()
        self._recorder = self._open_recorder()

    def _worth(self, shape: Shape) -> bool:
        if self.refused or self._seen[shape] < AGAIN or len(self._graphs) >= MOST:
            return False
        held = sum(graph.recording.bytes for graph in self._graphs.values())
        return held * PART <= self._recorder.free_bytes

    def _record(self, shape: Shape, sent: torch.Tensor) -> None:
        own = sent.clone()
        try:
            recording = self._recorder.record(lambda: self._run(shape, own))
        except RuntimeError as error:  # whatever CUDA does not let a pass do, or lack of memory
            self._refuse(f"{error}".splitlines()[0])
        else:
            self._graphs[shape] = _Graph(own, recording)

    def _refuse(self, reason: str) -> None:
        self.forget()
        self.refused = reason


class CudaRecorder:
    """CUDA graphs on a stream of their own, which share one pool of memory.

    They may, as each is replayed on the model's stream and its outputs are copied there before the
    next is. Threads beside, which wait for copies and give memory back, may go on meanwhile.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._pool = torch.cuda.graph_pool_handle()

    def record(self, work: Callable[[], Outputs]) -> Recording:
        model = torch.cuda.current_stream(self._device)
        # A recording that fails leaves its stream as the current one (`torch.cuda.graph` of 2.13).
        with torch.cuda.stream(model):
            self._stream.wait_stream(model)
            with torch.cuda.stream(self._stream):
                work()  # libraries take the memory that they keep for a stream outside of the graph
            model.wait_stream(self._stream)
            torch.cuda.synchronize(self._device)
            torch.cuda.empty_cache()
            before = torch.cuda.memory_reserved(self._device)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(
                graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"
            ):
                outputs = work()
        held = torch.cuda.memory_reserved(self._device) - before
        return Recording(graph.replay, outputs, held)

    @property
    def free_bytes(self) -> int:
        return torch.cuda.mem_get_info(self._device)[0]


def asked(environment: Mapping[str, str]) -> bool:
    """Whether graphs are asked for.

    Raises
    ------
    UsageError
        By something else than 0 or 1.

    Examples
    --------
    >>> asked({}), asked({"LOGITBANK_CUDA_GRAPHS": "1"})
    (False, True)
    """
    value = environment.get(_ASKED, "0")
    if value not in ("0", "1"):
        raise UsageError(f"{_ASKED} is {value!r}; set it to 1 for CUDA graphs, or to 0")
    return value == "1"


def _same_bits(ours: Outputs, theirs: Outputs) -> bool:
    """Whether two passes gave the same, NaN too; the host waits for it."""
    for a, b in zip(ours, theirs, strict=True):
        if a is None or b is None:
            if a is not b:
                return False
        elif a.dtype != b.dtype or not torch.equal(_bits(a), _bits(b)):
            return False
    return True


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().view(torch.uint8)
