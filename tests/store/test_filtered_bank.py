"""A bank through a filter, against distributions that are filtered whole."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from logitbank.errors import KeepLevelError, UsageError
from logitbank.store import Bank, CheckpointId, Keep, Query, QuerySet, shrink, verify
from logitbank.store.filter import top as top_module
from logitbank.store.filter.filters import Filter
from logitbank.store.filter.top import top
from tests.support.small_banks import (
    QUERY_SET,
    TOKENIZER,
    block_data,
    logits,
    new_bank,
    prompt_table,
    spec,
)

pytestmark = pytest.mark.numerical


def drawn(k: int, mode: str, seed: int = 0, scale: float = 1.0) -> Filter:
    random = np.random.default_rng(seed)
    weight = np.eye(k) + scale * random.normal(size=(k, k))
    return Filter(weight, scale * random.normal(size=k), mode)  # type: ignore[arg-type]


def filtered_probabilities(row: np.ndarray, by: Filter) -> np.ndarray:
    """Probabilities (v,) of a row of logits after the filter, as the paper defines them."""
    p = np.exp(row - row.max()) / np.exp(row - row.max()).sum()
    best = np.lexsort((np.arange(len(row)), -row))[: by.k]
    z = by.weight @ row[best] + by.bias
    share = np.exp(z - z.max()) / np.exp(z - z.max()).sum()
    out = np.zeros(len(row)) if by.mode == "truncate" else p.copy()
    out[best] = share * (1.0 if by.mode == "truncate" else p[best].sum())
    return out


def bank(path: Path, keep: str = "topk:4", *, model: str = "org/model") -> Bank:
    made = new_bank(path) if not path.exists() else Bank.open(path)
    for step in (0, 8):
        checkpoint = CheckpointId(model, step=step)
        made.deposit(logits(step), checkpoint=checkpoint, query_set=QUERY_SET.name, keep=keep)
    return made


def test_identity_separates_no_tie(tmp_path: Path) -> None:
    made = new_bank(tmp_path / "b")
    rows = np.random.default_rng(0).integers(0, 3, size=(10, 6)).astype(np.float32)
    made.deposit(rows, checkpoint=CheckpointId("m"), query_set=QUERY_SET.name, keep="topk:6")
    (deposit,) = made.filtered(Filter.identity(6)).deposits()
    found = deposit.scores().filter(kind="top").collect()
    want = np.array([len(np.unique(row)) for row in rows])
    assert found.group_by("query").agg(pl.col("logit").n_unique()).sort("query")[
        "logit"
    ].to_list() == list(want)
    np.testing.assert_allclose(found["logit"], rows[found["query"], found["token"]], atol=1e-12)


def test_ranks_are_null_and_named(tmp_path: Path) -> None:
    view = bank(tmp_path / "b").filtered(drawn(3, "keep_tail"))
    frames = [view.scan("parity"), view.deposits()[0].scores(), view.sql("SELECT * FROM scores")]
    for frame in frames:
        found = frame.select("rank", "ties", "padding_above", "padding_ties", "exact").collect()
        assert len(found) > 0
        assert found.null_count().row(0) == (len(found),) * 5


@pytest.mark.parametrize("keep", ["full", "topk:4", "topk:6"])
@pytest.mark.parametrize("mode", ["truncate", "keep_tail"])
@pytest.mark.parametrize(("k", "scale"), [(1, 1.0), (2, 3.0), (3, 0.3), (4, 0.0)])
def test_a_scan_and_full_rows_agree_with_the_definition(
    tmp_path: Path, keep: str, mode: str, k: int, scale: float
) -> None:
    made, by = bank(tmp_path / "b", keep), drawn(k, mode, k, scale)
    view = made.filtered(by)
    rows = view.scan("parity", steps=[8]).collect()
    for row, token, logprob in rows.select("row", "token", "logprob").iter_rows():
        want = filtered_probabilities(logits(8)[row].astype(np.float64), by)[token]
        assert np.exp(logprob) == pytest.approx(want, abs=2e-4 if keep == "full" else 1e-6)
    (deposit,) = view.deposits(CheckpointId(view.name, step=8))
    top = deposit.scores().filter(pl.col("kind") == "top").collect()
    assert len(top) == 10 * k
    if keep != "full":
        return
    expected = np.stack([filtered_probabilities(row.astype(np.float64), by) for row in logits(8)])
    np.testing.assert_allclose(np.exp(deposit.logprobs()), expected, atol=2e-3)
    part = deposit.logprobs([7, 2], [5, 0])
    np.testing.assert_allclose(part, deposit.logprobs()[[7, 2]][:, [5, 0]])


def test_full_rows_are_read_in_pieces_to_the_last_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = bank(tmp_path / "b", "full").filtered(drawn(3, "keep_tail", 4, 2.0))
    key = ["step", "prompt_id", "option"]
    has_full_rows = view.scan("parity").sort(key).collect()
    monkeypatch.setattr(top_module, "AT_ONCE", 3)
    assert view.scan("parity").sort(key).collect().equals(has_full_rows)


def test_a_bank_filters_by_a_file_as_it_is_scanned(tmp_path: Path) -> None:
    made, by = bank(tmp_path / "b"), drawn(3, "truncate")
    by.save(tmp_path / "f.safetensors")
    key = ("step", "prompt_id", "option")
    expected = made.filtered(by).scan("parity").sort(key).collect()
    assert (
        made.scan("parity", filter=tmp_path / "f.safetensors").sort(key).collect().equals(expected)
    )
    assert made.filtered(by, name="filtered").info()["model"].to_list() == ["filtered", "filtered"]


def test_views_are_not_written_into(tmp_path: Path) -> None:
    view = bank(tmp_path / "b").filtered(drawn(3, "truncate"))
    assert len({*view.deposits(), *view.deposits()}) == 2  # may be keys
    for write in (
        lambda: view.add_prompts("own", prompt_table()),
        lambda: view.add_query_set(QUERY_SET),
        lambda: view.begin(spec(7)),
        view.rescore,
    ):
        with pytest.raises(UsageError, match="filtered bank"):
            write()
    with pytest.raises(UsageError, match="filtered bank"):
        verify(view)


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    made = bank(tmp_path / "b", "topk:2")
    by = drawn(3, "truncate")
    with pytest.raises(KeepLevelError, match=r"2 highest tokens.*needs 3.*topk:64"):
        made.filtered(by).scan("parity").collect()
    other = Filter(by.weight, by.bias, "truncate", {"model": "bert"})
    with pytest.raises(UsageError, match="for bert.*has org/model"):
        made.filtered(other)
    other = Filter(by.weight, by.bias, "truncate", {"model": "org/model", "tokenizer": "00" * 32})
    with pytest.raises(UsageError, match="another tokenizer"):
        made.filtered(other)
    made.filtered(Filter(by.weight, by.bias, about={"model": "org/model", "tokenizer": TOKENIZER}))
    with pytest.raises(UsageError, match="'org/model' is a model of the bank"):
        made.filtered(by, name="org/model")
    with pytest.raises(UsageError, match="has 6 outputs"):
        made.filtered(drawn(7, "truncate")).scan("parity").collect()
    with pytest.raises(UsageError, match="filtered bank"):
        made.filtered(by, name="v").filtered(by)
    bank(tmp_path / "b", "topk:2", model="second")
    with pytest.raises(UsageError, match="no particular model"):
        Bank.open(tmp_path / "b").filtered(by)


@pytest.mark.parametrize("model", ["org/model", "m"])
def test_each_column_may_be_read_alone(tmp_path: Path, model: str) -> None:
    """`m` has a next-sentence head."""
    made = next_sentence_bank(tmp_path / "n") if model == "m" else bank(tmp_path / "b")
    view = made.filtered(drawn(3, "keep_tail"))
    scores = view.deposits()[0].scores()
    filtered_probabilities = scores.collect()
    assert len(filtered_probabilities) == (2 if model == "m" else 50)
    for name in filtered_probabilities.columns:
        assert (
            scores.select(name).collect()[name].to_list() == filtered_probabilities[name].to_list()
        )
    assert scores.select(pl.len()).collect().item() == len(filtered_probabilities)
    top_only = scores.filter(pl.col("kind") == "top").select(pl.len()).collect().item()
    assert top_only == (1 if model == "m" else 30)


def test_sql_gives_the_logits_that_a_scan_gives(tmp_path: Path) -> None:
    view = bank(tmp_path / "b").filtered(drawn(3, "keep_tail"))
    scanned = view.scan("parity").select("logit").sort("logit").collect()
    assert view.sql("SELECT logit FROM scores ORDER BY logit").collect().equals(scanned)


def test_rows_and_tokens_may_be_asked_for_twice_or_not_at_all(tmp_path: Path) -> None:
    (deposit, _) = bank(tmp_path / "b", "full").filtered(drawn(3, "truncate")).deposits()
    filtered_probabilities = deposit.logprobs()
    for tokens in ([4, 1, 4, 4], [], None):
        for rows in ([2, 7, 2], [], None):
            found = deposit.logprobs(rows, tokens)
            want = (
                filtered_probabilities
                if rows is None
                else filtered_probabilities[np.array(rows, int)]
            )
            want = want if tokens is None else want[:, np.array(tokens, int)]
            np.testing.assert_array_equal(found, want)


def test_a_view_of_an_unfinished_deposit_sees_what_is_committed_later(tmp_path: Path) -> None:
    made, about = new_bank(tmp_path / "b"), spec()
    with made.begin(about) as writer:
        writer.write(0, block_data(about.layout, 0))
        (deposit,) = made.filtered(drawn(3, "keep_tail")).deposits()
        deposit.logprobs([1])
        writer.write(1, block_data(about.layout, 1))
        (fresh,) = made.filtered(drawn(3, "keep_tail")).deposits()
        np.testing.assert_array_equal(deposit.logprobs([5, 1]), fresh.logprobs([5, 1]))


def test_the_highest_of_equal_entries_are_those_of_the_lowest_tokens(tmp_path: Path) -> None:
    made = new_bank(tmp_path / "b")
    rows = np.random.default_rng(0).integers(0, 3, size=(10, 6)).astype(np.float32)
    deposit = made.deposit(rows, checkpoint=CheckpointId("m"), query_set=QUERY_SET.name)
    want = [np.lexsort((np.arange(6), -row))[:3].tolist() for row in rows]
    assert top(deposit, 3).tokens.tolist() == want


def test_entries_of_a_shrunk_bank_are_known_by_token_where_ranks_are_bounds(tmp_path: Path) -> None:
    """Logits so near one another that float16 makes many equal, whose stored ranks are bounds."""
    made = new_bank(tmp_path / "b")
    near = (np.random.default_rng(3).normal(size=(10, 6)) * 1e-3).astype(np.float32)
    made.deposit(near, checkpoint=CheckpointId("m"), query_set=QUERY_SET.name, dtype="float16")
    shrink(tmp_path / "b", tmp_path / "s", keep="topk:4")
    view = Bank.open(tmp_path / "s").filtered(drawn(3, "keep_tail", 5, 2.0))
    scores = view.deposits()[0].scores().collect()
    options, best = (scores.filter(pl.col("kind") == kind) for kind in ("option", "top"))
    both = options.join(best, on=["query", "token"])
    assert len(both) > 5
    np.testing.assert_allclose(both["logit"], both["logit_right"], atol=1e-3)
    shared = options.join(best, on=["query", "token"], how="anti")
    assert len(shared) + len(both) == 20
    here = Bank.open(tmp_path / "s").deposits()[0].option_scores().collect()
    unmoved = shared.join(here, on=["query", "token"])
    assert unmoved["logit"].to_list() == unmoved["logit_right"].to_list()


def next_sentence_bank(path: Path) -> Bank:
    made = Bank.create(path)
    pairs = QuerySet(TOKENIZER, (Query((1, 2), 0, "next_sentence", (0, 1)),))
    made.add_query_set(pairs)
    made.add_prompts("nsp", prompt_table(pairs).with_columns(token=pl.lit(1, pl.Int32)).head(1))
    values = np.array([[1.0, 2.0]], np.float32)
    made.deposit(values, checkpoint=CheckpointId("m"), query_set=pairs.name, keep=Keep("options"))
    return made


def test_a_next_sentence_head_is_left_as_it_is(tmp_path: Path) -> None:
    made = next_sentence_bank(tmp_path / "b")
    ours, theirs = (b.scan("nsp").collect() for b in (made.filtered(drawn(3, "truncate")), made))
    assert ours["logprob"].to_list() == theirs["logprob"].to_list()
