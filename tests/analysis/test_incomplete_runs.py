"""Means over runs in banks that lack scores: of the items that the family's own tables count.

Expected numbers are worked out here, from the logits that were deposited.
"""

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import logitbank
from logitbank.analysis.families.fairness import fairness
from logitbank.analysis.families.gest import gest
from logitbank.analysis.families.options import options
from logitbank.analysis.families.stereoset import stereoset
from logitbank.store import Bank, CheckpointId, Query, QuerySet
from tests.support import gest_cases, stereoset_cases
from tests.support.evaluation_banks import add_lambada, add_winobias
from tests.support.small_banks import QUERY_SET, prompt_table

pytestmark = pytest.mark.numerical

RUNS = ("seed0", "seed1", "seed2")
Logits = Mapping[str, np.ndarray]


def drawn(rows: int, vocab: int) -> Logits:
    """Logits of every run."""
    return {
        run: np.random.default_rng(seed).normal(size=(rows, vocab)).astype(np.float32)
        for seed, run in enumerate(RUNS)
    }


def without(
    source: Bank,
    path: Path,
    prompts: str,
    which: pl.Expr,
    logits: Logits,
    *,
    runs: Collection[str] = RUNS,
) -> Bank:
    """A bank with a prompt set in which some runs lack the tokens of `which`.

    These tokens are in a query set of their own, of the same tokenizer.
    """
    table = source.prompts(prompts).collect()
    own = source.query_set(table["query_set"][0])
    rest = QuerySet(own.tokenizer, tuple(Query((9, 9, i), 1) for i in range(len(own))))
    bank = Bank.create(path)
    for queries in (own, rest):
        bank.add_query_set(queries)
    name = pl.when(which).then(pl.lit(rest.name)).otherwise(pl.lit(own.name))
    bank.add_prompts(prompts, table.with_columns(query_set=name))
    for run, values in logits.items():
        for queries in (own,) if run in runs else (own, rest):
            bank.deposit(values, checkpoint=CheckpointId("toy", run, 8), query_set=queries.name)
    return bank


def probabilities(logits: np.ndarray) -> np.ndarray:
    p = np.exp(logits.astype(float))
    return p / p.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("runs", [("seed1",), RUNS])
def test_candidates_of_which_a_token_is_missing_have_no_score(
    tmp_path: Path, runs: tuple[str, ...]
) -> None:
    """The second token of the stereotype of one of the two examples of nurse."""
    source = Bank.open(stereoset_cases.make_bank(tmp_path / "source"))
    lost = (pl.col("prompt_id") == "intrasentence-1-stereotype") & (pl.col("piece") == 1)
    logits = drawn(24, stereoset_cases.VOCAB)
    bank = without(source, tmp_path / "bank", "stereoset-intra", lost, logits, runs=runs)
    table = stereoset([bank]).tables["runs"]
    each = []
    for run in RUNS:
        p = probabilities(logits[run])[:, 1].reshape(-1, 3, 2).mean(axis=2)
        pro = 100.0 * (p[:, 0] > p[:, 1])
        nurse = pro[:1] if run in runs else pro[:2]
        each.append([nurse.mean(), pro[2], pro[3]])
    (row,) = table.to_dicts()
    assert row["value"] == pytest.approx(np.mean(each))
    assert row["sd"] == pytest.approx(np.mean(each, axis=1).std(ddof=1))
    assert (row["runs"], row["examples"], row["missing"]) == (3, 3, 0)


def test_a_term_without_a_whole_example_is_missing(tmp_path: Path) -> None:
    source = Bank.open(stereoset_cases.make_bank(tmp_path / "source"))
    lost = pl.col("prompt_id") == "intrasentence-2-unrelated"
    logits = drawn(24, stereoset_cases.VOCAB)
    bank = without(source, tmp_path / "bank", "stereoset-intra", lost, logits)
    (row,) = stereoset([bank]).tables["runs"].to_dicts()
    assert (row["examples"], row["missing"]) == (2, 1)


def ordered_prompts() -> pl.DataFrame:
    """Ten prompts of two options in two orders; the answer is the first."""
    table = prompt_table()
    own = table.with_columns(order_seed=pl.lit(0, pl.Int32))
    return pl.concat([own, own.with_columns(order_seed=pl.lit(1, pl.Int32))])


