"""Reduction of vocabulary rows: hand-worked ranks, ties and padding; NumPy against torch."""

import math
from collections.abc import Callable

import numpy as np
import pytest

pytest.importorskip("torch")

import scipy.special
import torch
from hypothesis import given
from hypothesis import strategies as st

from logitbank.engine.workers.blocks.reduce import ReducingSink
from logitbank.engine.workers.blocks.reduce_gpu import (
    Listed,
    highest_entries,
    listed_entries,
    reduce_rows,
    top_tokens,
)
from logitbank.errors import EngineError
from logitbank.store.deposits.entries import Entries, option_entries, top_entries
from logitbank.store.deposits.reduce import BlockReducer
from logitbank.store.format.layout import Layout
from logitbank.store.format.schema import Keep, OptionTokens

pytestmark = pytest.mark.numerical

# entries:     0    1    2    3    4    5 | padding: 6    7
ROW = np.array([1.0, 3.0, 2.0, 3.0, 0.0, -1.0, 3.0, 2.5], np.float32)


def layout(level: str = "full", dtype: str = "float32", queries: int = 2) -> Layout:
    keep = Keep.parse(level)
    return Layout.plan(queries=queries, vocab=8, dtype=dtype, keep=keep, block_rows=2)  # type: ignore[arg-type]


def reducer(level: str = "full", dtype: str = "float32") -> BlockReducer:
    options = OptionTokens.build([[1, 2], [5]])
    return BlockReducer(layout(level, dtype), 0, options=options, vocab_entries=6)


def test_ranks_count_strictly_greater_entries_and_ties_the_equal_ones() -> None:
    found = option_entries(ROW, np.array([1, 2, 5, 7]), 6)
    assert found.logit.tolist() == [3.0, 2.0, -1.0, 2.5]
    assert found.rank.tolist() == [1, 5, 8, 4]
    assert found.ties.tolist() == [2, 0, 0, 0]
    assert found.padding_above.tolist() == [0, 2, 2, 1]
    assert found.padding_ties.tolist() == [1, 0, 0, 0]


def test_top_entries_are_best_first_with_equal_logits_by_token() -> None:
    found = top_entries(ROW, 4, 6)
    assert found.token.tolist() == [1, 3, 6, 7]
    assert found.rank.tolist() == [1, 1, 1, 4]
    assert found.ties.tolist() == [2, 2, 2, 0]
    assert found.padding_above.tolist() == [0, 0, 0, 1]
    assert found.padding_ties.tolist() == [1, 1, 0, 0]


def test_ties_of_the_last_place_are_counted_beyond_the_top() -> None:
    found = top_entries(ROW, 2, 6)
    assert found.token.tolist() == [1, 3]
    assert found.ties.tolist() == [2, 2]


def test_logprobs_and_logsumexp_are_those_of_the_row() -> None:
    block = reducer()
    block.put(0, ROW)
    block.put(1, np.zeros(8, np.float32))
    data = block.finish()
    assert data.rows is not None
    assert data.rows[1] == pytest.approx([-math.log(8)] * 8, abs=1e-7)
    exact = math.log(sum(math.exp(v) for v in ROW.tolist()))
    scores = data.scores.filter(query=0, kind="option").sort("token")
    assert scores["logsumexp"].to_list() == pytest.approx([exact, exact], abs=1e-6)
    assert data.rows[0] == pytest.approx(ROW - exact, abs=1e-6)
    assert scores["token"].to_list() == [1, 2]
    assert scores["exact"].all()


def test_every_query_has_its_best_entry_at_every_keep_level() -> None:
    for level, rows in (("full", 2), ("options", 2), ("topk:3", 6)):
        block = reducer(level)
        block.put(0, ROW)
        block.put(1, -ROW)
        data = block.finish()
        assert (data.rows is None) == (level != "full")
        assert len(data.scores.filter(kind="top")) == rows


def test_a_row_put_again_keeps_the_last_value() -> None:
    block = reducer()
    block.put(0, -ROW)
    block.put(1, ROW)
    block.put(0, ROW)
    assert block.finish().scores.filter(query=0, token=1, kind="option")["rank"].item() == 1


