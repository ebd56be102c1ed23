"""Recorded passes give what the passes give, or are given up. Graphs are played: no GPU is used."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from logitbank.engine.backends.hf.backend import TransformersBackend
from logitbank.engine.backends.hf.graphs import (
    AGAIN,
    MOST,
    Graphs,
    Outputs,
    Recording,
    asked,
)
from logitbank.engine.backends.hf.shapes import Shape
from logitbank.engine.backends.protocol import ComputeDtype, EngineSettings
from logitbank.engine.plan.extraction import Extraction
from logitbank.engine.run import run
from logitbank.engine.suites.suites import resolve_suite
from logitbank.errors import UsageError
from logitbank.store import Bank, Query
from tests.engine.test_extract import TEXTS, questions, write_series
from tests.support.checkpoints import PACKED_ARCHITECTURES, VOCAB, Architecture, make_series
from tests.support.fakes import FakeBackend, InProcess
from tests.support.packed_driver import loaded, scored, tree
from tests.support.tape import TapeRecorder


def graphs_of(backend: TransformersBackend) -> Graphs:
    assert backend._passes is not None
    assert backend._passes.graphs is not None
    return backend._passes.graphs


def other_words(queries: list[Query]) -> list[Query]:
    """Of the same shapes, with the tokens of each context replaced by others."""
    return [Query(tuple((t * 7 + 3) % 600 for t in q.ids), q.position) for q in queries]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("architecture", PACKED_ARCHITECTURES)
def test_replays_give_the_bits_of_each_pass_whatever_weights_come(
    architecture: Architecture, dtype: ComputeDtype, tmp_path: Path
) -> None:
    """The third checkpoint is read as a whole model, not put into the second's place by tensors."""
    suite = make_series(tmp_path, steps=(0, 1, 2), architecture=architecture)
    plain, note = loaded(suite / "step0", dtype=dtype)
    backend, _ = loaded(suite / "step0", dtype=dtype)
    assert note == ""
    plain._padding = "all"
    backend.run_by_graphs(TapeRecorder)
    expected = []
    for step in range(3):
        if step:
            backend._resident = backend._resident if step == 1 else None
            plain.load(suite / f"step{step}", checkpoint="plain")
            assert backend.load(suite / f"step{step}", checkpoint="graphs").note == ""
        for queries in (tree(), other_words(tree())):
            expected.append(scored(plain, queries)[0])
            for _ in range(AGAIN):
                np.testing.assert_array_equal(scored(backend, queries)[0], expected[-1])
    assert backend.describe()["cuda_graphs"] is True, graphs_of(backend).refused
    # Of 12 calls the first two record, and one for each checkpoint is a proof.
    assert graphs_of(backend).replayed >= 7
    assert np.abs(expected[0] - expected[2]).max() > 0.1
    assert np.abs(expected[0] - expected[1]).max() > 0.1


SHAPE = Shape(1, 16, 1)


class Played:
    """A pass that gives the number it is sent times a weight, and how often it ran itself."""

    def __init__(self, recorder: Callable[[], TapeRecorder] = TapeRecorder) -> None:
        self.weight = torch.tensor([2.0])
        self.runs = 0
        self.graphs = Graphs(self._run, recorder)

    def _run(self, shape: Shape, sent: torch.Tensor) -> Outputs:
        self.runs += 1
        assert sent.shape == (shape.numbers,)
        return sent[:1] * self.weight, None

    def __call__(self, number: int, shape: Shape = SHAPE) -> float:
        logits, hidden = self.graphs.outputs(shape, torch.full((shape.numbers,), number))
        assert hidden is None
        return logits.item()


def test_a_shape_is_recorded_when_it_comes_again_and_proved_on_other_inputs() -> None:
    played = Played()
    assert [played(1), played.runs] == [2, 1]
    assert [played(2), played.runs] == [4, 4], "itself, once before the recording, and recorded"
    assert [played(3), played.runs, played.graphs.replayed] == [6, 5, 0], "the proof"
    assert [played(4), played.runs, played.graphs.replayed] == [8, 5, 1]
    played.weight.fill_(5)
    played.graphs.weights_changed()
    assert [played(4), played.runs] == [20, 6], "proved again"
    assert [played(5), played.runs] == [25, 6]


def test_what_was_handed_out_is_not_written_by_the_next_replay() -> None:
    played = Played()
    for number in (1, 2, 3):
        played(number)
    sent = [torch.full((SHAPE.numbers,), n) for n in (4, 5)]
    first, second = (played.graphs.outputs(SHAPE, each)[0] for each in sent)
    assert [first.item(), second.item()] == [8, 10]


def test_a_graph_that_reads_the_weights_of_before_is_given_up() -> None:
    played = Played()
    for number in (1, 2, 3, 4):
        played(number)
    played.weight = torch.tensor([3.0])  # in other memory
    played.graphs.weights_changed()
    assert played(5) == 15
    assert played.graphs.refused == "one of 1 × 16 tokens gave other logits"
    assert [played(n) for n in (1, 2, 3, 4)] == [3, 6, 9, 12]
    assert played.graphs.replayed == 1


def test_a_pass_whose_python_looks_at_its_inputs_is_given_up() -> None:
    played = Played()

    def run(_: Shape, sent: torch.Tensor) -> Outputs:
        return torch.full((1,), float(sent[0])), None

    played.graphs = Graphs(run, TapeRecorder)
    assert [played(n) for n in (1, 2, 3, 4)] == [1, 2, 3, 4]
    assert "gave other logits" in played.graphs.refused


