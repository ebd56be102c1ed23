"""A machine on which no engine would start on its GPU is refused in a line, before one tries."""

from pathlib import Path

import pytest

from logitbank.engine.backends.protocol import EngineSettings
from logitbank.engine.gpus import machine
from logitbank.engine.gpus.cards import cards_of
from logitbank.engine.gpus.machine import Cache, Machine, built_for
from logitbank.engine.gpus.refusals import refused
from logitbank.engine.run import run
from logitbank.engine.workers.events import CheckpointFailed
from logitbank.engine.workers.job import Job
from logitbank.errors import DeviceError, DiskSpaceError
from logitbank.store import CheckpointId
from tests.support.checkpoints import VOCAB, make_checkpoint
from tests.support.fakes import FakeBackend, InProcess
from tests.support.run_driver import extraction

LISTED = "0, GPU-1, NVIDIA H100 80GB HBM3, {}, 9.0"
OLD = "RuntimeError: The NVIDIA driver on your system is too old (found version 12080)."
GB = 10**9


def _fine() -> str:
    return ""


def _never() -> str:
    pytest.fail("PyTorch is started only where the driver looks too old")


@pytest.fixture
def good(tmp_path: Path) -> Machine:
    header = tmp_path / "Python.h"
    header.touch()
    caches = (Cache("HF_HOME", Path("/large/hf"), 2 * GB),)
    return Machine(cards_of(LISTED.format("580.65.06")), "13.0", _never, "/bin/gcc", header, caches)


def test_a_machine_that_has_all_is_not_refused(good: Machine) -> None:
    assert refused(good, "vllm") == refused(good, "transformers") == ""
    assert refused(good._replace(cards=()), "vllm") == "", "without the driver's tool nobody knows"


@pytest.mark.parametrize(
    ("cuda", "driver", "old"),
    [
        ("13.0", "570.86.15", True),
        ("13.2", "580.65.06", False),
        ("12.8", "535.183.01", False),
        ("12.8", "520.61.05", True),
        ("14.0", "570.86.15", True),
    ],
)
def test_a_driver_too_old_for_pytorch_is_named_with_the_one_it_needs(
    good: Machine, cuda: str, driver: str, old: bool
) -> None:
    here = good._replace(cards=cards_of(LISTED.format(driver)), cuda=cuda)
    if not old:
        assert refused(here, "transformers") == ""
        return
    with pytest.raises(DeviceError, match=r"needs \d+ or later \(RuntimeError: .*\); take"):
        refused(here._replace(works=lambda: OLD), "transformers")
    assert refused(here._replace(works=_fine), "vllm") == "", "a package for compatibility is there"


def test_the_message_about_a_driver_has_all_versions(good: Machine) -> None:
    here = good._replace(cards=cards_of(LISTED.format("570.86.15")), works=lambda: OLD)
    with pytest.raises(DeviceError) as raised:
        refused(here, "vllm")
    assert str(raised.value) == (
        "the NVIDIA driver is 570.86.15, and PyTorch here is built for CUDA 13.0, which needs 580"
        f" or later ({OLD}); take an image with a newer driver, or install PyTorch for an older"
        " CUDA"
    )


def test_vllm_needs_a_compiler_and_python_s_headers_and_transformers_does_not(
    good: Machine, tmp_path: Path
) -> None:
    bare = good._replace(compiler=None)
    with pytest.raises(DeviceError, match=r"no C compiler .*apt install build-essential"):
        refused(bare, "vllm")
    gone = good._replace(header=tmp_path / "include" / "Python.h")
    with pytest.raises(DeviceError, match=r"include/Python.h is not there; .* python3-dev"):
        refused(gone, "vllm")
    assert refused(bare, "transformers") == refused(gone, "transformers") == ""


