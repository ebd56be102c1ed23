"""Checkpoints of one run whose configs say several models: each has the logits of its own."""

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from logitbank.cli.screen.extract import forecast
from logitbank.engine.backends.protocol import EngineName, EngineSettings
from logitbank.engine.plan.compatibility import Compatibility
from logitbank.engine.prompts.prompt_set import PromptSet
from logitbank.engine.prompts.values import Option, Prompt
from logitbank.engine.request import ExtractRequest
from logitbank.engine.suites.hub import Hub
from logitbank.engine.suites.suites import Suite, group_by_config, resolve_suite
from logitbank.engine.tokenizers.tokenizer import Tokenizer, tokenizer_folder
from logitbank.engine.weights.config import ModelConfig
from logitbank.engine.weights.config_identity import config_digest, config_fields, differing_fields
from logitbank.engine.workers.events import Job, Summary
from logitbank.engine.workers.worker_process import WorkerProcess
from logitbank.errors import SuiteError, WeightsError
from logitbank.store import Bank, CheckpointId, Query, verify
from tests.support.checkpoints import (
    MASKED_ARCHITECTURES,
    WORDS,
    Architecture,
    make_checkpoint,
    make_series,
)
from tests.support.engine_driver import engine as logits_of
from tests.support.engine_driver import reference
from tests.support.hub_server import HubServer
from tests.support.marks import long, whole
from tests.support.preloaded import Preloaded, require_vllm
from tests.support.resolved import run

TOLERANCE = 1e-3
INF, NAN = float("inf"), float("nan")
OPTIONS = (Option("male", " male"), Option("female", " female"))
HE_SHE = (Option("he", "he"), Option("she", "she"))
ROPE = {"rope_type": "default", "rope_theta": 10000.0}
NEOX: list[dict[str, Any]] = [
    {"layer_norm_eps": 0.3},
    {"use_parallel_residual": False},
    {"rope_parameters": ROPE | {"partial_rotary_factor": 0.75}},
]
LLAMA: list[dict[str, Any]] = [
    {"rms_norm_eps": 0.3},
    {"rope_parameters": ROPE | {"rope_theta": 10.0}},
    {"rope_parameters": ROPE | {"rope_type": "linear", "factor": 4.0}},
    {"hidden_act": "relu"},
]
GPT2: list[dict[str, Any]] = [{"scale_attn_weights": False}, {"activation_function": "relu"}]
WINDOW: list[dict[str, Any]] = [{"sliding_window": 2}]
MASKED: list[dict[str, Any]] = [{"layer_norm_eps": 0.3}, {"hidden_act": "relu"}]


def fit_of(first: Path) -> Compatibility:
    """By the checkpoint in a folder alone."""
    config, tokenizer = ModelConfig.read(first), Tokenizer.load(tokenizer_folder(first))
    return Compatibility(config, tokenizer, first)


def changed(folder: Path, **fields: Any) -> Path:
    """The folder, whose config says something else from now on."""
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))
    return folder


def series_of(
    folder: Path, architecture: Architecture, changes: list[dict[str, Any]]
) -> dict[int, Path]:
    """The same weights under each config, and other weights under the first one's at the end."""
    last = len(changes) + 1
    make_series(folder, steps=(0, last), architecture=architecture)
    for step, fields in enumerate(changes, 1):
        shutil.copytree(folder / "step0", folder / f"step{step}")
        changed(folder / f"step{step}", **fields)
    return {step: folder / f"step{step}" for step in range(last + 1)}


def prompts_for(architecture: Architecture) -> PromptSet:
    """Texts of 3 to 20 tokens; with a mask where the model predicts one."""
    masked = architecture in MASKED_ARCHITECTURES
    texts = ["".join(f" {WORDS[i * 7 % 31]}" for i in range(n)) for n in (3, 4, 9, 20)]
    options = HE_SHE if masked else OPTIONS
    whole = [f"{text} [MASK] because".strip() if masked else text for text in texts]
    prompts = (Prompt(f"p{i}", text, options) for i, text in enumerate(whole))
    return PromptSet("mine", tuple(prompts))


