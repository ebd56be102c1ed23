import json
import math

import numpy as np
import polars as pl
import pytest

from logitbank.analysis.families.fairness.message import change_sentence
from logitbank.analysis.families.fairness.metric import fairness_metric
from logitbank.analysis.families.fairness.summary import (
    fairness_summary,
)
from logitbank.analysis.results.files import write_tables
from logitbank.analysis.results.tables import json_rows
from logitbank.errors import UsageError
from tests.support.fairness_cases import random_frame, scan_frame


def result_of(**options):
    frame = random_frame(**{"checkpoints": 6, "sentences": 20, **options})
    return fairness_metric(frame, bootstrap=100)


@pytest.mark.parametrize("format", ["csv", "parquet", "json"])
def test_tables_are_written_at_full_precision(tmp_path, format):
    result = result_of(checkpoints=2)
    paths = write_tables(result, tmp_path / "out", format)
    assert [path.stem for path in paths] == list(result.tables())
    path = tmp_path / "out" / f"gap.{format}"
    if format == "json":
        values = [row["delta_nats"] for row in json.loads(path.read_text())]
    else:
        read = pl.read_csv if format == "csv" else pl.read_parquet
        values = read(path)["delta_nats"].to_list()
    assert values == result.gap["delta_nats"].to_list()


def test_a_failed_write_leaves_the_old_table_and_nothing_else(tmp_path, monkeypatch):
    result = result_of(checkpoints=2)
    write_tables(result, tmp_path)
    names, old = sorted(tmp_path.iterdir()), (tmp_path / "gap.csv").read_text()
    with monkeypatch.context() as patch:
        patch.setattr("pathlib.Path.replace", lambda *_: (_ for _ in ()).throw(OSError("full")))
        with pytest.raises(OSError, match="full"):
            write_tables(result_of(checkpoints=3), tmp_path)
    assert sorted(tmp_path.iterdir()) == names
    assert (tmp_path / "gap.csv").read_text() == old


def test_json_tells_infinities_from_nan():
    table = pl.DataFrame({"x": [math.inf, -math.inf, math.nan, 0.1, None], "n": [1, 2, 3, 4, 5]})
    rows = [{"x": x, "n": n + 1} for n, x in enumerate(["Infinity", "-Infinity", None, 0.1, None])]
    assert json_rows(table) == rows


def test_unknown_format_is_refused(tmp_path):
    with pytest.raises(UsageError, match="format 'xlsx' is unknown; use one of csv, parquet, jso"):
        write_tables(result_of(checkpoints=1), tmp_path, "xlsx")


@pytest.mark.parametrize("size", [0, 1.5])
def test_summary_of_a_gap_that_is_the_same_everywhere_names_no_largest(size):
    logits = np.zeros((8, 1, 40, 3))
    logits[..., 0] = size * np.random.default_rng(0).random(40)
    frame = scan_frame(logits, gold=[0, 1] * 20, steps=range(100, 108))
    result = fairness_metric(frame, bootstrap=50)
    text = "\n".join(fairness_summary(result))
    none = result.tests.filter(effect=0.5)["rank_biserial"].to_numpy()
    assert len(none)
    assert not np.signbit(none).any()
    gap = f"{result.gap['gap_scaled'][0]:.3f}"
    assert (gap == "0.000") == (size == 0)
    assert f"The gap is {gap}, to three decimals, at all 8 checkpoints." in text
    assert "No change point of mean Δ was looked for: it is constant" in text
    same = f"At step 107 the gap is to three decimals the same as at step 100: {gap} → {gap}; "
    assert f"{same}Δ moved by 0.000." in text
    assert ("Δ = 0.000.\n" in text) == (size == 0)
    for wrong in ("largest at", "smaller", "+0.00", "−0.00 ", "-0.0", " = -", "The first of them"):
        assert wrong not in text
    still = change_sentence(result.gap, 100, 107)
    assert still.startswith("From step 100 to step 107 the gap stayed the same to three decimals: ")
    assert "way round" not in still


def test_summary_says_which_steps_have_no_gap_to_look_at():
    frame = random_frame(checkpoints=8, sentences=12, steps=range(8))
    holes = frame.filter((pl.col("step") != 4) | (pl.col("answer") != "female"))
    text = "\n".join(fairness_summary(fairness_metric(holes, bootstrap=20)))
    assert "was looked for: it is constant, or missing at a checkpoint." in text
    assert "nan" not in text


def test_summary_counts_what_weakens_the_numbers():
    frame = random_frame(sentences=4, checkpoints=2, steps=[1, 2])
    hole = (pl.col("step") == 2) & (pl.col("prompt_id") == "prompt-0")
    weak = frame.filter(~hole).with_columns(
        exact=pl.col("step") == 1, ties=(pl.col("step") == 1).cast(pl.Int32)
    )
    text = "\n".join(fairness_summary(fairness_metric(weak, bootstrap=20)))
    assert "3 scores of a prompt under an order seed are missing at 1 checkpoint" in text
    assert "48 times (checkpoint, prompt and order seed) the right answer shared its logit" in text
    assert "45 ranks were counted among rounded scores: the exact rank is there or up" in text


def test_summary_without_intervals_speaks_of_none():
    frame = random_frame(sentences=6, checkpoints=3)
    text = "\n".join(fairness_summary(fairness_metric(frame, bootstrap=0)))
    assert "nan" not in text
    assert "interval" not in text
    assert "%" not in text


def test_summary_gives_no_direction_where_the_interval_holds_zero():
    result = fairness_metric(random_frame(sentences=12, checkpoints=1, seed=1), bootstrap=200)
    (gap,) = result.gap.iter_rows(named=True)
    assert gap["low_scaled"] < 0 < gap["high_scaled"]
    (sentence,) = (s for s in fairness_summary(result) if "the gap is" in s)
    assert "worse" not in sentence


def two_gaps(*, before_step: int = 1, low: float = 0.4, high: float = 0.6) -> pl.DataFrame:
    columns = ("step", "gap_scaled", "delta_scaled", "low_scaled", "high_scaled", "gap_nats")
    values = [
        (before_step, 0.5, 0.5, low, high, 0.2),
        (2, 0.25, -0.25, -0.3, -0.2, 0.1),
    ]
    gap = pl.DataFrame(values, schema=columns, orient="row")
    return gap.with_columns(model=pl.lit("m"), run=pl.lit("main"))


def test_a_change_is_told_in_the_gaps_unit_and_that_it_turned():
    assert change_sentence(two_gaps(), 1, 2) == (
        "From step 1 to step 2 the gap became 0.250 smaller: Δ = +0.500 → −0.250; a fairness "
        "change of +50.0 %. It is the other way round."
    )


@pytest.mark.parametrize(
    ("gap", "why"),
    [
        ({"before_step": 0}, "step 0 is the untrained model"),
        ({"low": -0.1}, "the gap before may be zero"),
        ({"low": math.nan, "high": math.nan}, "the gap before has no interval"),
    ],
)
def test_no_percentage_of_a_gap_that_says_nothing(gap, why):
    text = change_sentence(two_gaps(**gap), gap.get("before_step", 1), 2)
    assert f"no percentage, since {why}." in text
    assert "%" not in text


def test_summary_of_one_gender_says_that_there_is_no_gap():
    frame = random_frame(checkpoints=1, sentences=3).filter(pl.col("answer") != "male")
    summary = fairness_summary(fairness_metric(frame, bootstrap=20))
    assert (
        "There is no gap to give: no prompt has a male answer, or none has a female one." in summary
    )
