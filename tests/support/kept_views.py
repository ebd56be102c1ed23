"""Views that keep what they computed, and how often they compute."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from logitbank.store import Bank, CheckpointId, Filter, View, open_bank
from logitbank.store.filter.deposit import FilteredDeposit
from tests.support.small_banks import QUERY_SET, logits, new_bank

BY = Filter(np.array([[1.0, 0.25], [0.5, -1.0]]), np.array([0.125, 0.0]), "keep_tail")
KEY = ["step", "prompt_id", "option"]


def bank(path: Path, *steps: int, keep: str = "topk:4", shift: int = 0) -> Bank:
    made = Bank.open(path) if path.exists() else new_bank(path)
    for step in steps:
        checkpoint = CheckpointId("org/model", step=step)
        values = logits(step + shift)
        made.deposit(values, checkpoint=checkpoint, query_set=QUERY_SET.name, keep=keep)
    return made


def saved(folder: Path, made: Bank, by: Filter = BY) -> Path:
    """A view `v` of a bank."""
    View.of(made, by, name="filtered").save(folder / "v")
    return folder / "v"


def watch(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The training step of each deposit that a filter is computed of, as often as it is."""
    steps: list[int] = []
    real = FilteredDeposit._filtered

    def watched(self: FilteredDeposit, *given: object) -> pl.DataFrame:
        steps.append(self.checkpoint.step)  # type: ignore[arg-type]
        return real(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(FilteredDeposit, "_filtered", watched)
    return steps


def answers(view: Path) -> pl.DataFrame:
    return open_bank(view).scan("parity").collect().sort(KEY)


def unkept(made: Bank, by: Filter = BY, *, prompts: str = "parity") -> pl.DataFrame:
    """What a view answers that was not saved, so that it keeps nothing."""
    return View.of(made, by, name="filtered").scan(prompts).collect().sort(KEY)


def files(view: Path) -> list[Path]:
    return sorted((view / "scores").glob("*/*"))
