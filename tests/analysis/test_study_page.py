"""What `Study.save` writes: the page of one study, and its tables and charts beside it."""

import re
from pathlib import Path

import polars as pl
import pytest

from logitbank.analysis.report.sections import GENERAL
from logitbank.errors import UsageError
from logitbank.store import Bank
from tests.support.evaluation_banks import add_lambada
from tests.support.study_cases import study


def test_a_study_is_saved_as_tables_charts_and_a_page(
    tmp_path: Path, charts_on_paper: None
) -> None:
    bank = Bank.create(tmp_path / "b.zarr", license="CC0")
    add_lambada(bank, {0: 0, 8: 10}, words=5)
    files = pl.DataFrame({"file": ["published.csv"], "rows": [7]})
    page = study(banks=[bank], files=[files]).save(tmp_path / "out")
    assert page == tmp_path / "out" / "report.html"
    written = sorted(path.name for path in (tmp_path / "out" / "charts").iterdir())
    formats = ("pdf", "png", "svg", "txt")
    assert written == [f"{name}.{suffix}" for name in ("bars", "lines") for suffix in formats]
    assert sorted(path.name for path in (tmp_path / "out" / "tables").iterdir()) == [
        "empty.csv", "scores.csv",
    ]  # fmt: skip
    text = page.read_text()
    assert "<title>Values: toy</title>" in text
    assert '<p class="lead">Source: bank b, the files listed below.</p>' in text
    (first,) = re.findall(r'<section id="first".*?</section>', text, re.DOTALL)
    assert first.count("<figure ") == 1
    (section,) = re.findall(r'<section id="findings".*?</section>', text, re.DOTALL)
    assert section.count("<figure ") == 1
    assert section.count('<details class="table"') == 1  # the other one has no rows
    assert "3 prompts are missing." in section
    assert "<dt>license</dt><dd>CC0</dd>" in text
    assert GENERAL[0] in text
    assert '"name":"files"' in text
    assert '"prompts":[]' in text


def test_a_study_without_a_bank_has_a_page(tmp_path: Path) -> None:
    text = study().save(tmp_path).read_text()
    assert 'id="bank"' not in text
    assert "It is made up." in text


def test_a_study_is_not_saved_at_a_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="to a folder, not to https://example.org/page") as error:
        study().save("https://me:secret@example.org/page")
    assert "secret" not in str(error.value)
    assert not [*tmp_path.iterdir()]


def test_a_study_is_not_saved_in_a_bank(tmp_path: Path) -> None:
    bank = Bank.create(tmp_path / "b.zarr")
    with pytest.raises(UsageError, match=r"b\.zarr"):
        study().save(bank.path / "out")
