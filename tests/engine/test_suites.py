import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from logitbank.engine.suites.catalogue import known_suites
from logitbank.engine.suites.hub import Hub, HubSource
from logitbank.engine.suites.suites import LocalSource, Suite, resolve_suite
from logitbank.engine.weights.weights import weight_files
from logitbank.errors import SuiteError, UsageError, WeightsError
from logitbank.store.format.schema import CheckpointId


def checkpoint(folder: Path, *, value: float = 0) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text("{}")
    save_file({"w": torch.full((2,), value)}, folder / "model.safetensors")
    return folder


def ids(suite: Suite) -> list[tuple[str, str, int | None, int | None]]:
    return [(c.id.model, c.id.run, c.id.step, c.id.run_seed) for c in suite.checkpoints]


def steps(suite: Suite) -> list[int | None]:
    return [c.id.step for c in suite.checkpoints]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


def branches(root: Path, repo: str, *names: str) -> None:
    for name in names:
        (root / repo / name).mkdir(parents=True)


# Known suites


def test_known_names_are_distinct_and_hold_the_published_series():
    known = {suite.name: suite for suite in known_suites()}
    assert len(known) == len(known_suites()) == 10 + 8 + 45 + 6 + 6 + 2 + 12 + 4 + 1
    assert known["pythia-1.4b-deduped"].repo == "EleutherAI/pythia-1.4b-deduped"
    assert known["OLMo-2-0425-1B"].repo == "allenai/OLMo-2-0425-1B"
    assert len(known["pythia-12b"].expected) == 154
    seed = known["pythia-31m-seed9"]
    assert (seed.model, seed.run, seed.run_seed) == ("pythia-31m", "seed9", 9)
    data = known["pythia-160m-data-seed2"]
    assert (data.model, data.run, data.run_seed) == ("pythia-160m", "data-seed2", None)