def go(bank: Path, series: Path, architecture: Architecture, engine: EngineName) -> Summary:
    return run(bank, request(series, prompts_for(architecture), engine=engine))


def request(series: Path, prompts: PromptSet, **changes: Any) -> ExtractRequest:
    defaults: dict[str, Any] = {"engine": "transformers", "canary_every": 0, "dtype": "float32"}
    suite = resolve_suite(str(series), steps=changes.pop("steps", "all"))
    return ExtractRequest(suites=suite, prompts=prompts, **(defaults | changes))


def assert_each_is_its_own(bank: Bank, folders: Mapping[int, Path]) -> None:
    """The bank's rows against plain transformers, which has to find the models apart."""
    assert not verify(bank)
    deposits = {deposit.checkpoint.step: deposit for deposit in bank.deposits()}
    assert deposits.keys() == {*folders}
    queries = [*bank.query_set(deposits[0].query_set).queries]
    expected = reference([*folders.values()], queries)
    for step, logits in zip(folders, expected, strict=True):
        exact = logits.astype(np.float64)
        top = exact.max(axis=1, keepdims=True)
        rows = exact - top - np.log(np.exp(exact - top).sum(axis=1, keepdims=True))
        np.testing.assert_allclose(deposits[step].logprobs(), rows, rtol=0, atol=TOLERANCE)
        others = [other for other in folders if other != step]
        for other in others:
            apart = np.abs(deposits[step].logprobs() - deposits[other].logprobs()).max()
            assert apart > 20 * TOLERANCE, f"steps {step} and {other} must differ to be told apart"


@pytest.mark.parametrize(
    ("architecture", "changes"),
    [
        ("gpt_neox", NEOX[:1]),
        whole("gpt_neox", NEOX[1:]),
        whole("llama_tied", LLAMA),
        long("gpt2", GPT2),
        whole("mistral", WINDOW),
        whole("bert", MASKED[:1]),
        whole("roberta", MASKED),
    ],
)
@pytest.mark.usefixtures("quick_workers")
def test_transformers_gives_each_config_its_own_model(
    architecture: Architecture, changes: list[dict[str, Any]], tmp_path: Path
) -> None:
    folders = series_of(tmp_path / "tiny", architecture, changes)
    summary = go(tmp_path / "b.zarr", tmp_path / "tiny", architecture, "transformers")
    assert summary.complete, summary.failed
    assert_each_is_its_own(Bank.open(tmp_path / "b.zarr"), folders)
    told = [note for note in summary.notes if "so a new engine is started" in note]
    (field,) = changes[0]
    assert told[0] == (
        f"tiny step 1: config.json differs from that of the checkpoint before in {field}, so a new"
        " engine is started"
    )
    assert len(told) == len(changes)


@pytest.mark.vllm
@pytest.mark.whole
@pytest.mark.parametrize(
    ("architecture", "changes"),
    [
        long("gpt_neox", NEOX),
        ("llama_tied", LLAMA[:1]),
        long("llama_tied", LLAMA[1:3]),  # it refuses other activations
        long("gpt2", GPT2[1:]),
        long("mistral", WINDOW),
        long("bert", MASKED),
        ("roberta", MASKED[:1]),
    ],
)
def test_vllm_gives_each_config_its_own_model(
    architecture: Architecture,
    changes: list[dict[str, Any]],
    tmp_path: Path,
    preloaded: Preloaded,
) -> None:
    require_vllm()
    folders = series_of(tmp_path / "tiny", architecture, changes)
    with preloaded.workers("vllm"):
        summary = go(tmp_path / "b.zarr", tmp_path / "tiny", architecture, "vllm")
    assert summary.complete, summary.failed
    assert_each_is_its_own(Bank.open(tmp_path / "b.zarr"), folders)


def test_fields_that_touch_no_logit_are_not_compared_and_every_other_one_is(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "tiny", seed=1, architecture="gpt2")
    before = config_fields(folder)
    for field in ("transformers_version", "use_cache", "bos_token_id", "torch_dtype"):
        after = config_fields(changed(folder, **{field: 0.5}))
        assert differing_fields(before, after) == (), field
    for field in ("pad_token_id", "layer_norm_epsilon", "n_inner", "unheard_of"):
        after = config_fields(changed(folder, **{field: 0.5}))
        assert differing_fields(before, after) == differing_fields(after, before) == (field,)
        assert config_digest(before) != config_digest(after)
        before = after


