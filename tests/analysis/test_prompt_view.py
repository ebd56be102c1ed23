"""Scores of single prompts: values by hand, plain loops, and errors."""

from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from math import exp, log
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from logitbank.analysis.prompts.lookup import prompt_set
from logitbank.analysis.prompts.scores import PromptScores, prompt_scores
from logitbank.analysis.prompts.show import PromptMoves, show
from logitbank.analysis.prompts.view import movements, prompt_rows
from logitbank.errors import BankError, UsageError
from logitbank.store import Bank, CheckpointId, Query, QuerySet
from logitbank.store.format.schema import PROMPTS_SCHEMA
from tests.support.evaluation_banks import add_lambada
from tests.support.small_banks import (
    QUERIES,
    QUERY_SET,
    TOKENIZER,
    block_data,
    logits,
    new_bank,
    spec,
)

YES, NO = 1, 4


def put(
    bank: Bank,
    values: np.ndarray,
    *,
    step: int | None,
    model: str = "m",
    run: str = "main",
    query_set: QuerySet = QUERY_SET,
) -> None:
    bank.deposit(
        values.astype(np.float32),
        checkpoint=CheckpointId(model, run, step=step),
        query_set=query_set.name,
        keep="topk:6",
    )


def weights(*pairs: tuple[float, float]) -> np.ndarray:
    """Logits of the ten queries: yes and no have these weights, the four others weigh 1."""
    values = np.zeros((QUERIES, 6))
    for row in range(QUERIES):
        yes, no = pairs[row] if row < len(pairs) else (1, 1)
        values[row, YES], values[row, NO] = log(yes), log(no)
    return values


def only(bank: Bank, prompts: str = "parity", **chosen: Any) -> PromptScores:
    (scores,) = prompt_scores(bank, prompts, **chosen)
    return scores


def table_of(
    query_set: QuerySet, rows: Sequence[tuple[Any, ...]], **own: pl.Series
) -> pl.DataFrame:
    """Rows of id, order, piece, option, continuation, token, row."""
    full = [
        (name, order, piece, f"text of {name}", "a", option, text, token, option == "a",
         query_set.name, row)
        for name, order, piece, option, text, token, row in rows
    ]  # fmt: skip
    return pl.DataFrame(full, schema=PROMPTS_SCHEMA, orient="row").with_columns(**own)


