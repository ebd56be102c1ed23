"""Which analyses a report has, what it refuses, and what it does where one fails or is damaged."""

import html
import json
import re
from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from logitbank.analysis.everything import analyses
from logitbank.analysis.report import report as bank_report
from logitbank.analysis.report.report import report
from logitbank.errors import BankError, LogitbankError, UsageError
from logitbank.store import Bank, Deposit
from tests.support.command import Call
from tests.support.evaluation_banks import add_crows_pairs, add_lambada, whole_bank
from tests.support.small_banks import (
    TOKENIZER,
    Query,
    QuerySet,
    flip,
    logits,
    new_bank,
    prompt_table,
    spec,
    token_table,
)

OTHERS = QuerySet(TOKENIZER, tuple(Query((i, 3, 3), 2) for i in range(4)))
"""Four queries, of the prompt set `few`, beside the ten of `parity`."""


@pytest.fixture(scope="module")
def full_bank(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return whole_bank(tmp_path_factory.mktemp("banks") / "b.zarr")


@pytest.fixture
def custom_bank(tmp_path: Path) -> Bank:
    """Two checkpoints over prompts that no family knows."""
    bank = new_bank(tmp_path / "own.zarr")
    bank.add_tokens(TOKENIZER, token_table())
    bank.add_query_set(OTHERS)
    bank.add_prompts("few", prompt_table(OTHERS))
    for step in (0, 8):
        checkpoint = spec(step).checkpoint
        bank.deposit(logits(step), checkpoint=checkpoint, query_set=spec(step).query_set)
        bank.deposit(logits(step, queries=4), checkpoint=checkpoint, query_set=OTHERS.name)
    return bank


def test_analyses_are_those_that_the_prompts_allow(full_bank: Path, custom_bank: Bank) -> None:
    found = [(each.family.name, each.prompts) for each in analyses(full_bank)]
    assert found == [
        ("fairness", ("winobias",)),
        ("stereotype", ("stereotype-accuracy", "winobias")),
        ("pairs", ("crows-pairs",)),
        ("lambada", ("lambada",)),
        ("tradeoff", ("lambada", "winobias")),
    ]
    assert [each.family.name for each in analyses(full_bank, prompts=["lambada"])] == ["lambada"]
    named = [(each.family.name, each.title) for each in analyses(custom_bank)]
    assert named == [("options", "Options of few"), ("options", "Options of parity")]


def test_prompt_sets_of_one_family_have_titles_and_folders_of_their_own(
    custom_bank: Bank, tmp_path: Path, call: Call
) -> None:
    add_crows_pairs(custom_bank)
    assert [each.folder for each in analyses(custom_bank, prompts=["crows-pairs", "few"])] == [
        "pairs",
        "options",
    ]
    custom_bank.add_prompts("my/pairs", custom_bank.prompts("crows-pairs").collect())
    code, printed, error = call(
        "analyze", custom_bank.path, "--out", tmp_path / "out", "--format", "json"
    )
    assert code == 0, error
    assert list(json.loads(printed)) == [
        "Minimal pairs: crows-pairs",
        "Minimal pairs: my/pairs",
        "Options of few",
        "Options of parity",
    ]
    assert sorted(folder.name for folder in (tmp_path / "out").iterdir()) == [
        "options-few",
        "options-parity",
        "pairs-crows-pairs",
        "pairs-my%2Fpairs",
    ]


def test_several_banks_are_analysed_together(tmp_path: Path, call: Call) -> None:
    paths = []
    for name, model in (("one", "a"), ("two", "b")):
        bank = Bank.create(tmp_path / f"{name}.zarr", title=f"Bank {name}")
        add_lambada(bank, {0: 0, 8: 10}, model=model)
        paths.append(bank.path)
    code, printed, error = call("report", *paths, "--out", tmp_path / "p.html")
    assert code == 0, error
    assert "LAMBADA" in printed
    page = (tmp_path / "p.html").read_text()
    assert "<title>Bank one, Bank two</title>" in page
    assert "2 models, 2 runs, 4 checkpoints (steps 0 to 8), 1 prompt set." in page
    data = re.findall(r'id="data">(.*?)</script>', page, re.DOTALL)[0]
    assert '"name":"a"' in data
    assert '"name":"b"' in data
    assert bank_report._target(paths, None) == Path("one-two.html")
    with pytest.raises(UsageError, match="twice"):
        report([paths[0], paths[0]], tmp_path / "p.html")


def test_a_page_is_named_like_its_bank(full_bank: Path) -> None:
    name = bank_report._target
    assert name(["https://example.org/banks/pythia"], None) == Path("pythia.html")
    assert name(["hf://datasets/me/pythia@v1"], None) == Path("pythia.html")
    assert name([Bank.open(full_bank)], None) == Path("b.html")
    assert name(["."], None) == Path(f"{Path.cwd().name}.html")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prompts": ["nope"]}, r"'nope' is not in .*crows-pairs, lambada, "),
        ({"models": ["nope"]}, r"'nope' is not in .*toy"),
        ({"out": "page.txt"}, r"page.txt .* ends in .html"),
        ({"out": "nowhere/p.html"}, r"no folder nowhere"),
    ],
)
def test_an_invalid_call_lists_valid_choices(
    full_bank: Path, options: dict[str, object], message: str
) -> None:
    with pytest.raises((BankError, UsageError), match=message):
        report(full_bank, **{"out": "p.html", **options})


