"""The reference check refuses a wrong engine, and no engine for the rounding of low precision."""

import json
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from logitbank.engine.backends.protocol import EngineSettings, Loaded
from logitbank.engine.prompts.prompt_set import PromptSet
from logitbank.engine.prompts.tokenize import tokenize
from logitbank.engine.tokenizers.tokenizer import Tokenizer
from logitbank.engine.workers import reference_check
from logitbank.engine.workers.events import Event, ReferenceChecked, Summary
from logitbank.engine.workers.reference_check import (
    Reference,
    ReferenceProcess,
    compare,
    select_queries,
)
from logitbank.errors import EngineError
from logitbank.store import Bank, Query
from tests.support.checkpoints import make_checkpoint, make_series
from tests.support.fakes import FakeBackend, InProcess
from tests.support.preloaded import Preloaded, require_vllm
from tests.support.resolved import run
from tests.support.run_driver import assert_same, extraction, questions

LOGITS = np.array([1.0, -2.0, 0.5], np.float32)
ONE_OFF = np.array([1.0, -2.0, 1.5], np.float32)


def test_float32_is_allowed_what_another_order_of_sums_explains() -> None:
    near = LOGITS + np.float32(0.01)
    assert compare(Reference(LOGITS), LOGITS, dtype="float32", checkpoint="c") == 0
    message = r"c: .* by 0.01 \(allowed in float32: 0.001\).*use --engine transformers$"
    with pytest.raises(EngineError, match=message):
        compare(Reference(LOGITS), near, dtype="float32", checkpoint="c")
    with pytest.raises(EngineError, match="the engine gives 2 logits, plain transformers 3"):
        compare(Reference(LOGITS), LOGITS[:2], dtype="float32", checkpoint="c")


@pytest.mark.parametrize(
    ("rounding", "allowed"), [(0.3, True), (0.25, False)], ids=["3 × 0.3", "3 × 0.25"]
)
def test_bfloat16_is_allowed_a_multiple_of_the_model_s_own_rounding(
    rounding: float, allowed: bool
) -> None:
    """An engine that is 1 off: 3 × 0.3 + 0.15 is more, 3 × 0.25 + 0.15 less."""
    reference = Reference(LOGITS, rounding)
    if allowed:
        assert compare(reference, ONE_OFF, dtype="bfloat16", checkpoint="c") == 1
        return
    with pytest.raises(EngineError, match=r"differ from plain transformers by 1 \(.*: 0\.9 = 3"):
        compare(reference, ONE_OFF, dtype="bfloat16", checkpoint="c")


@pytest.mark.parametrize("engine", ["vllm", "transformers"])
def test_in_low_precision_no_engine_is_recommended_for_another(engine: str) -> None:
    with pytest.raises(EngineError) as raised:
        compare(Reference(LOGITS, 0.1), ONE_OFF, dtype="bfloat16", checkpoint="c", engine=engine)
    message = str(raised.value)
    assert message.endswith("use --compute-dtype float32")
    assert "--engine" not in message
    assert "3 × the rounding of plain transformers, 0.1, + 0.15" in message


def test_logits_that_are_not_finite_in_both_are_left_to_scoring() -> None:
    odd = Reference(np.array([1.0, np.nan], np.float32))
    assert compare(odd, odd.logits, dtype="float32", checkpoint="c") == 0
    with pytest.raises(EngineError, match="differ from plain transformers by inf.*report this"):
        compare(odd, np.ones(2), dtype="float32", checkpoint="c", engine="transformers")


