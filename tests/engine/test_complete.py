"""When a checkpoint that a training writes is complete."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from logitbank.engine.suites.complete import CHANGING, TrainerState, Watch, trainer_state
from logitbank.engine.suites.folders import scan_growing
from logitbank.errors import SuiteError
from tests.support.growing import save_checkpoint, write_state


class Clock:
    """Seconds that go by when a test says so."""

    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def settled(folder: Path) -> str:
    """What a folder lacks in which nothing changes any more."""
    clock = Clock()
    watch = Watch(clock=clock)
    assert watch.lacks(folder) == CHANGING
    clock.seconds = 60
    return watch.lacks(folder)


def test_a_folder_is_complete_when_nothing_has_changed_for_five_seconds(tmp_path: Path) -> None:
    folder, clock = save_checkpoint(tmp_path, 10, max_steps=20), Clock()
    watch, said = Watch(clock=clock), []
    for clock.seconds in (0, 4.9, 5.1):
        said.append(watch.lacks(folder))
    (folder / "rng_state.pth").write_bytes(b"more")
    for clock.seconds in (6, 10.9, 11.1):
        said.append(watch.lacks(folder))
    assert said == [CHANGING, CHANGING, "", CHANGING, CHANGING, ""]


def test_a_state_that_trainer_writes_last_is_waited_for(tmp_path: Path) -> None:
    folder = save_checkpoint(tmp_path, 10)
    assert settled(folder) == "its trainer_state.json, which Trainer writes last, is not there"
    (folder / "trainer_state.json").write_text('{"global_step": 10, "max_st')
    assert settled(folder) == "its trainer_state.json is not whole"
    write_state(folder, 10, 20)
    assert settled(folder) == ""
    assert trainer_state(folder) == TrainerState(10, 20)


def test_other_trainings_checkpoints_need_no_state(tmp_path: Path) -> None:
    folder = save_checkpoint(tmp_path, 10)
    (folder / "optimizer.pt").unlink()
    assert settled(folder) == ""


@pytest.mark.parametrize("cut", [0, 4, 100])
def test_cut_weights_are_not_whole(tmp_path: Path, cut: int) -> None:
    folder = save_checkpoint(tmp_path, 10, max_steps=20)
    weights = folder / "model.safetensors"
    save_file({"a": np.zeros(100)}, weights)
    assert settled(folder) == ""
    weights.write_bytes(weights.read_bytes()[:cut])
    assert settled(folder).startswith("its weights are not whole yet (")
    weights.unlink()
    assert settled(folder).startswith("its weights are not whole yet (")


def test_a_shard_that_the_others_name_is_waited_for(tmp_path: Path) -> None:
    folder = save_checkpoint(tmp_path, 10, max_steps=20)
    (folder / "model.safetensors").rename(folder / "model-00001-of-00002.safetensors")
    lacks = settled(folder)
    assert "lacks the weight file model-00002-of-00002.safetensors" in lacks


def test_a_folder_that_is_gone_is_no_error(tmp_path: Path) -> None:
    assert Watch().lacks(tmp_path / "checkpoint-1").startswith("it cannot be read (No such file")


def test_a_growing_folder_may_be_absent_or_empty_but_no_file(tmp_path: Path) -> None:
    assert scan_growing(tmp_path / "out").checkpoints == ()
    assert scan_growing(tmp_path).checkpoints == ()
    (tmp_path / "file").touch()
    with pytest.raises(SuiteError, match="file is a file; give the folder that the training saves"):
        scan_growing(tmp_path / "file")


def test_what_is_still_to_be_renamed_and_the_folder_itself_are_left_alone(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, 10).rename(tmp_path / "tmp-checkpoint-10")
    (tmp_path / "config.json").write_text("{}")
    save_checkpoint(tmp_path / "seed3", 20)
    (found,) = scan_growing(tmp_path).checkpoints
    assert (found.run, found.step) == ("seed3", 20)
