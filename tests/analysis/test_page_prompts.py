"""The prompts of a page: scores of the bank, one prompt of a sentence, and predicted tokens."""

import base64
from dataclasses import replace
from math import exp
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from playwright.sync_api import Browser

from logitbank.analysis.report import predictions as module
from logitbank.analysis.report.page import Page, write_page
from logitbank.analysis.report.predictions import Run, predictions
from logitbank.analysis.report.prompts import prompt_data
from logitbank.errors import UsageError
from logitbank.store import Bank, CheckpointId, Query, QuerySet
from tests.support.browser import Opened
from tests.support.evaluation_banks import winobias_bank
from tests.support.small_banks import (
    QUERY_SET,
    TOKENIZER,
    logits,
    new_bank,
    prompt_table,
    spec,
    token_table,
)

TOTAL = sum(exp(value) for value in (0, 3, 1, 2, -1, -2))


def test_prompts_of_a_page_are_the_scores_of_the_bank(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b.zarr")
    for step in (0, 1, 2):
        asked = spec(step)
        bank.deposit(logits(step), checkpoint=asked.checkpoint, query_set=asked.query_set)
    found = prompt_data([bank], "parity")
    assert (found["measure"], found["total"], len(found["prompts"])) == ("share", 10, 10)
    scan = bank.scan("parity").collect()
    (series,) = found["series"]
    assert series["steps"] == [0, 1, 2]
    stored = np.frombuffer(base64.b64decode(series["logprob"]["bdata"]), "<f4").reshape(3, 20)
    column = 0
    for prompt in found["prompts"]:
        for option in prompt["options"]:
            for at, step in enumerate(series["steps"]):
                (own,) = scan.filter(
                    prompt_id=prompt["id"], option=option["option"], step=step
                ).iter_rows(named=True)
                assert stored[at, column] == np.float32(own["logprob"])
            column += 1


def test_a_list_has_one_prompt_of_each_sentence_and_points_to_nothing_else(tmp_path: Path) -> None:
    bank = Bank.open(winobias_bank(tmp_path / "b.zarr", steps=6))
    sentences = dict(
        bank.prompts("winobias").select("prompt_id", "sentence_id").unique().collect().iter_rows()
    )
    found = prompt_data([bank], "winobias", values=6 * 3 * 25)
    assert (len(found["prompts"]), found["total"], found["grouped"]) == (25, 48, True)
    (series,) = found["series"]
    changed = [sentences[found["prompts"][at]["id"]] for at, *_ in series["changed"]]
    assert 10 <= len(changed) == len(set(changed))
    numbered = prompt_table().with_columns(text=pl.format("{} of 3", "text"))
    own = new_bank(tmp_path / "own")
    own.add_prompts("same", numbered)
    own.deposit(logits(0), checkpoint=CheckpointId("m", step=0), query_set=QUERY_SET.name)
    assert not prompt_data([own], "same")["grouped"]  # one text but for its numbers: too few


def test_models_and_banks_that_were_asked_different_prompts_share_a_view(tmp_path: Path) -> None:
    other = QuerySet(TOKENIZER, tuple(Query((9, i), 1) for i in range(3)))
    more = prompt_table(other).with_columns(prompt_id=pl.lit("q") + pl.col("row").cast(pl.String))
    one, two = new_bank(tmp_path / "one"), Bank.create(tmp_path / "two")
    two.add_query_set(other)
    two.add_prompts("parity", more)
    for step in (0, 1):
        checkpoint = CheckpointId("a", step=step)
        one.deposit(logits(step), checkpoint=checkpoint, query_set=QUERY_SET.name)
        two.deposit(logits(step, queries=3), checkpoint=checkpoint, query_set=other.name)
    found = prompt_data([one, two], "parity")
    assert [series["name"] for series in found["series"]] == ["a one", "a two"]
    names = [prompt["id"] for prompt in found["prompts"]]
    assert sorted(names) == [f"p{i}" for i in range(10)] + ["q0", "q1", "q2"]
    for series, own in zip(found["series"], "pq", strict=True):
        stored = np.frombuffer(base64.b64decode(series["logprob"]["bdata"]), "<f4").reshape(2, 26)
        asked = ~np.isnan(stored[0]).reshape(13, 2).any(axis=1)
        assert {name for name, is_asked in zip(names, asked, strict=True) if is_asked} == {
            name for name in names if name.startswith(own)
        }
        assert {names[at][0] for at, *_ in series["changed"]} == {own}
    changed = Bank.create(tmp_path / "three")
    changed.add_query_set(QUERY_SET)
    changed.add_prompts("parity", prompt_table().with_columns(text=pl.lit("another text")))
    with pytest.raises(UsageError, match="differs in column"):
        prompt_data([one, changed], "parity")


def bank_at(path: Path, *, keep: str = "full", named: bool = True) -> Bank:
    """At every step the logits 0, 3, 1, 2, −1, −2, but at step 8 the first two are exchanged."""
    bank = new_bank(path)
    if named:
        texts = pl.col("text").replace("a", "a\n")
        bank.add_tokens(TOKENIZER, token_table().with_columns(texts))
    for step in (0, 8):
        values = np.array([0, 3, 1, 2, -1, -2], np.float32)
        values[:2] = values[:2] if step == 0 else values[1::-1]
        bank.deposit(
            np.tile(values, (10, 1)), checkpoint=CheckpointId("m", step=step),
            query_set=QUERY_SET.name, keep=keep,
        )  # fmt: skip
    return bank


@pytest.mark.parametrize(("keep", "places"), [("full", 5), ("topk:3", 3), ("options", 1)])
def test_the_most_probable_tokens_of_a_few_prompts(tmp_path: Path, keep: str, places: int) -> None:
    bank = bank_at(tmp_path / "b", keep=keep)
    keys = [(3, ("p4", None)), (0, ("p9", None))]
    found = predictions("parity", [Run(bank, "m", "main", (0, 8))], keys)
    assert found is not None
    assert (found["k"], found["prompts"]) == (5, [3, 0])
    (series,) = found["series"]
    assert series["steps"] == [0, 8]
    texts, tokens = found["texts"], series["tokens"]
    assert [len(of_prompt) for of_prompt in tokens] == [2, 2]
    pairs = zip(tokens[0][0][::2], tokens[0][0][1::2], strict=True)
    logits_of = [(" yes", 3), ("a\n", 2), (" maybe", 1), ("<end>", 0), (" no", -1)][:places]
    assert [(texts[text], p) for text, p in pairs] == [
        (text, float(f"{exp(value) / TOTAL:.3g}")) for text, value in logits_of
    ]
    assert texts[tokens[1][1][0]] == "<end>"  # exchanged with " yes"


@pytest.mark.parametrize(("keep", "places"), [("full", 1), ("topk:3", 3)])
def test_of_a_bank_at_a_url_no_full_rows_are_fetched(
    tmp_path: Path, keep: str, places: int
) -> None:
    bank = replace(bank_at(tmp_path / "b", keep=keep), has_rows=False)
    found = predictions("parity", [Run(bank, "m", "main", (0,))], [(0, ("p4", None))])
    assert found is not None
    assert len(found["series"][0]["tokens"][0][0]) == 2 * places


def test_without_texts_of_tokens_there_are_no_predictions(tmp_path: Path) -> None:
    bank = bank_at(tmp_path / "b", named=False)
    assert prompt_data([bank], "parity")["predictions"] is None


def test_a_prompt_whose_options_stand_at_different_places_has_none(tmp_path: Path) -> None:
    bank = bank_at(tmp_path / "b")
    table = bank.prompts("parity").collect()
    row = pl.when((pl.col("prompt_id") == "p4") & (pl.col("option") == "no")).then(5)
    bank.add_prompts("apart", table.with_columns(row=row.otherwise("row").cast(pl.Int32)))
    keys = [(0, ("p4", None)), (1, ("p9", None))]
    runs = [Run(bank, "m", "main", (0,))]
    found = predictions("apart", runs, keys)
    assert found is not None
    assert found["prompts"] == [1]
    assert predictions("apart", runs, keys[:1]) is None


def test_a_page_shows_predictions_unclipped_with_line_breaks_as_marks(
    chromium: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PAIRS", 5)
    bank = bank_at(tmp_path / "b.zarr")
    page = tmp_path / "b.html"
    write_page(page, Page(title="t", prompts=[prompt_data([bank], "parity")]))
    opened = Opened(chromium, page, viewport={"width": 400, "height": 800}, color_scheme="dark")
    table = opened.page.locator("#prompt-view .predicted table")
    assert table.locator("th[scope=row]").all_inner_texts() == ["step 0", "step 8"]
    tokens = table.locator("tr").nth(1).locator(".token").all_inner_texts()
    assert tokens[0] == f"␣yes {exp(3) / TOTAL:.3g}"
    assert tokens[1].startswith("a↵ ")
    for token in table.locator(".token").all():
        box = token.bounding_box()
        assert box is not None
        assert box["x"] + box["width"] <= 400
    assert opened.findings() == []
    opened.page.locator("#prompt-view ol button").last.click()
    chosen = opened.page.locator("#prompt-view h3").inner_text()
    command = f"logitbank show BANK --prompts parity --prompt {chosen} --top-tokens 5"
    assert command in opened.page.locator("#prompt-view .predicted").inner_text()
    assert opened.complaints == []
    opened.close()