def test_rows_that_never_came_are_an_error() -> None:
    block = reducer()
    block.put(0, ROW)
    with pytest.raises(EngineError, match="no logits for 1 of 2 queries, the first query 1"):
        block.finish()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_logits_that_are_not_finite_are_refused_with_their_query(bad: float) -> None:
    row = ROW.copy()
    row[4] = bad
    with pytest.raises(EngineError, match="1 of 8 logits are not finite") as caught:
        reducer().put(1, row)
    assert caught.value.query == 1


def test_a_logprob_beyond_float16_is_refused() -> None:
    row = np.array([0, -70_000, 0, 0, 0, 0, 0, 0], np.float32)
    with pytest.raises(EngineError, match="-70002 .*--dtype float32"):
        reducer(dtype="float16").put(0, row)
    reducer(dtype="float32").put(0, row)


def on(sink: ReducingSink, how: str) -> Callable[[list[int], torch.Tensor], None]:
    """How a sink reduces logits of a CPU, or of a GPU; here both are this CPU's."""
    return sink._reduce_on_gpu if how == "gpu" else sink


@pytest.mark.parametrize("how", ["cpu", "gpu"])
def test_a_sink_raises_the_first_bad_row_only_when_asked(how: str) -> None:
    sink = ReducingSink(reducer())
    bad = torch.tensor(ROW).index_fill(0, torch.tensor([0]), float("nan"))
    rows = torch.stack([bad, torch.tensor(ROW)])
    on(sink, how)([0, 1], rows)
    with pytest.raises(EngineError, match="not finite"):
        sink.finish()
    on(sink, how)([0], torch.tensor(ROW)[None])  # the last prefill chunk replaces an earlier row
    data = sink.finish()
    assert data.scores.filter(query=0, kind="option")["rank"].to_list() == [1, 5]


values = st.integers(-4, 4).map(float)
FIELDS = ("rank", "ties", "padding_above", "padding_ties")


def assert_same(batch: Listed, one: Entries) -> None:
    """The first row of a batch has the entries of that row by itself."""
    assert batch.token[0].tolist() == one.token.tolist()
    assert batch.logit[0].tolist() == one.logit.tolist()
    for field, counts in zip(FIELDS, batch.counts, strict=True):
        assert counts[0].tolist() == getattr(one, field).tolist()


@given(st.lists(values, min_size=8, max_size=8), st.sets(st.integers(0, 7), min_size=1))
def test_the_batched_reduction_equals_the_one_by_rows(row: list[float], tokens: set[int]) -> None:
    logits, wanted = np.array(row, np.float32), np.array(sorted(tokens))
    batch = listed_entries(torch.tensor(logits)[None], torch.tensor(wanted)[None], 6)
    assert_same(batch, option_entries(logits, wanted, 6))


@given(st.lists(st.lists(values, min_size=8, max_size=8), min_size=1), st.integers(1, 8))
def test_equal_logits_are_listed_by_token_on_a_device_too(rows: list[list[float]], k: int) -> None:
    listed = highest_entries(torch.tensor(rows), k, 6)
    ranked = [sorted(range(8), key=lambda token, row=row: (-row[token], token)) for row in rows]
    assert listed.token.tolist() == [tokens[:k] for tokens in ranked]
    for i, row in enumerate(rows):
        one = top_entries(np.array(row, np.float32), k, 6)
        assert_same(Listed(listed.token[i:], listed.logit[i:], listed.counts[:, i:]), one)


def test_a_row_with_nan_names_no_token_beyond_the_vocabulary() -> None:
    """On a GPU such a number would end the process: every kernel after it fails."""
    row = torch.tensor([[float("nan")] * 3 + [1.0] * 2 + [float("nan")] * 3])
    for k in (1, 2, 5, 7, 8):
        tokens = top_tokens(row, k)
        assert tokens.shape == (1, k)
        assert 0 <= tokens.min() <= tokens.max() < 8


@given(st.lists(values, min_size=8, max_size=8))
def test_the_best_entry_is_the_first_of_several(row: list[float]) -> None:
    logits = np.array(row, np.float32)
    best, several = top_entries(logits, 1, 6), top_entries(logits, 3, 6)
    for field in best._fields:
        assert getattr(best, field).tolist() == getattr(several, field)[:1].tolist()


