"""Each family counts expected prompts that no checkpoint has scored as missing."""

from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import logitbank
from logitbank.analysis.debias.compare import debias_compare
from logitbank.analysis.debias.instances import instance_reader
from logitbank.analysis.families.fairness import fairness
from logitbank.analysis.families.fluctuation import fluctuation
from logitbank.analysis.families.options import options
from logitbank.analysis.families.pairs import pairs
from logitbank.analysis.families.stereotype import stereotype
from logitbank.analysis.families.stereotype.metric import stereotype_metric
from logitbank.analysis.families.unqover import unqover
from logitbank.analysis.frames.items import gather_items, missing_items
from logitbank.analysis.stats.measure import Measure
from logitbank.store import Bank, CheckpointId, Query, QuerySet
from tests.support import small_banks, unqover_cases
from tests.support.evaluation_banks import (
    add_crows_pairs,
    add_lambada,
    add_stereotype,
    add_winobias,
)
from tests.support.fairness_cases import FEMALE, MALE
from tests.support.fluctuation_cases import professions_bank
from tests.support.row_scores import scores_of
from tests.support.stereotype_cases import SENTENCES, sa_frame, winobias

TOKENIZER, ANOTHER = "ab" * 32, "cd" * 32


def test_an_item_is_missing_once_whatever_the_number_of_its_parts() -> None:
    """As of BBQ, whose first measure is about one of two contexts, and of a difference."""
    rows = pl.DataFrame(
        {"model": "m", "run": "main", "step": 8, "item": [*"ab", *"cd"] * 2,
         "part": ["known x", "known x", "known y", "known y", "right x", "right x", "right y",
                  "right y"], "value": [1.0, None, None, None] * 2}
    )  # fmt: skip
    items = gather_items([rows])
    parts = ("known x", "right x"), ("known y", "right y")
    of_contexts = [Measure(name="score", group=each[0], plus=each) for each in parts]
    assert missing_items(items, of_contexts)["missing"].to_list() == [3]
    assert missing_items(items, of_contexts[:1])["missing"].to_list() == [1]
    edits = rows.with_columns(item=pl.Series([*"abab"] * 2))
    difference = Measure(name="x", plus=("known x",), minus=("known y",))
    assert missing_items(gather_items([edits]), [difference])["missing"].to_list() == [3]


def add_again(
    bank: Bank, name: str, *which: pl.Expr, tokenizer: str = TOKENIZER, **changed: pl.Expr
) -> None:
    """Add some prompts of a prompt set to it once more, changed; nothing is deposited of them."""
    table = bank.prompts(name).filter(*which).with_columns(**changed).collect()
    rows = int(str(table["row"].max())) + 1
    queries = QuerySet(tokenizer, tuple(Query((97, len(tokenizer), i), 1) for i in range(rows)))
    bank.add_query_set(queries)
    bank.add_prompts(name, table.with_columns(query_set=pl.lit(queries.name)))


def new(column: str) -> pl.Expr:
    """The values of a column, each another one."""
    return pl.col(column) + "-new"


@pytest.fixture
def bank(tmp_path: Path) -> Bank:
    return Bank.create(tmp_path / "b.zarr")


def test_an_order_of_options_that_no_checkpoint_has(bank: Bank) -> None:
    add_winobias(bank, steps=(0, 8), skew_from=8)
    before = fairness([bank], bootstrap=20)
    assert before.result.average_rank["missing"].sum() == 0
    add_again(bank, "winobias", order_seed=pl.lit(1, pl.Int32))
    after = fairness([bank], bootstrap=20)
    each = after.result.average_rank.group_by("step").agg(pl.col("items", "missing").sum())
    assert each.sort("step").rows() == [(0, 48, 48), (8, 48, 48)]
    assert {*after.result.counts["orders"]} == {1}
    one, other = (study.result.gap.drop("missing") for study in (before, after))
    assert_frame_equal(one, other, rel_tol=1e-12)  # numbers are over what there is
    assert any("96 scores at 2 checkpoints" in text for text in after.missing)


def test_prompts_of_another_tokenizers_models_are_not_missing(bank: Bank) -> None:
    add_winobias(bank, steps=(0,), skew_from=8)
    add_again(bank, "winobias", tokenizer=ANOTHER, order_seed=pl.lit(1, pl.Int32))
    assert fairness([bank], bootstrap=0).result.average_rank["missing"].to_list() == [0] * 3


def test_examples_and_pairs_that_no_checkpoint_has(bank: Bank) -> None:
    add_lambada(bank, {0: 3, 8: 20})
    add_again(bank, "lambada", pl.col("prompt_id") < "l07", prompt_id=new("prompt_id"))
    study = logitbank.lambada([bank])
    words = study.tables["lambada"]
    assert words.select("items", "missing").rows() == [(40, 7)] * 2
    assert words["acc"].to_list() == [3 / 40, 20 / 40]
    assert any("14 examples at 2 checkpoints" in text for text in study.missing)
    add_crows_pairs(bank, steps=(8,))
    more = {"prompt_id": new("prompt_id"), "pair": pl.col("pair") + 12}
    add_again(bank, "crows-pairs", pl.col("pair") < 2, **more)
    crows = pairs([bank])
    assert crows.tables["pairs"].filter(group="all").select("items", "missing").rows() == [(12, 2)]
    assert any("2 pairs at 1 checkpoint" in text for text in crows.missing)