def test_multiberts_have_a_repository_for_every_checkpoint(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")  # the list is the catalogue's
    whole = resolve_suite("multiberts")
    assert len(whole.checkpoints) == 5 * 29
    assert {(c.id.run, c.id.run_seed) for c in whole.checkpoints} == {
        (f"seed{seed}", seed) for seed in range(5)
    }
    chosen = resolve_suite("multiberts", steps="0,2000000").checkpoints[:2]
    assert [(c.id.step, c.source) for c in chosen] == [
        (0, HubSource("google/multiberts-seed_0-step_0k", "main")),
        (2_000_000, HubSource("google/multiberts-seed_0-step_2000k", "main")),
    ]


# On the hub


def test_known_suite_leaves_the_release_out_and_names_what_is_missing(root, hub):
    there = [0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, *range(1000, 144_000, 1000)]
    absent = (5000, 6000, 7000)
    names = [f"step{step}" for step in there if step not in absent]
    branches(root, "EleutherAI/pythia-14m", "main", *names)
    suite = resolve_suite("pythia-14m", hub=hub)
    assert len(suite.checkpoints) == 151
    assert (steps(suite)[:4], steps(suite)[-1]) == ([0, 1, 2, 4], 143000)
    assert suite.notes == ("pythia-14m: missing 3 of 154 steps: 5000, 6000, 7000",)
    assert suite.checkpoints[3].source == HubSource("EleutherAI/pythia-14m", "step4")
    with pytest.raises(SuiteError, match="step 500"):
        resolve_suite("pythia-14m", hub=hub, steps="500")


def test_known_repository_is_the_known_suite(root, hub):
    branches(root, "EleutherAI/pythia-70m-seed3", "step0")
    suite = resolve_suite("EleutherAI/pythia-70m-seed3", hub=hub)
    assert ids(suite) == [("pythia-70m", "seed3", 0, 3)]


def test_stages_are_runs(root, hub):
    model = "OLMo-2-0425-1B"
    stages = ("stage1-step10000-tokens21B", "stage1-step9000-tokens19B")
    branches(root, f"allenai/{model}", "main", *stages, "stage2-ingredient1-step1000-tokens3B")
    assert ids(resolve_suite(model, hub=hub)) == [
        (model, "stage1", 9000, None),
        (model, "stage1", 10000, None),
        (model, "stage2-ingredient1", 1000, None),
    ]
    picked = resolve_suite(model, hub=hub, steps="1000,last,release")
    assert ids(picked) == [
        (model, "stage1", 10000, None),
        (model, "stage2-ingredient1", 1000, None),
        (model, "main", None, None),
    ]
    assert picked.notes == (f"run stage1 of {model} has no step 1000",)


def test_tags_of_an_encoder_and_its_decoder_are_two_models_with_the_same_runs(root, hub, server):
    tags = ("step599525", "ext1000", "decay100")
    server.tags = {*tags}
    for kind in ("encoder", "decoder"):
        branches(root, f"jhu-clsp/ettin-{kind}-17m", "main", *tags)
        suite = resolve_suite(f"ettin-{kind}-17m", hub=hub)
        assert ids(suite) == [
            (f"ettin-{kind}-17m", "decay", 100, None),
            (f"ettin-{kind}-17m", "ext", 1000, None),
            (f"ettin-{kind}-17m", "main", 599_525, None),
        ]
        assert {c.source.revision for c in suite.checkpoints} == {*tags}
        assert not suite.notes


def test_the_release_may_be_in_a_repository_of_its_own(root, hub):
    repo, release = "HuggingFaceTB/SmolLM3-3B-checkpoints", "HuggingFaceTB/SmolLM3-3B-Base"
    steps = ("stage1-step-40000", "stage2-step-3480000", "lc-4k-to-32k-step-4000")
    branches(root, repo, "main", *steps, "it-SFT")
    branches(root, release, "main")
    model = "SmolLM3-3B-Base"
    for spec in (model, repo):
        suite = resolve_suite(spec, hub=hub, steps="40000,4000,last,release")
        assert ids(suite) == [
            (model, "lc-4k-to-32k", 4000, None),
            (model, "stage1", 40_000, None),
            (model, "stage2", 3_480_000, None),
            (model, "main", None, None),
        ]
        assert suite.notes[0] == f"{repo}: excluded, no step in the name: it-SFT"
        assert suite.checkpoints[0].source == HubSource(repo, steps[2])
        assert suite.checkpoints[-1].source == HubSource(release, "main")
    branches(root, "HuggingFaceTB/SmolLM2-135M-intermediate-checkpoints", "step-240000", "main")
    suite = resolve_suite("SmolLM2-135M", hub=hub)
    assert ids(suite) == [("SmolLM2-135M", "main", 240_000, None)]


SPELLINGS = {
    "step1000": ("main", 1000),
    "ckpt_100": ("main", 100),
    "chck_1M": ("main", 1_000_000),
    "step_20k": ("main", 20_000),
    "iter_0002000": ("main", 2000),
    "step-50K-105b": ("main", 50_000),
    "16.78B": ("main", 16_780_000_000),
    "decay100": ("decay", 100),
    "ext1000": ("ext", 1000),
    "step1000-seed-large-1": ("seed-large-1", 1000),
}


def test_names_of_many_spellings_are_steps_on_the_hub_and_in_folders(root, hub, tmp_path):
    names = (*SPELLINGS, "step7-ema")
    branches(root, "lab/toy", "main", *names)
    for name in names:
        checkpoint(tmp_path / "toy" / name)
    for spec in ("lab/toy", str(tmp_path / "toy")):
        suite = resolve_suite(spec, hub=hub)
        found = [("toy", *named, None) for named in SPELLINGS.values()]
        assert sorted(ids(suite), key=str) == sorted(found, key=str)
        left_out, tokens = suite.notes
        assert left_out == f"{spec}: excluded, no step in the name: step7-ema"
        assert "16.78B are token counts" in tokens


def test_tags_are_steps_too(root, hub, server):
    branches(root, "lab/toy", "main", "step10", "step20", "step30", "v1.0", "10")
    server.tags = {"step20", "step30", "v1.0", "10"}  # the branch step10 is preferred to a tag
    suite = resolve_suite("lab/toy", hub=hub)
    assert [c.source.revision for c in suite.checkpoints] == ["step10", "step20", "step30"]
    assert suite.notes == (
        "lab/toy: excluded, no step in the name: v1.0",
        "lab/toy: excluded, same step as others: 10 (step10)",
    )


def test_folders_of_a_repository_are_steps_too(root, hub):
    for name in ("step5", "step-50K-105b", "seed3/step7", "best", "notes"):
        checkpoint(root / "lab/toy/main" / name)
    (root / "lab/toy/main/notes/config.json").unlink()
    suite = resolve_suite("lab/toy", hub=hub)
    assert ids(suite) == [
        ("toy", "main", 5, None),
        ("toy", "main", 50_000, None),
        ("toy", "seed3", 7, 3),
    ]
    assert suite.checkpoints[0].source == HubSource("lab/toy", "main", "step5")
    assert suite.notes == ("lab/toy: excluded, no step in the name: best",)
    folder = hub.fetch(suite.checkpoints[0].source)
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "model.safetensors"]
    assert [path.name for path in folder.parent.iterdir()] == ["step5"]