def test_numbers_that_json_has_no_text_for_are_compared_as_others_are(tmp_path: Path) -> None:
    """Python reads and writes them, and real configs have `"time_step_limit": [0.0, Infinity]`."""
    folder = make_checkpoint(tmp_path / "tiny", seed=1, architecture="gpt2")
    limited = config_fields(changed(folder, limit=[0.0, INF]))
    unknown, again = (config_fields(changed(folder, limit=[0.0, NAN], alone=NAN)) for _ in range(2))
    assert differing_fields(limited, limited) == differing_fields(unknown, again) == ()
    assert config_digest(unknown) == config_digest(again) != config_digest(limited)
    assert differing_fields(limited, unknown) == ("alone", "limit")


def test_the_order_of_classes_is_not_compared_and_code_is(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "tiny", seed=1, architecture="gpt2")
    code = folder / "modeling_mine.py"
    code.write_text("SCALE = 1\n")
    one = config_fields(changed(folder, architectures=["A", "B"]))
    assert differing_fields(one, config_fields(changed(folder, architectures=["B", "A"]))) == ()
    mine = config_fields(changed(folder, auto_map={"AutoModel": "modeling_mine.Mine"}))
    code.write_text("SCALE = 2\n")
    assert differing_fields(mine, config_fields(folder)) == ("code",)


@pytest.mark.parametrize(
    "engine", ["transformers", pytest.param("vllm", marks=[pytest.mark.vllm, pytest.mark.whole])]
)
def test_an_engine_refuses_the_weights_of_another_model(
    engine: EngineName, tmp_path: Path, preloaded: Preloaded
) -> None:
    series = series_of(tmp_path / "tiny", "gpt_neox", NEOX[:1])
    settings = EngineSettings(engine, max_length=8)
    extract_prompts = (settings, [series[0], series[1]], [Query((5, 6), 1)])
    message = "step1: config.json differs from that of the engine's model in layer_norm_eps; open"
    if engine == "transformers":
        with pytest.raises(WeightsError, match=message):
            logits_of(*extract_prompts)
        return
    require_vllm()
    with pytest.raises(AssertionError, match=message):
        preloaded.run("vllm", tmp_path, "tests.support.engine_driver:engine", *extract_prompts)


def grouped(suite: Suite, ids: Sequence[CheckpointId], hub: Hub | None) -> list[list[int | None]]:
    chosen = [checkpoint for checkpoint in suite.checkpoints if checkpoint.id in ids]
    return [[each.step for each in group] for group in group_by_config(chosen, hub)]


def test_checkpoints_of_one_model_are_one_group(tmp_path: Path) -> None:
    series = make_series(tmp_path / "tiny", steps=(0, 1, 2, 3, 4))
    for step in (1, 3):
        changed(series / f"step{step}", layer_norm_eps=0.3)
    (series / "step4" / "config.json").write_text("[]")
    suite = resolve_suite(str(series))
    ids = [checkpoint.id for checkpoint in suite.checkpoints]
    assert grouped(suite, ids, None) == [[0, 2], [1, 3], [4]]
    assert grouped(suite, ids[1:], None) == [[1, 3], [2], [4]]


def test_revisions_are_grouped_by_what_the_hub_lists(tmp_path: Path) -> None:
    repo = tmp_path / "hub" / "org" / "tiny"
    make_series(repo, steps=(0, 1, 2, 3))
    for step in (1, 3):
        changed(repo / f"step{step}", layer_norm_eps=0.3)
    shutil.copytree(repo / "step0", repo / "main")
    with HubServer(tmp_path / "hub") as server:
        hub = Hub(server.endpoint, tmp_path / "cache")
        suite = resolve_suite("org/tiny", hub=hub, steps="0,1,2,3")
        ids = [checkpoint.id for checkpoint in suite.checkpoints]
        for _ in range(2):
            assert grouped(suite, ids, hub) == [[0, 2], [1, 3]]
        assert server.count("/tree/") == 4 + 1, "each is listed once, and `main` for its folders"


