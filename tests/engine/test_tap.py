"""The logits tap maps rows to requests in both of vLLM's model runners."""

from pathlib import Path

import pytest

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