def test_the_release_is_main_or_final(root, hub):
    branches(root, "lab/toy", "final", "step10")
    (checkpoint,) = resolve_suite("lab/toy", hub=hub, steps="release").checkpoints
    assert checkpoint.source == HubSource("lab/toy", "final")
    branches(root, "lab/toy", "main")
    release = resolve_suite("lab/toy", hub=hub, steps="release", model="mine")
    assert [(c.id, c.source) for c in release.checkpoints] == [
        (CheckpointId("mine"), HubSource("lab/toy", "main"))
    ]
    assert "lab/toy: excluded, same step as others: final (main)" in release.notes


def test_repository_without_steps_is_its_release_or_refused(root, hub):
    branches(root, "lab/toy", "main")
    suite = resolve_suite("lab/toy", hub=hub)
    assert steps(suite) == [None]
    assert suite.notes == ("toy has no step like step1000, only its release (main)",)
    (root / "lab/toy/main").rename(root / "lab/toy/draft")
    with pytest.raises(SuiteError, match="lab/toy has no branch, tag or folder .*: draft"):
        resolve_suite("lab/toy", hub=hub)


def test_offline_tags_and_folders_are_what_was_fetched(root, hub, server, monkeypatch):
    for name in ("main/step5", "main/step7", "step10", "step20"):
        checkpoint(root / "lab/toy" / name)
    server.tags = {"step10", "step20"}
    for source in (HubSource("lab/toy", "main", "step7"), HubSource("lab/toy", "step20")):
        hub.fetch(source)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    server.requests.clear()
    there = Hub(server.endpoint, hub.cache_dir)
    suite = resolve_suite("lab/toy", hub=there)
    assert steps(suite) == [7, 20]
    assert "toy: offline, so only the 2 checkpoints in the cache are known" in suite.notes
    folders = [there.fetch(checkpoint.source) for checkpoint in suite.checkpoints]
    assert folders[0].name == "step7"
    assert all((folder / "model.safetensors").is_file() for folder in folders)
    assert server.requests == []


# In a folder


