"""Long steps before anything is scored: which is told, when, and how much of it is done."""

import threading
from pathlib import Path

import pytest

from logitbank.engine import doing
from logitbank.engine.backends.protocol import EngineSettings
from logitbank.engine.doing import Cadence, each, step, steps_told
from logitbank.engine.plan.extraction import Extraction
from logitbank.engine.run import run
from logitbank.engine.suites.suites import resolve_suite
from logitbank.engine.tokenizers.tokenizer import Tokenizer
from logitbank.engine.workers.events import Event, Preparing
from tests.support.fakes import FakeBackend, InProcess, questions, write_series

DEADLINE_S = 60.0


def test_lines_come_after_five_seconds_and_then_ever_more_seldom() -> None:
    now = [0.0]
    cadence = Cadence(lambda: now[0])
    due = []
    for now[0] in range(200):
        if cadence.is_due():
            due.append(now[0])
    assert due == [5, 15, 35, 65, 95, 125, 155, 185]


def test_the_innermost_long_step_is_told_with_how_much_is_done() -> None:
    told: list[str] = []
    heard = threading.Event()

    def listen(text: str) -> None:
        told.append(text)
        heard.set()

    with steps_told(listen, first_s=0.0), step("planning"):
        items = each(range(5_000), "looking", 5_000)
        for _ in zip(range(1_235), items, strict=False):
            pass
        assert heard.wait(DEADLINE_S)
        items.close()  # type: ignore[attr-defined]
    assert told[0] == "looking: 1,234 of 5,000"


def test_a_short_step_is_not_told_nor_what_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """The outer one has lasted long enough, and the inner one has not."""
    now = [0.0]
    monkeypatch.setattr(doing.time, "monotonic", lambda: now[0])
    told: list[str] = []
    heard = threading.Event()

    def listen(text: str) -> None:
        told.append(text)
        heard.set()

    with steps_told(listen):
        with step("over"):
            pass
        with step("tokenizing"):
            now[0] = 5.0
            with step("encoding"):
                assert heard.wait(DEADLINE_S)
    assert told == ["tokenizing"]


def test_a_run_tells_a_long_step_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planning waits until it was told, as it would where it takes long."""
    monkeypatch.setattr(doing, "FIRST_S", 0.0)
    heard, told = threading.Event(), list[str]()
    load = Tokenizer.load

    def slow(folder: Path) -> Tokenizer:
        assert heard.wait(DEADLINE_S)
        return load(folder)

    def listen(event: Event) -> None:
        if isinstance(event, Preparing):
            told.append(event.text)
            heard.set()

    monkeypatch.setattr(InProcess, "backend", FakeBackend())
    monkeypatch.setattr("logitbank.engine.workers.pool.WorkerProcess", InProcess)
    monkeypatch.setattr(Tokenizer, "load", slow)
    series = write_series(tmp_path / "series", "step0")
    extraction = Extraction(
        resolve_suite(str(series)), (questions("A"),), EngineSettings("transformers")
    )
    run(tmp_path / "b.zarr", extraction, dry_run=True, on_event=listen)
    assert told[0] == "planning"


def test_texts_of_several_batches_have_the_ids_that_each_has_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = Tokenizer.load(write_series(tmp_path, "step0") / "step0")
    texts = ["a nurse", "", "the doctor said", " he", "x" * 50, "she was", "busy"]
    alone = [tokenizer.encode(text) for text in texts]
    monkeypatch.setattr("logitbank.engine.tokenizers.tokenizer._BATCH", 3)
    assert tokenizer.encode_many(texts) == alone
    assert tokenizer.encode_many([]) == []
