"""Work beside a GPU's own, on streams that are played: what waits for what."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from logitbank.engine.backends.copies import AHEAD, Beside, beside

GPU = torch.device("cuda", 0)


class PlayedStream:
    """Notes what it is told; `done` are the events that somebody has waited for."""

    def __init__(self, log: list[str], *_: Any) -> None:
        self.log = log

    def wait_stream(self, other: str) -> None:
        self.log.append(f"after {other}")


class PlayedTensor:
    def __init__(self, log: list[str]) -> None:
        self.log = log

    def record_stream(self, _: PlayedStream) -> None:
        self.log.append("kept")


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the played streams and events were told, in order."""
    told: list[str] = []
    count = iter(range(100))

    class PlayedEvent:
        def __init__(self, *, blocking: bool) -> None:
            assert blocking, "a thread that waits would keep its core busy"
            self.number = next(count)

        def record(self, _: PlayedStream) -> None:
            told.append(f"end {self.number}")

        def synchronize(self) -> None:
            told.append(f"wait {self.number}")

    @contextmanager
    def stream(_: PlayedStream) -> Iterator[None]:
        yield

    monkeypatch.setattr(torch.cuda, "Stream", lambda *_: PlayedStream(told))
    monkeypatch.setattr(torch.cuda, "Event", PlayedEvent)
    monkeypatch.setattr(torch.cuda, "stream", stream)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: "model")
    return told


def test_no_more_batches_than_two_hold_their_logits(log: list[str]) -> None:
    stream, pieces = Beside(GPU), []
    for _ in range(AHEAD + 1):
        with stream.after() as piece:
            pieces.append(piece)
    assert log == ["after model", "end 0", "after model", "end 1", "wait 0", "after model", "end 2"]
    log.clear()
    pieces[1].wait()
    assert log == ["wait 1"], "what was begun later is not waited for"


def test_logits_are_kept_until_they_are_reduced_though_that_fails(log: list[str]) -> None:
    stream, logits = Beside(GPU), PlayedTensor(log)
    with pytest.raises(RuntimeError, match="out of memory"), stream.after(logits):  # type: ignore[arg-type]
        raise RuntimeError("CUDA out of memory")
    assert log == ["after model", "kept"]
    with stream.after():
        pass
    assert log[2:] == ["after model", "end 1"], "nothing waits for what never ends"


def test_all_blocks_share_one_stream_of_a_device() -> None:
    assert beside(torch.device("cpu")) is beside(torch.device("cpu"))


def test_memory_is_taken_on_the_stream_that_will_use_it(
    log: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    entered = list[object]()

    @contextmanager
    def stream(entering: PlayedStream) -> Iterator[None]:
        entered.append(entering)
        yield
        entered.append("left")

    monkeypatch.setattr(torch.cuda, "stream", stream)
    monkeypatch.setattr(torch, "empty", lambda size, **_: entered.append(size))
    played = Beside(GPU)
    played.reserve(1 << 20)
    assert entered == [played._stream, 1 << 20, "left"]
    Beside(torch.device("cpu")).reserve(1 << 20)
    assert len(entered) == 3, "a CPU's memory is nobody's"
