"""The frozen bank of format 1: read, verified, and completed on a copy."""

import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import logitbank
from logitbank.store import Bank, Deposit, verify
from logitbank.store.deposits.reduce import BlockReducer
from logitbank.store.tables.prompt_tables import option_tokens
from tests.support.paths import ROOT

DATA = ROOT / "tests" / "data" / "format-1"
COUNTS = ("token", "rank", "ties", "padding_above", "padding_ties")


@pytest.fixture
def bank(tmp_path: Path) -> Bank:
    return logitbank.open(str(shutil.copytree(DATA / "scores", tmp_path / "b")))


def values_of() -> Any:
    return json.loads((DATA / "scores.json").read_text())


def deposits(bank: Bank) -> dict[tuple[str, str], tuple[Deposit, list[list[float]]]]:
    """By name and query set: what is there, and the logits that went in."""
    there = {(d.checkpoint.model, d.checkpoint.step, d.query_set): d for d in bank.deposits()}
    return {
        (made["name"], query_set): (there.pop((made["model"], made["step"], query_set)), logits)
        for made in values_of()["deposits"]
        for query_set, logits in made["logits"].items()
    } | {("more than there were", name): (d, []) for (_, _, name), d in there.items()}


def test_a_format_1_bank_has_the_same_contents(bank: Bank) -> None:
    assert [bank.attributes[k] for k in ("title", "license", "citation")] == [
        "Format 1 <1>", "CC0-1.0", "Nobody, 2026"
    ]  # fmt: skip
    assert sorted(bank.prompt_sets) == ["sätze/next", "wörter"]
    heads = {q.head for query_set in bank.query_sets().values() for q in query_set.queries}
    assert heads == {"next_token", "next_sentence", "mask"}
    rows = bank.info().select("model", "run", "step", "keep", "dtype", "sealed", "committed")
    assert sorted(rows.rows(), key=str) == sorted(
        [
            ("org/model_v1.0", "main", 0, "full", "float16", True, 5),
            ("org/model_v1.0", "main", 0, "full", "float16", True, 2),
            ("org/model_v1.0", "main", 1000, "full", "float32", False, 3),
            ("ü 100%", "seed 1", 7, "topk:3", "float32", True, 5),
            ("..", "main", None, "options", "float16", True, 5),
            ("..", "main", None, "options", "float16", True, 2),
        ],
        key=str,
    )
    assert verify(bank) == ()


@pytest.mark.parametrize("prompts", ["wörter", "sätze/next"])
def test_a_scan_gives_the_values_beside_it(bank: Bank, prompts: str) -> None:
    names = {(m["model"], m["step"]): m["name"] for m in values_of()["deposits"]}
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in bank.scan(prompts).collect().iter_rows(named=True):
        name = names[row["model"], row["step"]]
        found[name, row["prompt_id"], row["order_seed"], row["option"]] = row
    keys = ("deposit", "prompt_id", "order_seed", "option")
    expected = {
        tuple(r[k] for k in keys): r for r in values_of()["scans"] if r["prompts"] == prompts
    }
    assert set(found) == set(expected)
    for key, row in expected.items():
        got = found[key]
        half_ulp = 0 if row["exact"] else 2**-8
        assert got["exact"] == row["exact"]
        assert got["logit"] == pytest.approx(row["logit"], abs=1e-6 + half_ulp)
        assert got["logprob"] == pytest.approx(row["logprob"], abs=2e-6 + half_ulp)
        if row["exact"]:
            assert [got[c] for c in COUNTS] == [row[c] for c in COUNTS]
        else:
            assert got["rank"] <= row["rank"] <= got["rank"] + got["ties"]


def test_rows_and_highest_entries_are_those_that_went_in(bank: Bank) -> None:
    for (name, _), (deposit, logits) in deposits(bank).items():
        level, values = deposit.layout.keep, np.array(logits)
        rows = [r for b in sorted(deposit.committed()) for r in deposit.layout.rows(b)]
        total = [math.log(math.fsum(map(math.exp, logits[r]))) for r in rows]
        np.testing.assert_allclose(deposit.logsumexp(rows), total, rtol=1e-6)
        if level.level == "full":
            tolerance = 2**-8 if deposit.layout.dtype == "float16" else 2e-6
            expected = values[rows] - np.array(total)[:, None]
            np.testing.assert_allclose(deposit.logprobs(rows), expected, rtol=0, atol=tolerance)
        top = deposit.scores().filter(pl.col("kind") == "top").collect()
        for row in rows:
            own = top.filter(query=row).sort("rank")["logit"].to_list()
            assert own == sorted(logits[row], reverse=True)[: level.k], name


def test_its_unfinished_deposit_is_completed(bank: Bank) -> None:
    unfinished = [(d, z) for d, z in deposits(bank).values() if not d.complete]
    ((deposit, logits),) = unfinished
    options = option_tokens(bank.path, deposit.query_set)
    entries = deposit.spec.vocab_entries
    with bank.begin(deposit.spec) as writer:
        assert writer.missing() == [1]
        reducer = BlockReducer(writer.layout, 1, options=options, vocab_entries=entries)
        for i, row in enumerate(writer.layout.rows(1)):
            reducer.put(i, np.array(logits[row], np.float32))
        writer.write(1, reducer.finish())
        writer.seal()
    assert deposit.sealed
    assert verify(bank) == ()
    np.testing.assert_allclose(deposit.logprobs() + deposit.logsumexp()[:, None], logits, atol=2e-6)
    step = bank.scan("wörter", steps=1000).collect()
    assert step.group_by("prompt_id").len()["len"].to_list() == [4] * 5


def test_the_fixture_is_small_and_has_every_kind_of_object() -> None:
    files = [p for p in (DATA / "scores").rglob("*") if p.is_file()]
    assert sum(p.stat().st_size for p in files) < 100_000
    names = {(p.parent.name, p.name) for p in files}
    assert ("commits", "seal.json") in names
    assert ("commits", "2.json") in names
    assert any(folder == "commits" and name.startswith("options-") for folder, name in names)
