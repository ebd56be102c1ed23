"""Exports refuse what is partial, and with `--partial` say how much it is."""

import json
from pathlib import Path

import polars as pl
import pytest

from logitbank.analysis.families.crows_pairs.study import crows_pairs
from logitbank.analysis.families.fluctuation.study import fluctuation
from logitbank.analysis.families.lambada.study import lambada
from logitbank.analysis.families.stereotype.study import stereotype
from logitbank.analysis.harness import read_harness
from logitbank.errors import UsageError
from logitbank.store import Bank
from tests.analysis import test_fluctuation_study
from tests.analysis.test_missing import ask, new
from tests.support.command import Call
from tests.support.evaluation_banks import (
    add_crows_pairs,
    add_lambada,
    add_stereotype,
    add_winobias,
)


@pytest.fixture
def bank(tmp_path: Path) -> Bank:
    return Bank.create(tmp_path / "b.zarr")


def counts(folder: Path, step: int) -> tuple[dict[str, dict[str, int]], dict[str, bool]]:
    document = json.loads((folder / f"results_toy-step{step}.json").read_text())
    return document["n-samples"], document["partial"]


def test_partial_results_are_refused_in_a_line_and_written_with_their_counts(
    bank: Bank, tmp_path: Path, call: Call
) -> None:
    add_lambada(bank, {0: 3, 8: 20})
    lambada([bank], save_results=tmp_path / "whole")
    whole = {"lambada_openai": {"original": 40, "effective": 40}}
    assert counts(tmp_path / "whole", 8) == (whole, {"lambada_openai": False})
    ask(bank, "lambada", pl.col("prompt_id") < "l07", prompt_id=new("prompt_id"))
    command = ("analyze", "lambada", bank.path, "--save-results", tmp_path / "part")
    code, out, error = call(*command)
    assert (code, out) == (2, "")
    assert error.splitlines() == [
        "logitbank: lambada_openai: 40 of 47 samples are scored at toy main step 0 (2 of 2 "
        "checkpoints are partial); finish the extraction, or save what there is with --partial"
    ]
    assert not (tmp_path / "part").exists()
    assert call(*command, "--partial")[0] == 0
    part = {"lambada_openai": {"original": 47, "effective": 40}}
    assert counts(tmp_path / "part", 8) == (part, {"lambada_openai": True})
    rows = read_harness(sorted((tmp_path / "part").iterdir())).filter(metric="acc")
    assert rows["value"].to_list() == [3 / 40, 20 / 40]


def test_counts_are_of_each_bias_type(bank: Bank, tmp_path: Path) -> None:
    """Pairs 0 (race-color) and 1 (gender) of twelve are asked once more and not scored."""
    add_crows_pairs(bank, steps=(8,))
    more = {"prompt_id": new("prompt_id"), "pair": pl.col("pair") + 12}
    ask(bank, "crows-pairs", pl.col("pair") == 0, **more)
    message = r"crows_pairs_english: 12 of 13 samples are scored at toy main step 8 \(1 of 1 "
    with pytest.raises(UsageError, match=message):
        crows_pairs([bank], save_results=tmp_path)
    crows_pairs([bank], save_results=tmp_path / "r", partial=True)
    samples, partial = counts(tmp_path / "r", 8)
    assert samples == {
        "crows_pairs_english": {"original": 13, "effective": 12},
        "crows_pairs_english_gender": {"original": 6, "effective": 6},
        "crows_pairs_english_race_color": {"original": 7, "effective": 6},
    }
    assert partial == {
        "crows_pairs_english": True,
        "crows_pairs_english_gender": False,
        "crows_pairs_english_race_color": True,
    }


def test_nothing_is_written_where_one_of_several_tasks_is_partial(
    bank: Bank, tmp_path: Path
) -> None:
    add_stereotype(bank, steps=(8,))
    add_winobias(bank, steps=(8,), skew_from=0)
    ask(bank, "winobias", order_seed=pl.lit(1, pl.Int32))
    with pytest.raises(UsageError, match="sa_gender: 0 of 12 samples are scored at toy"):
        stereotype([bank], save_results=tmp_path / "r")
    stereotype([bank], save_results=tmp_path / "r", partial=True)
    assert counts(tmp_path / "r", 8) == (
        {
            "stereotype_accuracy": {"original": 10, "effective": 10},
            "sa_gender": {"original": 12, "effective": 12},
        },
        {"stereotype_accuracy": False, "sa_gender": True},
    )


def test_a_checkpoint_without_a_whole_example_has_no_result(bank: Bank, tmp_path: Path) -> None:
    """Of two orders one is not scored at all, so that `sa` is nowhere."""
    add_stereotype(bank, steps=(8,))
    ask(bank, "stereotype-accuracy", pl.col("order") == "he",
        prompt_id=new("prompt_id"), order=pl.lit("they"))  # fmt: skip
    with pytest.raises(UsageError, match="stereotype_accuracy: 0 of 10 samples are scored"):
        stereotype([bank], save_results=tmp_path / "r")
    stereotype([bank], save_results=tmp_path / "r", partial=True)
    assert not list((tmp_path / "r").iterdir())


def test_scores_of_professions_are_refused_where_some_lack(tmp_path: Path) -> None:
    bank = Bank.open(test_fluctuation_study.make_bank(tmp_path / "b", seeds=(0,)))
    fluctuation([bank], save_scores=tmp_path / "whole.csv")
    ask(bank, "professions", pl.col("occupation") == "a cook", pl.col("verb") == "is",
        prompt_id=new("prompt_id"), occupation=pl.lit("a baker"))  # fmt: skip
    message = r"4 of 5 professions are scored at toy seed0 step 0 “is” \(4 of 5 checkpoints are"
    with pytest.raises(UsageError, match=message):
        fluctuation([bank], save_scores=tmp_path / "part.csv")
    assert not (tmp_path / "part.csv").exists()
    fluctuation([bank], save_scores=tmp_path / "part.csv", partial=True)
    assert (tmp_path / "part.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()
