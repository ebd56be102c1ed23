"""Blocks of scores are so large that they take half a minute; blocks of rows go by their bytes."""

from pathlib import Path

import pytest

from tests.support.fakes import questions, request_for, write_series
from tests.support.resolved import make_plan


@pytest.mark.parametrize(
    ("keep", "gpu", "parameters", "rows"),
    [
        ("options", False, 1_000_000_000, 64),  # 1.5 s a row: the least
        ("topk:4", False, 14_000_000, 1024),  # 21 ms a row: 1,411 in 30 s
        ("options", False, 100_000, 4096),
        ("options", True, 1_000_000_000, 4096),
        ("full", False, 1_000_000_000, 4096),  # of 640 outputs; by bytes alone
    ],
)
def test_blocks_of_scores_take_half_a_minute(
    tmp_path: Path, keep: str, gpu: bool, parameters: int, rows: int
) -> None:
    series = write_series(tmp_path / "tiny", "step0", dtype="float16")
    with (series / "step0" / "model.safetensors").open("wb") as file:
        file.truncate(2 * parameters)
    prompts = questions(" the nurse" + " said" * 36)
    request = request_for(series, prompts, block_rows=None, keep=keep)
    (deposit,) = make_plan(request, None, series / "step0", gpu=gpu).plan.deposits
    assert deposit.layout.block_rows == rows
