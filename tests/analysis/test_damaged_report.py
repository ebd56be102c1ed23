"""The page of a damaged bank: it is written, and says what it lacks; the command ends with 1."""

import html
from pathlib import Path

import pytest

from logitbank.store import Bank
from tests.support.command import Call
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


@pytest.fixture
def bank(tmp_path: Path) -> Bank:
    bank = new_bank(tmp_path / "b")
    bank.add_tokens(TOKENIZER, token_table())
    bank.add_query_set(OTHERS)
    bank.add_prompts("few", prompt_table(OTHERS))
    for step in (0, 8):
        checkpoint = spec(step).checkpoint
        bank.deposit(logits(step), checkpoint=checkpoint, query_set=spec(step).query_set)
        bank.deposit(logits(step, queries=4), checkpoint=checkpoint, query_set=OTHERS.name)
    return bank


def flip(bank: Bank, kind: str) -> Path:
    """Flip a byte of a file of step 8 of `parity`."""
    file = bank.path / f"org%2Fmodel/main/8/{spec(8).query_set}" / kind
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    return file


def written(call: Call, bank: Bank, out: Path) -> tuple[int, str, str, str]:
    """Exit code, stdout, stderr and the page, as it reads."""
    code, printed, told = call("report", bank.path, "--out", out, "--bootstrap", "0")
    return code, printed, told, html.unescape(out.read_text())


def test_a_sound_bank_has_no_such_words(bank: Bank, tmp_path: Path, call: Call) -> None:
    code, _, told, page = written(call, bank, tmp_path / "p.html")
    assert code == 0
    assert "damaged" not in told
    assert 'id="damaged"' not in page
    assert "All 14 prompts, at every checkpoint." in page


def test_rows_that_are_damaged_take_their_prompts_off_the_page_and_it_says_so(
    bank: Bank, tmp_path: Path, call: Call
) -> None:
    file = flip(bank, "logprobs/c/0/0")
    code, _, told, page = written(call, bank, tmp_path / "p.html")
    assert code == 1
    (line,) = [each for each in told.splitlines() if each.startswith("Prompts of parity: ")]
    assert str(file) in line
    assert "The bank is damaged, and the page lacks these; run `logitbank verify` on it." in told
    banner = page[page.index('id="damaged"') : page.index("</header>")]
    assert line in banner
    section = page[page.index('<section id="prompts"') :]
    assert f'<p class="problem">{line.removeprefix("Prompts of ")}</p>' in section
    assert "All 4 prompts of few, at every checkpoint." in section
    assert "Left out, as they could not be read: 10 prompts of parity." in section


def test_scores_that_are_damaged_are_no_finding(bank: Bank, tmp_path: Path, call: Call) -> None:
    file = flip(bank, "scores/all.parquet")
    code, printed, told, page = written(call, bank, tmp_path / "p.html")
    assert code == 1
    lines = [each for each in told.splitlines() if str(file) in each]
    assert {line.partition(":")[0] for line in lines} >= {"Prompts of parity"}
    assert len(lines) >= 2  # the shares of its options, and its prompts
    assert str(file) not in printed
    banner = page[page.index('id="damaged"') : page.index("</header>")]
    assert all(line in banner for line in lines)
    assert page.index('id="damaged"') < page.index('class="lead"')


def test_a_table_that_is_lost_is_told_below_the_title(
    bank: Bank, tmp_path: Path, call: Call
) -> None:
    (table,) = bank.path.glob("prompts/few-*.parquet")
    table.unlink()
    code, _, told, page = written(call, bank, tmp_path / "p.html")
    (line,) = [each for each in told.splitlines() if each.startswith(f"prompts/{table.name}: ")]
    assert code == 1
    assert "missing" in line
    assert line in page[page.index('id="damaged"') : page.index("</header>")]


def test_a_table_of_prompts_that_is_damaged_takes_its_prompts_off_the_page(
    bank: Bank, tmp_path: Path, call: Call
) -> None:
    (table,) = bank.path.glob("prompts/few-*.parquet")
    data = bytearray(table.read_bytes())
    data[len(data) // 2] ^= 1
    table.write_bytes(data)
    code, printed, told, page = written(call, bank, tmp_path / "p.html")
    assert code == 1
    (line,) = [each for each in told.splitlines() if each.startswith("Prompts of few: ")]
    assert f"{table} is not what was committed" in line
    assert "The bank is damaged, and the page lacks these; run `logitbank verify` on it." in told
    assert line in page[page.index('id="damaged"') : page.index("</header>")]
    section = page[page.index('<section id="prompts"') :]
    assert f'<p class="problem">{line.removeprefix("Prompts of ")}</p>' in section
    assert "All 10 prompts, at every checkpoint." in section
    assert "Options of parity" in printed
    code, _, told = call("report", bank.path, "--prompts", "few", "--out", tmp_path / "few.html")
    assert (code, told.count(str(table))) == (1, 1)
    assert not (tmp_path / "few.html").exists()
