"""The page that `--out` of a study writes: one part of a bank's page, and what is beside it."""

import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from logitbank import describe
from logitbank.analysis import write_report
from logitbank.analysis.families.fairness import fairness
from logitbank.analysis.families.fluctuation import fluctuation
from logitbank.analysis.report import page
from logitbank.analysis.report.report import report
from logitbank.analysis.report.words import GENERAL
from logitbank.analysis.results.study import Study
from logitbank.analysis.results.words import Summary
from tests.support.browser import Opened
from tests.support.drawing_cases import compared
from tests.support.evaluation_banks import winobias_bank
from tests.support.fluctuation_cases import professions_bank, two_runs


def part_of_page(path: Path, name: str) -> str:
    """The section of an analysis, whatever else is on the page."""
    (found,) = re.findall(rf'<section id="{name}".*?</section>', path.read_text(), re.DOTALL)
    found = re.sub(r' <span class="note">Prompts: [^<]*</span>', "", found)
    return re.sub(r'data-(figure|table)="\d+"', "", found)


def data_of(path: Path) -> dict[str, list[dict[str, object]]]:
    (found,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>',
                          path.read_text(), re.DOTALL)  # fmt: skip
    return json.loads(found)


def test_the_page_of_a_study_is_a_part_of_the_page_of_its_bank(tmp_path: Path) -> None:
    bank = winobias_bank(tmp_path / "b.zarr", skew_from=4, steps=8)
    describe(bank, licence="CC0")
    study = fairness([bank], out=tmp_path / "out", bootstrap=20)
    assert study.report is not None
    whole = report(bank, tmp_path / "b.html", bootstrap=20)
    part = part_of_page(study.report, "fairness")
    assert part == part_of_page(whole, "fairness")
    first = part_of_page(study.report, "message")
    assert first == part_of_page(whole, "message")
    assert first.count("<figure ") == 1
    assert part.count("<figure ") == 5
    alone, of_bank = data_of(study.report), data_of(whole)
    figures = [[figure["meta"] for figure in found["figures"][:6]] for found in (alone, of_bank)]
    assert figures[0] == figures[1]
    count = (first + part).count('<details class="table"')
    tables = [[table["values"] for table in found["tables"][:count]] for found in (alone, of_bank)]
    assert tables[0] == tables[1]
    assert count == 6 + sum(not table.is_empty() for table in study.result.tables().values())
    assert (alone["prompts"], alone["promptPlot"]) == ([], None)
    text = study.report.read_text()
    assert "<dt>licence</dt><dd>CC0</dd>" in text
    assert GENERAL[0] in text
    assert all(caution in text for caution in study.summary.cautions)


@pytest.mark.whole
def test_what_a_page_leaves_out_is_beside_it(
    chromium: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "ROWS", 3)
    monkeypatch.setattr(page, "FIGURES", 60_000)
    bank = winobias_bank(tmp_path / "b.zarr")
    study = fairness([bank], out=tmp_path / "out", bootstrap=0)
    assert study.report is not None
    opened = Opened(chromium, study.report)
    opened.unfold()
    table = opened.page.locator("#fairness .more > details.table").filter(has_text="gap")
    table.locator("summary").click()
    note = "The first 3 of 4 rows; tables/gap.csv beside this page has all of them."
    assert table.locator("p.note").inner_text() == note
    left = opened.page.locator("#fairness > .problem").inner_text()
    told = re.fullmatch(
        r"The page would be too large with (\d) more of these figures\. They are in the folder "
        r"figures beside it\.", left
    )  # fmt: skip
    assert told is not None
    assert opened.page.locator("figure").count() + int(told[1]) == 6
    assert len(list((tmp_path / "out" / "figures").glob("*.svg"))) == 6
    opened.close()
    whole = report(bank, tmp_path / "b.html", bootstrap=0)
    # The table is called like the figure that draws it, and comes after it.
    wholes = {table["name"]: table["whole"] for table in data_of(whole)["tables"]}
    assert wholes["gap"] == "logitbank analyze writes all of them with --out"


@pytest.mark.whole
def test_files_that_were_read_are_named_beside_the_banks(tmp_path: Path) -> None:
    bank = professions_bank(tmp_path / "b.zarr")
    two_runs().write_csv(tmp_path / "published.csv")
    for number, (sources, lead) in enumerate((
        ([bank, tmp_path / "published.csv"], "From the bank b and the files that are named below."),
        ([tmp_path / "published.csv"], "From the files that are named below."),
    )):  # fmt: skip
        study = fluctuation(sources, out=tmp_path / str(number))
        assert study.report is not None
        assert f'<p class="lead">{lead}</p>' in study.report.read_text()
        (files,) = (t for t in data_of(study.report)["tables"] if t["name"] == "files")
        assert files["values"] == [["published.csv"], [len(two_runs())]]


def test_a_result_of_no_family_has_a_page_too(tmp_path: Path) -> None:
    study = Study(compared(), Summary(("a finding",), cautions=("a caution",)))
    write_report(tmp_path / "p.html", study, title="Debiasing", about="What it costs.")
    text = (tmp_path / "p.html").read_text()
    part = part_of_page(tmp_path / "p.html", "findings")
    assert "What it costs." in part
    assert "<li>a finding</li>" in part
    assert part_of_page(tmp_path / "p.html", "message").count("<figure ") == 1
    assert "<li>a caution</li>" in text
    assert 'id="bank"' not in text
    names = [table["name"] for table in data_of(tmp_path / "p.html")["tables"]]
    assert names == ["comparison", "comparison"]