def test_a_full_disk_is_named_with_the_variable_that_moves_what_is_on_it(good: Machine) -> None:
    full = Cache("TRITON_CACHE_DIR", Path("/root/.triton/cache"), GB // 2)
    told = (
        "^/root/.triton/cache is on a disk with 500 MB free, .*; set TRITON_CACHE_DIR to a folder"
        " on a larger disk$"
    )
    with pytest.raises(DiskSpaceError, match=told):
        refused(good._replace(caches=(*good.caches, full)), "vllm")


def test_a_machine_is_looked_at_as_an_engine_would(tmp_path: Path, nvidia_smi: object) -> None:
    nvidia_smi(LISTED.format("580.65.06"))  # type: ignore[operator]
    tools = tmp_path / "tools"
    tools.mkdir()
    environment = {"PATH": str(tools), "HOME": str(tmp_path)}
    bare = Machine.here(environment, vllm=True)
    assert [card.driver for card in bare.cards] == ["580.65.06"]
    assert bare.compiler is None
    assert {cache.variable: cache.path for cache in bare.caches} == {
        "HF_HOME": tmp_path / ".cache" / "huggingface",
        "TRITON_CACHE_DIR": tmp_path / ".triton" / "cache",
        "VLLM_CACHE_ROOT": tmp_path / ".cache" / "vllm",
    }
    assert all(cache.free > 0 for cache in bare.caches)
    (tools / "clang").write_text("#!/bin/sh\n")
    (tools / "clang").chmod(0o755)
    assert Machine.here(environment, vllm=True).compiler == str(tools / "clang")
    named = environment | {"CC": "nvc", "HF_HOME": "/large/hf", "XDG_CACHE_HOME": "/large/cache"}
    moved = Machine.here(named, vllm=True)
    assert moved.compiler is None, "Triton takes what CC names and nothing else"
    assert moved.caches[0].path == Path("/large/hf")
    assert moved.caches[2].path == Path("/large/cache/vllm")
    assert [c.variable for c in Machine.here(environment, vllm=False).caches] == ["HF_HOME"]
    assert bare.header.name == "Python.h"


@pytest.mark.parametrize("cuda", ["", "13.0"], ids=["for CPUs", "for CUDA"])
def test_a_plan_says_so_before_anything_is_loaded(
    cuda: str, tmp_path: Path, nvidia_smi: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvidia_smi(LISTED.format("570.86.15"))  # type: ignore[operator]
    make_checkpoint(tmp_path / "tiny" / "step0", seed=1)
    monkeypatch.setattr(machine, "_version_file", lambda: f"cuda: Optional[str] = '{cuda}'")
    monkeypatch.setattr(machine, "_started_cuda", lambda: OLD)
    monkeypatch.setattr(InProcess, "backend", FakeBackend(VOCAB))
    monkeypatch.setattr("logitbank.engine.run.WorkerProcess", InProcess)
    asked = extraction(tmp_path / "tiny")
    if not cuda:
        summary = run(tmp_path / "b", asked, dry_run=True)
        assert any("the GPU is not used" in note for note in summary.notes)
        return
    with pytest.raises(DeviceError, match="the NVIDIA driver is 570"):
        run(tmp_path / "b", asked, dry_run=True)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert run(tmp_path / "b", asked, dry_run=True).notes == []


def test_a_worker_of_a_cluster_looks_at_its_own_machine(
    tmp_path: Path, nvidia_smi: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    from logitbank.engine.workers.ray_worker import Actor

    nvidia_smi(LISTED.format("570.86.15"))  # type: ignore[operator]
    monkeypatch.setattr(machine, "_version_file", lambda: "cuda: Optional[str] = '13.0'")
    monkeypatch.setattr(machine, "_started_cuda", lambda: OLD)
    settings = EngineSettings("transformers")
    job = Job(CheckpointId("m", step=0), tmp_path, (), 10, 10, {}, settings, {})
    (failed,) = Actor(tmp_path / "b.zarr", settings, threads=1).run(job, tmp_path)
    assert isinstance(failed, CheckpointFailed)
    assert failed.fatal
    assert "the NVIDIA driver is 570.86.15" in failed.message


def test_pytorch_itself_is_asked_in_a_process_of_its_own() -> None:
    if built_for(machine._version_file()):
        pytest.skip("PyTorch here is built for CUDA, which may start")
    assert "CUDA" in machine._started_cuda()
