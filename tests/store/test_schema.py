import numpy as np
import pytest

from logitbank.errors import UsageError
from logitbank.store.format.layout import Layout
from logitbank.store.format.queries import QuerySet
from logitbank.store.format.schema import (
    CheckpointId,
    Keep,
    OptionTokens,
    Query,
    folder_name,
    json_digest,
)


def test_query_set_needs_a_query() -> None:
    with pytest.raises(UsageError, match="empty"):
        QuerySet("tokenizer", ())


def test_query_set_refuses_duplicates() -> None:
    with pytest.raises(UsageError, match="duplicates"):
        QuerySet("tokenizer", (Query((1, 2), 1), Query((1, 2), 1)))
    with pytest.raises(UsageError, match=r"token id of a query \(bool\) is True"):
        QuerySet("tokenizer", (Query((7, 2), 1), Query((True, 2), 1)))
    with pytest.raises(UsageError, match=r"token id of a query \(float\) is 2.0"):
        QuerySet("tokenizer", (Query((1, 2.0), 1),))  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"position of a query is True"):
        QuerySet("tokenizer", (Query((1, 2), True),))


def test_query_set_name_depends_on_every_field() -> None:
    base = QuerySet("t", (Query((1, 2), 1),)).name
    others = [
        QuerySet("u", (Query((1, 2), 1),)),
        QuerySet("t", (Query((1, 3), 1),)),
        QuerySet("t", (Query((1, 2), 0),)),
        QuerySet("t", (Query((1, 2), 1, "mask"),)),
        QuerySet("t", (Query((1, 2), 1, segments=(0, 0)),)),
        QuerySet("t", (Query((1, 2), 1, language="de"),)),
    ]
    assert len({base, *(other.name for other in others)}) == 7


def test_query_set_survives_the_table() -> None:
    queries = (
        Query((1, 2, 3), 2),
        Query((1, 2, 3), 1),
        Query((7,), 0, "mask", (0,), "de_CH"),
    )
    query_set = QuerySet("t", queries)
    frame = query_set.to_frame()
    assert QuerySet.from_frame("t", frame.reverse()).queries == queries


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("pythia-70m_v1.0", "pythia-70m_v1.0"),
        ("EleutherAI/pythia", "EleutherAI%2Fpythia"),
        ("..", "%2E."),
        (".hidden", "%2Ehidden"),
        ("__x", "%5F%5Fx"),
        ("ü", "%C3%BC"),
        ("100%", "100%25"),
    ],
)
def test_folder_names_are_one_safe_part(name: str, folder: str) -> None:
    assert folder_name(name) == folder


def test_checkpoint_path() -> None:
    assert CheckpointId("a/b", "seed 1", 512).path == "a%2Fb/seed%201/512"
    assert CheckpointId("gpt2").path == "gpt2/main/release"


@pytest.mark.parametrize("name", ["zarr.json", "index.json.gz"])
def test_names_that_cannot_be_folders_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match="reserved"):
        CheckpointId(name)
    with pytest.raises(UsageError, match="reserved"):
        CheckpointId("model", run=name)


@pytest.mark.parametrize("text", ["", "topk", "topk:0", "topk:-1", "Full", "options:2"])
def test_keep_refuses_other_levels(text: str) -> None:
    with pytest.raises(UsageError, match="unknown; use full, hidden, topk:K or options, K from 1"):
        Keep.parse(text)


def test_keep_levels_cover_weaker_ones() -> None:
    full, top5, top9, options = map(Keep.parse, ("full", "topk:5", "topk:9", "options"))
    assert full.covers(top9)
    assert full.covers(options)
    assert top9.covers(top5)
    assert top5.covers(options)
    assert not top5.covers(top9)
    assert not top9.covers(full)
    assert not options.covers(top5)


def test_layout_of_pythia() -> None:
    layout = Layout.plan(queries=15840, vocab=50304, dtype="float32", keep=Keep("full"))
    assert layout.block_rows == 256
    assert layout.blocks == 62
    assert layout.rows(61) == range(15616, 15840)
    assert layout.grid is not None
    assert layout.grid.chunk_shape == (128, 3870)
    assert layout.grid.shard_shape == (256, 50310)


def test_option_tokens_are_sorted_and_distinct() -> None:
    options = OptionTokens.build([[5, 1, 5], [], [2]])
    np.testing.assert_array_equal(options.offsets, [0, 2, 2, 3])
    assert options.of(0).tolist() == [1, 5]
    assert options.of(1).tolist() == []


def test_json_digest_is_of_canonical_json() -> None:
    # printf '{"a":[1,2],"b":"ü"}' | sha256sum
    expected = "9c04f19831e7c11b870b5c52f9c47f42005d5b8f0cb95305fb4ae7e8ff23b638"
    assert json_digest({"b": "ü", "a": (1, 2)}) == expected