def test_scores_of_two_options_are_those_worked_out_by_hand(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b")
    put(bank, weights((3, 1)), step=None)
    put(bank, weights((1, 3), (2, 2)), step=8)
    put(bank, weights(), step=0)
    scores = only(bank)
    assert (scores.model, scores.run, scores.steps) == ("m", "main", (0, 8, None))
    assert scores.measure == "share"
    assert scores.prompts.row(0) == ("p0", None, "Is 0 even?", "yes")
    assert scores.prompts["prompt_id"].to_list() == [f"p{i}" for i in range(QUERIES)]
    assert scores.options.rows()[2:4] == [(1, "yes", " yes", True, 1), (1, "no", " no", False, 1)]
    want = [
        [1 / 6, 1 / 6, 1 / 6, 1 / 6],
        [1 / 8, 3 / 8, 2 / 8, 2 / 8],
        [3 / 8, 1 / 8, 1 / 6, 1 / 6],
    ]
    assert np.exp(scores.logprob[:, :4]) == pytest.approx(np.array(want), rel=1e-6)
    assert scores.rank[:, :4].tolist() == [[1, 1, 1, 1], [2, 1, 1, 1], [1, 2, 1, 1]]
    shares = [[0.5, 0.5, 0.5, 0.5], [0.25, 0.75, 0.5, 0.5], [0.75, 0.25, 0.5, 0.5]]
    assert scores.share()[:, :4] == pytest.approx(np.array(shares), rel=1e-6)
    assert scores.values().tolist() == scores.share().tolist()
    rows = prompt_rows(only(bank, ids="p0"))
    assert rows.select("step", "option", "is_answer", "rank").rows()[2:] == [
        (8, "yes", True, 2), (8, "no", False, 1), (None, "yes", True, 1), (None, "no", False, 2),
    ]  # fmt: skip
    probability = [1 / 6, 1 / 6, 1 / 8, 3 / 8, 3 / 8, 1 / 8]
    assert rows["probability"].to_list() == pytest.approx(probability, rel=1e-6)
    assert rows["share"].to_list() == pytest.approx([0.5, 0.5, 0.25, 0.75, 0.75, 0.25], rel=1e-6)


def test_what_is_not_committed_is_missing_and_so_are_the_shares_with_it(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b")
    asked = spec(4)
    with bank.begin(asked) as writer:
        writer.write(1, block_data(writer.layout, 1))  # queries 4 to 7
    scores = only(bank)
    there = np.repeat([4 <= row < 8 for row in range(QUERIES)], 2)
    assert (~np.isnan(scores.logprob[0])).tolist() == there.tolist()
    assert (~np.isnan(scores.share()[0])).tolist() == there.tolist()
    assert (scores.rank[0] > 0).tolist() == there.tolist()
    assert movements([scores])["prompt_id"].to_list() == ["p4", "p5", "p6", "p7"]
    assert movements([scores])["movement"].to_list() == [0, 0, 0, 0]
    tidy = prompt_rows(scores)
    assert tidy["logprob"].null_count() == tidy["rank"].null_count() == 12


def test_pieces_are_summed_and_joined_in_order(tmp_path: Path) -> None:
    bank = Bank.create(tmp_path / "b")
    queries = QuerySet(TOKENIZER, tuple(Query((i, 1), 1) for i in range(4)))
    bank.add_query_set(queries)
    rows = [
        ("y", None, 0, "b", " b", 2, 3),
        ("x", None, 1, "a", "two", 2, 1),
        ("x", None, 0, "b", " b", 3, 0),
        ("y", None, 0, "a", " a", 1, 3),
        ("x", None, 2, "a", "three", 3, 2),
        ("x", None, 0, "a", " one", 1, 0),
    ]
    bank.add_prompts("own", table_of(queries, rows, topic=pl.lit("t")))
    values = np.random.default_rng(1).normal(size=(4, 5))
    put(bank, values, step=1, query_set=queries)
    scores = only(bank, "own")
    assert scores.prompts.rows() == [
        ("y", None, "text of y", "a", "t"), ("x", None, "text of x", "a", "t"),
    ]  # fmt: skip
    assert scores.options.rows() == [
        (0, "b", " b", False, 1), (0, "a", " a", True, 1),
        (1, "a", " onetwothree", True, 3), (1, "b", " b", False, 1),
    ]  # fmt: skip
    exact = values.astype(np.float32).astype(float)
    logprobs = exact - np.log(np.exp(exact).sum(axis=1, keepdims=True))
    want = [
        logprobs[3, 2], logprobs[3, 1],
        logprobs[0, 1] + logprobs[1, 2] + logprobs[2, 3], logprobs[0, 3],
    ]  # fmt: skip
    assert scores.logprob[0] == pytest.approx(want, rel=1e-6)
    assert scores.rank[0, 2] == 0
    assert scores.rank[0, 3] == 1 + (exact[0] > exact[0, 3]).sum()


def test_single_options_move_by_their_probability(tmp_path: Path) -> None:
    bank = Bank.create(tmp_path / "b")
    add_lambada(bank, {0: 0, 8: 2}, words=3)
    scores = only(bank, "lambada")
    assert scores.measure == "probability"
    assert (scores.share() == 1).all()
    rows = bank.scan("lambada").collect()
    for c, step in enumerate((0, 8)):
        for o, name in enumerate(("l00", "l01", "l02")):
            tokens = rows.filter(step=step, prompt_id=name)["logprob"]
            assert scores.logprob[c, o] == pytest.approx(sum(tokens.to_list()), abs=1e-12)
    first = movements([scores]).filter(prompt_id="l00").row(0, named=True)
    low, high = (exp(scores.logprob[c, 0]) for c in (0, 1))
    assert (first["movement"], first["high_step"]) == (pytest.approx(high - low), 8)


def two_models(path: Path) -> Bank:
    """`m` in two runs; `other` with a tokenizer of its own, for which p0 has two orders."""
    bank = new_bank(path)
    for run in ("seed1", "main"):
        for step in (0, 8):
            put(bank, logits(step + len(run)), step=step, run=run)
    queries = QuerySet("cd" * 32, tuple(Query((9, i), 1) for i in range(2)))
    bank.add_query_set(queries)
    rows = [
        ("q", order, 0, option, f" {option}", token, order)
        for order in (1, 0)
        for option, token in (("a", 0), ("b", 1))
    ]
    bank.add_prompts("parity", table_of(queries, rows))
    put(bank, logits(queries=2, vocab=3), step=8, model="other", query_set=queries)
    return bank


def test_models_and_runs_come_one_by_one_with_what_they_were_asked(tmp_path: Path) -> None:
    bank = two_models(tmp_path / "b")
    found = list(prompt_scores(bank, "parity"))
    assert [(s.model, s.run, s.steps) for s in found] == [
        ("m", "main", (0, 8)), ("m", "seed1", (0, 8)), ("other", "main", (8,)),
    ]  # fmt: skip
    assert [len(s.prompts) for s in found] == [10, 10, 2]
    assert found[2].prompts["order_seed"].to_list() == [1, 0]
    assert not np.isnan(np.concatenate([s.logprob.ravel() for s in found])).any()
    assert not np.array_equal(found[0].logprob, found[1].logprob)
    assert [(s.model, s.run) for s in prompt_scores(bank, "parity", runs="seed1")] == [
        ("m", "seed1")
    ]
    assert only(bank, models=["other"]).model == "other"
    assert only(bank, runs="seed1", steps=[8]).steps == (8,)


def test_prompts_that_were_added_later_are_in_a_query_set_of_their_own(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b")
    put(bank, weights((3, 1)), step=0)
    put(bank, weights((1, 1)), step=8)
    later = QuerySet(TOKENIZER, (Query((7, 7), 1), Query((0, 1, 2), 2)))
    bank.add_query_set(later)
    text = {"p10": "Is 10 even?", "p0": "Is 0 even?"}  # p0 is there already, and counts once
    rows = [
        (name, None, 0, text[name], "yes", option, f" {option}", token, option == "yes",
         later.name, row)
        for row, name in enumerate(text)
        for option, token in (("yes", YES), ("no", NO))
    ]  # fmt: skip
    bank.add_prompts("parity", pl.DataFrame(rows, schema=PROMPTS_SCHEMA, orient="row"))
    put(bank, np.vstack([np.eye(6)[NO] * log(3), weights((3, 1))[0]]), step=0, query_set=later)
    scores = only(bank)
    assert sorted(scores.prompts["prompt_id"]) == sorted(f"p{i}" for i in range(11))
    at = scores.prompts["prompt_id"].to_list()
    share = scores.share()
    assert share[:, 2 * at.index("p0")] == pytest.approx([0.75, 0.5])
    assert share[0, 2 * at.index("p10")] == pytest.approx(0.25)
    assert np.isnan(share[1, 2 * at.index("p10")])  # step 8 was not asked it


@pytest.mark.parametrize("rows", [1, 25])
def test_batches_of_checkpoints_give_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    bank = new_bank(tmp_path / "b")
    for step in range(5):
        put(bank, logits(step), step=step)
    whole = only(bank)
    monkeypatch.setattr(import_module(PromptScores.__module__), "READ", rows)
    parts = list(prompt_scores(bank, "parity", few=True))
    assert len(parts) > 1
    for scores in ([only(bank)], parts):
        assert np.array_equal(whole.logprob, np.vstack([part.logprob for part in scores]))
        assert np.array_equal(whole.rank, np.vstack([part.rank for part in scores]))


def test_some_ids_alone_are_what_they_are_among_all(tmp_path: Path) -> None:
    bank = two_models(tmp_path / "b")
    whole = only(bank, runs="seed1")
    some = only(bank, runs="seed1", ids=["p7", "p2"])
    assert some.prompts["prompt_id"].to_list() == ["p2", "p7"]
    assert np.array_equal(some.logprob, whole.logprob[:, [4, 5, 14, 15]])
    assert np.array_equal(some.rank, whole.rank[:, [4, 5, 14, 15]])
    assert some.options["prompt"].to_list() == [0, 0, 1, 1]
    assert [s.model for s in prompt_scores(bank, "parity", ids="q")] == ["other"]


def test_missing_scores_are_refused(tmp_path: Path) -> None:
    bank = two_models(tmp_path / "c")
    for error, options in (
        (BankError, {"models": "x"}),
        (BankError, {"models": ["m", "x"]}),
        (BankError, {"runs": "x"}),
        (UsageError, {"ids": ["x", "z"]}),
        (BankError, {"ids": "q", "models": "m"}),
    ):
        with pytest.raises(error):
            prompt_scores(bank, "parity", **options)  # type: ignore[arg-type]
    for other, name in ((bank, "x"), (new_bank(tmp_path / "b"), "parity")):
        with pytest.raises(BankError):
            prompt_scores(other, name)


def test_a_prompt_without_options_is_listed_with_zero_movement(tmp_path: Path) -> None:
    bank = Bank.create(tmp_path / "b")
    queries = QuerySet(TOKENIZER, tuple(Query((i, 1), 1) for i in range(3)))
    bank.add_query_set(queries)
    rows = [
        ("x", None, 0, None, None, None, 0),
        *(("y", None, 0, option, option, token, 1) for option, token in (("a", 0), ("b", 1))),
        ("z", None, 0, None, None, None, 2),
    ]
    bank.add_prompts("own", table_of(queries, rows))
    put(bank, logits(queries=3, vocab=4), step=0, query_set=queries)
    scores = only(bank, "own")
    assert scores.prompts["prompt_id"].to_list() == ["x", "y", "z"]
    assert scores.options["prompt"].to_list() == [1, 1]
    assert movements([scores])["prompt_id"].to_list() == ["y"]
    none = only(bank, "own", ids="z")
    assert none.logprob.shape == none.share().shape == (1, 0)
    assert movements([none]).is_empty()
    assert prompt_rows(none).is_empty()


def made(logprob: Sequence[Sequence[float]], owner: Sequence[int], **more: Any) -> PromptScores:
    """Scores of prompts a, b, …; options are numbered."""
    values = np.array(logprob, float)
    prompts = pl.DataFrame({"prompt_id": [chr(97 + i) for i in range(max(owner) + 1)]})
    prompts = prompts.with_columns(
        order_seed=pl.lit(None, pl.Int32), text=pl.lit("t"), answer=pl.lit(None, pl.String)
    )
    options = pl.DataFrame({"prompt": owner}).with_columns(
        option=pl.int_range(pl.len()).cast(pl.String), continuation=pl.lit("c"),
        is_answer=pl.lit(None, pl.Boolean), pieces=pl.lit(1),
    )  # fmt: skip
    steps = more.get("steps", tuple(range(len(values))))
    return PromptScores("m", "r", steps, prompts, options, values, np.ones(values.shape, np.int64))


def test_shares_are_stable_and_missing_where_there_is_nothing_to_share() -> None:
    none, nan = -np.inf, np.nan
    scores = made(
        [
            [-2000, -2000 + log(3), -1, none, -5],
            [none, none, nan, -1, -5],
        ],
        [0, 0, 1, 1, 2],
    )
    want = [[0.25, 0.75, 1, 0, 1], [nan, nan, nan, nan, 1]]
    assert scores.share() == pytest.approx(np.array(want), nan_ok=True)
    assert scores.measure == "share"


def plain_shares(scores: PromptScores) -> list[list[float]]:
    owner = scores.options["prompt"].to_list()
    found = []
    for row in scores.logprob.tolist():
        weight = [exp(value) for value in row]
        total = [sum(w for w, o in zip(weight, owner, strict=True) if o == own) for own in owner]
        found.append([w / t for w, t in zip(weight, total, strict=True)])
    return found


def drawn(seed: int) -> PromptScores:
    """Six checkpoints with a release, seven prompts of one to four options, some unscored."""
    generator = np.random.default_rng(seed)
    owner = [p for p in range(7) for _ in range(1 + p % 4)]
    values = -generator.exponential(3, size=(6, len(owner)))
    for p in generator.integers(7, size=3):
        values[generator.integers(6), [o == p for o in owner]] = np.nan
    values[:, [o == 3 for o in owner]] = np.nan
    return made(values.tolist(), owner, steps=(0, 1, 2, 4, 8, None))


@pytest.mark.parametrize("seed", range(3))
def test_movements_are_those_of_plain_loops(seed: int) -> None:
    scores = drawn(seed)
    share, owner = plain_shares(scores), scores.options["prompt"].to_list()
    want = []
    for p in range(7):
        best: tuple[Any, ...] | None = None
        for o in (o for o, own in enumerate(owner) if own == p):
            there = [(row[o], c) for c, row in enumerate(share) if row[o] == row[o]]
            if not there:
                continue
            low = min(there, key=lambda pair: pair[0])
            high = max(there, key=lambda pair: pair[0])
            size = high[0] - low[0]
            if best is None or size > best[0] + 1e-12:
                steps = [scores.steps[c] for _, c in (low, high)]
                best = (size, chr(97 + p), str(o), low[0], steps[0], high[0], steps[1])
        want += [] if best is None else [best]
    want.sort(key=lambda row: -round(row[0], 12))
    found = movements([scores])
    assert len(want) == 6
    for row, (size, name, option, low, low_step, high, high_step) in zip(
        found.iter_rows(named=True), want, strict=True
    ):
        assert (row["prompt_id"], row["option"]) == (name, option)
        assert (row["low_step"], row["high_step"]) == (low_step, high_step)
        assert [row["movement"], row["low"], row["high"]] == pytest.approx([size, low, high])
    parts = (
        replace(
            scores, **{name: getattr(scores, name)[rows] for name in ("steps", "logprob", "rank")}
        )
        for rows in (slice(0, 1), slice(1, 4), slice(4, None))
    )
    assert movements(parts).equals(found), "a few checkpoints at a time"


def test_ties_are_in_the_order_of_the_prompts_and_options() -> None:
    up, down = [log(0.75), log(0.25)], [log(0.25), log(0.75)]
    scores = made([[*up, *down, *up, 0, 0], [*down, *up, *up, 0, 0]], [0, 0, 1, 1, 2, 2, 3, 3])
    assert movements([scores])["prompt_id"].to_list() == ["a", "b", "c", "d"]
    assert movements([scores])["option"].to_list() == ["0", "2", "4", "6"]
    assert movements([scores])["low_step"].to_list() == [1, 0, 0, 0]


def test_prompts_are_listed_of_every_model_that_has_the_steps(tmp_path: Path) -> None:
    bank = two_models(tmp_path / "b")
    moves = show(bank, prompts="parity")
    assert isinstance(moves, PromptMoves)
    sizes = {key: len(table) for key, table in moves.tables.items()}
    assert sizes == {("m", "main"): 10, ("m", "seed1"): 10, ("other", "main"): 2}
    assert len(moves.table) == 22
    assert sorted(moves.texts["prompt_id"]) == sorted([*(f"p{i}" for i in range(10)), "q", "q"])
    assert moves.tables["m", "seed1"].equals(movements([only(bank, runs="seed1")]))
    first = show(bank, prompts="parity", steps="0")
    assert isinstance(first, PromptMoves)
    assert list(first.tables) == [("m", "main"), ("m", "seed1")]
    assert first.table["movement"].unique().to_list() == [0.0]
    with pytest.raises(UsageError, match="step 9"):
        show(bank, prompts="parity", steps=[9])


def test_a_prompt_is_found_by_its_id(tmp_path: Path) -> None:
    bank = two_models(tmp_path / "b")
    view = show(bank, prompt="p3")
    assert (view.prompts, view.prompt_id, view.orders) == ("parity", "p3", (None,))
    assert [s.run for s in view.scores] == ["main", "seed1"]
    both = show(bank, prompt="q", prompts="parity")
    assert both.orders == (1, 0)
    (scores,) = both.scores
    one = scores.with_order(0)
    assert one.prompts.row(0)[:2] == ("q", 0)
    assert np.array_equal(one.logprob, scores.logprob[:, 2:])
    assert np.array_equal(show(bank, prompt="q", order=0).scores[0].logprob, one.logprob)
    assert scores.with_order(5).prompts.is_empty()
    assert len(show(bank, prompt="p3", models="m", runs=["main"]).scores) == 1
    for name, order in (("q", 7), ("p1", 7), ("xyz", None)):
        with pytest.raises(UsageError):
            show(bank, prompt=name, order=order)
    with pytest.raises(UsageError, match="'p3'"):
        show(bank, prompt="p33")
    with pytest.raises(BankError):
        show(bank, prompt="p1", prompts="no")


def test_one_of_several_prompt_sets_must_be_named(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b")
    put(bank, logits(), step=0)
    assert prompt_set(bank, None) == "parity"
    bank.add_prompts("twin", bank.prompts("parity").filter(pl.col("row") < 2).collect())
    for prompt_id in (None, "p1"):
        with pytest.raises(UsageError, match="parity, twin"):
            prompt_set(bank, None, prompt_id=prompt_id)
    assert show(bank, prompt="p1", prompts="twin").prompts == "twin"
    assert show(bank, prompt="p5").prompts == "parity"
    with pytest.raises(BankError):
        prompt_set(Bank.create(tmp_path / "empty"), None)


def test_a_model_without_the_order_is_excluded_and_none_is_an_error(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b")
    sets = [QuerySet(t * 32, (Query((9, 9), 1),)) for t in ("aa", "bb")]
    for order, (queries, model) in enumerate(zip(sets, ("one", "two"), strict=True)):
        bank.add_query_set(queries)
        rows = [("q", order, 0, option, option, i, 0) for i, option in enumerate("ab")]
        bank.add_prompts("own", table_of(queries, rows))
        put(bank, logits(queries=1, vocab=3), step=0, model=model, query_set=queries)
    assert [s.model for s in show(bank, prompt="q").scores] == ["one", "two"]
    assert [s.model for s in show(bank, prompt="q", order=1).scores] == ["two"]
    with pytest.raises(BankError):
        show(bank, prompt="q", order=1, models="one")
