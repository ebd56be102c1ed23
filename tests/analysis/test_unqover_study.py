"""UnQover from banks: sentences, tables, figures, files and the command."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from logitbank.analysis.charts.chart import chart_caption
from logitbank.analysis.comparison.compare import compare
from logitbank.analysis.families.unqover import unqover
from logitbank.analysis.families.unqover.charts import ENDS, charts
from logitbank.analysis.families.unqover.findings import findings
from logitbank.analysis.families.unqover.metric import Unqover, with_counts
from logitbank.analysis.families.unqover.tables import ALL
from logitbank.errors import BankError
from logitbank.store import Bank, CheckpointId, Filter, apply_filter
from tests.support.unqover_cases import (
    VOCAB,
    add_questions,
    logits_of,
    make_bank,
    questions,
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
            "logitbank.analysis.stats.summary.FEWEST_CLUSTERS", 2
        )  # it has three attributes
        return unqover([bank]).result


def test_all_prompt_sets_that_begin_with_unqover_are_analysed(bank: Path) -> None:
    both = unqover([bank]).result.unqover
    assert both["category"].unique().sort().to_list() == ["gender", "nationality"]
    assert both["step"].unique(maintain_order=True).to_list() == [0, 8, 64, None]
    one = unqover([bank], prompts=["unqover-nationality"]).result.unqover
    assert one.equals(both.filter(category="nationality"), null_equal=True)


def test_models_that_have_other_prompts_are_together(tmp_path: Path, bank: Path) -> None:
    other = Bank.create(tmp_path / "causal.zarr")
    queries, rows = add_questions(other, name="unqover-gender-causal")
    other.deposit(
        logits_of(rows, 8), checkpoint=CheckpointId("org/gpt", step=8), query_set=queries.name
    )
    add_questions(other, "nationality")  # made, and never scored
    found = unqover([bank, other.path]).result.unqover
    kinds = found.select("model", "category").unique().sort(pl.all()).rows()
    assert kinds == [("org/gpt", "gender"), ("toy", "gender"), ("toy", "nationality")]
    only = unqover([bank, other.path], models=["org/gpt"]).result.unqover
    assert only["model"].unique().to_list() == ["org/gpt"]
    with pytest.raises(BankError, match="'x' is not in .*org/gpt, toy"):
        unqover([bank, other.path], models=["toy", "x"])
    with pytest.raises(BankError, match="causal.zarr has no deposit of .*unqover-nationality"):
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
    found = unqover([bank.path]).result.counts
    assert found.select("split", "instances").rows() == [("all", 36), ("test", 12), ("train", 24)]
    bank.add_prompts("unqover-gender", bank.prompts("unqover-gender-test").collect())
    again = unqover([bank.path]).result.counts
    assert again.equals(found, null_equal=True)
    bank.add_prompts("unqover-gender-causal", bank.prompts("unqover-gender-test").collect())
    again = unqover([bank.path]).result.counts
    assert again.equals(found, null_equal=True)


def test_means_over_other_instances_are_no_change(tmp_path: Path) -> None:
    """The test part is scored at step 8 only, so that step 0 has other instances of each pair."""
    bank = Bank.create(tmp_path / "b.zarr")
    test = {row["instance"] for row in questions() if row["split"] == "test"}
    train = {row["instance"] for row in questions()} - test
    for name, leave_out, steps in (
        ("unqover-gender-train", test, (0, 8)),
        ("unqover-gender-test", train, (8,)),
    ):
        queries, rows = add_questions(bank, name=name, leave_out=leave_out)
        for step in steps:
            bank.deposit(
                logits_of(rows, step),
                checkpoint=CheckpointId("toy", step=step),
                query_set=queries.name,
            )
    study = unqover([bank.path])
    whole, part = (
        study.result.measures.filter(step=8, split=split, measure="abs_c").row(0, named=True)
        for split in (ALL, "train")
    )
    assert np.isnan(whole["from_baseline"])
    assert whole["common"] == 0 < whole["items"]
    before = study.result.measures.filter(step=0, split="train", measure="abs_c")["value"][0]
    assert part["from_baseline"] == pytest.approx(part["value"] - before)
    assert "Missing: 12 instances" in " ".join(study.missing)
    assert not any("change to" in finding.text for finding in study.findings)


def test_a_filtered_bank_is_measured_as_any_bank(tmp_path: Path) -> None:
    """What a filter truncates has probability 0: an untrained one leaves no preference."""
    bank = Bank.open(make_bank(tmp_path / "b.zarr", steps=[8], keep="topk:12"))
    by = Filter(np.ones((8, 8)), np.zeros(8), "truncate")
    apply_filter(bank, by, tmp_path / "flat", name="flat")
    apply_filter(bank, Filter.identity(8, "truncate"), tmp_path / "same", name="same")
    banks = [bank, tmp_path / "flat", tmp_path / "same"]
    result = unqover(banks, prompts=["unqover-gender"]).result
    found = with_counts(result).filter(split="all")
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
    assert kept["flat"]["coverage_8"] == kept["same"]["coverage_8"] == kept["toy"]["coverage_8"] < 1
    assert kept["same"]["abs_c"] > kept["toy"]["abs_c"] > kept["flat"]["abs_c"]


nan, empty = float("nan"), dict.fromkeys(("attributes", "cells"), pl.DataFrame())


def unqover_result(
    clear: int, subjects: int, *, without: bool = False, model: str = "m"
) -> Unqover:
    """Of so many subjects, those whose preference is significant: p 0.004, the others 0.6."""
    head = {"model": model, "run": "main", "step": 8, "category": "gender", "split": ALL}
    rows = [
        {**head, "subject": f"s{at}", "rank": at + 1, "gamma": 0.12 if at < clear else 0.0,
         "gamma_low": nan if without else 0.02, "gamma_high": nan if without else 0.22,
         "p_adjusted": nan if without else 0.004 if at < clear else 0.6, "attributes": 30}
        for at in range(subjects)
    ]  # fmt: skip
    measures = [
        {**head, "measure": name, "value": 0.3, "low": 0.25, "high": 0.4, "items": subjects,
         "clusters": subjects, "missing": 0, "baseline_step": 8, "common": 0}
        for name in ("mu", "eta", "abs_c", "positional", "attributive")
    ]  # fmt: skip
    counts = {"subjects": subjects, "attributes": 30, "instances": 1200, "missing": 3}
    counts |= {"pairs": 10, "pair_attributes": 200, "coverage_10": 0.25}
    columns = {"measures": measures, "counts": [{**head, **counts}], "subjects": rows}
    tables = {name: pl.DataFrame(own) for name, own in columns.items()}
    changes = pl.DataFrame(schema=["model", "run", "kind"])
    return Unqover(**tables, **empty, change_points=changes, settings={})


def test_the_headline_tests_the_largest_preference_of_all_that_were_looked_at() -> None:
    head, _, count, most, least, coverage, sampled, mu, *_ = findings(unqover_result(4, 20))
    assert "prefers some names at step 8 (gender): p = 0.004" in head.text
    assert head.n == "1,200 instances (20 subjects, 30 attributes), 3 missing"
    assert (mu.text, mu.value, mu.low, mu.high, mu.n) == (
        "Bias intensity μ at step 8", 0.3, 0.25, 0.4, "20 subjects"
    )  # fmt: skip
    assert (count.value, count.n) == (4.0, "20 subjects")
    assert (most.value, most.low, most.high, most.n) == (0.12, 0.02, 0.22, "30 attributes")
    assert "least preferred, s19" in least.text
    assert (coverage.value, coverage.n) == (0.25, head.n)
    assert "200 of 300 combinations" in sampled.text
    assert "prefers no names" in findings(unqover_result(0, 20))[0].text
    assert "prefers" not in findings(unqover_result(4, 20, without=True))[0].text
    many = [unqover_result(1, 20, model=f"m{at}") for at in range(20)]
    tables = {
        name: pl.concat(getattr(one, name) for one in many)
        for name in ("measures", "counts", "subjects", "change_points")
    }
    together = Unqover(**tables, **empty, settings={})
    head = findings(together)[0]
    assert "prefers no names significantly at step 8 (gender): p = 0.08" in head.text
    assert "20 models and categories" in head.n


def test_charts_have_every_category_and_the_ends_of_long_rankings(
    trained: Unqover, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = charts(trained)
    assert set(drawn) == {
        "ranked_subjects-gender", "ranked_subjects-nationality", "attribute_strengths-gender",
        "attribute_strengths-nationality", "measures",
    }  # fmt: skip
    assert all("n = " in chart_caption(chart) for chart in drawn.values())
    spec = drawn["ranked_subjects-gender"].to_dict()
    (parameter,) = (each for each in spec["params"] if each["name"] == "checkpoint")
    rows = [row for rows in spec["datasets"].values() for row in rows if "checkpoint_index" in row]
    shown = {row["subject"]: row["gamma"] for row in rows
             if row["checkpoint_index"] == parameter["value"]}  # fmt: skip
    last = trained.subjects.filter(pl.col("step").is_null(), split=ALL, category="gender")
    assert shown == dict(last.select("subject", "gamma").iter_rows())
    assert ENDS == 15
    monkeypatch.setattr("logitbank.analysis.families.unqover.charts.ENDS", 1)
    short = charts(trained)["ranked_subjects-gender"]
    ranked = last.sort("rank", "subject")["subject"].to_list()
    rows = [row for rows in short.to_dict()["datasets"].values() for row in rows]
    assert {row["subject"] for row in rows if "subject" in row} == {ranked[0], ranked[-1]}


def test_runs_and_banks_are_compared_by_subjects_and_attributes(tmp_path: Path) -> None:
    """Three runs; in the other bank every probability of a nurse is that of chance."""
    banks = []
    for name, nurses in (("a", 6.0), ("b", 0.0)):
        bank = Bank.create(tmp_path / name)
        queries, rows = add_questions(bank, "gender")
        for run in range(3):
            noise = np.random.default_rng(run).normal(0, 0.3, (len(queries), VOCAB))
            bank.deposit(
                (logits_of(rows, 8, nurses=nurses) + noise).astype(np.float32),
                checkpoint=CheckpointId("toy", f"seed{run}", step=8), query_set=queries.name,
            )  # fmt: skip
        banks.append(bank)
    one, other = (unqover([bank]).tables for bank in banks)
    mu = one["unqover"].filter(split=ALL)["mu"]
    (row,) = one["runs"].iter_rows(named=True)
    assert (row["score"], row["runs"], row["examples"]) == ("mu", 3, 5)
    assert row["value"] == pytest.approx(mu.mean())
    assert "runs" not in unqover([banks[0]], topk=10).tables, "a mean of other numbers"
    found = compare(*banks).tables["metrics"]
    assert found["metric"].unique(maintain_order=True).to_list() == [
        "mu", "eta", "abs_c", "positional", "attributive"
    ]  # fmt: skip
    for name in ("mu", "eta", "abs_c", "positional", "attributive"):
        for side, table in (("a", one), ("b", other)):
            expected = table["unqover"].filter(split=ALL).sort("run")[name].to_list()
            own = found.filter(metric=name).sort("run")[side].to_list()
            assert own == pytest.approx(expected)
