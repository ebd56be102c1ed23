"""UnQover from banks: sentences, tables, figures, files and the command."""

import json
import re
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from logitbank.analysis.drawing.figures import figure_data
from logitbank.analysis.families.unqover.metric import Unqover, unqover_metric
from logitbank.analysis.families.unqover.study import unqover
from logitbank.analysis.families.unqover.summary import unqover_summary
from logitbank.errors import BankError, UsageError
from logitbank.store import Bank, CheckpointId
from logitbank.store.filter.filters import Filter
from tests.support import small_banks
from tests.support.command import Call
from tests.support.paths import ROOT
from tests.support.unqover_cases import (
    Naive,
    add_questions,
    logits_of,
    make_bank,
    questions,
    scan_frame,
    tokens,
)

NURSES = {0: 0.0, 8: 6.0, 64: 2.0, None: 1.0}


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("banks") / "b.zarr"
    return make_bank(path, steps=list(NURSES), nurses=NURSES)


@pytest.fixture(scope="module")
def trained(bank: Path) -> Unqover:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "logitbank.analysis.stats.bootstrap.FEWEST_CLUSTERS", 2
        )  # it has three attributes
        return unqover([bank], bootstrap=50).result


@pytest.fixture
def analyze(call: Call) -> Call:
    """Run `logitbank analyze unqover`."""
    return partial(call, "analyze", "unqover")


def test_all_prompt_sets_that_begin_with_unqover_are_analysed(bank: Path) -> None:
    both = unqover([bank], bootstrap=0).result.unqover
    assert both["category"].unique().sort().to_list() == ["gender", "nationality"]
    assert both["step"].unique(maintain_order=True).to_list() == [0, 8, 64, None]
    one = unqover([bank], prompts=["unqover-nationality"], bootstrap=0).result.unqover
    assert one.equals(both.filter(category="nationality"), null_equal=True)


def test_sentences_have_the_numbers_of_the_last_checkpoint(bank: Path) -> None:
    rows = questions("gender")
    own = Naive(rows, logits_of(rows, None, nurses=1.0), topk=None, he_she=False)
    text = " ".join(unqover([bank], bootstrap=0).summary)
    size = np.mean(np.abs(list(own.c.values())))
    assert "toy, gender: of the release, bias intensity μ 0.0" in text
    assert f"mean |C| {size:.3g}, over 36 instances of 5 subjects, 3 attributes and 2 con" in text
    assert f"positional error {np.mean(list(own.positional.values())):.3g}, how much an" in text
    share = own.covered[8] / (2 * len(rows))
    assert f"{share:.1%} of subject slots are among the 8 most probable" in text
    assert re.search(
        r"from step 0 to step 64, 3 checkpoints: .* μ is greatest at step 8, 0.4", text
    )
    assert "95 %" not in text


def test_sentences_have_intervals_subjects_attributes_and_splits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("logitbank.analysis.stats.bootstrap.FEWEST_CLUSTERS", 2)
    monkeypatch.setattr("logitbank.analysis.families.unqover.measures.FEWEST_CLUSTERS", 2)
    path = make_bank(tmp_path / "b.zarr", steps=[8])
    study = unqover([path], topk=12, bootstrap=200)
    text = " ".join(study.summary)
    assert re.search(r"at step 8, most favoured, by γ\(x\): (Ann|Eva) \+0\.\d+ \[.* to \+0", text)
    assert re.search(
        r"least: (Bob|Jim|Leo) −0\.\d+ \[.*\d of 5 are favoured or disfavoured at p ≤ 0\.05, adj",
        text,
    )
    assert re.search(r"most towards female names: 'was a nurse' \+0\.[34]\d\d", text)
    assert re.search(
        r"attributes of greatest strength, .*: 'was a nurse' 0\.\d+ \(most: (Dan|Gree)", text
    )
    assert re.search(r"by split: test μ 0\.4.* \(12 instances\), train μ 0\.0.* \(24 inst", text)
    assert re.search(r"among 10; P counts as 0 outside of 12, where \d\d\.\d% are\.", text)
    assert "all 18 combinations of a pair of subjects and an attribute are there, with 4.8 " in text
    assert "They resample attributes, of μ subjects" in text
    assert "from step" not in text


def test_a_sampled_set_says_how_much_of_it_there_is(tmp_path: Path) -> None:
    bank = Bank.create(tmp_path / "b.zarr")
    absent = [f"Ann|Bob|{context}|was a pilot" for context in ("c1", "c2")]
    queries, rows = add_questions(bank, leave_out=absent)
    bank.deposit(logits_of(rows, 8), checkpoint=CheckpointId("toy", step=8), query_set=queries.name)
    text = " ".join(unqover([bank.path], bootstrap=0).summary)
    assert "17 of the 18 combinations of a pair of subjects and an attribute are there" in text