def test_a_bank_without_a_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BankError, match=r"no checkpoint of parity yet"):
        report(new_bank(tmp_path / "b"), tmp_path / "p.html")
    assert not (tmp_path / "p.html").exists()


def test_winobias_and_lambada_are_read_once_and_give_what_each_alone_gives(
    full_bank: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from logitbank.store.read import scan

    reads: list[tuple[str, str]] = []
    real = scan.option_scores  # reads the scores of deposits for every reader

    def recorded(deposits: Sequence[Deposit]) -> pl.LazyFrame:
        reads.extend((each.query_set, str(each.checkpoint)) for each in deposits)
        return real(deposits)

    monkeypatch.setattr(scan, "option_scores", recorded)
    sets = ["lambada", "winobias"]
    together = [each.run() for each in analyses(full_bank, prompts=sets, bootstrap=20)]
    assert len({name for name, _ in reads}) == len(sets)
    assert len(reads) == len({*reads})
    names = [study.family for study in together]
    assert names == ["fairness", "stereotype", "lambada", "tradeoff"]
    for at, study in enumerate(together):
        alone = analyses(full_bank, prompts=sets, bootstrap=20)[at].run()
        assert study.findings == alone.findings
        for name, table in alone.tables.items():
            assert_frame_equal(table, study.tables[name], rel_tol=1e-14)


# Refusals and damage: everything else is done and named, and the command ends with 1.


def written(call: Call, bank: Bank, out: Path) -> tuple[int, str, str, str]:
    """Exit code, stdout, stderr and the page, as it reads."""
    code, printed, error = call("report", bank.path, "--out", out, "--bootstrap", "0")
    return code, printed, error, html.unescape(re.sub("</?code>", "`", out.read_text()))


def report_problems(page: str) -> str:
    return page[page.index('id="problems"') : page.index("</header>")]


def test_a_refused_family_is_named_and_the_others_go_on(
    custom_bank: Bank, tmp_path: Path, call: Call
) -> None:
    custom_bank.add_prompts("stereoset-mine", custom_bank.prompts("parity").collect())
    code, printed, error, page = written(call, custom_bank, tmp_path / "p.html")
    (line,) = [each for each in error.splitlines() if each.startswith("StereoSet: ")]
    assert code == 1
    assert line in report_problems(page)
    assert 'id="stereoset"' in page
    assert "Options of parity" in printed
    code, printed, error = call("analyze", custom_bank.path)
    assert (code, line in error.splitlines()) == (1, True)
    assert "Options of parity" in printed
    only = call("report", custom_bank.path, "--prompts", "parity", "--out", tmp_path / "q.html")
    assert only[0] == 0
    assert 'id="problems"' not in (tmp_path / "q.html").read_text()


def test_damaged_scores_take_their_prompts_off_the_page(
    custom_bank: Bank, tmp_path: Path, call: Call
) -> None:
    file = flip(custom_bank.path / f"org%2Fmodel/main/8/{spec(8).query_set}" / "scores/all.parquet")
    code, printed, error, page = written(call, custom_bank, tmp_path / "p.html")
    assert code == 1
    lines = [line for line in error.splitlines() if str(file) in line]
    assert any(line.startswith("Prompts of parity: ") for line in lines)
    assert all(line in report_problems(page) for line in lines)
    assert str(file) not in printed
    assert "All 4 prompts, at every checkpoint." in page


def test_a_damaged_table_of_prompts_is_refused_and_a_missing_one_is_named(
    custom_bank: Bank, tmp_path: Path, call: Call
) -> None:
    (table,) = custom_bank.path.glob("prompts/few-*.parquet")
    flip(table)
    with pytest.raises(LogitbankError, match=table.name):
        report(custom_bank, tmp_path / "p.html")
    assert not (tmp_path / "p.html").exists()
    table.unlink()
    code, _, error, page = written(call, custom_bank, tmp_path / "p.html")
    (line,) = [each for each in error.splitlines() if each.startswith(f"prompts/{table.name}: ")]
    assert (code, line in report_problems(page)) == (1, True)
