"""The logits tap maps rows to requests in both of vLLM's model runners."""

from pathlib import Path

import pytest

from tests.support.checkpoints import make_checkpoint
from tests.support.preloaded import Preloaded, require_vllm

pytestmark = pytest.mark.vllm


@pytest.mark.whole
def test_rows_follow_their_requests_when_the_batch_changes(
    preloaded: Preloaded, tmp_path: Path
) -> None:
    require_vllm()
    assert preloaded.run("vllm", tmp_path, "tests.support.tap_cases:older_runner") == [
        [10, 11, 12, 0.0, 1.0, 2.0],
        [12, 11, 3.0, 4.0],
        [11, 12, 5.0, 6.0],
        [11, 7.0],
    ]


def test_an_unfinished_prefill_is_no_result(preloaded: Preloaded, tmp_path: Path) -> None:
    require_vllm()
    assert preloaded.run("vllm", tmp_path, "tests.support.tap_cases:newer_runner") == [
        [41, 0.0],
        [40, 42, 0.0, 5.0],
    ]


def test_what_nobody_reads_is_sampled_of_one_logit(preloaded: Preloaded, tmp_path: Path) -> None:
    require_vllm()
    shapes = preloaded.run("vllm", tmp_path, "tests.support.tap_cases:left_to_sample")
    assert shapes == [[2, 1], [2, 7], [2, 7]]


def test_a_package_that_registers_logits_processors_is_named(
    preloaded: Preloaded, tmp_path: Path
) -> None:
    require_vllm()
    info = tmp_path / "tilted_logits-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tilted-logits\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[vllm.logits_processors]\ntilt = tilted:Tilt\n")
    folder = make_checkpoint(tmp_path / "step0", seed=1)
    case = "tests.support.tap_cases:with_another_package"
    message = preloaded.run("vllm", tmp_path, case, folder, tmp_path)
    assert "the package tilted-logits registers the logits processor 'tilt'" in message
    assert message.endswith("uninstall it here, or use --engine transformers")
