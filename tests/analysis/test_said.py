"""What a page has of what a model would say: the most probable tokens by name, of a few prompts."""

from dataclasses import replace
from math import exp
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from playwright.sync_api import Browser

from logitbank.analysis.report import said as module
from logitbank.analysis.report.prompts import prompt_data
from logitbank.analysis.report.report import report
from logitbank.analysis.report.said import Asked, said
from logitbank.store import Bank, CheckpointId
from tests.support.browser import Opened
from tests.support.small_banks import QUERY_SET, TOKENIZER, new_bank, token_table

TOTAL = sum(exp(value) for value in (0, 3, 1, 2, -1, -2))


def bank_at(path: Path, *, keep: str = "full", named: bool = True, models: str = "m") -> Bank:
    """At every step the logits 0, 3, 1, 2, −1, −2, but at step 8 the first two are exchanged."""
    bank = new_bank(path)
    if named:
        bank.add_tokens(TOKENIZER, token_table())
    for model in models:
        for step in (0, 8):
            values = np.array([0, 3, 1, 2, -1, -2], np.float32)
            values[:2] = values[:2] if step == 0 else values[1::-1]
            bank.deposit(
                np.tile(values, (10, 1)), checkpoint=CheckpointId(model, step=step),
                query_set=QUERY_SET.name, keep=keep,
            )  # fmt: skip
    return bank


@pytest.mark.parametrize(("keep", "places"), [("full", 5), ("topk:3", 3), ("options", 1)])
def test_the_most_probable_tokens_of_a_few_prompts_at_the_asked_steps(
    tmp_path: Path, keep: str, places: int
) -> None:
    bank = bank_at(tmp_path / "b", keep=keep)
    keys = [(3, ("p4", None)), (0, ("p9", None))]
    found = said(bank, "parity", [Asked("m", "main", (0, 8))], keys)
    assert found is not None
    assert (found["k"], found["prompts"]) == (5, [3, 0])
    (series,) = found["series"]
    assert series["steps"] == [0, 8]
    texts, tokens = found["texts"], series["tokens"]
    assert [len(of_prompt) for of_prompt in tokens] == [2, 2]
    shown = [
        (texts[text], p) for text, p in zip(tokens[0][0][::2], tokens[0][0][1::2], strict=True)
    ]
    logits = [(" yes", 3), ("a", 2), (" maybe", 1), ("<end>", 0), (" no", -1)][:places]
    assert shown == [(text, float(f"{exp(value) / TOTAL:.3g}")) for text, value in logits]
    assert texts[tokens[1][1][0]] == "<end>"  # exchanged with " yes"


@pytest.mark.parametrize(("keep", "places"), [("full", 1), ("topk:3", 3)])
def test_of_a_bank_at_a_url_no_full_rows_are_fetched(
    tmp_path: Path, keep: str, places: int
) -> None:
    bank = replace(bank_at(tmp_path / "b", keep=keep), has_rows=False)
    found = said(bank, "parity", [Asked("m", "main", (0,))], [(0, ("p4", None))])
    assert found is not None
    assert len(found["series"][0]["tokens"][0][0]) == 2 * places


def test_without_names_of_tokens_there_is_nothing_to_say(tmp_path: Path) -> None:
    bank = bank_at(tmp_path / "b", named=False)
    assert said(bank, "parity", [Asked("m", "main", (0, 8))], [(0, ("p4", None))]) is None
    assert prompt_data(bank, "parity")["said"] is None


def test_a_prompt_whose_options_stand_at_different_places_is_left_out(tmp_path: Path) -> None:
    bank = bank_at(tmp_path / "b")
    table = bank.prompts("parity").collect()
    row = pl.when((pl.col("prompt_id") == "p4") & (pl.col("option") == "no")).then(5)
    apart = table.with_columns(row=row.otherwise("row").cast(pl.Int32))
    bank.add_prompts("apart", apart)
    keys = [(0, ("p4", None)), (1, ("p9", None))]
    found = said(bank, "apart", [Asked("m", "main", (0,))], keys)
    assert found is not None
    assert found["prompts"] == [1]
    assert said(bank, "apart", [Asked("m", "main", (0,))], keys[:1]) is None


@pytest.mark.whole
def test_a_page_shows_what_the_model_would_say_and_where_the_rest_is(
    chromium: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PAIRS", 5)
    page = report(bank_at(tmp_path / "b.zarr"), tmp_path / "b.html", bootstrap=0)
    assert "What the model would say is here for 5 prompts that move most." in page.read_text()
    opened = Opened(chromium, page, viewport={"width": 400, "height": 800}, color_scheme="dark")
    table = opened.page.locator("#prompt-view .said table")
    rows = [row.split("\t") for row in table.inner_text().splitlines()]
    assert rows[0] == ["Checkpoint", "Most probable", "2.", "3.", "4.", "5."]
    assert [row[0] for row in rows[1:]] == ["step 0", "step 8"]
    assert rows[1][1] == f"␣yes {exp(3) / TOTAL:.3g}"
    assert rows[2][1].startswith("<end> ")
    assert opened.findings() == []
    opened.page.locator("#prompt-view ol button").last.click()
    told = opened.page.locator("#prompt-view .said")
    chosen = opened.page.locator("#prompt-view h3").inner_text()
    assert told.inner_text() == (
        "What the model would say here is not in this page: logitbank show BANK --prompts parity "
        f"--prompt {chosen} --top-tokens 5"
    )
    assert opened.complaints == []
    opened.close()
