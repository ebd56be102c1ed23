"""From banks and tables to results, sentences, files and the command line."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from logitbank.analysis.families.fluctuation.metric import fluctuation_metric
from logitbank.analysis.families.fluctuation.study import fluctuation
from logitbank.analysis.families.fluctuation.summary import CAUTIONS, fluctuation_summary
from logitbank.errors import BankError, BankFormatError, LogitbankError, UsageError
from logitbank.store import Bank, CheckpointId, Query, QuerySet
from logitbank.store.format.schema import PROMPTS_SCHEMA
from tests.support.command import Call
from tests.support.fluctuation_cases import drawn, published, random_table, two_runs
from tests.support.small_banks import QUERY_SET, new_bank
from tests.support.small_banks import logits as parity_logits

TOKENS = {"he": 1, "she": 2}
SENTENCES = [
    (verb, occupation)
    for verb in ("is", "works as")
    for occupation in ("a nurse", "a judge", "an actor", "a cook", "a [MASK]")
]
STEPS, VOCAB = (0, 10, 20, 30), 9


def make_bank(path: Path, *, seeds: tuple[int, ...] = (0, 1), model: str = "toy") -> Path:
    """Two runs of four checkpoints and a release, over four professions and the priors."""
    queries = QuerySet("ab" * 32, tuple(Query((3, 4, i), 0, head="mask") for i in range(10)))
    rows = [
        (f"{verb}-{occupation}", None, 0, f"[MASK] {verb} {occupation}.", None, label, label,
         token, None, queries.name, row, occupation, verb, "MASK" in occupation)
        for row, (verb, occupation) in enumerate(SENTENCES)
        for label, token in TOKENS.items()
    ]  # fmt: skip
    own = {"occupation": pl.String, "verb": pl.String, "prior": pl.Boolean}
    table = pl.DataFrame(rows, schema=dict(PROMPTS_SCHEMA) | own, orient="row")
    bank = Bank.create(path)
    bank.add_query_set(queries)
    bank.add_prompts("professions", table)
    for checkpoint in [
        CheckpointId(model),
        *(CheckpointId(model, f"seed{s}", step, s) for s in seeds for step in STEPS),
    ]:
        bank.deposit(logits(checkpoint), checkpoint=checkpoint, query_set=queries.name)
    return path


def logits(checkpoint: CheckpointId) -> np.ndarray:
    key = (checkpoint.run_seed or 0, 0 if checkpoint.step is None else checkpoint.step + 1)
    return np.random.default_rng(key).normal(0, 1, (10, VOCAB)).astype(np.float32)


@pytest.fixture
def bank(tmp_path: Path) -> Path:
    return make_bank(tmp_path / "b.zarr")


def test_a_bank_s_ratios_are_those_of_its_full_softmax(bank: Path) -> None:
    result = fluctuation([bank], plateaus=[10]).result
    values = np.stack(
        [logits(CheckpointId("toy", "seed1", step, 1)).astype(float) for step in STEPS[1:]]
    )
    p = np.exp(values) / np.exp(values).sum(axis=2, keepdims=True)
    at = SENTENCES.index(("works as", "an actor"))
    r = p[:, at, 1] / p[:, at, 2]
    n = r * p[:, 9, 2] / p[:, 9, 1]
    (row,) = result.professions.filter(
        (pl.col("run") == "seed1")
        & (pl.col("verb") == "works as")
        & (pl.col("occupation") == "an actor")
    ).iter_rows(named=True)
    assert row["mean_r"] == pytest.approx(r.mean(), rel=1e-5)
    assert row["cv_n"] == pytest.approx(n.std() / n.mean(), rel=1e-5)
    assert row["certainty"] == pytest.approx(p[:, at, 1:3].sum(axis=1).mean(), rel=1e-5)
    assert result.checkpoints.filter(pl.col("step").is_null())["run"].unique().to_list() == ["main"]


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_saved_scores_of_a_bank_give_identical_results(
    tmp_path: Path, bank: Path, suffix: str
) -> None:
    path = tmp_path / f"scores.{suffix}"
    study = fluctuation([bank], plateaus=[10, 20], save_scores=path)
    again = fluctuation([path], plateaus=[10, 20])
    assert study.result.run_pairs.height == 8
    for name, table in again.result.tables().items():
        assert table.equals(study.result.tables()[name]), name
    assert again.summary == study.summary
    # Both together are the same scores twice.
    both = fluctuation([bank, path], plateaus=[10, 20])
    assert both.result.professions.equals(study.result.professions)
    assert both.result.settings["merged_rows"] == 2 * 10 * 9


def test_banks_and_tables_are_analysed_together_and_chosen_by_model(
    tmp_path: Path, bank: Path
) -> None:
    table = tmp_path / "bert.csv"
    two_runs().write_csv(table)
    both = fluctuation([bank, table])
    assert both.result.plateaus["model"].unique().sort().to_list() == ["bert", "toy"]
    assert both.result.plateaus.select("model", "plateau").unique().sort("model").rows() == [
        ("bert", 3),
        ("toy", 15),
    ]
    only = fluctuation([bank, table], models=["bert"])
    assert only.result.plateaus["model"].unique().to_list() == ["bert"]
    with pytest.raises(BankError, match="'x' is not in the banks and tables; there are bert, toy"):
        fluctuation([bank, table], models=["x"])


def test_a_run_without_rows_is_named(bank: Path) -> None:
    before = fluctuation(bank)
    opened = Bank.open(bank)
    for deposit in opened.deposits():
        checkpoint = replace(deposit.checkpoint, run="begun")
        opened.begin(replace(deposit.spec, checkpoint=checkpoint))
    study = fluctuation(bank)
    for name, table in before.result.tables().items():
        assert_frame_equal(study.result.tables()[name], table)
    assert study.summary.left_out[-1].startswith("Left out are ")


def test_a_table_split_over_files_is_one(tmp_path: Path) -> None:
    table = two_runs()
    for seed in (0, 1):
        part = table.filter((pl.col("seed") == seed) | (pl.col("seed") == -1))
        part.write_csv(tmp_path / f"{seed}.csv")
    found = fluctuation([tmp_path / "0.csv", tmp_path / "1.csv"])
    assert found.result.professions.equals(fluctuation_metric(table).professions)
    assert found.result.run_pairs["run_a"].unique().to_list() == ["seed0"]


def test_everything_is_written_and_the_report_is_readable(tmp_path: Path, bank: Path) -> None:
    frequencies = tmp_path / "f.csv"
    frequencies.write_text("occupation,case,year,frequency\nnurse,lower,1900,0.5\n")
    sizes = tmp_path / "sizes.csv"
    sizes.write_text("year,total_words\n1900,200\n")
    out = tmp_path / "out"
    study = fluctuation([bank], out=out, frequencies=frequencies, corpus_sizes=sizes)
    assert study.report == out / "report.html"
    page = study.report.read_text()
    assert "Fluctuation during pre-training: toy" in page
    assert page.count('data-figure="') == 5
    tables = {path.stem for path in (out / "tables").iterdir()}
    assert tables == set(study.result.tables())
    assert pl.read_csv(out / "tables" / "frequent.csv")["frequency"].max() == 100
    names = {path.name for path in (out / "figures").iterdir()}
    assert {"run_pairs-is.png", "run_pairs-is.svg", "frequencies.png"} <= names


def test_sources_that_are_none_are_named(tmp_path: Path, bank: Path) -> None:
    with pytest.raises(BankFormatError, match="there is no bank at .*nowhere"):
        fluctuation([tmp_path / "nowhere"])
    with pytest.raises(LogitbankError, match="'other'.*professions"):
        fluctuation([bank], prompts="other")
    table = tmp_path / "t.csv"
    table.write_text("a,b\n1,2\n")
    with pytest.raises(UsageError, match="t.csv: the table lacks pronoun, score, template"):
        fluctuation([table])
    with pytest.raises(UsageError, match="scores cannot be written to x.json"):
        fluctuation([bank], save_scores=Path("x.json"))
    with pytest.raises(UsageError, match="sizes.csv weigh frequencies; give --frequencies too"):
        fluctuation([bank], corpus_sizes=Path("sizes.csv"))
    with pytest.raises(UsageError, match="t.csv: the frequencies lack occupation, case, year"):
        fluctuation([bank], frequencies=table)


def test_summary_gives_numbers_counts_and_cautions() -> None:
    scores = drawn(6, 6, 2)
    scores[4, 0, 1] = 0
    table = pl.concat([published(scores, drawn(6, 2)), random_table().head(2)])
    table = table.unique(["occupation", "pronoun", "checkpoint"], keep="first")
    result = fluctuation_metric(pl.concat([table, table.head(3)]), plateaus=[3])
    text = fluctuation_summary(result)
    assert text[0] == "bert: 1 run, 6 checkpoints, steps 0 to 5; 6 professions."
    assert text[1] == "bert: a plateau starts at step 3 (as given): 3 checkpoints."
    spread = dict(zip(result.spread["measure"], result.spread.rows(named=True), strict=True))
    for name in ("cv_r", "cv_n"):
        row = spread[name]
        assert (
            f"between {row['min']:.3f} and {row['max']:.3f} (median {row['median']:.3f})" in text[2]
        )
    assert any(line.startswith("1 time P(she) is 0 for a profession") for line in text)
    assert "3 rows repeat another exactly and count once." in text
    assert text.cautions == CAUTIONS


def test_summary_says_where_a_plateau_comes_from_and_spans_runs() -> None:
    text = "\n".join(fluctuation_summary(fluctuation_metric(two_runs())))
    assert "bert: 2 runs, 6 checkpoints each, steps 0 to 5; 6 professions." in text
    assert "starts at step 3 (half of the last step, since none was given): 3 checkpoints." in text
    assert "and 2 runs." in text
    assert "bert, “works as”: runs, averaged over the plateau, correlate with r = " in text
    assert "The public release is shown in trajectories and is in no statistic." in text


@pytest.fixture
def analyze(call: Call) -> Call:
    """Run `logitbank analyze fluctuation`."""
    return partial(call, "analyze", "fluctuation")


def test_json_has_every_value_at_full_precision(tmp_path: Path, analyze: Call) -> None:
    path = tmp_path / "t.csv"
    scores = drawn(6, 6, 2)
    scores[4, 0, 1] = 0
    published(scores, drawn(6, 2)).write_csv(path)
    code, out, _ = analyze(path, "--plateau", 3, "--format", "json")
    assert code == 0
    found = json.loads(out, parse_constant=pytest.fail)
    result = fluctuation_metric(published(scores, drawn(6, 2)), plateaus=[3])
    assert set(found) == set(result.tables())
    for name, table in result.tables().items():
        for row, expected in zip(found[name], table.iter_rows(named=True), strict=True):
            for key, value in expected.items():
                if isinstance(value, float) and not np.isfinite(value):
                    assert row[key] == (None if np.isnan(value) else "Infinity"), (name, key)
                else:
                    assert row[key] == value, (name, key)
    nurse = next(row for row in found["professions"] if row["occupation"] == "a nurse")
    assert (nurse["mean_r"], nurse["cv_r"], nurse["she_zero"]) == ("Infinity", None, 1)


def test_the_command_prints_tables_sentences_and_csv(
    tmp_path: Path,
    bank: Path,
    analyze: Call,
) -> None:
    code, out, _ = analyze(bank, "--plateau", 10, "--plateau", 20)
    assert code == 0
    for word in ("plateaus", "spread", "correlations", "run_pairs", "from step 20 on"):
        assert word in out
    arguments = [bank, "--table", "professions", "--format", "csv", "--profession", "judge"]
    code, out, _ = analyze(*arguments)
    assert pl.read_csv(out.encode()).height == 2 * 2 * 4
    saved = tmp_path / "s.csv"
    assert analyze(bank, "--save-scores", saved, "--model", "toy")[0] == 0
    assert pl.read_csv(saved).height == 2 * 10 * 9


def test_prompts_of_another_kind_are_told_what_they_lack(tmp_path: Path, analyze: Call) -> None:
    bank = new_bank(tmp_path / "b")
    toy = CheckpointId("toy", step=0)
    bank.deposit(parity_logits(0), checkpoint=toy, query_set=QUERY_SET.name)
    code, _, error = analyze(bank.path, "--prompts", "parity")
    assert code == 2
    assert error == (
        "logitbank: the prompts lack verb, occupation, prior, which fluctuation needs; name a set"
        " with the columns occupation, verb and prior, such as professions, with --prompts\n"
    )


def test_wrong_calls_are_one_line_and_exit_code_2(
    tmp_path: Path,
    bank: Path,
    analyze: Call,
) -> None:
    for arguments, message in (
        ([bank, "--plateau", 30], "a plateau from step 30 leaves one checkpoint of toy seed0 “is”"),
        ([tmp_path / "none.csv"], "there is no table"),
        ([bank, "--plateau", "late"], "Invalid value for '--plateau': "),
        ([bank, "--profession", "wizard"], "no profession is 'wizard'; there are 4, such as"),
        ([bank, "--table", "x"], "there is no table 'x'; there are checkpoints, plateaus"),
        ([bank, "--frequencies", tmp_path / "f.txt"], "is neither .csv nor .parquet"),
    ):
        code, out, error = analyze(*arguments)
        assert (code, out) == (2, "")
        assert error.startswith("logitbank: ")
        assert error.count("\n") == 1
        assert message in error
