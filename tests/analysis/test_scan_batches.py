"""Analyses take their checkpoints in batches: the same numbers, in memory that does not grow."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import logitbank
from logitbank.analysis import (
    fairness_metric,
    stereotype_metric,
)
from logitbank.analysis.families.options import options
from logitbank.analysis.frames import batches as frame_batches
from logitbank.analysis.frames.batches import evenly
from logitbank.analysis.frames.gender_answers import read_winobias
from logitbank.analysis.frames.reader import Scores
from logitbank.analysis.prompts.scores import prompt_scores, read_options
from logitbank.errors import BankError
from logitbank.store import Bank, BlockData, CheckpointId, Query, QuerySet
from logitbank.store.format.schema import PROMPTS_SCHEMA
from tests.support import small_banks, stereoset_cases, unqover_cases
from tests.support.evaluation_banks import whole_bank, winobias_bank
from tests.support.fairness_cases import random_frame
from tests.support.row_scores import measured, scores_of
from tests.support.small_banks import recommit

MEMORY = """
import json, sys
from logitbank.analysis import fairness_metric
from logitbank.analysis.frames.reader import Scores
from logitbank.store import Bank

steps = range(int(sys.argv[2]))
fairness_metric(Scores([Bank.open(sys.argv[1])], ("winobias",), steps=steps), bootstrap=50)
with open("/proc/self/status") as status:
    print(json.dumps([int(line.split()[1]) for line in status if line.startswith("VmHWM")][0]))