@pytest.fixture(scope="module")
def steep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose output head is so large that bfloat16 moves its logits by whole units."""
    from safetensors.torch import load_file, save_file

    folder = make_checkpoint(tmp_path_factory.mktemp("steep") / "tiny" / "step0", seed=1)
    file = folder / "model.safetensors"
    weights = load_file(file)
    weights["embed_out.weight"] = weights["embed_out.weight"] * 64
    save_file(weights, file, metadata={"format": "pt"})
    return folder.parent


def ran(path: Path, series: Path, *, seen: list[Event] | None = None) -> Summary:
    request = extraction(series, canary_every=1, compute_dtype="bfloat16")
    return run(path, request, on_event=(seen if seen is not None else []).append)


@pytest.mark.whole
@pytest.mark.usefixtures("quick_workers")
def test_a_model_that_bfloat16_moves_far_is_run_in_it(tmp_path: Path, steep: Path) -> None:
    seen: list[Event] = []
    assert ran(tmp_path / "b", steep, seen=seen).complete
    (checked,) = [event for event in seen if isinstance(event, ReferenceChecked)]
    assert checked.difference > 0.75, "more than a limit that knows nothing of the model"
    assert checked.allowed == pytest.approx(3 * checked.rounding + 0.15)
    (deposit,) = Bank.open(tmp_path / "b").deposits()
    assert deposit.spec.provenance["canary_rounding"] == pytest.approx(checked.rounding, rel=0.01)
    assert "step 0: reference check: logits differ by" in (tmp_path / "b.log").read_text()


class SwappedBackend(FakeBackend):
    """The real logits of the model, in bfloat16, of a checkpoint that is not the one asked for."""

    def __init__(self, other: Path) -> None:
        super().__init__()
        self._other = other

    def logits(self, query: object) -> np.ndarray:
        from logitbank.engine.backends.plain_logits import evaluate

        settings = EngineSettings("transformers", compute_dtype="float32")
        return evaluate(self._other, [query], settings)[0][0]  # type: ignore[list-item]


@pytest.mark.usefixtures("quick_workers")
def test_weights_of_another_checkpoint_are_refused_in_bfloat16_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    series = tmp_path / "tiny"
    make_checkpoint(series / "step0", seed=1)
    other = make_checkpoint(tmp_path / "other", seed=2)
    monkeypatch.setattr(InProcess, "backend", SwappedBackend(other))
    monkeypatch.setattr("logitbank.engine.workers.pool.WorkerProcess", InProcess)
    summary = ran(tmp_path / "b", series)
    (failed,) = summary.failed
    assert "the engine's logits differ from plain transformers by" in failed.message
    assert Bank.open(tmp_path / "b").deposits() == []


@pytest.mark.usefixtures("quick_workers")
def test_an_engine_that_is_wrong_on_one_side_of_a_window_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is right of all other lengths, the shortest and the longest too."""
    series = tmp_path / "tiny"
    own = make_checkpoint(series / "step0", seed=1, architecture="mistral")
    config = json.loads((own / "config.json").read_text())
    lengths = sorted(len(q.ids) for q in tokenize(questions(), Tokenizer.load(own)).queries)
    window = lengths[140]
    (own / "config.json").write_text(json.dumps(config | {"sliding_window": window}))
    other = make_checkpoint(tmp_path / "other", seed=2, architecture="mistral")

    class WrongAtTheWindow(SwappedBackend):
        def logits(self, query: Query) -> np.ndarray:  # type: ignore[override]
            self._other = other if query.position + 1 == window else own
            return super().logits(query)

    monkeypatch.setattr(InProcess, "backend", WrongAtTheWindow(other))
    monkeypatch.setattr("logitbank.engine.workers.pool.WorkerProcess", InProcess)
    (failed,) = ran(tmp_path / "b", series).failed
    assert f"a sequence of {window} tokens: the engine's logits differ" in failed.message


