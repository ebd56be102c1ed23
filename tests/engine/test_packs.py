"""Contexts that share beginnings are packed: each token once, and the same logits as alone."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from logitbank.engine.backends.contexts import leaf_contexts
from logitbank.engine.backends.hf.batches import plan_batches
from logitbank.engine.backends.hf.packed import (
    added_mask,
    difference,
    last_bits_changed,
    packed_inputs,
    trial,
)
from logitbank.engine.backends.hf.packs import Pack, packed_batches, packs
from logitbank.engine.plan.plan import assign_queries
from logitbank.store import Query, QuerySet
from tests.support.checkpoints import Architecture, make_checkpoint
from tests.support.engine_driver import reference
from tests.support.packed_driver import loaded, scored, tree

Texts = st.lists(
    st.lists(st.integers(0, 2), min_size=1, max_size=9).map(tuple), min_size=1, max_size=25
)


def queries_for(texts: list[tuple[int, ...]], places: list[int]) -> list[Query]:
    """A query a text, at any position of it."""
    return [Query(ids, place % len(ids)) for ids, place in zip(texts, places, strict=False)]


def attended_context(pack: Pack, place: int) -> tuple[int, ...]:
    seen = [at for at in range(place + 1) if pack.ends[at] > place]
    assert [pack.depths[at] for at in seen] == [*range(len(seen))]
    return tuple(pack.ids[at] for at in seen)


@given(Texts, st.lists(st.integers(0, 8), min_size=25, max_size=25), st.integers(1, 40))
def test_packs_hold_the_context_of_every_query(
    texts: list[tuple[int, ...]], places: list[int], positions: int
) -> None:
    queries = queries_for(texts, places)
    found = list(packs(queries, positions))
    assert sorted(i for pack in found for i, _ in pack.outputs) == [*range(len(queries))]
    for pack in found:
        for i, at in pack.outputs:
            assert attended_context(pack, at) == queries[i].ids[: queries[i].position + 1]
        assert len(pack.ids) <= max(positions, 2 * (max(pack.depths) + 1))


@given(Texts, st.lists(st.integers(0, 8), min_size=25, max_size=25))
def test_where_all_fits_one_row_every_beginning_stands_once(
    texts: list[tuple[int, ...]], places: list[int]
) -> None:
    queries = queries_for(texts, places)
    [pack] = packs(queries, 10_000)
    prefixes = {q.ids[: n + 1] for q in queries for n in range(q.position + 1)}
    assert len(pack.ids) == len(prefixes)
    contexts = {query.ids[: query.position + 1] for query in queries}
    ends = {
        c for c in contexts if not any(o != c and o[: len(c)] == c for o in contexts)
    }  # compared with every other one
    assert [branch.context for branch in leaf_contexts(queries)] == sorted(ends)


@given(
    Texts,
    st.integers(9, 60),
    st.integers(1, 30),
    st.integers(1, 60),
)
def test_batches_of_rows_keep_to_their_budget(
    texts: list[tuple[int, ...]],
    max_tokens: int,
    max_outputs: int,
    together: int,
) -> None:
    queries = [Query(ids, len(ids) - 1) for ids in texts]
    found = list(packed_batches(queries, max_tokens, max_outputs, together=together))
    asked = [i for batch in found for pack in batch for i, _ in pack.outputs]
    assert sorted(asked) == [*range(len(queries))]
    for batch in found:
        width, outputs = max(len(pack.ids) for pack in batch), sum(len(p.outputs) for p in batch)
        assert width <= max_tokens
        assert len(batch) == 1 or len(batch) * width <= together
        assert len(batch) == 1 or outputs <= max_outputs


def test_two_batches_hold_what_two_are_to_hold_though_rows_are_not_cut() -> None:
    """512 contexts that share nothing, 9 in a row and 8 in the last, which comes first: of 256 at
    most there would be three batches, the last of one row."""
    queries = [Query((n, *[7] * 27), 27) for n in range(512)]
    found = plan_batches(queries, 65536, 256, packed=sys.maxsize)
    assert [len(batch.queries) for batch in found] == [8 + 29 * 9, 27 * 9]


def test_a_long_beginning_stands_in_few_rows() -> None:
    stem = tuple(range(400))
    queries = [Query((*stem, *(1000 + n,) * 20), 419) for n in range(50)]
    sizes = [len(pack.ids) for pack in packs(queries)]
    # 400 and 22 ends of 20 tokens, twice, and the other six.
    assert sizes == [840, 840, 520]
    assert max(len(pack.ids) for pack in packs(queries, most=300)) == 420, "one of them alone"


def test_a_position_sees_its_ancestors_and_itself() -> None:
    pack = Pack([5, 6, 7, 8, 9], [0, 1, 1, 2, 0], [4, 2, 4, 4, 5], [(0, 4)])
    _, _, ends = packed_inputs([pack, Pack([1], [0], [1], [])])
    mask = added_mask(ends, torch.float32)
    seen = [row.nonzero().flatten().tolist() for row in mask[0, 0] == 0]
    assert seen == [[0], [0, 1], [0, 2], [0, 2, 3], [4]]
    assert [row.nonzero().flatten().tolist() for row in mask[1, 0] == 0] == [[i] for i in range(5)]


@pytest.mark.parametrize("architecture", ["bloom", "mamba"])
def test_a_model_that_takes_no_positions_is_run_one_by_one(
    architecture: Architecture, tmp_path: Path
) -> None:
    folder = make_checkpoint(tmp_path / "step0", seed=1, architecture=architecture)
    backend, note = loaded(folder)
    assert note.startswith("contexts are run one by one, as packing them is refused: ")
    assert note.endswith("its forward has no position_ids")
    assert str(backend.describe()["packed"]) in note
    assert backend.load(folder, checkpoint="again").note == "", "told once"
    [expected] = reference([folder], tree())
    rows, _ = scored(backend, tree())
    np.testing.assert_allclose(rows, expected, atol=1e-4)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("ignored", ["attention_mask", "position_ids"])
def test_a_model_that_ignores_its_settings_is_detected(
    ignored: str, dtype: str, tmp_path: Path
) -> None:
    folder = make_checkpoint(tmp_path / "step0", seed=1)
    backend, _ = loaded(folder, dtype=dtype)

    def forget(_module: object, args: object, inputs: dict[str, torch.Tensor]) -> object:
        packed = inputs["attention_mask"].dim() == 4
        return args, {k: v for k, v in inputs.items() if not packed or k != ignored}

    assert backend._model is not None
    backend._model.register_forward_pre_hook(forget, with_kwargs=True)
    backend._state = None  # the hook is a part of this model
    assert "logits differ by" in backend.load(folder, checkpoint="tiny").note


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_packed_logits_may_be_off_by_three_times_what_last_places_do(dtype: torch.dtype) -> None:
    alone = torch.randn(4, 50, generator=torch.Generator().manual_seed(0))
    step = torch.zeros(4, 50)
    step[2] = 1e-3 * alone[2]  # of one context; others may be as far off, of their own spread
    moved = alone + step
    assert difference(alone + 2.9 * step, alone, moved, dtype) == ""
    assert difference(alone + 2.5e-3 * alone, alone, moved, dtype) == ""
    assert difference(alone + 3.5 * step, alone, moved, dtype).startswith("logits differ by 0.00")
    assert difference(alone * torch.nan, alone, moved, dtype) != ""
    assert difference(alone + step, alone, alone, dtype) != "", "nothing was moved"
    zeros = torch.zeros(4, 50)  # as a head gives that training has not touched
    assert difference(zeros, zeros, zeros, dtype) == ""


def test_what_dtypes_may_be_off_has_a_bound_of_their_own() -> None:
    alone = torch.randn(4, 50, generator=torch.Generator().manual_seed(0))
    assert difference(alone * (1 + 1e-4), alone, alone, torch.float32) == ""
    assert difference(alone * (1 + 1e-4), alone, alone, torch.bfloat16) != ""
    alone[3] = 1.1 * alone[2]  # other tokens before the same last ones do a tenth
    moved = 1.1 * alone
    assert difference(1.04 * alone, alone, moved, torch.bfloat16) == ""
    assert difference(1.06 * alone, alone, moved, torch.bfloat16) != ""
    assert difference(1.06 * alone, alone, moved, torch.float32) == ""


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_last_places_are_moved_meanwhile_and_by_no_more(dtype: str, tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "step0", seed=1, architecture="gpt2")
    backend, _ = loaded(folder, dtype=dtype)
    model, kind = backend._model, getattr(torch, dtype)
    assert model is not None
    ids = torch.arange(640)[None]
    embed = model.get_input_embeddings()
    before = embed(ids)
    with last_bits_changed(model, kind):
        moved = embed(ids)
    assert torch.equal(embed(ids), before)
    assert 0.3 < (moved != before).float().mean() < 1
    off = (moved.float() - before.float()).abs() / before.float().abs()
    assert off.max() <= 2 * torch.finfo(kind).eps


def test_attention_that_reaches_less_far_than_a_context_is_not_packed(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "step0", seed=1, architecture="gemma2")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"sliding_window": 16}))
    assert "takes memory by their square" in loaded(folder, length=5000)[1]
    _, note = loaded(folder)
    assert "its attention reaches back 16 tokens, a context has 256" in note
    assert loaded(folder, length=16)[1] == ""


def test_a_window_over_places_of_a_row_is_found_out(tmp_path: Path) -> None:
    """GPT-Neo's window holds all of 180 tokens, and not the beginning of a row of 360."""
    folder = make_checkpoint(tmp_path / "step0", seed=1, architecture="gpt_neo")
    stem = tuple(range(10, 160))
    queries = [Query((*stem, *[200 + n] * 30), 179) for n in range(7)]
    [pack] = packs(queries)
    assert len(pack.ids) == 360
    backend, note = loaded(folder, length=180)
    assert note.startswith("contexts are run one by one, as packing them is refused: logits differ")
    [expected] = reference([folder], queries)
    np.testing.assert_allclose(scored(backend, queries)[0], expected, atol=1e-4)
    assert loaded(folder, length=128)[1] == "", "no row is wider than the window"