@pytest.mark.parametrize(
    ("folders", "spec", "expected"),
    [
        (["toy"], "toy", [("toy", "main", None, None)]),
        (["toy/step30"], "toy/step30", [("toy", "main", 30, None)]),
        (["toy/seed4/step30"], "toy/seed4/step30", [("toy", "seed4", 30, 4)]),
        (["toy/stage1-step30"], "toy/stage1-step30", [("toy", "stage1", 30, None)]),
        (["toy", "toy/checkpoint-500"], "toy", [("toy", "main", 500, None)]),
        (["llama/7B"], "llama/7B", [("7B", "main", None, None)]),
        (["pythia/1.4b/step5"], "pythia", [("pythia", "1.4b", 5, None)]),
        (["pythia-14m/step1"], "./pythia-14m", [("pythia-14m", "main", 1, None)]),
        (["toy/step1"], "./toy/", [("toy", "main", 1, None)]),
        (  # the Trainer's final model, which is the release of each run
            ["toy/seed1", "toy/seed1/checkpoint-5", "toy/seed2", "toy/seed2/checkpoint-5"],
            "toy",
            [("toy", "seed1", 5, 1), ("toy", "seed2", 5, 2)],
        ),
        (
            ["toy/epoch=0-step=5", "toy/epoch=1-step=10"],
            "toy",
            [("toy", "main", 5, None), ("toy", "main", 10, None)],
        ),
        (
            ["toy/seed10/step1", "toy/seed2/step1", "toy/seed0/stage1-step5", "toy/base/step1"],
            "toy",
            [
                ("toy", "base", 1, None),
                ("toy", "seed0-stage1", 5, None),
                ("toy", "seed2", 1, 2),
                ("toy", "seed10", 1, 10),
            ],
        ),
    ],
)
def test_folders_are_checkpoints_by_name(tmp_path, monkeypatch, folders, spec, expected):
    for folder in folders:
        checkpoint(tmp_path / folder)
    monkeypatch.chdir(tmp_path)
    assert ids(resolve_suite(spec)) == expected
    (first, *_), *_ = expected
    assert {c.id.model for c in resolve_suite(spec, model="mine").checkpoints} == {"mine"} != first
    monkeypatch.chdir(spec)
    assert ids(resolve_suite(".")) == expected


def test_a_folder_that_holds_steps_is_their_release(tmp_path):
    for name in ("toy", "toy/checkpoint-500"):
        checkpoint(tmp_path / name)
    (release,) = resolve_suite(str(tmp_path / "toy"), steps="release").checkpoints
    assert (release.id, release.source) == (CheckpointId("toy"), LocalSource(tmp_path / "toy"))


def test_a_final_model_beside_checkpoints_of_a_run_is_the_release_of_the_run(tmp_path):
    for name in ("toy/seed1", "toy/seed1/checkpoint-500", "toy/seed2/checkpoint-500"):
        checkpoint(tmp_path / name)
    (release,) = resolve_suite(str(tmp_path / "toy"), steps="release").checkpoints
    assert release.id == CheckpointId("toy", "seed1", None, 1)
    assert release.source == LocalSource(tmp_path / "toy/seed1")


def test_copies_that_a_training_leaves_are_excluded_with_a_note(tmp_path):
    for name in ("checkpoint-500", "tmp-checkpoint-1000", "best-checkpoint-500"):
        checkpoint(tmp_path / "toy" / name)
    suite = resolve_suite(str(tmp_path / "toy"))
    assert ids(suite) == [("toy", "main", 500, None)]
    names = "best-checkpoint-500, tmp-checkpoint-1000"
    assert suite.notes == (f"{tmp_path}/toy: excluded, temporary or second copies: {names}",)


def test_steps_without_a_stage_are_of_the_first_stage(root, hub):
    """As in allenai/OLMo-2-1124-7B, whose release is made of several second stages."""
    names = ("stage1-step1000-tokens5B", "step150-tokens1B", "stage2-ingredient1-step1000", "main")
    branches(root, "lab/toy", *names)
    found = [(c.id.run, c.id.step) for c in resolve_suite("lab/toy", hub=hub).checkpoints]
    assert found == [("stage1", 150), ("stage1", 1000), ("stage2-ingredient1", 1000)]
    (release,) = resolve_suite("lab/toy", hub=hub, steps="release").checkpoints
    assert release.id == CheckpointId("toy")


