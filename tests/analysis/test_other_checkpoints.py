"""A number of a checkpoint is the same whatever other checkpoints a bank has, and in which bank it
is."""

import shutil
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import logitbank
from logitbank import Bank
from tests.golden import banks
from tests.golden.banks import Make

OF_BASELINE = pl.selectors.starts_with("from_baseline") | pl.selectors.by_name(
    "baseline_step", "common"
)
OF_LAST = "top1_agreement"
CASES: dict[str, tuple[Make, str]] = {
    "fairness": (banks.families, "families.zarr"),
    "fluctuation": (banks.demo, "toy.zarr"),
    "gest": (banks.gest, "gest.zarr"),
    "lambada": (banks.ties, "ties.zarr"),
    "options": (banks.stereoset, "stereoset.zarr"),
    "pairs": (banks.ties, "ties.zarr"),
    "stereoset": (banks.stereoset, "stereoset.zarr"),
    "stereotype": (banks.ties, "ties.zarr"),
    "unqover": (banks.unqover, "unqover.zarr"),
}
cases = pytest.mark.parametrize("family", CASES)


def made(folder: Path, family: str) -> Path:
    make, name = CASES[family]
    make(folder)
    return folder / name


def measures(family: str, *paths: Path) -> pl.DataFrame:
    return getattr(logitbank, family)([*paths]).tables["measures"]


def keep(path: Path, number: int, remainder: int) -> None:
    """Remove the deposits of checkpoints of each run, but for each `number`-th."""
    bank = Bank.open(path)
    seen: dict[tuple[str, str], list[object]] = {}
    for deposit in bank.deposits():
        checkpoint = deposit.checkpoint
        steps = seen.setdefault((checkpoint.model, checkpoint.run), [])
        if checkpoint.step not in steps:
            steps.append(checkpoint.step)
        if steps.index(checkpoint.step) % number != remainder:
            shutil.rmtree(deposit.path)


@cases
def test_without_every_other_checkpoint(family: str, tmp_path: Path) -> None:
    path = made(tmp_path, family)
    every = measures(family, path)
    keep(path, 2, 1)
    some = measures(family, path)
    assert 0 < len(some) < len(every)
    keys = ["model", "run", "step"]
    of_some = every.join(some.select(keys), on=keys, how="semi", nulls_equal=True)
    one, two = (
        table.drop(OF_BASELINE)
        .remove(measure=OF_LAST)
        .sort(pl.selectors.by_dtype(pl.String), "step")
        for table in (of_some, some)
    )
    assert_frame_equal(one, two, abs_tol=1e-12, rel_tol=1e-12)


@cases
def test_in_two_banks(family: str, tmp_path: Path) -> None:
    path = made(tmp_path, family)
    every = measures(family, path)
    other = shutil.copytree(path, tmp_path / "other.zarr")
    keep(path, 2, 0)
    keep(other, 2, 1)
    if family == "options":
        with pytest.raises(logitbank.errors.UsageError, match="Put the banks together with"):
            measures(family, path, other)
    else:
        assert_frame_equal(measures(family, other, path), every, check_row_order=False)