def test_sentences_and_orders_of_stereotype_accuracy_that_no_checkpoint_has(bank: Bank) -> None:
    """Of WinoBias, each second prompt of each second four is a pro-stereotyped sentence's own."""
    add_stereotype(bank, steps=(8,))
    add_winobias(bank, steps=(8,), skew_from=0)
    before = stereotype([bank])
    more = {"prompt_id": new("prompt_id"), "sentence_id": new("sentence_id")}
    add_again(bank, "stereotype-accuracy", pl.col("sentence_id") == "dev-3", **more)
    add_again(bank, "winobias", order_seed=pl.lit(1, pl.Int32))
    after = stereotype([bank])
    assert after.tables["counts"].select("kind", "orders", "missing", "expected").rows() == [
        ("sa", 2, 1, 11),
        ("sa_gender", 1, 12, 12),
    ]
    table, whole = (study.tables["stereotype_accuracy"] for study in (after, before))
    assert table["items"].to_list() == [10, 12]
    assert table["accuracy"].equals(whole["accuracy"])
    assert [text.split(" at ")[0] for text in after.missing] == [
        "toy, sa: Missing: 1 sentence", "toy, sa_gender: Missing: 12 sentences",
    ]  # fmt: skip


def test_what_both_sides_of_a_tradeoff_lack(bank: Bank) -> None:
    add_lambada(bank, {8: 20, 16: 22})
    add_winobias(bank, steps=(8, 16), skew_from=16)
    assert logitbank.tradeoff(bank).missing == ()
    add_again(bank, "lambada", pl.col("prompt_id") < "l03", prompt_id=new("prompt_id"))
    add_again(bank, "winobias", order_seed=pl.lit(1, pl.Int32))
    study = logitbank.tradeoff(bank)
    gendered = bank.prompts("winobias").filter(pl.col("answer") != "not specified").collect()
    assert gendered["prompt_id"].n_unique() == 24
    assert study.missing == (
        "toy, LAMBADA accuracy: Missing: 6 examples at 2 checkpoints. The numbers are over the "
        "others.",
        "toy, Gender gap Δ: Missing: 48 scores at 2 checkpoints. The numbers are over the others.",
    )
    rows = study.tables["measures"].filter(pl.col("measure").is_in(["performance", "delta"]))
    assert rows.select("step", "missing").rows() == [(8, 3), (8, 24), (16, 3), (16, 24)]


def test_a_checkpoint_without_one_of_two_orders_has_no_sa_and_its_row_says_so() -> None:
    half = sa_frame(SENTENCES, step=1).filter(pl.col("order") == "he")
    whole = sa_frame(SENTENCES)
    for frames in ([pl.concat([whole, half])], [whole, half]):
        tables = stereotype_metric(scores_of(*frames, expected=whole)).further
        assert tables["counts"].select("step", "orders", "missing").rows() == [(0, 2, 0), (1, 0, 4)]
        table = tables["stereotype_accuracy"]
        assert table.select("items", "missing").rows() == [(4, 0), (0, 4)]
        assert table["accuracy"][0] == 0.625
        numbers = table.select("accuracy", "stderr", "low", "high")
        assert [number != number for number in numbers.row(1)] == [True] * 4


def test_a_checkpoint_without_one_order_has_sa_gender_over_the_others() -> None:
    # (c, s, p, option): gold male and female; order 0 has both right, order 1 neither.
    right, wrong = [[2.0, 1.0, 0.0], [1.0, 2.0, 0.0]], [[1.0, 2.0, 0.0], [2.0, 1.0, 0.0]]
    frame = winobias([[right, wrong], [right, wrong]], [MALE, FEMALE], ["pro", "pro"])
    lacking = frame.filter((pl.col("step") == frame["step"].min()) | (pl.col("order_seed") == 0))
    tables = stereotype_metric(scores_of(lacking)).further
    assert tables["counts"].select("orders", "missing").rows() == [(2, 0), (1, 2)]
    rows = tables["stereotype_accuracy"].select("accuracy", "items", "missing").rows()
    assert rows == [(0.5, 2, 0), (1.0, 2, 0)]


def test_a_type_that_no_checkpoint_has_is_a_row_without_a_number(bank: Bank) -> None:
    add_stereotype(bank, steps=(8,))
    more = {"prompt_id": new("prompt_id"), "sentence_id": new("sentence_id")}
    add_again(bank, "stereotype-accuracy", **more, type=pl.lit(1, pl.Int64))
    study = stereotype([bank])
    table = study.tables["stereotype_accuracy"].select("type", "items", "missing")
    assert table.rows() == [("1", 0, 10), ("2", 10, 0)]
    assert any("Missing: 10 sentences at 1 checkpoint" in text for text in study.missing)
    assert not any("nan" in sentence for sentence in study.summary)