@pytest.mark.parametrize("offset", [0.0, 3000.0, -3000.0])
@pytest.mark.parametrize("how", ["rows", "batch", "gpu"])
def test_a_large_offset_costs_no_precision(how: str, offset: float) -> None:
    """A float32 at 3,000 is 2.4e-4 from the next: log-sum-exp must not be rounded to one."""
    logits = np.random.default_rng(1).normal(offset, 3, (2, 8)).astype(np.float32)
    exact = scipy.special.logsumexp(logits.astype(np.float64), axis=1)
    block = reducer("full")
    if how == "rows":
        for i, row in enumerate(logits):
            block.put(i, row)
    else:
        sink = ReducingSink(block)
        on(sink, how)([0, 1], torch.from_numpy(logits))
        sink.finish()
    data = block.finish()
    found = data.scores.unique("query").sort("query")["logsumexp"].to_numpy()
    np.testing.assert_allclose(found, exact, rtol=0, atol=1e-6 if how == "gpu" else 1e-12)
    np.testing.assert_allclose(data.rows, logits - exact[:, None], rtol=0, atol=2e-6)  # type: ignore[arg-type]


@pytest.mark.parametrize("level", ["full", "options"])
def test_a_batch_of_an_engine_gives_the_block_of_its_rows(level: str) -> None:
    rows = np.random.default_rng(0).normal(0, 3, (2, 8)).astype(np.float32)
    one_by_one, batch = reducer(level, "float16"), reducer(level, "float16")
    for i, row in enumerate(rows):
        one_by_one.put(i, row)
    ReducingSink(batch)([1, 0], torch.from_numpy(rows[::-1].copy()))
    a, b = one_by_one.finish(), batch.finish()
    assert a.scores.drop("logsumexp").equals(b.scores.drop("logsumexp"))
    np.testing.assert_allclose(a.scores["logsumexp"], b.scores["logsumexp"], rtol=1e-6)
    if level == "full":
        np.testing.assert_allclose(a.rows, b.rows, rtol=2**-10)  # type: ignore[arg-type]
    else:
        assert b.rows is None


@pytest.mark.parametrize("level", ["full", "options", "topk:5"])
def test_rows_reduced_on_a_gpu_give_the_same_block(level: str) -> None:
    rows = torch.tensor(np.random.default_rng(0).integers(-3, 3, (4, 8)).astype(np.float32))
    options = OptionTokens.build([[1, 2], [5], [], [0, 3, 7]])
    keep = Keep.parse(level)
    sizes = Layout.plan(queries=4, vocab=8, dtype="float32", keep=keep, block_rows=4)

    def sink() -> ReducingSink:
        return ReducingSink(BlockReducer(sizes, 0, options=options, vocab_entries=6))

    on_cpu, on_gpu = sink(), sink()
    on_cpu([0, 1, 2, 3], rows)
    on_gpu._reduce_on_gpu([3, 1, 0], rows[[3, 1, 0]])
    on_gpu._reduce_on_gpu([2], rows[[2]])
    a, b = on_cpu.finish(), on_gpu.finish()
    exact = ["query", "token", "kind", "rank", "ties", "padding_above", "padding_ties"]
    assert a.scores.select(exact).equals(b.scores.select(exact))
    np.testing.assert_allclose(a.scores["logsumexp"], b.scores["logsumexp"], atol=1e-6)
    if level == "full":
        np.testing.assert_allclose(a.rows, b.rows, atol=1e-6)  # type: ignore[arg-type]


def test_deterministic_sums_are_of_one_row_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    logits = torch.randn(3, 8, generator=torch.Generator().manual_seed(0))
    tokens = torch.zeros(3, 2, dtype=torch.long)
    together = reduce_rows(logits, tokens, layout("full", "float32"), 6)
    real, shapes = torch.logsumexp, list[torch.Size]()

    def noted(values: torch.Tensor, dim: int) -> torch.Tensor:
        shapes.append(values.shape)
        return real(values, dim)

    monkeypatch.setattr(torch, "logsumexp", noted)
    alone = reduce_rows(logits, tokens, layout("full", "float32"), 6, batch_invariant=True)
    assert shapes == [(1, 8)] * 3
    np.testing.assert_allclose(alone.logsumexp, together.logsumexp, atol=1e-6)
    assert alone.logprobs is not None
    np.testing.assert_allclose(alone.logprobs.exp().sum(dim=1), 1, atol=1e-6)