def test_option_orders_that_lack_an_option_do_not_count(tmp_path: Path) -> None:
    """In every run one option of the second order is missing for half of the prompts."""
    source = Bank.create(tmp_path / "source")
    source.add_query_set(QUERY_SET)
    table = prompt_table()
    tokens = sorted(table["token"].unique())
    answer = table.filter("is_answer")["token"].unique().to_list()
    assert len(tokens) == 2
    second = table.with_columns(order_seed=pl.lit(1, pl.Int32), row=(pl.col("row") + 5) % 10).cast(
        dict(table.schema)
    )  # type: ignore[arg-type]
    first = table.with_columns(order_seed=pl.lit(0, pl.Int32)).cast(dict(table.schema))  # type: ignore[arg-type]
    source.add_prompts("parity", pl.concat([first, second]))
    lost = (
        (pl.col("order_seed") == 1) & (pl.col("prompt_id") < "p5") & (pl.col("token") == tokens[1])
    )
    logits = drawn(10, 6)
    bank = without(source, tmp_path / "bank", "parity", lost, logits)
    study = options([bank], prompts="parity", entropy=False)
    own = dict(table.filter("is_answer").select("prompt_id", "token").iter_rows())
    each = []
    for run in RUNS:
        right = []
        for i in range(10):
            token = own[f"p{i}"]
            other = next(t for t in tokens if t != token)
            places = [i] if i < 5 else [i, (i + 5) % 10]
            right.append(
                np.mean([logits[run][at, token] > logits[run][at, other] for at in places])
            )
        each.append(np.mean(right))
    (row,) = study.tables["runs"].to_dicts()
    assert row["value"] == pytest.approx(np.mean(each))
    assert (row["examples"], row["missing"]) == (10, 0)
    assert study.tables["answers"]["accuracy"].to_list() == pytest.approx(each)
    assert answer


def test_the_sample_of_a_mean_is_that_of_its_own_values(tmp_path: Path) -> None:
    """Of five prompts one of two options is missing: their probability has no share of several."""
    source = Bank.create(tmp_path / "source")
    source.add_query_set(QUERY_SET)
    source.add_prompts("parity", prompt_table())
    token = int(prompt_table()["token"].max())  # type: ignore[arg-type]
    lost = (pl.col("prompt_id") < "p5") & (pl.col("token") == token)
    bank = without(source, tmp_path / "bank", "parity", lost, drawn(10, 6))
    study = options([bank], prompts="parity", entropy=False)
    shares = study.tables["shares"]
    assert shares["items"].unique().to_list() == [5]
    probability = study.tables["measures"].filter(measure="probability")
    assert sorted(probability["items"].unique()) == [5, 10]
    named = [each for each in study.findings if each.figure == "by_option"]
    assert named
    assert all(each.n.startswith("5 prompts") for each in named)


def lambada_bank(path: Path) -> Bank:
    bank = Bank.create(path)
    add_lambada(bank, {0: 3}, words=20)
    return bank


@pytest.mark.parametrize(("runs", "others"), [(RUNS, 0), (("seed1",), 0)])
def test_what_no_run_has_is_missing(tmp_path: Path, runs: tuple[str, ...], others: int) -> None:
    source = lambada_bank(tmp_path / "source")
    lost = pl.col("prompt_id").is_in(["l00", "l07", "l19"]) & (pl.col("piece") == 1)
    logits = drawn(40, 12)
    bank = without(source, tmp_path / "bank", "lambada", lost, logits, runs=runs)
    (row,) = logitbank.lambada([bank]).tables["runs"].to_dicts()
    whole = [i for i in range(20) if i not in (0, 7, 19)]
    hit = {
        run: np.array(
            [all(logits[run][2 * i + k].argmax() == 1 + k for k in (0, 1)) for i in whole]
        )
        for run in RUNS
    }
    assert row["value"] == pytest.approx(np.mean([hit[run].mean() for run in RUNS]))
    assert (row["examples"], row["missing"]) == (17, 3 + others)


def gest_bank(path: Path) -> Bank:
    return Bank.open(gest_cases.make_bank(path))


def winobias_bank(path: Path) -> Bank:
    bank = Bank.create(path)
    add_winobias(bank, steps=(0,), skew_from=8)
    return bank


ONE_SIDE: Mapping[str, tuple[Callable[[Path], Bank], pl.Expr, Callable[..., Any]]] = {
    "gest": (gest_bank, pl.col("stereotype_id") > 7, gest),
    "winobias": (winobias_bank, pl.col("answer") == "female", fairness),
}


@pytest.mark.parametrize("name", ONE_SIDE)
def test_a_difference_of_which_one_side_is_missing_has_no_mean(tmp_path: Path, name: str) -> None:
    make, lost, analyze = ONE_SIDE[name]
    source = make(tmp_path / "source")
    queries = source.query_set(source.prompts(name).collect()["query_set"][0])
    logits = drawn(len(queries), 12)
    bank = without(source, tmp_path / "bank", name, lost, logits)
    study = analyze([bank])
    assert "runs" not in study.tables
    assert not any("mean over runs" in str(each) for each in study.findings)


def test_one_name_may_be_given_as_a_text(tmp_path: Path) -> None:
    bank = stereoset_cases.make_bank(tmp_path / "bank")
    text = logitbank.stereoset(bank, score="reference", models="toy", prompts="stereoset-intra")
    listed = logitbank.stereoset(
        bank, score=["reference"], models=["toy"], prompts=["stereoset-intra"]
    )
    for table in listed.tables:
        assert text.tables[table].equals(listed.tables[table], null_equal=True), table
