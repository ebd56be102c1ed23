"""Batches keep to their budget. That each gives its own logits: tests/engine/test_parity.py."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logitbank.engine.backends.hf.batches import batches
from logitbank.engine.extract import extract
from logitbank.errors import UsageError
from logitbank.store import Bank, Query
from tests.support.checkpoints import make_checkpoint

Sequences = st.lists(
    st.lists(st.integers(0, 3), min_size=1, max_size=9).map(tuple), min_size=1, max_size=30
)


@pytest.mark.usefixtures("quick_workers")
def test_a_requested_batch_size_is_in_the_provenance(tmp_path: Path) -> None:
    make_checkpoint(tmp_path / "suite" / "step1", seed=1)
    (tmp_path / "p.jsonl").write_text('{"id": "a", "text": "The cook said that"}')
    extract(
        tmp_path / "b.zarr",
        suites=tmp_path / "suite",
        prompts=tmp_path / "p.jsonl",
        engine="transformers",
        canary_every=0,
        batch_tokens=8192,
    )
    (deposit,) = Bank.open(tmp_path / "b.zarr").deposits()
    made = deposit.spec.provenance
    assert (made["max_batch_tokens"], made["max_sequences"]) == (8192, 128)


def test_sizes_that_no_batch_has_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="batch_tokens 0 is invalid"):
        extract(tmp_path / "b.zarr", suites="pythia-70m", prompts="winobias", batch_tokens=0)


@given(Sequences, st.integers(9, 40), st.integers(1, 8))
def test_batches_hold_every_query_once_within_the_budget(
    sequences: list[tuple[int, ...]], max_tokens: int, max_sequences: int
) -> None:
    queries = [Query(ids, len(ids) - 1) for ids in sequences]
    found = list(batches(queries, max_tokens, max_sequences))
    assert sorted(i for batch in found for i in batch) == list(range(len(queries)))
    for batch in found:
        distinct = {queries[i].ids for i in batch}
        assert len(distinct) <= max_sequences
        padded = len(distinct) * max(map(len, distinct))
        assert padded <= max_tokens
    run = [ids for batch in found for ids in {queries[i].ids for i in batch}]
    assert len(run) == len(set(run)), "a sequence is run once"
