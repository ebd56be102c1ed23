"""Which analyses a report has, what it refuses, and what it says where one fails."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from logitbank.analysis.families.fairness import cube
from logitbank.analysis.families.lambada import metric as lambada_metric
from logitbank.analysis.families.stereotype import genders
from logitbank.analysis.frames.shared import sharing
from logitbank.analysis.report import report as bank_report
from logitbank.analysis.report.sections import Planned, planned, section, wanted_by
from logitbank.errors import BankError, UsageError
from logitbank.store import Bank
from tests.support.command import Call
from tests.support.evaluation_banks import whole_bank
from tests.support.small_banks import logits, new_bank, prompt_table, spec


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return whole_bank(tmp_path_factory.mktemp("banks") / "b.zarr")


def own_prompts(path: Path) -> Bank:
    """Two checkpoints over prompts that no family knows."""
    bank = new_bank(path)
    for step in (0, 8):
        asked = spec(step)
        bank.deposit(logits(step), checkpoint=asked.checkpoint, query_set=asked.query_set)
    return bank


def plans_of(bank: Bank, *prompt_sets: str) -> list[Planned]:
    """The analyses of prompts that a family calls its own, or that none does."""
    return planned(bank, prompt_sets or bank.prompt_sets)


def test_analyses_are_those_that_the_prompts_allow(whole: Path, tmp_path: Path) -> None:
    bank = Bank.open(whole)
    found = [(plan.family, plan.prompts) for plan in plans_of(bank)]
    assert found == [
        ("fairness", ("winobias",)),
        ("stereotype", ("stereotype-accuracy", "winobias")),
        ("crows-pairs", ("crows-pairs",)),
        ("lambada", ("lambada",)),
        ("tradeoff", ("lambada", "winobias")),
    ]
    few = [plan.family for plan in plans_of(bank, "lambada")]
    assert few == ["lambada"]
    own = own_prompts(tmp_path / "own")
    assert [plan.family for plan in plans_of(own, "parity")] == ["options"]


def test_an_analysis_that_fails_says_so_and_the_others_are_there(tmp_path: Path) -> None:
    path = whole_bank(tmp_path / "b.zarr")
    bank = Bank.open(path)
    table = bank.prompts("winobias").collect().head(6)
    bank.add_prompts("mine", table.with_columns(option=pl.lit("x") + pl.col("option")))
    sets = ["winobias", "mine"]
    page = bank_report.report(path, tmp_path / "b.html", prompts=sets, bootstrap=0).read_text()
    assert "fairness needs &#39;male&#39;, &#39;female&#39;, &#39;not specified&#39;" in page
    assert "The gap is largest at" in page


def test_a_page_is_named_like_its_bank(whole: Path) -> None:
    name = bank_report._target
    assert name("banks/pythia.zarr/", None) == Path("pythia.html")
    assert name("https://example.org/banks/pythia", None) == Path("pythia.html")
    assert name("hf://datasets/me/pythia@v1", None) == Path("pythia.html")
    assert name(Bank.open(whole), None) == Path("b.html")
    assert name(".", None) == Path(f"{Path.cwd().name}.html")


def test_a_folder_that_cannot_be_written_to_is_named_before_anything_is_computed(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bank_report.os, "access", lambda path, mode: False)
    with pytest.raises(UsageError, match=rf"{tmp_path} cannot be written to; name another place"):
        bank_report.report(whole, tmp_path / "p.html")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prompts": ["nope"]}, r"prompt set 'nope' is not in .*; it has crows-pairs, lambada, "),
        ({"models": ["nope"]}, r"model 'nope' is not in .*; there are toy"),
        ({"out": "page.txt"}, r"page.txt is no name for a page; give a file that ends in .html"),
        ({"out": "nowhere/p.html"}, r"there is no folder nowhere for p.html; make it first"),
    ],
)
def test_a_call_that_is_wrong_says_what_is_right(
    whole: Path, options: dict[str, object], message: str
) -> None:
    with pytest.raises((BankError, UsageError), match=message):
        bank_report.report(whole, **{"out": "p.html", **options})


def test_a_bank_without_a_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        BankError, match=r"has no checkpoint of parity yet; run `logitbank extract` first"
    ):
        bank_report.report(new_bank(tmp_path / "b"), tmp_path / "p.html")
    assert not (tmp_path / "p.html").exists()


def test_prompts_without_options_do_not_stop_a_report(tmp_path: Path) -> None:
    bank = own_prompts(tmp_path / "own")
    nothing = {"option": None, "continuation": None, "token": None, "is_answer": None}
    table = prompt_table().filter(option="yes")
    table = table.with_columns(**{name: pl.lit(None, table[name].dtype) for name in nothing})
    bank.add_prompts("texts", table.with_columns(answer=pl.lit(None, pl.String)))
    page = bank_report.report(bank, tmp_path / "p.html", bootstrap=0).read_text()
    assert "Options of texts" in page
    assert "No right answer is named by texts." in page
    assert "mean share of yes" in page


def test_an_analysis_uses_only_the_prompt_sets_that_are_asked_for(whole: Path) -> None:
    bank = Bank.open(whole)
    (plan,) = plans_of(bank, "stereotype-accuracy")
    result = plan.study().result
    assert result.stereotype_accuracy["measure"].unique().to_list() == ["sa"]


def test_prompts_of_ones_own_may_bear_a_familys_name(tmp_path: Path) -> None:
    bank = own_prompts(tmp_path / "own")
    bank.add_prompts("stereoset-mine", bank.prompts("parity").collect())
    page = bank_report.report(bank, tmp_path / "b.html", prompts=["stereoset-mine"]).read_text()
    assert 'id="stereoset"' in page
    assert "Options of stereoset-mine" in page
    assert "mean share of yes 0." in page


def test_a_damaged_table_is_named_and_the_rest_of_the_page_is_there(
    tmp_path: Path, call: Call
) -> None:
    path = tmp_path / "b.zarr"
    bank = own_prompts(path)
    for deposit in bank.deposits():
        for part in deposit.score_files():
            content = bytearray(part.read_bytes())
            content[4:200] = bytes(196)
            part.write_bytes(content)
    code, _, error = call("report", path, "--out", tmp_path / "p.html")
    assert code == 1, error
    page = (tmp_path / "p.html").read_text()
    assert page.count("run `logitbank verify`") >= 2
    assert "1 model, 1 run, 2 checkpoints" in page


def _read_frames(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The frames of WinoBias that are read, as often as they are."""
    frames: list[object] = []

    def counted(frame: pl.LazyFrame, **how: Any) -> cube.Cube:
        frames.append(frame)
        return real(frame, **how)

    real = cube.cube
    monkeypatch.setattr(cube, "cube", counted)
    return frames


