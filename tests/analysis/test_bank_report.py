"""Which analyses a report has, what it refuses, and what it does where one fails or is damaged."""

import html
import re
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from logitbank.analysis.everything import analyses
from logitbank.analysis.families.lambada import metric as lambada_metric
from logitbank.analysis.report import report as bank_report
from logitbank.analysis.report.report import report
from logitbank.analysis.report.sections import Section
from logitbank.errors import BankError, LogitbankError, UsageError
from logitbank.store import Bank
from tests.support.command import Call
from tests.support.evaluation_banks import add_lambada, whole_bank
from tests.support.small_banks import (
    TOKENIZER,
    Query,
    QuerySet,
    logits,
    new_bank,
    prompt_table,
    spec,
    token_table,
)

OTHERS = QuerySet(TOKENIZER, tuple(Query((i, 3, 3), 2) for i in range(4)))
"""Four queries, of the prompt set `few`, beside the ten of `parity`."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return whole_bank(tmp_path_factory.mktemp("banks") / "b.zarr")


@pytest.fixture
def own(tmp_path: Path) -> Bank:
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


def test_analyses_are_those_that_the_prompts_allow(whole: Path, own: Bank) -> None:
    found = [(each.family.name, each.prompts) for each in analyses(whole)]
    assert found == [
        ("fairness", ("winobias",)),
        ("stereotype", ("stereotype-accuracy", "winobias")),
        ("pairs", ("crows-pairs",)),
        ("lambada", ("lambada",)),
        ("tradeoff", ("lambada", "winobias")),
    ]
    assert [each.family.name for each in analyses(whole, prompts=["lambada"])] == ["lambada"]
    named = [(each.family.name, each.title) for each in analyses(own)]
    assert named == [("options", "Options of few"), ("options", "Options of parity")]


def test_an_analysis_that_fails_says_so_and_the_others_are_there(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise BankError("no word is there; run `logitbank extract`")

    monkeypatch.setattr(lambada_metric, "analyze_lambada", refuse)
    sections: list[Section] = []
    page = report(
        whole, tmp_path / "b.html", prompts=["lambada", "winobias"], bootstrap=0,
        found=sections.append,
    ).read_text()  # fmt: skip
    problems = {section.id: section.problem for section in sections if section.problem}
    assert problems["lambada"] == "no word is there; run `logitbank extract`"
    assert "no word is there; run <code>logitbank extract</code>" in page
    assert 'id="fairness-' in page
    assert "Options of lambada" not in page  # a trade-off reads these prompts, too


def test_prompts_of_ones_own_may_have_the_name_of_a_family(own: Bank, tmp_path: Path) -> None:
    own.add_prompts("stereoset-mine", own.prompts("parity").collect())
    page = report(own, tmp_path / "b.html", prompts=["stereoset-mine"]).read_text()
    assert 'id="stereoset"' in page
    assert "Options of stereoset-mine" in page


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


def test_a_page_is_named_like_its_bank(whole: Path) -> None:
    name = bank_report._target
    assert name(["https://example.org/banks/pythia"], None) == Path("pythia.html")
    assert name(["hf://datasets/me/pythia@v1"], None) == Path("pythia.html")
    assert name([Bank.open(whole)], None) == Path("b.html")
    assert name(["."], None) == Path(f"{Path.cwd().name}.html")


def test_a_folder_that_cannot_be_written_to_is_named_before_anything_is_computed(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bank_report.os, "access", lambda path, mode: False)
    with pytest.raises(UsageError, match=rf"{tmp_path} cannot be written to"):
        report(whole, tmp_path / "p.html")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prompts": ["nope"]}, r"'nope' is not in .*crows-pairs, lambada, "),
        ({"models": ["nope"]}, r"'nope' is not in .*toy"),
        ({"out": "page.txt"}, r"page.txt .* ends in .html"),
        ({"out": "nowhere/p.html"}, r"no folder nowhere"),
    ],
)
def test_a_call_that_is_wrong_says_what_is_right(
    whole: Path, options: dict[str, object], message: str
) -> None:
    with pytest.raises((BankError, UsageError), match=message):
        report(whole, **{"out": "p.html", **options})


def test_a_bank_without_a_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BankError, match=r"no checkpoint of parity yet"):
        report(new_bank(tmp_path / "b"), tmp_path / "p.html")
    assert not (tmp_path / "p.html").exists()


def test_prompts_without_options_do_not_stop_a_report(own: Bank, tmp_path: Path) -> None:
    nothing = {"option": None, "continuation": None, "token": None, "is_answer": None}
    table = prompt_table().filter(option="yes")
    table = table.with_columns(**{name: pl.lit(None, table[name].dtype) for name in nothing})
    own.add_prompts("texts", table.with_columns(answer=pl.lit(None, pl.String)))
    page = report(own, tmp_path / "p.html", bootstrap=0).read_text()
    assert "Options of texts" in page


def test_winobias_and_lambada_are_read_once_and_give_what_each_alone_gives(
    whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from logitbank.analysis.frames import score_arrays

    reads: list[str] = []
    for module, name in ((score_arrays, "score_arrays"), (lambada_metric, "map_prompt_sums")):
        real = getattr(module, name)

        def counted(*args: object, real=real, name=name, **how: object) -> object:
            reads.append(name)
            return real(*args, **how)

        monkeypatch.setattr(module, name, counted)
    sets = ["lambada", "winobias"]
    together = [each.run() for each in analyses(whole, prompts=sets, bootstrap=20)]
    assert sorted(reads) == ["cube", "map_prompt_sums"]
    names = [study.family for study in together]
    assert names == ["fairness", "stereotype", "lambada", "tradeoff"]
    for at, study in enumerate(together):
        alone = analyses(whole, prompts=sets, bootstrap=20)[at].run()
        assert study.findings == alone.findings
        for name, table in alone.tables.items():
            assert_frame_equal(table, study.tables[name], rel_tol=1e-14)


# Damage: the page is written and names what it lacks; the command ends with 1.


def written(call: Call, bank: Bank, out: Path) -> tuple[int, str, str, str]:
    """Exit code, stdout, stderr and the page, as it reads."""
    code, printed, told = call("report", bank.path, "--out", out, "--bootstrap", "0")
    return code, printed, told, html.unescape(re.sub("</?code>", "`", out.read_text()))


def flip(file: Path) -> Path:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    return file


def banner_of(page: str) -> str:
    return page[page.index('id="damaged"') : page.index("</header>")]


def test_a_sound_bank_has_no_such_words(own: Bank, tmp_path: Path, call: Call) -> None:
    code, _, told, page = written(call, own, tmp_path / "p.html")
    assert code == 0
    assert "damaged" not in told
    assert 'id="damaged"' not in page
    assert "All 14 prompts, at every checkpoint." in page


@pytest.mark.parametrize("kind", ["logprobs/c/0/0", "scores/all.parquet"])
def test_damaged_rows_and_scores_take_their_prompts_off_the_page(
    own: Bank, tmp_path: Path, call: Call, kind: str
) -> None:
    file = flip(own.path / f"org%2Fmodel/main/8/{spec(8).query_set}" / kind)
    code, printed, told, page = written(call, own, tmp_path / "p.html")
    assert code == 1
    lines = [line for line in told.splitlines() if str(file) in line]
    assert any(line.startswith("Prompts of parity: ") for line in lines)
    assert all(line in banner_of(page) for line in lines)
    assert str(file) not in printed
    assert "logitbank verify" in told
    section = page[page.index('<section id="prompts"') :]
    assert "10 prompts of parity cannot be shown." in section
    assert "All 4 prompts, at every checkpoint." in section


def test_a_table_that_is_lost_is_named_below_the_title(
    own: Bank, tmp_path: Path, call: Call
) -> None:
    (table,) = own.path.glob("prompts/few-*.parquet")
    table.unlink()
    code, _, told, page = written(call, own, tmp_path / "p.html")
    (line,) = [each for each in told.splitlines() if each.startswith(f"prompts/{table.name}: ")]
    assert code == 1
    assert "missing" in line
    assert line in banner_of(page)


def test_a_damaged_table_of_prompts_takes_its_prompts_off_the_page(
    own: Bank, tmp_path: Path, call: Call
) -> None:
    table = flip(next(own.path.glob("prompts/few-*.parquet")))
    code, printed, told, page = written(call, own, tmp_path / "p.html")
    assert code == 1
    (line,) = [each for each in told.splitlines() if each.startswith("Prompts of few: ")]
    assert str(table) in line
    assert line in banner_of(page)
    assert "Options of parity" in printed
    with pytest.raises(LogitbankError, match=table.name):
        report(own, tmp_path / "few.html", prompts=["few"])
    assert not (tmp_path / "few.html").exists()