def test_states_that_differ_give_a_graph_up_too_and_nan_is_equal_to_itself() -> None:
    state = torch.tensor([1.0])

    def run(_: Shape, sent: torch.Tensor) -> Outputs:
        return sent * float("nan"), state.clone()

    graphs, sent = Graphs(run, TapeRecorder), torch.ones(SHAPE.numbers)
    for _ in range(4):
        graphs.outputs(SHAPE, sent)
    assert graphs.replayed == 1
    state = torch.tensor([2.0])
    graphs.weights_changed()
    _, hidden = graphs.outputs(SHAPE, sent)
    assert hidden is not None
    assert hidden.item() == 2
    assert "gave other logits" in graphs.refused


class Failing(TapeRecorder):
    def record(self, work: Callable[[], Outputs]) -> Recording:
        raise RuntimeError("CUDA error: operation not permitted when stream is capturing\nmore")


def test_a_pass_that_cannot_be_recorded_goes_on_without() -> None:
    played = Played(Failing)
    assert [played(n) for n in (1, 2, 3, 4)] == [2, 4, 6, 8]
    assert played.runs == 4
    assert (
        played.graphs.refused == "CUDA error: operation not permitted when stream is capturing"
    ), "in one line"


def test_graphs_hold_no_more_than_a_third_of_what_is_free() -> None:
    """At 10 bytes each, of 62 that were free: after the second, 20 of 42 would be more."""
    recorder = TapeRecorder(held=10, free=62)
    record = recorder.record

    def less(work: Callable[[], Outputs]) -> Recording:
        recorder.free_bytes -= 10
        return record(work)

    recorder.record = less  # type: ignore[method-assign]
    played = Played(lambda: recorder)
    for rows in (1, 2, 3, 4):
        for _ in range(3):
            played(1, Shape(rows, 16, 1))
    assert recorder.free_bytes == 42
    assert not played.graphs.refused


def test_there_are_few_graphs_and_their_memory_is_given_back() -> None:
    opened: list[TapeRecorder] = []

    def open_recorder() -> TapeRecorder:
        opened.append(TapeRecorder())
        return opened[-1]

    played = Played(open_recorder)
    shapes = [Shape(rows, 16, 1) for rows in range(1, MOST + 3)]
    for shape in shapes:
        for _ in range(4):
            played(1, shape)
    assert played.graphs.replayed == MOST
    played.graphs.forget()
    assert len(opened) == 2, "memory is taken from a new pool"
    runs = played.runs
    assert played(7) == 14
    assert played.runs == runs + 1


def test_where_memory_is_short_graphs_are_forgotten_before_batches_shrink(tmp_path: Path) -> None:
    suite = make_series(tmp_path, steps=(0,))
    backend, _ = loaded(suite / "step0")
    backend.run_by_graphs(TapeRecorder)
    expected = scored(backend, tree())[0]
    for _ in range(3):
        scored(backend, tree())
    graphs = graphs_of(backend)
    assert graphs._graphs
    seen: list[int] = []

    def short(*_: object) -> None:
        seen.append(len(graphs._graphs))
        if len(seen) == 1:
            raise torch.OutOfMemoryError("CUDA out of memory")

    graphs.weights_changed()  # so that the pass runs by itself, too
    assert backend._model is not None
    hook = backend._model.register_forward_pre_hook(short)
    np.testing.assert_allclose(scored(backend, tree())[0], expected, atol=1e-4)
    hook.remove()
    assert seen[0] > 0
    assert seen[1] == 0
    assert graphs.refused == ""


def test_a_run_says_in_one_line_that_it_goes_on_without_graphs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    why = "CUDA error: operation not permitted when stream is capturing"
    backend = FakeBackend(VOCAB)
    said: list[Any] = [True, why, why, why]
    monkeypatch.setattr(backend, "describe", lambda: {"cuda_graphs": said.pop(0)})
    monkeypatch.setattr(InProcess, "backend", backend)
    monkeypatch.setattr("logitbank.engine.run.WorkerProcess", InProcess)
    suite = resolve_suite(str(write_series(tmp_path / "tiny", "step0", "step1")))
    settings = EngineSettings("transformers", canary_every=0)
    summary = run(tmp_path / "b.zarr", Extraction(suite, (questions(*TEXTS),), settings))
    told = [d.spec.provenance["cuda_graphs"] for d in Bank.open(tmp_path / "b.zarr").deposits()]
    assert told == [True, why]
    assert summary.notes == [f"tiny step 0: goes on without CUDA graphs: {why}"]


def test_why_a_pass_is_not_recorded_is_in_provenance(tmp_path: Path) -> None:
    backend, _ = loaded(make_series(tmp_path, steps=(0,)) / "step0")
    backend.run_by_graphs(Failing)
    assert backend.describe()["cuda_graphs"] is True
    for _ in range(AGAIN):
        scored(backend, tree())
    assert backend.describe()["cuda_graphs"] == graphs_of(backend).refused != ""


def test_graphs_are_asked_for_by_0_or_1() -> None:
    assert not asked({"LOGITBANK_CUDA_GRAPHS": "0"})
    with pytest.raises(UsageError, match="^LOGITBANK_CUDA_GRAPHS is 'yes'; set it to 1 for CUDA"):
        asked({"LOGITBANK_CUDA_GRAPHS": "yes"})


def test_without_a_gpu_there_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGITBANK_CUDA_GRAPHS", "1")
    backend, _ = loaded(make_series(tmp_path, steps=(0,)) / "step0")
    assert "cuda_graphs" not in backend.describe()