def test_families_of_a_report_read_winobias_and_lambada_once(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def counted(scan: Any, *about: Any, **how: Any) -> Any:
        passages.append(scan)
        return real(scan, *about, **how)

    frames, passages = _read_frames(monkeypatch), list[object]()
    real = lambada_metric.whole_in_turn
    monkeypatch.setattr(lambada_metric, "whole_in_turn", counted)
    titles: list[str] = []
    bank_report.report(
        whole,
        tmp_path / "r.html",
        prompts=["lambada", "winobias"],
        bootstrap=20,
        found=lambda title, _: titles.append(title),
    )
    assert {"Fairness", "Stereotype accuracy", "LAMBADA", "Performance and fairness"} <= {*titles}
    assert len(frames) == len(passages) == 1


def test_what_was_read_together_is_what_each_alone_finds(whole: Path) -> None:
    bank = Bank.open(whole)
    plans = planned(bank, ["lambada", "winobias"], bootstrap=20)
    alone = [plan.study() for plan in plans]
    with sharing(wanted_by(bank, plans, bootstrap=20)):
        together = [plan.study() for plan in plans]
    assert {"fairness", "stereotype", "lambada", "tradeoff"} <= {plan.family for plan in plans}
    for one, other in zip(alone, together, strict=True):
        assert one.summary.findings == other.summary.findings
        for name, table in one.result.tables().items():
            assert_frame_equal(table, other.result.tables()[name], rel_tol=1e-14)


def test_what_one_analysis_refuses_is_no_problem_of_the_other(
    whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise BankError("no gender is right")

    monkeypatch.setattr(genders, "compared", refuse)
    bank = Bank.open(whole)
    plans = [p for p in planned(bank, ["winobias"]) if p.family in ("fairness", "stereotype")]
    with sharing(wanted_by(bank, plans)):
        problems = {plan.family: section(plan).problem for plan in plans}
    assert problems == {"fairness": "", "stereotype": "no gender is right"}