@pytest.mark.whole
def test_instances_of_unqover_that_no_checkpoint_has(tmp_path: Path) -> None:
    path = unqover_cases.make_bank(tmp_path / "b", steps=[0, 8], nurses={0: 0.0, 8: 6.0})
    bank = Bank.open(path)
    before = unqover([bank], prompts=["unqover-gender"]).result
    assert before.counts["missing"].to_list() == [0] * len(before.counts)
    table = bank.prompts("unqover-gender").collect()
    first = table["instance"].unique().sort()[:3].to_list()
    tokenizer = bank.query_set(table["query_set"][0]).tokenizer
    more = {"prompt_id": new("prompt_id"), "instance": new("instance")}
    add_again(bank, "unqover-gender", pl.col("instance").is_in(first), tokenizer=tokenizer, **more)
    study = unqover([bank], prompts=["unqover-gender"])
    whole = study.result.counts.filter(split="all")
    assert whole.select("step", "missing").rows() == [(0, 3), (8, 3)]
    assert study.result.unqover["abs_c"].equals(before.unqover["abs_c"])
    assert any("6 instances at 2 checkpoints" in text for text in study.missing)
    given = instance_reader(bank, "unqover-gender", k=4).read()
    assert given.missing == 3
    compared = debias_compare(bank, [])
    assert compared.result.unqover.filter(category="gender", split="all")["missing"].to_list() == [
        3,
        3,
    ]
    assert any("6 instances at 2 checkpoints" in text for text in compared.missing)


def test_professions_and_verbs_that_no_checkpoint_has(tmp_path: Path) -> None:
    bank = Bank.open(professions_bank(tmp_path / "b", seeds=(0,)))
    before = fluctuation([bank]).result
    add_again(bank, "professions", pl.col("occupation") == "a cook",
        prompt_id=new("prompt_id"), occupation=pl.lit("a baker"))  # fmt: skip
    add_again(bank, "professions", pl.col("verb") == "is", pl.col("occupation") != "a baker",
        tokenizer=TOKENIZER, prompt_id=new("prompt_id") + "2", verb=pl.lit("was"))  # fmt: skip
    result = fluctuation([bank]).result
    own = result.checkpoints.filter(pl.col("step").is_not_null())
    assert own.filter(verb="is").select("items", "missing").rows() == [(4, 1)] * 4
    assert own.filter(verb="was").select("items", "missing").rows() == [(0, 4)] * 4
    baker = result.professions.filter(occupation="a baker")
    assert baker["missing"].to_list() == [2, 2], "both checkpoints of the plateau, by verb"
    assert baker["cv_r"].is_nan().all()
    there = result.professions.filter(pl.col("occupation") != "a baker")
    assert there.equals(before.professions)
    assert result.correlations["r"].to_list() == pytest.approx(before.correlations["r"].to_list())
    assert result.correlations["n"].to_list() == [4] * 4
    assert result.correlations["excluded"].to_list() == [1] * 4


def test_prompts_and_options_of_one_s_own_that_no_checkpoint_has(tmp_path: Path) -> None:
    """Ten prompts are scored; three more are asked, and of the first a third option."""
    bank = small_banks.new_bank(tmp_path / "b")
    bank.deposit(
        small_banks.logits(), checkpoint=CheckpointId("m", step=0),
        query_set=small_banks.QUERY_SET.name, keep="options",
    )  # fmt: skip
    before = options(bank).tables
    assert before["shares"]["missing"].to_list() == [0, 0]
    add_again(bank, "parity", pl.col("prompt_id") < "p3", tokenizer=small_banks.TOKENIZER,
        prompt_id=new("prompt_id"))  # fmt: skip
    after = options(bank).tables
    assert after["shares"].select("option", "items", "missing").rows() == [
        ("no", 10, 3),
        ("yes", 10, 3),
    ]
    assert after["answers"].select("items", "missing").rows() == [(10, 3)]
    shares = (tables["shares"].drop("missing") for tables in (after, before))
    assert_frame_equal(*shares, rel_tol=1e-12)
    whole = after["measures"].filter(measure="top1_probability")
    assert whole["missing"].to_list() == [3]
    table = bank.prompts("parity").filter(pl.col("prompt_id") == "p0", pl.col("option") == "no")
    perhaps = {"option": pl.lit("perhaps"), "continuation": pl.lit(" perhaps"),
               "token": pl.lit(3, pl.Int32)}  # fmt: skip
    bank.add_prompts("parity", table.with_columns(**perhaps).collect())
    more = options(bank).tables
    assert more["shares"].select("option", "items", "missing").rows() == [
        ("no", 9, 4),
        ("perhaps", 0, 1),
        ("yes", 9, 4),
    ], "p0 has no shares"
    scored = more["measures"].filter(measure="probability")
    assert scored.select("option", "items", "missing").rows() == [
        ("no", 10, 3),
        ("perhaps", 0, 1),
        ("yes", 10, 3),
    ]
    assert more["answers"].select("items", "missing").rows() == [(9, 4)]
