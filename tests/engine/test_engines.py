"""An engine is an object in its folder; a new one needs no change elsewhere."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from logitbank.engine import backends
from logitbank.engine.backends.choose import open_backend
from logitbank.engine.backends.engine import engine_named, engine_names, engines
from logitbank.engine.backends.gpus import Card
from logitbank.engine.backends.protocol import EngineSettings
from logitbank.engine.plan.engine_choice import choose_engine
from logitbank.engine.request import ExtractRequest
from logitbank.errors import DeviceError, UsageError
from tests.support.checkpoints import make_checkpoint
from tests.support.fakes import TEXTS, questions, request_for
from tests.support.paths import ROOT
from tests.support.resolved import make_plan, run

THIRD = """
from logitbank.engine.backends.engine import Engine
from logitbank.errors import DeviceError


def check_memory(settings, folder, config):
    if settings.gpu_memory is not None:
        raise DeviceError(f"third needs more than {settings.gpu_memory} bytes.")


ENGINE = Engine(
    name="third",
    order=0,
    packages=("numpy",),
    install="pip install third",
    fallback="transformers",
    open=lambda task: lambda folder, settings: (task, folder.name),
    environment=lambda start: {"THIRD_DTYPE": start.compute_dtype},
    check_memory=check_memory,
    positions=lambda leaves, config, tokens, gpu: 10**6,
    machine_problem=lambda environment: environment.get("THIRD_PROBLEM", ""),
    model_problem=lambda use, cards: "" if use.config.vocab == 640 else "third wants 640 outputs",
)
"""


@pytest.fixture
def third(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A third engine: one folder beside the others."""
    (tmp_path / "engines" / "third").mkdir(parents=True)
    (tmp_path / "engines" / "third" / "__init__.py").write_text(THIRD)
    monkeypatch.setattr(backends, "__path__", [*backends.__path__, str(tmp_path / "engines")])
    engines.cache_clear()
    yield
    engines.cache_clear()
    sys.modules.pop("logitbank.engine.backends.third", None)


def test_no_module_outside_its_folder_compares_the_name_of_an_engine() -> None:
    names = "|".join(engine_names())
    compared = re.compile(rf"""(==|!=|\bin) \(?["']({names})["']|["']({names})["'] (==|!=)""")
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for folder in ("engine", "cli", "api", "store", "analysis")
        for path in (ROOT / folder).rglob("*.py")
        if path.parent.parent.name != "backends"
        for line in path.read_text().splitlines()
        if compared.search(line)
    ]
    assert found == []


@pytest.mark.usefixtures("third")
def test_a_third_engine_is_one_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert engine_names() == ["third", "vllm", "transformers"]
    folder = make_checkpoint(tmp_path / "tiny" / "step0", seed=1)
    request = request_for(folder.parent, questions(*TEXTS), engine="third")
    assert choose_engine("third") == choose_engine("auto") == "third"
    settings = make_plan(request, None, folder).settings
    assert settings.engine == "third"
    opened: object = open_backend(folder, settings)
    assert opened == ("causal", "step0")
    with pytest.raises(DeviceError, match="third needs more than 5 bytes"):
        make_plan(request, None, folder, cards=(Card((9, 0), 5),))
    monkeypatch.setenv("THIRD_PROBLEM", "third needs a moon")
    with pytest.raises(DeviceError, match="third needs a moon. Use --engine transformers."):
        open_backend(folder, settings)
    with pytest.raises(UsageError, match="third needs a moon. Use --engine transformers."):
        run(tmp_path / "b.zarr", request)
    automatic = request_for(folder.parent, questions(*TEXTS), engine="auto")
    prepared = make_plan(automatic, None, folder)
    assert prepared.settings.engine != "third"
    assert "third needs a moon" in " ".join(prepared.notes)


@pytest.mark.usefixtures("third")
def test_auto_leaves_a_third_engine_that_has_more_to_run(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "tiny" / "step0", seed=1)
    request = request_for(folder.parent, questions(*TEXTS), engine="auto")
    prepared = make_plan(request, None, folder)
    assert prepared.settings.engine != "third"
    assert "instead of 1,000,000 token positions; --engine third" in " ".join(prepared.notes)


def test_an_unknown_engine_is_refused_with_the_known_ones() -> None:
    told = "--engine 'vlm' is invalid: use auto, vllm, transformers."
    with pytest.raises(UsageError, match=told):
        engine_named("vlm")
    with pytest.raises(UsageError, match=told):
        ExtractRequest(suites="pythia-70m", prompts="winobias", engine="vlm")
    assert EngineSettings("transformers").start.engine in engine_names()