@pytest.mark.usefixtures("quick_workers")
def test_a_dry_run_counts_the_engines_that_configs_ask_for(tmp_path: Path) -> None:
    series = make_series(tmp_path / "tiny", steps=(0, 1, 2))
    wanted = request(series, prompts_for("gpt_neox"))
    one = run(tmp_path / "b.zarr", wanted, dry_run=True)
    assert not any("Configs" in line for line in forecast(one))
    changed(series / "step1", layer_norm_eps=0.3)
    two = run(tmp_path / "b.zarr", wanted, dry_run=True)
    assert "Configs differ (2 models): each worker starts up to 2 engines." in forecast(two)
    assert not (tmp_path / "b.zarr").exists()


@pytest.mark.usefixtures("quick_workers")
def test_an_engine_that_is_replaced_when_a_stop_is_asked_for_begins_nothing(tmp_path: Path) -> None:
    settings = EngineSettings("transformers")
    one = Job(CheckpointId("m", step=0), tmp_path, (), 10, 10, {}, settings, {"eps": 1})
    with WorkerProcess(tmp_path / "b.zarr", settings.start) as worker:
        worker.start()
        worker._used, worker._settings, worker._config = True, settings, {"eps": 2}
        worker._model = "m"
        worker.interrupt()
        told = [type(event).__name__ for event in worker.run(one)]
        assert told == ["Note", "CheckpointStopped"]
        assert worker._process is None


@pytest.mark.usefixtures("quick_workers")
def test_a_checkpoint_is_not_continued_under_another_config(tmp_path: Path) -> None:
    """Half of its rows would be another model's; its weights are the same."""
    series = make_series(tmp_path / "tiny", steps=(0,))
    whole = prompts_for("gpt_neox")

    def extract_prompts(prompts: PromptSet) -> Summary:
        return run(tmp_path / "b.zarr", request(series, prompts))

    assert extract_prompts(PromptSet("first", whole.prompts[:2])).complete
    changed(series / "step0", use_cache=False)
    assert extract_prompts(PromptSet("second", whole.prompts[2:3])).complete
    changed(series / "step0", layer_norm_eps=0.3)
    (failure,) = extract_prompts(PromptSet("third", whole.prompts[3:])).failed
    assert "with other config" in failure.message


def test_a_checkpoint_that_takes_fewer_tokens_than_a_query_has_is_refused(tmp_path: Path) -> None:
    series = make_series(tmp_path / "tiny", steps=(0, 1))
    changed(series / "step1", max_position_embeddings=16)
    fit = fit_of(series / "step0")
    assert fit.check(series / "step1")["max_position_embeddings"] == 16
    fit._longest = 20
    with pytest.raises(SuiteError, match="it takes at most 16 tokens, .* longest prompt has 20"):
        fit.check(series / "step1")


def test_a_checkpoint_with_an_earlier_switch_of_longrope_is_refused(tmp_path: Path) -> None:
    series = make_series(tmp_path / "tiny", steps=(0, 1))
    factors = {"short_factor": [1.0] * 4, "long_factor": [2.0] * 4}
    scaling = {"rope_type": "longrope", "original_max_position_embeddings": 8} | factors
    changed(series / "step1", rope_parameters=scaling)
    fit = fit_of(series / "step0")
    fit._longest = 7
    fit.check(series / "step1")
    fit._longest = 8
    with pytest.raises(SuiteError, match="from 8 tokens"):
        fit.check(series / "step1")


def test_language_adapters_of_a_suite_are_the_same(tmp_path: Path) -> None:
    make_series(tmp_path / "tiny", steps=(0, 1), architecture="xmod")
    changed(tmp_path / "tiny" / "step1", languages=["de_CH"])
    fit = fit_of(tmp_path / "tiny" / "step0")
    with pytest.raises(SuiteError, match=r"its languages is \['de_CH'\], the first checkpoint's"):
        fit.check(tmp_path / "tiny" / "step1")