@pytest.mark.parametrize("longest", [2, 12, 20, 180, 1000])
def test_trial_contexts_share_beginnings_and_ends(longest: int) -> None:
    compared, between = trial(10_000, longest)
    length, half = min(12, longest), min(12, longest) // 2
    long, short, *_, a, b = (query.ids for query in compared)
    assert [len(query.ids) for query in compared] == [longest, *[length] * 12]
    assert long[:length] == short
    assert a[half:] == b[half:]
    assert a[:half] != b[:half]
    [pack] = packs(compared + between)
    assert 0.95 * max(256, 2 * longest) < len(pack.ids) <= max(256, 2 * longest)
    places = dict(pack.outputs)
    assert places[0] == longest - 1, "the longest is first"
    far = [places[i] for i in range(2, len(compared))]
    assert min(far) > max(places[len(compared) + i] for i in range(len(between)))


def test_a_context_is_one_row_whatever_continues_it() -> None:
    first = [Query((1, 2, 3), 1), Query((1, 2, 3), 2), Query((1, 2, 9), 1), Query((1, 2), 1)]
    found = assign_queries(first, "t", {})
    [query_set] = found.new
    assert query_set.queries == (Query((1, 2, 3), 1), Query((1, 2, 3), 2))
    assert found.query_rows["row"].to_list() == [0, 1, 0, 0]
    # A bank with one of these queries has the contexts of others, as it was written.
    stored = QuerySet("t", (Query((1, 2, 3, 4), 2), Query((7, 8), 1, "mask"), Query((1, 2), 1)))
    again = assign_queries(first, "t", {stored.name: stored})
    assert again.new == ()
    assert again.query_rows.rows() == [(stored.name, row) for row in (2, 0, 2, 2)]
    assert assign_queries(first, "other tokenizer", {stored.name: stored}).new == (
        QuerySet("other tokenizer", query_set.queries),
    )
    of_others = Query((7,), 0), Query((8,), 0)
    unrelated = QuerySet("t", (Query((1, 2, 3, 4), 1), *of_others))
    assert assign_queries(first, "t", {unrelated.name: unrelated}).new == found.new, (
        "is not run for them"
    )
