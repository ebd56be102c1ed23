"""vLLM's process groups do not each keep a thread that wakes to listen."""

from pathlib import Path

import pytest

from tests.support.checkpoints import make_checkpoint
from tests.support.preloaded import Preloaded, require_vllm

pytestmark = pytest.mark.vllm


def test_groups_made_meanwhile_share_a_thread_and_work(
    preloaded: Preloaded, tmp_path: Path
) -> None:
    require_vllm()
    seen = preloaded.run("vllm", tmp_path, "tests.support.group_cases:of_groups", tmp_path)
    assert seen == [1, 2, 1.0, 1.0, 1.0]


def test_a_package_that_registers_logits_processors_is_named(
    preloaded: Preloaded, tmp_path: Path
) -> None:
    require_vllm()
    info = tmp_path / "tilted_logits-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tilted-logits\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[vllm.logits_processors]\ntilt = tilted:Tilt\n")
    folder = make_checkpoint(tmp_path / "step0", seed=1)
    case = "tests.support.group_cases:beside_a_package"
    message = preloaded.run("vllm", tmp_path, case, folder, tmp_path)
    assert "the package tilted-logits registers the logits processor 'tilt'" in message
    assert message.endswith("uninstall it here, or use --engine transformers")
