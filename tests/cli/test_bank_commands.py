"""merge, shrink, describe and info as they are typed."""

import json
from pathlib import Path

import numpy as np
import pytest

from logitbank.store import Bank, CheckpointId
from tests.support.command import Call
from tests.support.small_banks import QUERY_SET, logits, new_bank


def bank(path: Path, step: int, values: np.ndarray | None = None) -> Path:
    new_bank(path).deposit(
        logits(step) if values is None else values,
        checkpoint=CheckpointId("m", step=step),
        query_set=QUERY_SET.name,
        provenance={"weights": f"{step:02x}" * 32},
    )
    return path


def test_merge_says_what_it_added(call: Call, tmp_path: Path) -> None:
    one, two = bank(tmp_path / "1", 1), bank(tmp_path / "2", 2)
    code, out, error = call("merge", tmp_path / "m", one, two)
    assert (code, error) == (0, "")
    assert out.startswith(f"{tmp_path}/m: 2 deposits and 2 tables added, ")
    assert out.endswith(" bytes copied; it keeps full\n")
    assert call("merge", tmp_path / "m", one, two)[1] == f"{tmp_path}/m has all of it already\n"
    assert call("verify", tmp_path / "m")[0] == 0


def test_a_conflict_is_one_line(call: Call, tmp_path: Path) -> None:
    one, other = bank(tmp_path / "1", 1), bank(tmp_path / "2", 1, logits(7))
    code, out, error = call("merge", one, other)
    assert (code, out) == (1, "")
    assert error.count("\n") == 1
    assert "cannot be joined with" in error
    assert "`logitbank compare` says how they differ" in error
    assert call("merge", one)[0] == 2
    code, out, _ = call("compare", one, other)
    assert code == 0
    assert "KL(A‖B) is up to" in out


@pytest.mark.parametrize("arguments", [("--keep", "topk:2"), ("--dtype", "float16")])
def test_shrink_says_what_came_of_it(
    call: Call, tmp_path: Path, arguments: tuple[str, str]
) -> None:
    code, out, error = call("shrink", bank(tmp_path / "1", 1), tmp_path / "s", *arguments)
    assert (code, error) == (0, "")
    sizes = [Bank.open(tmp_path / name).info()["bytes"].sum() for name in ("1", "s")]
    assert out == f"{tmp_path}/s: 1 deposit, {sizes[0]:,} bytes became {sizes[1]:,}\n"
    code, _, error = call("shrink", tmp_path / "s", tmp_path / "t", *arguments)
    assert code == 2
    assert "is not smaller" in error


def test_describe_and_provenance(call: Call, tmp_path: Path) -> None:
    path = bank(tmp_path / "1", 1)
    code, out, _ = call("describe", path, "--citation", "Ada 2026", "--title", "")
    assert (code, out) == (0, "licence: CC0-1.0\ncitation: Ada 2026\n")
    assert call("describe", path)[0] == 2
    code, out, _ = call("info", path, "--provenance")
    assert code == 0
    assert "citation: Ada 2026" in out
    assert "01" * 32 in out
    document = json.loads(call("info", path, "--provenance", "--format", "json")[1])
    assert document["citation"] == "Ada 2026"
    csv = call("info", path, "--provenance", "--format", "csv")[1]
    assert csv.startswith("model,run,field,value,deposits,first_step,last_step\n")
