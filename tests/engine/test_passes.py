"""A host that runs ahead of its GPU: nothing in a pass asks it to wait. No GPU is used."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from logitbank.engine.backends.hf.batches import plan_batches
from logitbank.engine.backends.hf.memory import BatchSize
from logitbank.engine.backends.hf.passes import Passes
from logitbank.engine.backends.hf.uploads import Uploads
from logitbank.engine.backends.protocol import ComputeDtype
from tests.support.checkpoints import PACKED_ARCHITECTURES, VOCAB, Architecture, make_checkpoint
from tests.support.no_questions import no_questions
from tests.support.packed_driver import loaded, tree

GPU, META = torch.device("cuda", 0), torch.device("meta")


def passes_without_data(folder: Path, dtype: ComputeDtype) -> Passes:
    """Of a checkpoint's model on a device whose tensors hold nothing."""
    backend, note = loaded(folder, dtype=dtype)
    assert note == ""
    passes = backend._passes
    assert passes is not None
    passes._model.to(META)  # type: ignore[arg-type]
    passes._device = META
    return passes


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("architecture", PACKED_ARCHITECTURES)
def test_a_pass_never_asks_what_a_tensor_holds(
    architecture: Architecture,
    dtype: ComputeDtype,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = make_checkpoint(tmp_path / "step0", seed=1, architecture=architecture)
    passes = passes_without_data(folder, dtype)
    sent: list[int] = []

    def send(count: int, _: Callable[[np.ndarray], None]) -> torch.Tensor:
        sent.append(count)
        return torch.empty(count, dtype=torch.int64, device=META)

    monkeypatch.setattr(passes._uploads, "send", send)
    queries = tree()
    batches = [*plan_batches(queries, BatchSize(4096, 64), packed=300, padding="widths")]
    assert len(batches) > 1
    for batch in batches:
        with torch.inference_mode(), no_questions():
            logits, hidden = passes.outputs(batch, "next_token")
        assert logits.shape == (len(batch.queries), VOCAB)
        assert hidden is not None
        assert logits.dtype == hidden.dtype == torch.float32
    assert len(sent) == len(batches), "one copy for each"


QUESTIONS: dict[str, Callable[[torch.Tensor], object]] = {
    "item": lambda tensor: tensor.sum().item(),
    "tolist": lambda tensor: tensor.tolist(),
    "truth": lambda tensor: bool((tensor > 0).all()),
    "nonzero": lambda tensor: tensor.nonzero(),
    "boolean index": lambda tensor: tensor[tensor > 0],
    "equal": lambda tensor: torch.equal(tensor, tensor),
    "to the host": lambda tensor: tensor.cpu(),
    "list as index": lambda tensor: tensor[[0, 1]],
    "from pageable memory": lambda tensor: torch.ones(3).to(tensor.device),
    "new from a list": lambda tensor: torch.tensor([1, 2], device=tensor.device),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_questions_and_copies_are_found_out(question: str) -> None:
    with pytest.raises((AssertionError, RuntimeError, NotImplementedError)), no_questions():
        QUESTIONS[question](torch.empty(3, device=META))


class PlayedCopies:
    """A GPU that copies as late as it may: when somebody waits for what comes after."""

    def __init__(self) -> None:
        self.begun: list[tuple[torch.Tensor, torch.Tensor]] = []
        self.waited = 0

    def begin(self, host: torch.Tensor) -> torch.Tensor:
        on_device = torch.full_like(host, -1)
        self.begun.append((host, on_device))
        return on_device

    def until(self, count: int) -> None:
        self.waited += 1
        for host, on_device in self.begun[:count]:
            on_device.copy_(host)
        self.begun[:count] = [(d, d) for _, d in self.begun[:count]]


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> PlayedCopies:
    played = PlayedCopies()

    class Event:
        def __init__(self, *, blocking: bool) -> None:
            assert blocking, "a host that waits would keep its core busy"

        def record(self, stream: str) -> None:
            assert stream == "model"
            self.after = len(played.begun)

        def synchronize(self) -> None:
            played.until(self.after)

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: "model")
    uploads = "logitbank.engine.backends.hf.uploads"
    monkeypatch.setattr(f"{uploads}.pinned", lambda count: torch.zeros(count, dtype=torch.int64))
    monkeypatch.setattr(f"{uploads}.begun_copy", lambda host, _: played.begin(host))
    return played


def test_a_buffer_is_filled_again_only_when_it_has_been_sent(copies: PlayedCopies) -> None:
    uploads = Uploads(GPU)
    sizes = (5, 3, 9, 4, 9, 17, 2)
    found = []
    for n, size in enumerate(sizes):
        found.append(uploads.send(size, lambda numbers, n=n: numbers.fill(n)))  # type: ignore[misc]
        assert copies.waited == max(0, n - 1), "the host is two batches ahead"
    copies.until(len(sizes))
    assert [t.tolist() for t in found] == [[n] * size for n, size in enumerate(sizes)]


def test_without_a_gpu_each_batch_has_memory_of_its_own() -> None:
    uploads = Uploads(torch.device("cpu"))
    first, second = (uploads.send(2, lambda numbers, n=n: numbers.fill(n)) for n in (1, 2))  # type: ignore[misc]
    assert [first.tolist(), second.tolist()] == [[1, 1], [2, 2]]