@pytest.mark.usefixtures("quick_workers")
def test_a_reference_process_ends_after_its_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would keep the weights of a model in memory for as many checkpoints as are not checked."""
    series = make_series(tmp_path / "tiny", steps=(0, 1))
    started: list[ReferenceProcess] = []

    class Recorded(ReferenceProcess):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            assert all(each._process.returncode is not None for each in started)
            super().__init__(*arguments, **options)
            started.append(self)

    class Right(SwappedBackend):
        def load(self, folder: Path, **options: Any) -> Loaded:
            self._other = folder
            return super().load(folder, **options)

    monkeypatch.setattr(reference_check, "ReferenceProcess", Recorded)
    monkeypatch.setattr(InProcess, "backend", Right(series))
    monkeypatch.setattr("logitbank.engine.workers.pool.WorkerProcess", InProcess)
    few = PromptSet("mine", questions().prompts[:3])  # `Right` reads a model for every context
    request = extraction(series, canary_every=1, prompts=few)
    ended: list[bool] = []

    def seen(event: Event) -> None:
        if isinstance(event, ReferenceChecked):
            ended.append(started[-1]._process.returncode is not None)

    assert run(tmp_path / "b", request, on_event=seen).complete
    assert len(started) == len(ended) == 2
    assert all(ended)


ASKED = [Query((5, 6, 7, 8), 3), Query((9, 30, 4, 11, 200, 17), 5)]
DRIVER = "tests.support.reference_driver"
forks = pytest.mark.skipif(sys.platform != "linux", reason="macOS starts a new process")


@forks
def test_forks_give_the_references_of_a_process_of_its_own(
    tmp_path: Path, preloaded: Preloaded
) -> None:
    from logitbank.engine.backends.plain_logits import evaluate

    folders = [*make_series(tmp_path, steps=(0, 1)).iterdir()]
    settings = EngineSettings("transformers", compute_dtype="bfloat16")
    wanted = [*folders, tmp_path / "absent", folders[0]]
    replies = preloaded.run("transformers", tmp_path, f"{DRIVER}:replies", wanted, ASKED, settings)
    assert "absent cannot be loaded" in replies.pop(2)
    for folder, reply in zip((*folders, folders[0]), replies, strict=True):
        for (ours, rounding), (exact, expected) in zip(
            reply, evaluate(folder, ASKED, settings), strict=True
        ):
            np.testing.assert_array_equal(ours, exact)
            assert rounding == expected > 0


@forks
def test_a_fork_is_stopped_or_killed_and_the_next_answers(
    tmp_path: Path, preloaded: Preloaded
) -> None:
    folder = make_checkpoint(tmp_path / "step0", seed=1)
    arguments = folder, ASKED, EngineSettings("transformers")
    code, reply = preloaded.run("transformers", tmp_path, f"{DRIVER}:stopped", *arguments)
    assert len(reply) == len(ASKED)
    with pytest.raises(EngineError, match=r"killed by signal 9 \(out of memory\?\)"):
        reference_check._references(code, tmp_path / "log")


@forks
def test_no_fork_outlives_its_worker(tmp_path: Path, preloaded: Preloaded) -> None:
    arguments = ASKED, EngineSettings("transformers"), tmp_path / "pids"
    with pytest.raises(AssertionError):  # it was killed
        preloaded.run("transformers", tmp_path, f"{DRIVER}:die", *arguments)
    for pid in (tmp_path / "pids").read_text().split():
        while Path(f"/proc/{pid}/cmdline").is_file() and _is_alive(pid):
            time.sleep(0.01)


def _is_alive(pid: str) -> bool:
    with suppress(OSError):
        return " Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2][:3]
    return False


@pytest.mark.whole
@pytest.mark.vllm
def test_a_worker_of_vllm_checks_its_first_two_checkpoints_in_forks(
    tmp_path: Path, preloaded: Preloaded
) -> None:
    """vLLM's changes of transformers are not in the forks. The worker makes its own imports."""
    require_vllm()
    series = make_series(tmp_path / "tiny", steps=(0, 1, 2))
    seen: list[Event] = []
    request = extraction(series, canary_every=10, engine="vllm", keep="full")
    assert run(tmp_path / "b", request, on_event=seen.append).complete
    checked = [event for event in seen if isinstance(event, ReferenceChecked)]
    assert [event.checkpoint.step for event in checked] == [0, 1]
    assert all(event.difference < 1e-4 for event in checked)
    with preloaded.workers("transformers"):
        assert run(tmp_path / "plain", extraction(series)).complete
    bank, plain = (Bank.open(tmp_path / name) for name in ("b", "plain"))
    assert (*bank.info()["engine"].unique(), *bank.info()["keep"].unique()) == ("vllm", "full")
    assert_same(bank.path, plain)
    assert run(tmp_path / "b", request).plan.rows == 0


def test_queries_are_chosen_at_the_ends_at_limits_and_at_random() -> None:
    lengths = [*range(5, 60), *range(70, 200)]
    queries = [Query((7,) * n, n - 1) for n in lengths]
    found = [len(query.ids) for query in select_queries(queries, [16, 64, 500])]
    assert found[:6] == [5, 16, 17, 59, 70, 199]
    assert len(found) <= 9
    assert found == [len(query.ids) for query in select_queries(queries, [16, 64, 500])]
    others = {len(q.ids) for q in select_queries(queries, [])} - {5, 199}
    assert len(others) in (1, 2, 3)
    assert select_queries(queries[:1], [1, 5]) == queries[:1]
    # What a causal model answers depends on the context alone, of whatever sequence.
    same = [Query((7,) * 50, position) for position in range(50)]
    assert [q.position for q in select_queries(same, [8])[:4]] == [0, 7, 8, 49]


@pytest.mark.whole
@pytest.mark.vllm
def test_vllm_in_bfloat16_is_proved_and_within_what_its_model_allows(
    tmp_path: Path, preloaded: Preloaded
) -> None:
    """On a CPU it holds the biases in float32."""
    from logitbank.engine.backends.plain_logits import evaluate

    require_vllm()
    folder = make_checkpoint(tmp_path / "step0", seed=1)
    settings = EngineSettings("vllm", compute_dtype="bfloat16", max_length=16)
    queries = [Query((5, 6, 7, 8), 3), Query((9, 30, 4, 11, 200, 17), 5)]
    asked = "tests.support.engine_driver:engine"
    (rows,) = preloaded.run("vllm", tmp_path, asked, settings, [folder], queries)
    references = [Reference(*each) for each in evaluate(folder, queries, settings)]
    for reference, row in zip(references, rows, strict=True):
        assert 0 < compare(reference, row, dtype="bfloat16", checkpoint="c") < 0.75
