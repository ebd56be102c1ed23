"""What an analysis copies of a bank at a URL, and which address its messages show."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

import logitbank
from logitbank.analysis.families.unqover import FAMILY as UNQOVER
from logitbank.analysis.frames.banks import open_banks
from logitbank.analysis.frames.choose import ChoosePrompts, with_columns, with_prefix
from logitbank.analysis.frames.reader import read_scores
from logitbank.cli.main import app
from logitbank.errors import AbsentError, LogitbankError
from logitbank.store import Bank, CheckpointId, Query, QuerySet
from logitbank.store.share.push import push
from tests.support.file_server import FileServer
from tests.support.small_banks import QUERY_SET, TOKENIZER, logits, new_bank, prompt_table

pytest.importorskip("huggingface_hub")


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A bank of the prompt sets `parity` and `stereoset-x`, each with its own query set."""
    monkeypatch.setenv("LOGITBANK_CACHE", str(tmp_path / "cache"))
    bank = new_bank(tmp_path / "bank")
    other = QuerySet(TOKENIZER, tuple(Query((i, 9), 1) for i in range(len(QUERY_SET))))
    bank.add_query_set(other)
    bank.add_prompts("stereoset-x", prompt_table(other, paired=True))
    for query_set in (QUERY_SET, other):
        bank.deposit(logits(), checkpoint=CheckpointId("m", step=0), query_set=query_set.name)
    (tmp_path / "www").mkdir()
    push(bank.path, tmp_path / "www" / "bank")
    with FileServer(tmp_path / "www") as server:
        yield f"{server.url}/bank"


def copied_sets(bank: Bank) -> set[str]:
    """Prompt sets whose scores are in the copy."""
    copied = {file.parts[-3] for file in bank.path.rglob("scores/*.parquet")}
    tables = {name: bank.prompts(name).collect()["query_set"] for name in bank.prompt_sets}
    return {name for name, column in tables.items() if copied & set(column)}


@pytest.mark.parametrize("family", [with_prefix("stereoset"), with_columns("paired")])
def test_only_scores_of_the_prompt_sets_of_a_family_are_copied(
    url: str, family: ChoosePrompts
) -> None:
    (bank,) = read_scores(url, family=replace(UNQOVER, prompts=family)).banks
    assert bank.prompt_sets == ["parity", "stereoset-x"]
    assert copied_sets(bank) == {"stereoset-x"}


def test_of_several_prompt_sets_those_that_a_bank_has_are_copied(url: str) -> None:
    (bank,) = open_banks(url, prompts=["stereoset-x", "elsewhere"])
    assert copied_sets(bank) == {"stereoset-x"}


@pytest.mark.parametrize(
    "call",
    [
        logitbank.unqover,
        logitbank.stereotype,
        logitbank.tradeoff,
        logitbank.fluctuation,
        logitbank.lambada,
    ],
)
def test_an_analysis_copies_no_scores_of_prompt_sets_that_it_does_not_use(
    url: str, call: object, tmp_path: Path
) -> None:
    with pytest.raises(LogitbankError, match=url):
        call(url)  # type: ignore[operator]
    assert not list((tmp_path / "cache").rglob("scores/*"))


def test_stereoset_copies_its_own_prompt_sets(url: str, tmp_path: Path) -> None:
    with pytest.raises(LogitbankError, match="column"):
        logitbank.stereoset(url)
    copied = list((tmp_path / "cache").rglob("scores/*"))
    assert len(copied) == 1


def test_messages_show_the_url_instead_of_the_copy(url: str, tmp_path: Path) -> None:
    with pytest.raises(AbsentError, match=url) as caught:
        logitbank.open(url).scan("elsewhere")
    assert str(tmp_path) not in str(caught.value).split("logitbank.open")[0]
    shown = CliRunner().invoke(app, ["show", url, "--prompts", "parity"])
    assert shown.exit_code == 0, shown.output
    assert isinstance(logitbank.open(url).scan("parity"), pl.LazyFrame)
