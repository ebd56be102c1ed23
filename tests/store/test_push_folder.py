"""What a bank that is pushed into a folder says to whoever opens that folder in a browser."""

import re
from html.parser import HTMLParser
from pathlib import Path

import polars as pl
import pytest

from logitbank.store import Bank, CheckpointId, verify
from logitbank.store.files import locks
from logitbank.store.sharing.card import MARK
from logitbank.store.sharing.transfer import pull, push
from tests.support.small_banks import QUERY_SET, logits, prompt_table


class Texts(HTMLParser):
    """The texts of a page, and its open tags, which must close as they opened."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.open: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, _: object) -> None:
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.found.append(data)


@pytest.fixture
def bank(tmp_path: Path) -> Bank:
    made = Bank.create(
        tmp_path / "b", title="A <b>bank</b> & more", licence="CC0-1.0", citation="Me <me@x>, 2026"
    )
    made.add_query_set(QUERY_SET)
    made.add_prompts("parity", prompt_table())
    for step in (0, 8):
        checkpoint = CheckpointId("org/model", step=step)
        made.deposit(logits(step), checkpoint=checkpoint, query_set=QUERY_SET.name)
    return made


def test_the_page_says_what_is_there_and_how_to_open_it(tmp_path: Path, bank: Bank) -> None:
    push(bank.path, tmp_path / "www")
    page = (tmp_path / "www" / "index.html").read_text()
    texts = Texts(page)
    assert texts.open == []
    said = " ".join(texts.found)
    for text in ("A <b>bank</b> & more", "org/model", "0 to 8", "parity", "CC0-1.0", "Me <me@x>"):
        assert text in said
    assert "logitbank pull https://… bank.zarr" in said
    assert not re.search(r"<script|https?://(?!…)|src=", page)
    readme = (tmp_path / "www" / "README.md").read_text()
    assert "| org/model | main | 2 | 0 to 8 | full | float32 |" in readme
    assert verify(tmp_path / "www") == ()


def test_a_card_of_a_folder_says_which_address_is_left_to_fill_in(
    tmp_path: Path, bank: Bank
) -> None:
    push(bank.path, f"{tmp_path / 'there'}")
    text = (tmp_path / "there" / "README.md").read_text()
    assert "With the address of this folder for https://…:" in text
    assert 'logitbank.open("https://…")' in text


def test_pages_are_kept_current_until_their_owner_takes_them(tmp_path: Path, bank: Bank) -> None:
    www = tmp_path / "www"
    push(bank.path, www, steps="0")
    assert "<td>0 to 0</td>" in (www / "index.html").read_text()
    (www / "README.md").write_text("mine")
    push(bank.path, www)
    assert "<td>0 to 8</td>" in (www / "index.html").read_text()
    assert (www / "README.md").read_text() == "mine"
    assert MARK in (www / "index.html").read_text()
    assert not {"README.md", "index.html"} & set(pl.read_json(www / "index.json")["objects"][0])


def test_a_bank_that_is_pulled_has_no_pages(tmp_path: Path, bank: Bank) -> None:
    push(bank.path, tmp_path / "www")
    pull(tmp_path / "www", tmp_path / "back")
    assert not list((tmp_path / "back").glob("[Ri][En][Ad][De]*"))
    assert Bank.open(tmp_path / "back").info().equals(bank.info())


def test_locks_of_a_pull_that_was_killed_go_with_the_next_and_others_stay(
    tmp_path: Path, bank: Bank
) -> None:
    back = tmp_path / "back"
    pull(bank.path, back)
    dead, held = (deposit.path / ".lock" for deposit in Bank.open(back).deposits())
    for file in (dead, back / ".lock"):
        file.touch()
    with locks.locked(held):
        assert pull(bank.path, back).objects == 0
        assert held.exists()
    assert list(back.rglob(".lock")) == []


def test_sealed_scores_say_which_checkpoint_they_are_of(bank: Bank) -> None:
    rows = pl.read_parquet(bank.path / "*/*/*/*/scores/all.parquet")
    keys = rows.select("model", "run", "step", "query_set").unique().sort("step").rows()
    assert keys == [("org/model", "main", step, QUERY_SET.name) for step in (0, 8)]
    assert "model" not in bank.deposits()[0].scores().collect_schema()
