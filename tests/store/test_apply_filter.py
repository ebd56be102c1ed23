"""A bank after a filter, against distributions that are filtered whole."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from logitbank.errors import BankError, KeepLevelError, UsageError
from logitbank.store import (
    Bank,
    BlockData,
    CheckpointId,
    Filter,
    Query,
    QuerySet,
    apply_filter,
    shrink,
    verify,
)
from tests.support.small_banks import (
    QUERIES,
    QUERY_SET,
    TOKENIZER,
    logits,
    new_bank,
    prompt_table,
)

pytestmark = pytest.mark.numerical

VOCAB, ENTRIES = 12, 10
COUNTS = ("rank", "ties", "padding_above", "padding_ties")


def drawn(k: int, mode: str, seed: int = 0, scale: float = 1.0) -> Filter:
    random = np.random.default_rng(seed)
    weight = np.eye(k) + scale * random.normal(size=(k, k))
    return Filter(weight, scale * random.normal(size=k), mode)  # type: ignore[arg-type]


def filtered_row(row: np.ndarray, by: Filter) -> np.ndarray:
    """Log-probabilities (v,) of a row of logits after the filter, as the paper defines them."""
    p = np.exp(row - row.max()) / np.exp(row - row.max()).sum()
    best = np.lexsort((np.arange(len(row)), -row))[: by.k]
    z = by.weight @ row[best] + by.bias
    share = np.exp(z - z.max()) / np.exp(z - z.max()).sum()
    out = np.zeros(len(row)) if by.mode == "truncate" else p.copy()
    out[best] = share * (1.0 if by.mode == "truncate" else p[best].sum())
    with np.errstate(divide="ignore"):
        return np.log(out)


def counted(row: np.ndarray, token: int) -> list[int]:
    """Rank, ties, and how much of both is padding."""
    above, equal = row > row[token], row == row[token]
    equal[token] = False
    padding = [int(each[ENTRIES:].sum()) for each in (above, equal)]
    return [int(above.sum()) + 1, int(equal.sum()), *padding]


def near_values(seed: int) -> np.ndarray:
    """Logits of which many are equal, so that ranks have ties on both sides of every boundary."""
    drawn = np.random.default_rng(seed).integers(-4, 5, size=(QUERIES, VOCAB))
    return drawn.astype(np.float32)


def bank(path: Path, values: np.ndarray, keep: str = "topk:4", *, model: str = "m") -> Bank:
    made = new_bank(path) if not path.exists() else Bank.open(path)
    made.deposit(
        values, checkpoint=CheckpointId(model, step=8), query_set=QUERY_SET.name, keep=keep,
        vocab_entries=min(ENTRIES, values.shape[1]),
        provenance={"tokenizer": TOKENIZER, "weights": "cd" * 32},
    )  # fmt: skip
    return made


@pytest.mark.parametrize("keep", ["full", "topk:5", "topk:12"])
@pytest.mark.parametrize("mode", ["truncate", "keep_tail"])
@pytest.mark.parametrize(("k", "scale"), [(1, 1.0), (2, 3.0), (4, 0.3), (5, 0.0)])
def test_scores_and_ranks_are_those_of_the_filtered_rows(
    tmp_path: Path, keep: str, mode: str, k: int, scale: float
) -> None:
    values, by = near_values(k), drawn(k, mode, k, scale)
    made = bank(tmp_path / "b", values, keep)
    done = apply_filter(made, by, tmp_path / "f", name="filtered")
    (deposit,) = Bank.open(tmp_path / "f").deposits()
    scores = deposit.scores().collect()
    options = scores.filter(kind="option")
    assert (done.options, done.bounds) == (20, int((~options["exact"]).sum()))
    listed = {"full": 64, "topk:5": max(1, 5 - k), "topk:12": 12}[keep]
    listed = k if mode == "truncate" else min(listed, VOCAB)
    rows = [filtered_row(row.astype(np.float64), by) for row in values]
    highest = scores.filter(kind="top").group_by("query", maintain_order=True).agg("logit", "token")
    assert highest["token"].list.len().unique().to_list() == [listed]
    for query, row in enumerate(rows):
        own = scores.filter(query=query)
        logprobs = own["logit"].cast(pl.Float64) - own["logsumexp"]
        near = 2e-3 if keep == "full" else 2e-6
        np.testing.assert_allclose(logprobs, row[own["token"]], atol=near)
        np.testing.assert_allclose(
            logprobs.filter(own["kind"] == "top"), np.sort(row)[::-1][:listed], atol=near
        )
        # As logits are: float32, from which all counts follow.
        stored = (row + (0.0 if mode == "truncate" else own["logsumexp"][0])).astype(np.float32)
        for token, exact, *counts in own.select("token", "exact", *COUNTS).iter_rows():
            expected = counted(stored, token)
            if exact:
                assert counts == expected
            else:
                assert counts[0] <= expected[0] <= counts[0] + counts[1]
    if keep == "topk:12" or (mode == "truncate" and keep == "topk:5"):
        assert scores["exact"].all()
    assert verify(Bank.open(tmp_path / "f")) == ()


def test_a_filter_that_changes_nothing_gives_the_stored_scores(tmp_path: Path) -> None:
    made = bank(tmp_path / "b", near_values(0), "topk:6")
    apply_filter(made, Filter.identity(3), tmp_path / "f")
    plain, seen = (
        b.scan("parity").sort("row", "option").drop("model").collect()
        for b in (made, Bank.open(tmp_path / "f"))
    )
    assert seen.equals(plain)


def test_a_token_that_falls_below_all_listed_ones_has_an_interval(tmp_path: Path) -> None:
    values = np.tile(np.arange(VOCAB, 0, -1, dtype=np.float32), (QUERIES, 1))
    weight = np.array([[1.0, 0.0], [0.0, -1.0]])  # the second of two, from 11 to −11
    made = bank(tmp_path / "b", values, "topk:4")
    done = apply_filter(made, Filter(weight, np.zeros(2)), tmp_path / "f")
    assert (done.model, done.bounds) == ("m + untrained filter k=2 (keep_tail)", QUERIES)
    scores = Bank.open(tmp_path / "f").scan("parity").collect()
    ranks = scores.select("option", "exact", *COUNTS).unique().sort("option").rows()
    # "no" is the fifth and moves up one. "yes" is below two of the ten others at least.
    assert ranks == [("no", True, 4, 0, 0, 0), ("yes", False, 4, 8, 0, 2)]
    top = Bank.open(tmp_path / "f").deposits()[0].scores().filter(kind="top", query=0).collect()
    assert top["token"].to_list() == [0, 2]


def test_a_filtered_bank_names_filter_and_source(tmp_path: Path) -> None:
    made, by = bank(tmp_path / "b", near_values(0)), drawn(3, "truncate")
    by.save(tmp_path / "f.safetensors")
    seen: list[tuple[int, int]] = []
    apply_filter(
        tmp_path / "b", tmp_path / "f.safetensors", tmp_path / "f", name="v",
        progress=lambda *done: seen.append(done),
    )  # fmt: skip
    assert seen[-1] == (QUERIES, QUERIES)
    (deposit,), (source,) = Bank.open(tmp_path / "f").deposits(), made.deposits()
    provenance = deposit.spec.provenance
    assert deposit.checkpoint == CheckpointId("v", step=8)
    assert provenance["filter"] == {"digest": by.digest, "k": 3, "mode": "truncate", "model": "m"}
    about = provenance["filtered_from"]
    assert isinstance(about, dict)
    assert (about["model"], about["weights"]) == ("m", source.spec.provenance["weights"])
    assert provenance["weights"] != source.spec.provenance["weights"]
    with pytest.raises(BankError, match="weights"):
        apply_filter(tmp_path / "b", drawn(3, "truncate", 1), tmp_path / "f", name="v")


def test_results_that_the_source_lacked_are_added_later(tmp_path: Path) -> None:
    (whole,) = bank(tmp_path / "whole", near_values(0)).deposits()
    scores, made = whole.scores().collect(), new_bank(tmp_path / "b")
    about = replace(whole.spec, layout=replace(whole.layout, block_rows=4))
    for committed in ([0], [0, 1, 2]):
        with made.begin(about) as writer:
            for block in {*writer.missing()} & {*committed}:
                rows = about.layout.rows(block)
                own = scores.filter(pl.col("query").is_between(rows[0], rows[-1]))
                writer.write(block, BlockData(None, own))
            writer.seal()
        apply_filter(made, drawn(3, "keep_tail"), tmp_path / "f")
        (deposit,) = Bank.open(tmp_path / "f").deposits()
        assert (deposit.committed(), deposit.sealed) == ({*committed}, len(committed) == 3)
    apply_filter(whole.bank, drawn(3, "keep_tail"), tmp_path / "at once")
    (expected,) = Bank.open(tmp_path / "at once").deposits()
    assert deposit.scores().collect().equals(expected.scores().collect())


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    made = bank(tmp_path / "b", logits(8), "topk:2")

    def refused(error: type[Exception], match: str, by: Filter, name: str | None = None) -> None:
        with pytest.raises(error, match=match):
            apply_filter(made, by, tmp_path / "f", name=name)
        assert not (tmp_path / "f").exists()

    by = drawn(3, "truncate")
    refused(KeepLevelError, r"2 highest tokens.*needs 3.*topk:64", by)
    refused(UsageError, "has 6 outputs", drawn(7, "truncate"))
    other = Filter(by.weight, by.bias, "truncate", {"model": "bert"})
    refused(UsageError, "for bert.*has m", other)
    other = Filter(by.weight, by.bias, "truncate", {"model": "m", "tokenizer": "00" * 32})
    refused(UsageError, "another tokenizer", other)
    refused(UsageError, "'m' is a model of the bank", drawn(2, "truncate"), "m")
    with pytest.raises(UsageError, match="is the bank itself"):
        apply_filter(made, drawn(2, "truncate"), tmp_path / "b")
    bank(tmp_path / "b", logits(8), "topk:2", model="second")
    refused(UsageError, "no particular model", drawn(2, "truncate"))


def test_ranks_of_a_shrunk_bank_are_bounds(tmp_path: Path) -> None:
    """Logits so near one another that float16 makes many equal, whose stored ranks are bounds."""
    near = (np.random.default_rng(3).normal(size=(QUERIES, VOCAB)) * 1e-3).astype(np.float32)
    made = new_bank(tmp_path / "b")
    made.deposit(near, checkpoint=CheckpointId("m"), query_set=QUERY_SET.name, dtype="float16")
    shrink(tmp_path / "b", tmp_path / "s", keep="topk:6")
    done = apply_filter(tmp_path / "s", Filter.identity(3), tmp_path / "f")
    assert done.bounds == done.options == 20
    scores = Bank.open(tmp_path / "f").scan("parity").collect()
    for row, token, rank, ties in scores.select("row", "token", "rank", "ties").iter_rows():
        assert rank <= counted(near[row], token)[0] <= rank + ties


def test_a_next_sentence_head_is_left_as_it_is(tmp_path: Path) -> None:
    made = Bank.create(tmp_path / "b")
    pairs = QuerySet(TOKENIZER, (Query((1, 2), 0, "next_sentence", (0, 1)),))
    made.add_query_set(pairs)
    made.add_prompts("nsp", prompt_table(pairs).with_columns(token=pl.lit(1, pl.Int32)).head(1))
    values = np.array([[1.0, 2.0]], np.float32)
    made.deposit(values, checkpoint=CheckpointId("m"), query_set=pairs.name, keep="options")
    apply_filter(made, drawn(3, "truncate"), tmp_path / "f")
    ours, theirs = (
        b.scan("nsp").drop("model").collect() for b in (made, Bank.open(tmp_path / "f"))
    )
    assert ours.equals(theirs)