"""


def large_bank(path: Path, *, steps: int, prompts: int = 8_000, orders: int = 5) -> Bank:
    """WinoBias of many prompts, each in several orders: three rows for each."""
    bank, labels = Bank.create(path), np.array(["male", "female", "not specified"])
    number = prompts * orders
    queries = QuerySet("5e" * 32, tuple(Query((row, 1), 1) for row in range(number)))
    row, option = np.divmod(np.arange(3 * number), 3)
    prompt, order = np.divmod(row, orders)
    columns = {
        "prompt_id": prompt.astype(str), "order_seed": order, "piece": np.zeros_like(row),
        "text": np.full(len(row), "?"), "continuation": labels[option],
        "answer": labels[prompt % 3], "option": labels[option], "token": option,
        "is_answer": option == prompt % 3, "query_set": np.full(len(row), queries.name),
        "row": row, "sentence_id": (prompt // 2).astype(str), "paired": prompt >= 0,
    }  # fmt: skip
    table = pl.DataFrame(columns).cast(dict(PROMPTS_SCHEMA))
    table = table.select(*PROMPTS_SCHEMA, "sentence_id", "paired")
    bank.add_query_set(queries)
    bank.add_prompts("winobias", table)
    logits = np.random.default_rng(0).normal(size=(number, 4)).astype(np.float32)
    first = bank.deposit(
        logits, checkpoint=CheckpointId("m", step=0), query_set=queries.name, keep="options"
    )
    scores = first.scores().collect()
    for step in range(1, steps):  # the same scores: counting ranks of one step takes 2 s
        with bank.begin(replace(first.spec, checkpoint=CheckpointId("m", step=step))) as writer:
            for block in writer.missing():
                rows = writer.layout.rows(block)
                of_block = scores.filter(pl.col("query").is_between(rows.start, rows.stop - 1))
                writer.write(block, BlockData(None, of_block))
            writer.seal()
    return bank


def two_models() -> pl.LazyFrame:
    """Two models at four steps and a release; one lacks prompts, and one order, at some."""
    frames = [
        random_frame(model=model, steps=[0, 1, 2, 8, None], checkpoints=5, seed=seed)
        for seed, model in enumerate("ab")
    ]
    whole = pl.concat(frames)
    absent = (pl.col("step") == 2) & pl.col("prompt_id").str.ends_with("7")
    lacking = (pl.col("step") == 1) & (pl.col("order_seed") == 1) & (pl.col("model") == "a")
    return whole.filter(~absent & ~lacking | pl.col("step").is_null())


@pytest.mark.parametrize("at_once", [1, 2])
def test_fairness_of_a_few_checkpoints_at_a_time_is_that_of_all_to_the_last_bit(
    at_once: int,
) -> None:
    whole = two_models()
    one, several = (
        fairness_metric(scores_of(whole), bootstrap=200),
        fairness_metric(scores_of(whole, at_once=at_once), bootstrap=200),
    )
    assert len(one.comparison) == 20
    for name, table in one.tables().items():
        assert several.tables()[name].equals(table, null_equal=True), name
    assert several.settings == one.settings


def put(bank: Bank, step: int, run: str = "main", model: str = "org/model") -> None:
    bank.deposit(
        small_banks.logits(step),
        checkpoint=CheckpointId(model, run, step=step),
        query_set=small_banks.QUERY_SET.name,
    )


def bank_of(path: Path, steps: Sequence[int], model: str = "org/model", run: str = "main") -> Bank:
    bank = small_banks.new_bank(path)
    for step in steps:
        put(bank, step, run, model)
    return bank


def test_batches_have_every_row_once_and_checkpoints_of_one_run(tmp_path: Path) -> None:
    banks = [bank_of(tmp_path / "a", range(7)), bank_of(tmp_path / "b", range(4), "other")]
    frames = [
        frame.collect() for frame in Scores(banks, ("parity",)).frames(rows=80)
    ]  # 20 a checkpoint
    assert [frame["step"].unique().sort().to_list() for frame in frames] == [
        [0, 1, 2, 3], [4, 5, 6], [0, 1, 2, 3],
    ]  # fmt: skip
    assert [frame["model"].n_unique() for frame in frames] == [1, 1, 1]
    key = ["model", "step", "prompt_id", "option"]
    whole = pl.concat([bank.scan("parity").collect() for bank in banks]).sort(key)
    assert pl.concat(frames).sort(key).equals(whole)


def test_a_batch_has_20_checkpoints_at_most_unless_all_have_few_rows() -> None:
    assert [len(part) for part in evenly(range(154), rows=154_000, most=10**6)] == [20, 20] + [
        19
    ] * 6
    assert [len(part) for part in evenly(range(154), rows=20_000, most=10**6)] == [154]
    assert [len(part) for part in evenly(range(3), rows=10**6, most=10**5)] == [1, 1, 1]
    assert list(evenly([], rows=0, most=1)) == []


def test_options_of_a_few_checkpoints_at_a_time_are_those_of_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bank = bank_of(tmp_path / "a", range(5))
    whole = options(bank)
    monkeypatch.setattr("logitbank.analysis.frames.batches.FEW_ROWS", 0)
    monkeypatch.setattr("logitbank.analysis.frames.batches.CHECKPOINTS", 2)
    parts = [scores.steps for scores in prompt_scores(bank, "parity", few=True)]
    assert parts == [(0, 1), (2, 3), (4,)]
    few = options(bank)
    assert few.summary == whole.summary
    for name, table in whole.result.tables().items():
        assert few.result.tables()[name].equals(table, null_equal=True), name


def test_batches_of_chosen_checkpoints(tmp_path: Path) -> None:
    bank = bank_of(tmp_path / "a", range(5))
    (frame,) = Scores([bank], ("parity",), ["org/model"], steps=[1, 4]).frames()
    assert frame.collect()["step"].unique().sort().to_list() == [1, 4]
    with pytest.raises(BankError, match="step 9"):
        Scores([bank], ("parity",), steps=[9]).frames()


def test_a_text_of_steps_selects_of_each_run_and_runs_are_chosen_everywhere(tmp_path: Path) -> None:
    bank, other = bank_of(tmp_path / "a", range(5)), bank_of(tmp_path / "b", [7], run="second")
    for step in (2, 3):
        put(bank, step, "seed1")
    whole = Scores([bank, other], ("parity",))
    for chosen, places in (
        ({"steps": "last"}, [("main", 4), ("second", 7), ("seed1", 3)]),
        ({"steps": 3}, [("main", 3), ("seed1", 3)]),
        ({"runs": ["seed1", "second"]}, [("second", 7), ("seed1", 2), ("seed1", 3)]),
        ({"runs": ["seed1"], "steps": [0, 2]}, [("seed1", 2)]),
    ):
        scores = replace(whole, **chosen)
        frame = pl.concat(part.collect() for part in scores.frames())
        assert frame.select("run", "step").unique().sort("run", "step").rows() == places
        held = [d.checkpoint for _, deposits in scores.holding() for d in deposits]
        assert sorted((each.run, each.step) for each in held) == places
        read = [(part.run, step) for part in read_options(scores) for step in part.steps]
        assert sorted(read) == places
    assert whole.cached("k", lambda: 1) == 1
    assert replace(whole, runs=["seed1"]).cached("k", lambda: 2) == 2
    assert replace(whole, steps="last").cached("k", lambda: 3) == 3
    with pytest.raises(BankError, match="run seed9"):
        replace(whole, runs=["seed9"]).frames()
    assert not [*replace(whole, runs=["seed9"]).holding()]
    assert not [*read_options(replace(whole, models=["absent"]))]


@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read from /proc")
def test_coded_columns_hold_the_same_texts_and_change_no_number(tmp_path: Path) -> None:
    bank = small_banks.new_bank(tmp_path / "b")
    bank.add_prompts("parity", small_banks.prompt_table(split="dev", index=4))
    for step in (0, 8):
        bank.deposit(
            small_banks.logits(step),
            checkpoint=CheckpointId("m", step=step),
            query_set=small_banks.QUERY_SET.name,
        )
    coded = ("model", "prompt_id", "split", "index", "of no such name")
    scores = Scores([bank], ("parity",))
    (plain,) = (frame.collect() for frame in scores.frames())
    (codes,) = (frame.collect() for frame in scores.frames(coded=coded))
    texts = ["model", "prompt_id", "split"]
    assert [name for name, dtype in codes.schema.items() if dtype == pl.Categorical] == texts
    by = ["step", "prompt_id", "option"]
    assert codes.cast({pl.Categorical: pl.String}).sort(by).equals(plain.sort(by))


@pytest.mark.whole
def test_peak_memory_does_not_grow_with_the_checkpoints(tmp_path: Path) -> None:
    # 120,000 rows a checkpoint: 20 more would take 140 MB beside 345 in one batch, and take 35.
    peaks, bank = {}, large_bank(tmp_path / "b", steps=32)
    one_thread = os.environ | {"POLARS_MAX_THREADS": "1"}  # the peak of several varies by 50 MB
    for count in ("12", "32"):
        command = [sys.executable, "-c", MEMORY, str(bank.path), count]
        peaks[count] = json.loads(
            subprocess.run(command, env=one_thread, stdout=subprocess.PIPE, check=True).stdout
        )
    assert peaks["32"] <= 1.25 * peaks["12"]


def token_rows(steps: list[int]) -> pl.LazyFrame:
    """Two models' sentences of several pieces, in pairs; one sentence is partly there at step 2."""
    rng = np.random.default_rng(5)
    rows = [
        (model, "main", step, f"p{number}", piece, number // 2, ("more", "less")[number % 2])
        for model in "ab"
        for step in (0, 1, 2, 8)
        for number in range(24)
        for piece in range(2 if (step, number) != (2, 6) else 1)
    ]
    names = ["model", "run", "step", "prompt_id", "piece", "pair", "side"]
    table = pl.DataFrame(rows, names, orient="row")
    number = pl.col("pair")
    return (
        table.with_columns(
            logprob=-pl.Series(rng.uniform(1, 9, len(rows))),
            rank=pl.Series(rng.integers(1, 3, len(rows))),
            ties=0,
            exact=True,
            direction=pl.lit("stereo"),
            bias_type=pl.when(number % 3 == 0).then(pl.lit("age")).otherwise(pl.lit("gender")),
            stereotype=pl.when(pl.col("side") == "more")
            .then(pl.lit("pro"))
            .otherwise(pl.lit("anti")),
            type=1 + number % 2,
            template=pl.lit("t"),
        )
        .lazy()
        .filter(pl.col("step").is_in(steps))
    )


@pytest.mark.parametrize("family", ["lambada", "pairs"])
def test_prompts_of_several_pieces_in_several_frames_have_the_numbers_of_one(family: str) -> None:
    kind = pl.lit("sentence" if family == "pairs" else "target").alias("score_kind")
    whole = token_rows([0, 1, 2, 8]).with_columns(kind)

    def tables(*parts: pl.LazyFrame) -> list[pl.DataFrame]:
        return [*measured(family, *parts, expected=whole.collect()).tables().values()]

    parts = [token_rows(steps).with_columns(kind) for steps in ([2], [0, 8], [1])]
    one, several = tables(whole), tables(*parts)
    for a, b in zip(one, several, strict=True):
        # Two calls on one frame differ as much: groups have no order, so sums have none.
        assert_frame_equal(a, b, abs_tol=1e-12, rel_tol=1e-12)
    assert one[0]["step"].n_unique() == 4
    none = whole.filter(step=99)
    for a, b in zip(one, tables(none, parts[0], none, *parts[1:]), strict=True):
        assert_frame_equal(a, b, abs_tol=1e-12, rel_tol=1e-12)
    with pytest.raises(BankError, match="There is no score"):
        tables(none, none)


def test_a_checkpoint_that_has_no_pair_may_be_alone_in_its_frame() -> None:
    halves = (pl.col("step") != 8) | (pl.col("side") == "more")
    whole = token_rows([0, 1, 8]).with_columns(score_kind=pl.lit("sentence")).filter(halves)
    parts = [whole.filter(step=step) for step in (0, 1, 8)]
    one, several = measured("pairs", whole), measured("pairs", *parts)
    assert_frame_equal(several.measures, one.measures, abs_tol=1e-12, rel_tol=1e-12)
    scored = several.measures.drop_nans("value")
    assert scored["step"].unique().sort().to_list() == [0, 1]


def begin_run(bank: Bank) -> Bank:
    """With a run that was begun, and has no row yet: each run has batches of its own."""
    for deposit in bank.deposits():
        checkpoint = replace(deposit.checkpoint, run="second")
        bank.begin(replace(deposit.spec, checkpoint=checkpoint))
    return bank


@pytest.mark.parametrize(
    "family",
    ["fairness", "stereotype", "pairs", "lambada", "tradeoff", "stereoset", "unqover"],
)
def test_a_run_without_rows_does_not_keep_from_the_others(family: str, tmp_path: Path) -> None:
    make: Callable[[Path], Path] = whole_bank
    if family in ("stereoset", "unqover"):
        make = stereoset_cases.make_bank if family == "stereoset" else unqover_cases.make_bank
    path = make(tmp_path / "b")
    study = getattr(logitbank, family)
    before = study(path).result.tables()
    begin_run(Bank.open(path))
    found = study(path)
    after = found.result.tables()
    [said] = [line for line in found.missing if line.startswith("Excluded")]
    assert " second step 0, " in said
    assert before.keys() == after.keys()
    for name, table in before.items():
        assert_frame_equal(after[name], table, abs_tol=1e-12)


def test_stereotype_accuracy_of_several_frames_is_that_of_one() -> None:
    """At step 2 a sentence lacks one of its orders, which only other checkpoints tell."""
    rng = np.random.default_rng(6)
    rows = [
        ("m", "main", step, f"{sentence}-{order}", f"s{sentence}", order, option, option == "he")
        for step in (0, 1, 2)
        for sentence in range(8)
        for order in ("he", "she")
        if (step, sentence, order) != (2, 3, "she")
        for option in ("he", "she")
    ]
    names = ["model", "run", "step", "prompt_id", "sentence_id", "order", "option", "is_answer"]
    table = pl.DataFrame(rows, names, orient="row").with_columns(
        logprob=-pl.Series(rng.uniform(1, 9, len(rows))), type=2, piece=0
    )
    parts = [table.filter(step=step).lazy() for step in (2, 0, 1)]
    none = table.filter(step=99).lazy()
    one, several, again = (
        stereotype_metric(scores_of(*scan, expected=table)).tables()
        for scan in ([table], parts, [none, *parts])
    )
    assert one["counts"]["missing"].to_list() == [0, 0, 1]
    for name, whole in one.items():
        assert several[name].equals(whole, null_equal=True), name
        assert again[name].equals(whole, null_equal=True), name
    with pytest.raises(BankError, match="no score for stereotype-accuracy"):
        stereotype_metric(scores_of(none, none, expected=table))


def test_a_frame_is_built_on_first_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[list[int | None]] = []
    scan = frame_batches.scan

    def watched(prompts, deposits):
        made.append([deposit.checkpoint.step for deposit in deposits])
        return scan(prompts, deposits)

    monkeypatch.setattr(frame_batches, "scan", watched)
    bank = bank_of(tmp_path / "a", range(5))
    frames = Scores([bank], ("parity",)).frames(rows=40)  # 20 a checkpoint
    assert (len(frames), made) == (3, [])
    steps = []
    for frame in frames:
        assert len(made) == len(steps) + 1
        steps.append(frame.collect()["step"].unique().sort().to_list())
    assert steps == made == [[0, 1], [2, 3], [4]]


def test_arrays_of_files_are_those_of_rows_whatever_the_order_of_a_file(tmp_path: Path) -> None:
    bank = Bank.open(winobias_bank(tmp_path / "b", steps=5))
    rows = read_winobias(scores_of(bank.scan("winobias", steps=[0, 1, 2, 3, 4])))

    def assert_same() -> None:
        found = read_winobias(Scores([bank], ("winobias",)))
        np.testing.assert_array_equal(found.items.values, rows.items.values)
        assert found.items.checkpoints.equals(rows.items.checkpoints)
        assert (found.tied.tolist(), found.inexact.tolist()) == (
            rows.tied.tolist(), rows.inexact.tolist()
        )  # fmt: skip

    assert_same()
    path = bank.deposits()[2].path
    file = path / "scores" / "all.parquet"
    scores = pl.read_parquet(file)
    scores.sort("query", "kind", "rank", "token").write_parquet(file)  # as another writer
    recommit(path, "scores/all.parquet")
    assert not pl.read_parquet(file)["token"].equals(scores["token"])
    assert_same()