def test_one_of_two_formats_of_the_same_weights_is_fetched(root, hub):
    """As in Mistral's repositories."""
    folder = checkpoint(root / "lab/toy/main")
    for n in (1, 2):
        shutil.copy(folder / "model.safetensors", folder / f"model-0000{n}-of-00002.safetensors")
    (folder / "model.safetensors").rename(folder / "consolidated.safetensors")
    needed = {file.path for file in hub.needed(HubSource("lab/toy", "main"))}
    assert needed == {"config.json", *(f"model-0000{n}-of-00002.safetensors" for n in (1, 2))}


@pytest.mark.parametrize("shards", ["step5", "step5/pytorch_model_fsdp_0"])
def test_a_distributed_checkpoint_is_refused_by_its_name_with_a_converter(tmp_path, shards):
    (tmp_path / "toy" / shards).mkdir(parents=True)
    (tmp_path / "toy" / shards / "__0_0.distcp").touch()
    message = r"step5\S* is a distributed checkpoint \(DCP\).* `accelerate merge-weights`"
    for folder in ("toy", "toy/step5"):
        with pytest.raises(SuiteError, match=message):
            resolve_suite(str(tmp_path / folder))
    (tmp_path / "toy/step5/config.json").write_text("{}")
    with pytest.raises(WeightsError, match=message):
        weight_files(tmp_path / "toy/step5")
    checkpoint(tmp_path / "toy/step6")
    (tmp_path / "toy/step5/config.json").unlink()
    (note,) = resolve_suite(str(tmp_path / "toy")).notes
    assert "step5 is excluded: it is a distributed checkpoint" in note


def test_excluded_folders_are_noted(tmp_path):
    for name in ("step1", "seed0/step1", "seed0/step2", "best"):
        checkpoint(tmp_path / "toy" / name)
    (tmp_path / "toy/step2").mkdir()
    (tmp_path / "toy/.cache").mkdir()
    assert resolve_suite(str(tmp_path / "toy"), steps="1,2").notes == (
        f"{tmp_path}/toy: excluded, no step in the name: best",
        f"{tmp_path}/toy/step2 is excluded: it has no config.json",
        "run main of toy has no step 2",
    )


def test_folders_that_are_no_suite_are_refused_with_what_to_do(tmp_path):
    checkpoint(tmp_path / "ema/step1000-ema")
    checkpoint(tmp_path / "two/step1")
    checkpoint(tmp_path / "two/step-1")
    files = ("weights", "settings/config.json", "llama/q.gguf", "peft/lora-a/adapter_config.json")
    for file in files:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text("{}")
    for name, message in {
        "absent": "absent does not exist; give a folder of checkpoints",
        "weights": "weights is a file; give the folder that contains the checkpoint",
        "settings": r"no checkpoint in .*: looked for config\.json \+ \*\.safetensors in it and in",
        "ema/step1000-ema": "step in the name of .*step1000-ema cannot be read",
        "two": r"step1 \(step-1\) are the same step; rename or move one",
        "llama": "q.gguf is a GGUF file.*Save it with transform",
        "llama/q.gguf": "q.gguf is a GGUF file.*Save it with transform",
        "peft": "lora-a is an adapter.*Merge it into its base model with P",
        "peft/lora-a": "lora-a is an adapter.*Merge it into its base model with P",
    }.items():
        with pytest.raises(SuiteError, match=message):
            resolve_suite(str(tmp_path / name))


# Names


def test_unknown_name_suggests_close_ones():
    message = (
        r"'pythia-160' is neither a known suite, a folder, nor an owner/name on the hub "
        r"\(did you mean pythia-160m or .*\); `logitbank suites` lists the known ones"
    )
    with pytest.raises(SuiteError, match=message):
        resolve_suite("pythia-160")


def test_invalid_steps_are_refused_before_any_request():
    with pytest.raises(UsageError, match="some"):
        resolve_suite("pythia-160m", steps="some")