def test_models_that_have_other_prompts_are_together(tmp_path: Path, bank: Path) -> None:
    other = Bank.create(tmp_path / "causal.zarr")
    queries, rows = add_questions(other, name="unqover-gender-causal")
    other.deposit(
        logits_of(rows, 8), checkpoint=CheckpointId("org/gpt", step=8), query_set=queries.name
    )
    add_questions(other, "nationality")  # made, and never scored
    found = unqover([bank, other.path], bootstrap=0).result.unqover
    kinds = found.select("model", "category").unique().sort(pl.all()).rows()
    assert kinds == [("org/gpt", "gender"), ("toy", "gender"), ("toy", "nationality")]
    only = unqover([bank, other.path], models=["org/gpt"], bootstrap=0).result.unqover
    assert only["model"].unique().to_list() == ["org/gpt"]
    with pytest.raises(BankError, match="'x' is not in the deposits of .*; there are org/gpt, toy"):
        unqover([bank, other.path], models=["toy", "x"], bootstrap=0)
    with pytest.raises(BankError, match="causal.zarr has no deposit of unqover-nationality yet; r"):
        unqover([other.path], prompts=["unqover-nationality"])


def test_parts_of_a_category_are_put_together_and_an_instance_counts_once(tmp_path: Path) -> None:
    bank = Bank.create(tmp_path / "b.zarr")
    nurses = {row["instance"] for row in questions() if row["split"] == "test"}
    others = {row["instance"] for row in questions()} - nurses
    for name, leave_out in (("unqover-gender-train", nurses), ("unqover-gender-test", others)):
        queries, rows = add_questions(bank, name=name, leave_out=leave_out)
        bank.deposit(
            logits_of(rows, 8), checkpoint=CheckpointId("toy", step=8), query_set=queries.name
        )
    found = unqover([bank.path], bootstrap=0).result.unqover
    assert found.select("split", "instances").rows() == [("all", 36), ("test", 12), ("train", 24)]
    bank.add_prompts("unqover-gender", bank.prompts("unqover-gender-test").collect())
    again = unqover([bank.path], bootstrap=0).result.unqover
    assert again.equals(found, null_equal=True)
    bank.add_prompts("unqover-gender-causal", bank.prompts("unqover-gender-test").collect())
    with pytest.raises(UsageError, match="gender of toy main step 8 is in several frames"):
        unqover([bank.path], bootstrap=0)


def test_a_view_shows_a_bank_through_a_filter(tmp_path: Path) -> None:
    """What a filter truncates has probability 0: an untrained one leaves no preference."""
    bank = Bank.open(make_bank(tmp_path / "b.zarr", steps=[8], keep="topk:12"))
    by = Filter(np.ones((8, 8)), np.zeros(8), "truncate")
    flat = bank.filtered(by, name="flat")
    same = bank.filtered(Filter.identity(8, "truncate"), name="same")
    found = unqover(
        [bank, flat, same], prompts=["unqover-gender"], bootstrap=0
    ).result.unqover.filter(split="all")
    kept = {row["model"]: row for row in found.iter_rows(named=True)}
    rows = questions()
    logits = logits_of(rows, 8, nurses=6.0)
    known = tokens()
    inside = np.argsort(-logits, axis=1)[:, :8]

    def seen(at: int, name: str) -> bool:
        return bool({known[name], known[f" {name.lower()}"]} & {*inside[at].tolist()})

    cells = {(r["instance"], r["order"], r["negated"]): at for at, r in enumerate(rows)}
    sizes = []
    for r in rows[::4]:
        q = {(i, o, n): seen(cells[r["instance"], o, n], r[f"subject{i}"]) / 8
             for i in (1, 2) for o in ("12", "21") for n in (False, True)}  # fmt: skip
        b = [q[i, "12", False] + q[i, "21", False] - q[i, "12", True] - q[i, "21", True]
             for i in (1, 2)]  # fmt: skip
        sizes.append(abs(b[0] - b[1]) / 4)
    assert kept["flat"]["abs_c"] == pytest.approx(np.mean(sizes), rel=1e-6)
    assert kept["flat"]["coverage_8"] == kept["toy"]["coverage_8"] < 1
    assert kept["same"]["abs_c"] > kept["toy"]["abs_c"] > kept["flat"]["abs_c"]


def test_banks_without_the_prompts_say_how_to_make_them(tmp_path: Path) -> None:
    paths = [tmp_path / "a.zarr", tmp_path / "b.zarr"]
    for path in paths:
        small_banks.new_bank(path)
    message = (
        "prompt set of UnQover is not in .*a.zarr; it has parity. Make it with `logitbank "
        "extract .*a.zarr --suite … --prompts unqover-gender`"
    )
    with pytest.raises(BankError, match=message):
        unqover(paths[:1])
    with pytest.raises(BankError, match="prompt set 'x' is not in .*; they have parity"):
        unqover(paths, prompts=["x"])
    Bank.open(paths[0]).deposit(
        small_banks.logits(),
        checkpoint=CheckpointId("toy", step=8),
        query_set=small_banks.QUERY_SET.name,
    )
    with pytest.raises(
        UsageError, match="the prompt set lacks category, instance, .* which unqover-gen"
    ):
        unqover(paths[:1], prompts=["parity"])


