"""Several suites in one extraction: one plan, one queue, and failures that stay their own."""

from collections.abc import Iterator
from itertools import count, permutations, product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from safetensors.numpy import save_file
from typer.testing import CliRunner

from logitbank.cli.main import app
from logitbank.engine.extract import extract
from logitbank.engine.request import ExtractRequest
from logitbank.engine.suites.suites import listed_suites, resolve_suite
from logitbank.engine.workers.events import (
    BlockCommitted,
    CheckpointStarted,
    Event,
    Note,
    Planned,
    SuiteFailed,
    Summary,
)
from logitbank.errors import SuiteError, UsageError
from logitbank.store import Bank, verify
from tests.support.checkpoints import WORDS, make_checkpoint, make_series
from tests.support.fakes import TEXTS, FakeBackend, questions, write_series
from tests.support.fault_points import before
from tests.support.marks import whole
from tests.support.resolved import run

STEPS = tuple(range(3))
"""Of each suite."""
PAIRS = "sentence_good,sentence_bad\n" + "".join(
    f" {WORDS[i]} {WORDS[i + 1]} {WORDS[3]}, {WORDS[i]} {WORDS[i + 1]} {WORDS[5]}\n"
    for i in range(6, 18)
)
MISSING = "./missing"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A causal and a masked suite, and prompts for both."""
    folder = tmp_path_factory.mktemp("suites")
    make_series(folder / "neox", steps=STEPS)
    make_series(folder / "bert", steps=STEPS, architecture="bert")
    (folder / "pairs.csv").write_text(PAIRS)
    return folder


def suites(folder: Path) -> list[str | Path]:
    return [str(folder / "neox"), folder / "bert"]


def go(bank: Path, folder: Path, **changes: Any) -> Summary:
    """One sequence at a time, so that the bits do not depend on what is run together."""
    defaults: dict[str, Any] = {
        "suites": suites(folder), "prompts": f"pairs:file={folder / 'pairs.csv'}",
        "engine": "transformers", "deterministic": True, "dtype": "float32", "block_rows": 16,
        "canary_every": 0,
    }  # fmt: skip
    return extract(bank, **(defaults | changes))


@pytest.fixture(scope="module")
def apart(folder: Path, tmp_path_factory: pytest.TempPathFactory, preloaded: Any) -> Bank:
    """What one extraction after another gives."""
    path = tmp_path_factory.mktemp("apart") / "b.zarr"
    with preloaded.workers("transformers"):
        for suite in suites(folder):
            assert go(path, folder, suites=suite).complete
    return Bank.open(path)


def assert_same_bits(path: Path, apart: Bank) -> None:
    bank = Bank.open(path)
    assert not verify(bank)
    assert bank.query_sets() == apart.query_sets()
    stored = {deposit.checkpoint: deposit for deposit in bank.deposits()}
    assert len(stored) == 2 * len(STEPS)
    for theirs in apart.deposits():
        ours = stored.pop(theirs.checkpoint)
        assert ours.sealed
        np.testing.assert_array_equal(ours.logprobs(), theirs.logprobs())
    assert not stored


class Run(NamedTuple):
    """An extraction of both suites and a missing one."""

    bank: Path
    summary: Summary
    seen: list[Event]


@pytest.fixture(scope="module")
def together(folder: Path, tmp_path_factory: pytest.TempPathFactory, preloaded: Any) -> Run:
    path, seen = tmp_path_factory.mktemp("together") / "b.zarr", list[Event]()
    with preloaded.workers("transformers"):
        summary = go(path, folder, suites=[*suites(folder), MISSING], on_event=seen.append)
    return Run(path, summary, seen)


@pytest.mark.usefixtures("quick_workers")
def test_two_suites_and_a_missing_one_are_one_plan_and_one_bank(
    folder: Path, apart: Bank, together: Run
) -> None:
    path, summary, seen = together
    (plan,) = [event.plan for event in seen if isinstance(event, Planned)]
    assert plan.checkpoints == 2 * len(STEPS)
    (failure,) = [event for event in seen if isinstance(event, SuiteFailed)]
    assert (failure.suite, summary.failed_suites) == (MISSING, [failure])
    assert "does not exist" in failure.message
    assert len(summary.done) == 2 * len(STEPS)
    assert (summary.exit_code, summary.failed) == (1, [])
    assert_same_bits(path, apart)
    again = go(path, folder)
    assert (again.plan.rows, again.exit_code) == (0, 0)


def test_an_engine_starts_once_for_each_model(folder: Path, together: Run) -> None:
    """The checkpoints of one model follow one another, those of the larger model first."""
    models = [e.checkpoint.model for e in together.seen if isinstance(e, CheckpointStarted)]
    large, small = sorted(
        suites(folder), key=lambda s: -(Path(s) / "step0/model.safetensors").stat().st_size
    )
    assert models == [Path(large).name] * len(STEPS) + [Path(small).name] * len(STEPS)
    notes = [e.text for e in together.seen if isinstance(e, Note)]
    assert len([text for text in notes if "new engine" in text]) <= 1


@pytest.mark.usefixtures("quick_workers")
def test_another_model_has_another_config_without_a_note(tmp_path: Path, folder: Path) -> None:
    tied = make_series(tmp_path / "tied", steps=(0,), architecture="gpt_neox_tied")
    two = [str(folder / "neox"), str(tied)]
    summary = go(tmp_path / "b.zarr", folder, suites=two, steps=[0])
    assert len(summary.done) == 2
    assert not [note for note in summary.notes if "new engine" in note]


@pytest.mark.usefixtures("quick_workers")
def test_an_interrupted_run_of_two_suites_is_resumed_to_the_same_bits(
    tmp_path: Path, folder: Path, apart: Bank
) -> None:
    path, blocks = tmp_path / "b.zarr", 0

    def interrupt(event: Event) -> None:
        nonlocal blocks
        blocks += isinstance(event, BlockCommitted)
        if blocks == 9:  # in the middle of a checkpoint
            raise KeyboardInterrupt

    assert go(path, folder, on_event=interrupt).exit_code == 3
    ours = go(path, folder)
    assert ours.complete
    assert 0 < len(ours.done) <= 2 * len(STEPS)
    assert_same_bits(path, apart)


@pytest.mark.usefixtures("quick_workers")
def test_three_tasks_of_an_array_run_both_suites(
    tmp_path: Path, folder: Path, apart: Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, rows = tmp_path / "b.zarr", list[int]()
    for task in range(3):
        for name, value in {"ID": task, "MIN": 0, "MAX": 2, "COUNT": 3}.items():
            monkeypatch.setenv(f"SLURM_ARRAY_TASK_{name}", str(value))
        rows.append(go(path, folder).rows)
    assert len({*rows}) <= 2, "whole checkpoints of both"
    assert sum(rows) == sum(deposit.layout.queries for deposit in apart.deposits())
    assert_same_bits(path, apart)


@pytest.mark.usefixtures("quick_workers")
def test_a_suite_that_cannot_be_planned_does_not_stop_the_others(
    tmp_path: Path, folder: Path
) -> None:
    """Its tokenizer is missing."""
    broken = make_checkpoint(tmp_path / "broken" / "step0", seed=1)
    for file in broken.glob("*token*"):
        file.unlink()
    wanted = [str(tmp_path / "broken"), str(folder / "neox")]
    summary = go(tmp_path / "b.zarr", folder, suites=wanted)
    assert [failure.suite for failure in summary.failed_suites] == ["broken"]
    assert len(summary.done) == len(STEPS)
    with pytest.raises(SuiteError, match=r"None of the 2 suites .* broken: .*; "):
        go(tmp_path / "c.zarr", folder, suites=[wanted[0], make_none(tmp_path)])
    assert not (tmp_path / "c.zarr").exists()


def make_none(tmp_path: Path) -> str:
    """A suite whose only checkpoint has no vocabulary file."""
    folder = make_checkpoint(tmp_path / "other" / "step0", seed=2)
    for file in folder.glob("*token*"):
        file.unlink()
    return str(tmp_path / "other")


@pytest.mark.usefixtures("quick_workers")
def test_the_command_names_the_suite_that_failed(tmp_path: Path, folder: Path) -> None:
    listed = tmp_path / "suites.txt"
    listed.write_text(f"# two of them\n\n{folder / 'neox'}  steps=0,2\n{MISSING}\n")
    arguments = [
        "extract", str(tmp_path / "b.zarr"), "--suite", f"@{listed}", "--suite",
        str(folder / "bert"), "--steps", "last", "--prompts", f"pairs:file={folder / 'pairs.csv'}",
        "--engine", "transformers", "--canary-every", "0",
    ]  # fmt: skip
    called = CliRunner().invoke(app, arguments)
    assert called.exit_code == 1, called.output
    assert f"Suite {MISSING} cannot be run: " in called.output
    assert f"1 suite not run: {MISSING}." in called.output
    bank = Bank.open(tmp_path / "b.zarr")
    stored = sorted((d.checkpoint.model, d.checkpoint.step) for d in bank.deposits())
    assert stored == [("bert", 2), ("neox", 0), ("neox", 2)]


@pytest.mark.usefixtures("quick_workers")
def test_the_estimate_is_that_of_all_suites(tmp_path: Path, folder: Path) -> None:
    summary = go(tmp_path / "b.zarr", folder, dry_run=True)
    estimate = summary.estimate
    assert estimate is not None
    assert estimate.checkpoints == 2 * len(STEPS)
    assert summary.models == 2
    assert not (tmp_path / "b.zarr").exists()


class Stopped(BaseException):
    """Raised in place of a kill."""


# Both together stop each order at each point.
@pytest.mark.parametrize("some", [True, whole(False)], ids=["some", "the others"])
def test_suites_of_one_tokenizer_run_in_any_order_and_after_a_stop_at_any_point(
    tmp_path: Path, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch, some: bool
) -> None:
    """Plans are made in the given order, and run from the largest model to the smallest."""
    sizes = {"small": 8, "medium": 16, "large": 32}
    for name, size in sizes.items():
        folder = write_series(tmp_path / name, "step0") / "step0"
        save_file({"w": np.zeros(size, np.float32)}, folder / "model.safetensors")
    passes = iter(count())

    def stop() -> None:
        if next(passes) == 0:
            raise Stopped

    for point in ("run:Bank.add_query_set", "run:write_set", "run:Bank.add_tokens", "run:Runner"):
        before(f"logitbank.engine.{point}", stop, monkeypatch.setattr)
    stored = list[dict[str, bytes]]()
    # The points of a run are a query set, a table of each suite, the tokens, and the runner.
    for index, (order, number) in enumerate(product(permutations(sizes), range(6))):
        if (index % 5 == 0) != some:
            continue
        path = tmp_path / f"{'-'.join(order)}-{number}"
        passes = iter(range(-number, 9))
        with pytest.raises(Stopped):
            run_fake(path, [tmp_path / name for name in order])
        passes = iter(range(-6, 9))
        assert run_fake(path, [tmp_path / name for name in order]).complete
        assert {d.checkpoint.model for d in Bank.open(path).deposits() if d.sealed} == {*sizes}
        files = [
            file for each in ("queries", "prompts") for file in (path / each).glob("*.parquet")
        ]
        stored.append({file.name: file.read_bytes() for file in files})
    assert len(stored[0]) == 2
    assert all(each == stored[0] for each in stored)
    assert not verify(path)


def run_fake(path: Path, suites: list[Path]) -> Summary:
    request = ExtractRequest(
        suites=[resolve_suite(str(folder)) for folder in suites],
        prompts=questions(*TEXTS),
        engine="transformers",
        canary_every=0,
    )
    return run(path, request)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "names no suite"),
        ("# nothing\n", "names no suite"),
        ("toy steps=fast", "line 1: Steps 'fast'"),
        (None, "cannot be read"),
    ],
)
def test_lists_that_cannot_be_right_are_refused(
    text: str | None, message: str, tmp_path: Path
) -> None:
    if text is not None:
        (tmp_path / "list").write_text(text)
    with pytest.raises(SuiteError, match=message):
        listed_suites([f"@{tmp_path / 'list'}"], "all")


def test_lists_are_read_as_people_write_them(tmp_path: Path) -> None:
    (tmp_path / "list").write_bytes(
        "\ufeffpythia-70m\r\n\r\n# larger\r\n/data/my runs/a steps=log\r\n".encode()
    )
    expected = [("bert", "all"), ("pythia-70m", "all"), ("/data/my runs/a", "log")]
    assert listed_suites(["bert", f"@{tmp_path / 'list'}"], "all") == expected


def test_requests_that_cannot_be_right_are_refused(tmp_path: Path, folder: Path) -> None:
    prompts = f"pairs:file={folder / 'pairs.csv'}"
    two = suites(folder)
    with pytest.raises(UsageError, match="--model mine names one model, but there are 2 suites"):
        ExtractRequest(suites=two, prompts=prompts, model="mine")
    with pytest.raises(UsageError, match="--watch needs one folder"):
        ExtractRequest(suites=two, prompts=prompts, watch=True)
    with pytest.raises(SuiteError, match="No suite is named"):
        ExtractRequest(suites=[], prompts=prompts)
    twice = [resolve_suite(str(folder / "neox")), str(folder / "neox")]
    with pytest.raises(SuiteError, match=r"neox and neox both have neox step 0\. Name each"):
        go(tmp_path / "b.zarr", folder, suites=twice)


@pytest.mark.whole
def test_a_ray_cluster_runs_both_suites(
    tmp_path: Path, folder: Path, apart: Bank, preloaded: Any, ray_of_two: Any
) -> None:
    summary = go(tmp_path / "b.zarr", folder, workers=2, ray="auto")
    assert summary.complete
    assert_same_bits(tmp_path / "b.zarr", apart)


@pytest.fixture
def ray_of_two(preloaded: Any) -> Iterator[Any]:
    from tests.support.preloaded import processes_from_servers
    from tests.support.ray_cluster import ray_cluster

    with preloaded.workers("transformers"):
        with ray_cluster(2, worker_process_setup_hook=processes_from_servers) as cluster:
            yield cluster
