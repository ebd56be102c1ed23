"""How a pass is recorded as a CUDA graph, on streams that are played. No GPU is used."""

from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest
import torch

from logitbank.engine.backends.hf import graphs as graphs_module
from logitbank.engine.backends.hf.graphs import CudaRecorder, Outputs


class PlayedCuda:
    """Streams, and what was told to them; a recording may fail as late as at its end."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, fails: bool) -> None:
        self.current, self.log, self.fails, self.reserved = "model", list[str](), fails, 100
        cuda: dict[str, Any] = {
            "Stream": lambda _: self.Stream(self),
            "current_stream": lambda _: self.current,
            "stream": self.stream,
            "graph_pool_handle": lambda: "pool",
            "synchronize": lambda _: self.log.append("wait"),
            "empty_cache": lambda: self.log.append("empty"),
            "memory_reserved": lambda _: self.reserved,
            "mem_get_info": lambda _: (7, 9),
            "CUDAGraph": self.Graph,
            "graph": self.graph,
        }
        for name, value in cuda.items():
            monkeypatch.setattr(graphs_module.torch.cuda, name, value)

    class Stream:
        def __init__(self, cuda: "PlayedCuda") -> None:
            self.cuda = cuda

        def wait_stream(self, other: object) -> None:
            self.cuda.log.append(f"side after {other}")

    class Graph:
        def replay(self) -> None: ...

    @contextmanager
    def stream(self, stream: object) -> Any:
        before, self.current = self.current, stream  # type: ignore[assignment]
        try:
            yield
        finally:
            self.current = before

    def graph(self, _: object, **options: object) -> AbstractContextManager[None]:
        assert options["pool"] == "pool"
        assert options["capture_error_mode"] == "thread_local", "writers wait for events meanwhile"
        return self._graph(options["stream"])

    @contextmanager
    def _graph(self, stream: object) -> Any:
        self.current = stream  # type: ignore[assignment]
        yield
        if self.fails:
            raise RuntimeError("CUDA error: capture")
        self.reserved += 40
        self.current = "model"


@pytest.mark.parametrize("fails", [False, True])
def test_a_recording_leaves_the_model_s_stream_as_it_was(
    fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Model(str):
        def wait_stream(self, _: object) -> None:
            cuda.log.append("model after side")

    cuda = PlayedCuda(monkeypatch, fails=fails)
    cuda.current = Model("model")
    recorder = CudaRecorder(torch.device("cuda", 0))
    ran: list[object] = []

    def work() -> Outputs:
        ran.append(cuda.current)
        return torch.ones(1), None

    if fails:
        with pytest.raises(RuntimeError, match="capture"):
            recorder.record(work)
    else:
        assert recorder.record(work).bytes == 40
    assert cuda.current == "model"
    assert ran == [recorder._stream] * 2, "once before, for what libraries keep for a stream"
    assert cuda.log == ["side after model", "model after side", "wait", "empty"]
    assert recorder.free_bytes == 7