def test_a_table_of_figures_is_the_last_ranking(trained: Unqover) -> None:
    data = figure_data(trained)
    assert set(data) == {
        *(f"{kind}-{category}" for kind in ("ranked_subjects", "attribute_strengths")
          for category in ("gender", "nationality")),
        "unqover_training",
    }  # fmt: skip
    subjects = trained.subjects.filter(pl.col("step").is_null(), split="all", category="gender")
    assert data["ranked_subjects-gender"]["value"].to_list() == subjects["gamma"].to_list()
    assert data["ranked_subjects-gender"]["subject"].to_list() == subjects["subject"].to_list()


def test_attributes_are_drawn_towards_female_names(trained: Unqover) -> None:
    table = figure_data(trained)["attribute_strengths-gender"]
    means = table.filter(panel="mean")
    own = trained.attributes.filter(pl.col("step").is_null(), split="all", category="gender")
    assert means["value"].to_list() == own["gamma_female"].sort(descending=True).to_list()
    cells = trained.cells.filter(split="all", category="gender", subject="Bob")
    points = table.filter(pl.col("panel") == "subject", pl.col("gender") == "male")
    towards = points.filter(pl.col("value").is_in((-cells["gamma"]).implode()))
    assert len(towards) == 3
    nation = figure_data(trained)["attribute_strengths-nationality"].filter(panel="mean")
    assert nation["value"].min() >= 0  # type: ignore[operator]


def test_a_study_writes_tables_figures_and_a_report(tmp_path: Path, bank: Path) -> None:
    study = unqover([bank], bootstrap=20, out=tmp_path / "out")
    assert study.report == tmp_path / "out" / "report.html"
    assert "UnQover: toy" in study.report.read_text()
    tables = {path.stem for path in (tmp_path / "out" / "tables").glob("*.csv")}
    assert tables == {"unqover", "subjects", "attributes", "cells"}
    pictures = {path.stem for path in (tmp_path / "out" / "figures").glob("*.png")}
    assert pictures == set(figure_data(study.result))


def test_the_command_prints_tables_and_sentences(analyze: Call, bank: Path) -> None:
    code, out, error = analyze(bank, "--bootstrap", 0)
    assert (code, error) == (0, "")
    assert "coverage_10" in out
    assert "toy, nationality: of the release, bias intensity μ" in out
    code, out, _ = analyze(bank, "--table", "cells", "--format", "json", "--bootstrap", 0)
    assert code == 0
    assert {row["step"] for row in json.loads(out)} == {None}
    code, out, _ = analyze(
        bank, "--topk", 10, "--he-she", "--cells", "all", "--prompts", "unqover-gender",
        "--model", "toy", "--table", "cells", "--format", "csv", "--bootstrap", 0,
    )  # fmt: skip
    assert code == 0
    table = pl.read_csv(out.encode())
    assert table["step"].n_unique() == 4
    scan = Bank.open(bank).scan("unqover-gender")
    known = unqover_metric(scan, topk=10, he_she=True, bootstrap=0, cells="all").cells
    assert table["gamma"].to_list() == pytest.approx(known["gamma"].to_list())


def test_a_wrong_call_is_one_line(analyze: Call, bank: Path) -> None:
    for arguments, message in (
        (["nowhere"], "there is no bank at nowhere"),
        ([bank, "--topk", 0], "Invalid value for '--topk'"),
        ([bank, "--cells", "some"], "'some' is not one of 'last', 'all'"),
    ):
        code, out, error = analyze(*arguments)
        assert (code, out, error.count("\n")) == (2, "", 1)
        assert message in error


def test_sentences_have_no_number_that_is_none() -> None:
    rows = questions()[:4]
    p = {(row["prompt_id"], form): 0.0 for row in rows for form in
         ("Ann", " ann", "Bob", " bob", " she", "He", " he")}  # fmt: skip
    summary = unqover_summary(unqover_metric(scan_frame(rows, p), bootstrap=10))
    assert "bias intensity μ 0.000, " in summary[0]
    assert not any("nan" in sentence for sentence in summary)


def test_every_table_and_column_is_documented(trained: Unqover) -> None:
    page = (ROOT / "docs" / "tables.md").read_text()
    (chapter,) = (text for text in page.split("\n## ") if text.startswith("Tables that `analyze u"))
    named = set(re.findall(r"`(\w+)`", chapter))
    for name, table in trained.tables().items():
        columns = {re.sub("_(low|high)$", "", column) for column in table.columns}
        assert {name, *columns} - named == set()
