"""Names, limits and values of the format: invalid ones are refused before they are written."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from logitbank.errors import LogitbankError, UsageError
from logitbank.store import (
    Bank,
    CheckpointId,
    DepositSpec,
    Keep,
    Layout,
    Operation,
    OptionTokens,
    OutputHead,
    Query,
    QuerySet,
    describe,
)
from logitbank.store.format.limits import check_text, shown
from logitbank.store.format.schema import TOKENS_SCHEMA, folder_name, json_digest
from tests.support.small_banks import QUERIES, QUERY_SET, VOCAB, new_bank, prompt_table, spec

SURROGATE = "\ud800"
DIGITS = 10**5000
MANY = pytest.param(DIGITS, id="digits")


@pytest.mark.parametrize(
    ("queries", "named"),
    [
        ((), "empty"),
        ((Query((1, 2), 1), Query((1, 2), 1)), "duplicates"),
        ((Query((7, 2), 1), Query((True, 2), 1)), "bool"),
        ((Query((1, 2.0), 1),), "float"),  # type: ignore[arg-type]
        ((Query((1, 2), True),), "position"),
    ],
)
def test_invalid_query_sets_are_refused(queries: tuple[Query, ...], named: str) -> None:
    with pytest.raises(UsageError, match=named):
        QuerySet("tokenizer", queries)


@pytest.mark.parametrize("token", [2**31, -1, MANY])
@pytest.mark.parametrize("field", ["ids", "segments", "position"])
def test_numbers_of_queries_fit_their_columns(token: int, field: str) -> None:
    query = {"ids": (1, 2), "position": 1, "head": "mask", "segments": (0, 0)}
    query[field] = token if field == "position" else (1, token)
    with pytest.raises(UsageError, match="of a query"):
        QuerySet("t", (Query(**query),))  # type: ignore[arg-type]
    with pytest.raises(UsageError):
        QuerySet.from_contexts("t", [Query((1, token), 1)])


def test_the_name_of_a_query_set_depends_on_every_field_and_its_table_on_all_queries() -> None:
    sets = [
        QuerySet("t", (Query((1, 2), 1),)),
        QuerySet("u", (Query((1, 2), 1),)),
        QuerySet("t", (Query((1, 3), 1),)),
        QuerySet("t", (Query((1, 2), 0),)),
        QuerySet("t", (Query((1, 2), 1, "mask"),)),
        QuerySet("t", (Query((1, 2), 1, segments=(0, 0)),)),
        QuerySet("t", (Query((1, 2), 1, language="de"),)),
    ]
    assert len({each.name for each in sets}) == 7
    queries = (Query((1, 2, 3), 2), Query((1, 2, 3), 1), Query((7,), 0, "mask", (0,), "de_CH"))
    frame = QuerySet("t", queries).to_frame()
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
        ("a\n", "a%0A"),
        ("", ""),
    ],
)
def test_folder_names_are_one_safe_part(name: str, folder: str) -> None:
    assert folder_name(name) == folder


def test_checkpoint_paths_and_reserved_names() -> None:
    assert CheckpointId("a/b", "seed 1", 512).path == "a%2Fb/seed%201/512"
    assert CheckpointId("gpt2").path == "gpt2/main/release"
    for name in ("zarr.json", "index.json.gz"):
        for made in ({"model": name}, {"model": "model", "run": name}):
            with pytest.raises(UsageError, match=name):
                CheckpointId(**made)


@pytest.mark.parametrize(
    "name", [SURROGATE, "a\x1b[2J", "a\nb", "a\x00", "x" * 201, "ü" * 40, "", " a", None, 7]
)
def test_an_invalid_name_is_refused_everywhere(tmp_path: Path, name: Any) -> None:
    bank = new_bank(tmp_path / "b")
    texts = pl.DataFrame([(0, "a", True, False)], schema=TOKENS_SCHEMA, orient="row")
    for use in (
        lambda: CheckpointId(name),
        lambda: CheckpointId("m", run=name),
        lambda: bank.add_prompts(name, prompt_table()),
        lambda: bank.add_tokens(name, texts),
    ):
        with pytest.raises(UsageError) as refused:
            use()
        str(refused.value).encode()  # it can be printed


@pytest.mark.parametrize("name", [SURROGATE, "a\x1b[2J", "a\nb", "x" * 1001, 7])
def test_titles_are_one_line_and_citations_are_text(tmp_path: Path, name: Any) -> None:
    with pytest.raises(UsageError, match="title"):
        Bank.create(tmp_path / "b", title=name)
    assert not (tmp_path / "b").exists()
    bank = Bank.create(tmp_path / "b", citation="@article{a,\n  title = {ü}\n}")
    with pytest.raises(UsageError, match="title"):
        describe(bank.path, title=name)
    with pytest.raises(UsageError, match="license"):
        describe(bank.path, license=SURROGATE)
    assert Bank.open(bank.path).attributes["citation"].startswith("@article{a,\n")


@pytest.mark.parametrize("name", ["a\nb", "x" * 1001])
def test_ids_and_columns_of_prompts_are_names(tmp_path: Path, name: str) -> None:
    bank, table = new_bank(tmp_path / "b"), prompt_table()
    for changed in (
        table.with_columns(prompt_id=pl.lit(name)),
        table.with_columns(pl.lit(1).alias(name)),
    ):
        with pytest.raises(UsageError):
            bank.add_prompts("p", changed)


@pytest.mark.parametrize("number", [2**63, -(2**63), MANY, True, 1.0, np.float64(1), "1"])
def test_invalid_steps_and_seeds_are_refused(number: Any) -> None:
    for field in ("step", "run_seed"):
        with pytest.raises(UsageError, match=field):
            CheckpointId("m", **{field: number})


def test_the_largest_step_and_seed_are_read_back(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b")
    for step, seed in ((0, 2**63 - 1), (10**18 - 1, -(2**63) + 1)):
        made = spec(step)
        checkpoint = CheckpointId("org/model", step=step, run_seed=seed)
        bank.begin(DepositSpec(checkpoint, made.query_set, made.layout, VOCAB, made.provenance))
        assert bank.deposits()[-1].checkpoint == checkpoint
    assert bank.info()["step"].to_list() == [0, 10**18 - 1]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"vocab": 2**24 + 1}, "vocab"),
        ({"keep": Keep("topk", 0)}, "keep_k"),
        ({"keep": Keep("topk", 2**31)}, "keep_k"),
        ({"block_rows": 2**31}, "block_rows"),
        ({"dtype": "float64"}, "dtype"),
        ({"keep": Keep("some")}, "keep"),  # type: ignore[arg-type]
    ],
)
def test_a_deposit_that_readers_refuse_is_not_begun(
    tmp_path: Path, change: dict[str, Any], named: str
) -> None:
    bank, made = new_bank(tmp_path / "b"), spec(0)
    sizes = {"queries": QUERIES, "vocab": VOCAB, "dtype": "float32", "keep": Keep("options")}
    layout = Layout(**{**sizes, "block_rows": 4, **change})
    with pytest.raises(UsageError, match=named):
        bank.begin(DepositSpec(made.checkpoint, made.query_set, layout, VOCAB, made.provenance))
    assert bank.deposits() == []


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value", [float("nan"), SURROGATE, MANY, object(), pytest.param(nested(100_000), id="nested")]
)
def test_provenance_that_is_not_json_is_refused(tmp_path: Path, value: Any) -> None:
    bank, made = new_bank(tmp_path / "b"), spec(0)
    provenance = {**made.provenance, "note": value}
    for _ in range(2):  # also for an existing deposit
        with pytest.raises(UsageError, match="provenance"):
            bank.begin(DepositSpec(made.checkpoint, QUERY_SET.name, made.layout, VOCAB, provenance))
        bank.begin(made)


@pytest.mark.parametrize("cap", [0.0, float("inf"), float("nan"), 1e300])
def test_invalid_heads_are_refused(cap: float) -> None:
    with pytest.raises(UsageError, match="soft_cap"):
        OutputHead(np.ones((2, 2), np.float32), "float32", after=(Operation("soft_cap", cap),))
    with pytest.raises(UsageError, match="outputs of a head"):
        OutputHead(np.ones((0, 2), np.float32), "float32")


@pytest.mark.parametrize(
    ("value", "start"),
    [
        pytest.param(DIGITS, "a number of more than 4,999 digits", id="digits"),
        (SURROGATE, r"'\ud800'"),
        ("a" * 99, "'aaa"),
    ],
)
def test_any_value_can_be_shown(value: object, start: str) -> None:
    assert shown(value).startswith(start)
    assert len(shown(value)) <= 60
    check_text("a\n\tb\x00", "text")
    with pytest.raises(LogitbankError):
        check_text("a" + SURROGATE, "text")


@pytest.mark.parametrize("text", ["", "topk", "topk:0", "topk:-1", "Full", "options:2"])
def test_unknown_keep_levels_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="full, hidden, topk:K or options"):
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
    assert (layout.block_rows, layout.blocks, layout.rows(61)) == (256, 62, range(15616, 15840))
    assert layout.grid is not None
    assert (layout.grid.chunk_shape, layout.grid.shard_shape) == ((128, 3870), (256, 50310))


def test_option_tokens_are_sorted_and_distinct() -> None:
    options = OptionTokens.build([[5, 1, 5], [], [2]])
    np.testing.assert_array_equal(options.offsets, [0, 2, 2, 3])
    assert [options.of(row).tolist() for row in range(3)] == [[1, 5], [], [2]]


def test_json_digest_is_of_canonical_json() -> None:
    # printf '{"a":[1,2],"b":"ü"}' | sha256sum
    expected = "9c04f19831e7c11b870b5c52f9c47f42005d5b8f0cb95305fb4ae7e8ff23b638"
    assert json_digest({"b": "ü", "a": (1, 2)}) == expected
