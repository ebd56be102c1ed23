"""The logits tap maps rows to requests in both of vLLM's model runners."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("vllm", reason="vLLM is not installed")
pytestmark = pytest.mark.vllm


@pytest.fixture(scope="module")
def seen() -> dict[str, list[list[float]]]:
    result = subprocess.run(
        [sys.executable, "-m", "tests.tap_cases"],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[1],
    )
    assert result.returncode == 0, result.stderr[-2000:]
    return json.loads(result.stdout.splitlines()[-1])  # type: ignore[no-any-return]


def test_rows_follow_their_requests_when_the_batch_changes(seen: dict[str, object]) -> None:
    assert seen["older"] == [
        [10, 11, 12, 0.0, 1.0, 2.0],
        [12, 11, 3.0, 4.0],
        [11, 12, 5.0, 6.0],
        [11, 7.0],
    ]


def test_an_unfinished_prefill_is_no_result(seen: dict[str, object]) -> None:
    assert seen["newer"] == [[41, 1.0], [40, 3.0]]
