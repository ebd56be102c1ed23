"""float32 is float32 in Triton's products too, in every process that may import it."""

import os
from pathlib import Path

import pytest

from logitbank.engine.backends.precision import triton_precision
from logitbank.engine.backends.protocol import EngineSettings
from logitbank.engine.workers import canary
from logitbank.engine.workers.worker_process import worker_environment
from logitbank.errors import UsageError
from tests.support.preloaded import Preloaded, require_vllm


@pytest.mark.vllm
@pytest.mark.parametrize("attention", ["decoder", "encoder_only"])
def test_triton_multiplies_float32_as_such_where_vllm_chooses_it(
    attention: str, preloaded: Preloaded, tmp_path: Path
) -> None:
    require_vllm()
    asked = "tests.support.precision_cases:chosen_on_cuda"
    backends, precision = preloaded.run("vllm", tmp_path, asked, "float32", attention)
    assert backends[0] == "TRITON_ATTN"
    assert precision == "ieee"


@pytest.mark.parametrize("engine", ["vllm", "transformers"])
def test_workers_have_it_before_they_import_anything(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_F32_DEFAULT", "tf32")  # left over from other work
    environment = worker_environment(EngineSettings(engine))  # type: ignore[arg-type]
    assert environment["TRITON_F32_DEFAULT"] == "ieee"


def test_the_canary_has_it_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    started = {}

    def popen(_command: list[str], **options: dict[str, str]) -> None:
        started.update(options["env"])

    monkeypatch.setenv("TRITON_F32_DEFAULT", "tf32")
    monkeypatch.setattr(canary.subprocess, "Popen", popen)
    canary.Canary(EngineSettings("vllm"), log=tmp_path / "log")
    assert started["TRITON_F32_DEFAULT"] == "ieee"


def test_who_asks_gets_another_precision() -> None:
    assert triton_precision(os.environ | {"LOGITBANK_TRITON_F32": "tf32"}) == {
        "TRITON_F32_DEFAULT": "tf32"
    }


def test_a_precision_that_triton_does_not_have_is_refused() -> None:
    with pytest.raises(UsageError, match="LOGITBANK_TRITON_F32 is 'fp8'; use ieee, tf32x3 or tf32"):
        triton_precision({"LOGITBANK_TRITON_F32": "fp8"})
