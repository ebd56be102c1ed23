"""Options of any prompts, their shares, right answers, entropy and agreement: by hand, SciPy and
NumPy, on the logits that a bank was made of."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy.special import log_softmax
from scipy.stats import binomtest, ttest_ind
from scipy.stats import entropy as scipy_entropy

import logitbank
from logitbank.analysis.everything import analyses
from logitbank.analysis.families import families
from logitbank.analysis.families.options import ACCURACY, PROBABILITY
from logitbank.analysis.families.options.metric import prompt_items
from logitbank.analysis.family import CHANGE_POINTS
from logitbank.analysis.finding import Finding
from logitbank.analysis.prompts.scores import PromptScores
from logitbank.analysis.results.measured import Measured
from logitbank.analysis.stats.summary import summarise
from logitbank.analysis.study import Study
from logitbank.errors import AbsentError, BankError, UsageError
from logitbank.store import Bank, CheckpointId, Deposit, Query, QuerySet
from logitbank.store.format.schema import PROMPTS_SCHEMA
from tests.support.evaluation_banks import VOCAB as WORDS
from tests.support.evaluation_banks import add_crows_pairs, add_pieces
from tests.support.evaluation_banks import deposit as deposit_pieces
from tests.support.small_banks import (
    OPTIONS,
    QUERY_SET,
    block_data,
    logits,
    new_bank,
    prompt_table,
    recommit,
    spec,
)

pytestmark = pytest.mark.numerical

TEXTS = [("a", " ab"), ("a", " cd"), ("b", " é")]
"""Option and text of each scored token: one option of two tokens, and one of a letter of two
bytes."""


@pytest.fixture
def bank(tmp_path: Path) -> Bank:
    """One prompt; the tokens of option a have 0.5 and 0.25, that of b has 0.3."""
    queries = QuerySet("0" * 64, (Query((1,), 0), Query((1, 2), 1)))
    made = Bank.create(tmp_path / "b.zarr")
    made.add_query_set(queries)
    made.add_prompts(
        "mine",
        pl.DataFrame(
            {
                "prompt_id": ["p"] * 3, "order_seed": [None] * 3, "piece": [0, 1, 0],
                "text": ["t"] * 3, "answer": ["a"] * 3, "option": [o for o, _ in TEXTS],
                "continuation": [t for _, t in TEXTS], "token": [2, 3, 4],
                "is_answer": [True, True, False], "query_set": [queries.name] * 3,
                "row": [0, 1, 0],
            },
            schema_overrides={
                "order_seed": pl.Int32, "piece": pl.Int32, "token": pl.Int32, "row": pl.Int32
            },
        ),
    )  # fmt: skip
    shares = np.array([[0.1, 0.1, 0.5, 0.0, 0.3], [0.25, 0.25, 0.0, 0.25, 0.25]])
    logits = np.log(np.maximum(shares, 1e-30)).astype(np.float32)
    made.deposit(
        logits, checkpoint=CheckpointId("m", step=8), query_set=queries.name, dtype="float32"
    )
    return made


@pytest.mark.parametrize(
    ("score", "a", "b"),
    [
        ("sum", 0.5 * 0.25, 0.3),
        ("token", (0.5 * 0.25) ** (1 / 2), 0.3),
        ("character", (0.5 * 0.25) ** (1 / 5), 0.3),
    ],
)
def test_scores_are_those_worked_out_by_hand(bank: Bank, score: str, a: float, b: float) -> None:
    study = logitbank.options(bank, score=score)  # type: ignore[arg-type]
    shares = study.tables["shares"]
    assert shares["option"].to_list() == ["a", "b"]
    assert shares["probability"].to_list() == pytest.approx([a, b], rel=1e-5)
    expected = [a / (a + b), b / (a + b)]
    assert shares["option_probability"].to_list() == pytest.approx(expected, rel=1e-5)
    assert shares["rank"].to_list() == [None, 2], "of one token alone"
    assert study.tables["answers"]["accuracy"].to_list() == [float(a > b)]
    assert (len(study.notes) == len(families()["options"].notes) + 1) == (score == "sum")


def test_an_absent_prompt_set_is_named(bank: Bank) -> None:
    with pytest.raises(AbsentError, match="'other'"):
        logitbank.options(bank, prompts="other")
    with pytest.raises(UsageError, match="Unknown score 'best'. Use one of sum, token"):
        logitbank.options(bank, score="best")  # type: ignore[arg-type]
    rows = bank.prompts("mine").collect()
    bank.add_prompts("second", rows.with_columns(sentence_id=pl.lit("s")))
    both = logitbank.options(bank)
    assert both.tables["shares"]["prompt_set"].to_list() == ["mine", "mine", "second", "second"]
    assert both.findings[0].text == "Accuracy is 0.0% at step 8."
    assert sorted(both.charts) == [
        "by_option-mine", "by_option-second", "measures-mine", "measures-second",
    ]  # fmt: skip
    assert {each.figure for each in both.findings if each.value is not None} == {*both.charts}
    named = [each.text for each in both.findings if "Option probability" in each.text]
    assert named[0] == "Option probability, mine, a at step 8"


def share_scores(share: np.ndarray, sentences: list[str] | None) -> PromptScores:
    """Prompts of two options; the answer has `share` (c, p)."""
    c, p = share.shape
    prompts = pl.DataFrame(
        {"prompt_id": [str(at) for at in range(p)], "order_seed": pl.Series([None] * p, dtype=int)}
    ).with_columns(answer=pl.lit("a"))
    options = pl.DataFrame(
        {"prompt": np.repeat(np.arange(p), 2), "option": ["a", "b"] * p, "pieces": 1}
    ).with_columns(continuation="option", is_answer=pl.col("option") == "a")
    logprob = np.log(np.stack([share, 1 - share], axis=-1)).reshape(c, 2 * p)
    if sentences is not None:
        prompts = prompts.with_columns(sentence_id=pl.Series(sentences))
    return PromptScores(
        "m", "main", tuple(range(c)), prompts, options, logprob, np.ones((c, 2 * p))
    )


def test_prompts_of_one_sentence_are_one_draw() -> None:
    """400 samples of 20 sentences with five prompts each, which resemble one another."""
    rng = np.random.default_rng(3)
    level = np.repeat(rng.normal(0.3, 1.0, (400, 20)), 5, axis=1)
    share = 1 / (1 + np.exp(-level - rng.normal(0, 0.3, (400, 100))))
    many = rng.normal(0.3, 1.0, 10**6) + rng.normal(0, 0.3, 10**6)
    truth = {"share": (1 / (1 + np.exp(-many))).mean(), "accuracy": (many > 0).mean()}
    names = [f"s{at // 5}" for at in range(100)]
    covered = []
    for sentences in (names, None):
        scores = share_scores(share, sentences)
        table = summarise(prompt_items(scores, scores), [ACCURACY, PROBABILITY], changes=False)
        shares, accuracy = table.filter(option="a"), table.filter(measure="accuracy")
        for name, rows in (("share", shares), ("accuracy", accuracy)):
            assert set(rows["clusters"]) == {20 if sentences else 100}
            inside = (rows["low"] <= truth[name]) & (rows["high"] >= truth[name])
            covered.append(inside.mean())
    assert min(covered[:2]) > 0.91
    assert max(covered[2:]) < 0.75, "as if all prompts were independent"


STEPS = (0, 8, None)
LIKE_THE_LAST = 6
"""Of ten rows of step 8, how many have the most probable token of the release."""


def step_logits(step: int | None) -> np.ndarray:
    """Logits of a checkpoint; of step 8, the first rows agree with those of the release."""
    values = logits(99 if step is None else step)
    if step == 8:
        best = logits(99).argmax(axis=1)
        for row, token in enumerate(best):
            values[row, token if row < LIKE_THE_LAST else (token + 1) % 6] = 20
    return values


def parity(path: Path, *, keep: str = "full") -> Bank:
    """Ten prompts of one position, whose answer is token 1, at two steps and a release."""
    bank = new_bank(path)
    for step in STEPS:
        bank.deposit(
            step_logits(step),
            checkpoint=CheckpointId("org/model", step=step),
            query_set=QUERY_SET.name,
            keep=keep,
        )
    return bank


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_an_answer_without_a_probability_is_refused(tmp_path: Path, value: float) -> None:
    bank = parity(tmp_path / "b")
    (part,) = bank.path.glob("*/main/8/*/scores/all.parquet")
    no_number = pl.when(pl.col("query") < 2).then(pl.lit(value, pl.Float32)).otherwise("logit")
    pl.read_parquet(part).with_columns(logit=no_number).write_parquet(part)
    recommit(part.parents[1], "scores/all.parquet")
    message = rf"parity has the probability {value} at org/model main step 8 \(2 such prompts"
    with pytest.raises(BankError, match=message):
        logitbank.options(bank)


def values(table: pl.DataFrame, measure: str, name: str = "parity") -> list[float]:
    return table.filter(measure=measure, prompt_set=name)["value"].to_list()


def test_every_measure_is_that_of_scipy_and_numpy(tmp_path: Path) -> None:
    measures = logitbank.options(parity(tmp_path / "b")).result.measures
    whole = measures.filter(measure="top1_probability")
    assert whole.select("step", "items", "missing").rows() == [(step, 10, 0) for step in STEPS]
    for step in STEPS:
        row = step_logits(step).astype(np.float64)
        p = np.exp(log_softmax(row, axis=1))
        expected = {
            "entropy": scipy_entropy(p, axis=1),
            "answer_probability": p[:, 1],
            "top1_probability": p.max(axis=1),
            "answer_rank": 1 + (row > row[:, 1:2]).sum(axis=1),
            "top1_agreement": row.argmax(axis=1) == step_logits(None).argmax(axis=1),
        }
        for measure, each in expected.items():
            (found,) = (
                measures.filter(measure=measure)
                .filter(pl.col("step").eq_missing(pl.lit(step, pl.Int64)))
                .iter_rows(named=True)
            )
            assert found["value"] == pytest.approx(each.mean(), rel=1e-6)
            assert found["items"] == 10
            half = 2.262157 * each.std(ddof=1) / np.sqrt(10)  # t of nine degrees of freedom
            if measure == "answer_rank" or half == 0:
                assert np.isnan([found["low"], found["high"]]).all()
                continue
            least, most = 0, 1 if measure != "entropy" else 9
            assert found["low"] == pytest.approx(max(least, each.mean() - half), rel=1e-5)
            assert found["high"] == pytest.approx(min(most, each.mean() + half), rel=1e-5)
    assert values(measures, "top1_agreement")[1:] == [LIKE_THE_LAST / 10, 1.0]


@pytest.mark.parametrize("keep", ["options", "topk:2"])
def test_without_full_rows_only_entropy_is_lacking(tmp_path: Path, keep: str) -> None:
    full, kept = (parity(tmp_path / keep, keep=keep) for keep in ("full", keep))
    study = logitbank.options(kept)
    entropy = pl.col("measure") == "entropy"
    own, other = study.result.measures, logitbank.options(full).result.measures
    assert own.filter(~entropy).equals(other.filter(~entropy))
    assert own.filter(entropy)["items"].to_list() == [0] * 3
    assert own.filter(entropy)["value"].is_nan().all()
    assert any("which 3 checkpoints lack" in str(each) for each in study.findings)


def test_a_report_reads_no_full_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bank = parity(tmp_path / "b")

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a full row was read")

    monkeypatch.setattr(Deposit, "stored_logprobs", refuse)
    with pytest.raises(AssertionError, match="a full row was read"):
        logitbank.options(bank)
    (found,) = (each.run() for each in analyses(bank))
    assert values(found.result.measures, "top1_agreement")[-1] == 1
    assert any(note.startswith("Entropy needs full rows") for note in found.notes)


def test_missing_items_are_counted_and_not_averaged(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b")
    for step, blocks in ((0, (0, 2)), (8, (0, 1))):  # of rows 0–3, 4–7 and 8–9
        with bank.begin(spec(step)) as writer:
            for block in blocks:
                writer.write(block, block_data(writer.layout, block, seed=step))
    study = logitbank.options(bank)
    whole = study.result.measures.filter(measure="top1_probability")
    assert whole.select("step", "items", "missing").rows() == [(0, 6, 4), (8, 8, 2)]
    names = ["entropy", "top1_agreement"]
    first = study.result.measures.filter(pl.col("measure").is_in(names), step=0)
    entropy, agreement = first.iter_rows(named=True)
    there = [0, 1, 2, 3, 8, 9]
    p = np.exp(log_softmax(logits(0)[there].astype(np.float64), axis=1))
    assert entropy["value"] == pytest.approx(scipy_entropy(p, axis=1).mean(), rel=1e-6)
    assert np.isnan(entropy["low"])  # of six prompts
    both = logits(0)[:4].argmax(axis=1) == logits(8)[:4].argmax(axis=1)
    assert (agreement["value"], agreement["items"]) == (both.mean(), 4)
    assert any("6 prompts at 2 checkpoints" in text for text in study.missing)


def test_option_orders_of_a_prompt_count_once(tmp_path: Path) -> None:
    bank = parity(tmp_path / "b")
    twice = [prompt_table().with_columns(order_seed=pl.lit(o, pl.Int32)) for o in (0, 1)]
    bank.add_prompts("orders", pl.concat(twice).head(30))  # p0 to p4 in two orders
    measures = logitbank.options(bank, prompts=["orders", "parity"]).result.measures
    assert measures.filter(option="")["items"].unique().to_list() == [10]
    for measure in ("entropy", "answer_probability", "answer_rank", "top1_agreement"):
        once = values(measures, measure)
        assert values(measures, measure, "orders") == pytest.approx(once)


def test_a_target_of_several_tokens_has_a_probability_and_no_rank(tmp_path: Path) -> None:
    bank = Bank.create(tmp_path / "b")
    own = {"score_kind": "target"}
    prompts = [("long", (1, 2), own), ("short", (3,), own)]
    queries = add_pieces(bank, "words", prompts)
    drawn = np.random.default_rng(0).normal(size=(3, WORDS)).astype(np.float32)
    deposit_pieces(bank, queries, drawn, step=0)
    p = np.exp(log_softmax(drawn.astype(np.float64), axis=1))
    table = logitbank.options(bank).result.measures
    long, short = p[0, 1] * p[1, 2], p[2, 3]
    assert values(table, "answer_probability", "words") == pytest.approx([(long + short) / 2])
    rank = table.filter(measure="answer_rank").select("value", "items", "missing").row(0)
    assert rank == (1 + (drawn[2] > drawn[2, 3]).sum(), 1, 0)
    each = scipy_entropy(p, axis=1)
    mean = ((each[0] + each[1]) / 2 + each[2]) / 2
    assert values(table, "entropy", "words") == pytest.approx([mean])


def found_of(study: Study[Measured], text: str) -> Finding:
    (only,) = (each for each in study.findings if each.value is not None and text in each.text)
    return only


def test_findings_are_the_numbers_of_the_last_checkpoint_with_those_of_the_first(
    tmp_path: Path,
) -> None:
    study = logitbank.options(parity(tmp_path / "b"))
    accuracies = study.result.measures.filter(measure="accuracy")
    last = accuracies.row(-1, named=True)
    headline, accuracy, change = study.findings[:3]
    assert " from step 0 to step 8." in headline.text
    assert (accuracy.value, accuracy.low, accuracy.n) == (last["value"], last["low"], "10 prompts")
    trained = accuracies.filter(step=8).row(0, named=True)
    assert (change.value, change.low) == (trained["from_baseline"], trained["from_baseline_low"])
    (rank,) = (each for each in study.findings if "Answer rank at release" in each.text)
    assert rank.value == values(study.result.measures, "answer_rank")[-1]
    agreement = found_of(study, "Top-1 agreement")
    same = (step_logits(0).argmax(axis=1) == step_logits(None).argmax(axis=1)).mean()
    assert (agreement.value, agreement.text[-6:]) == (same, "step 0")
    assert {each.series for each in study.findings[:6]} == {("org/model", "main")}


def test_prompts_without_an_answer_have_no_accuracy(tmp_path: Path) -> None:
    bank = parity(tmp_path / "b")
    add_crows_pairs(bank, model="org/model")
    study = logitbank.options(bank)
    assert values(study.result.measures, "answer_rank", "crows-pairs") == []
    assert values(study.result.measures, "top1_agreement", "crows-pairs")[-1] == 1
    texts = [each.text for each in study.findings]
    assert "No correct answer is named in crows-pairs." in texts
    assert not any("Accuracy, crows-pairs" in text for text in texts)
    assert {each for each in study.charts if "crows-pairs" in each} == {"measures-crows-pairs"}


def test_banks_with_other_runs_are_analysed_together(tmp_path: Path) -> None:
    bank, other = parity(tmp_path / "b"), new_bank(tmp_path / "c")
    checkpoint = CheckpointId("org/model", "seed1", step=0)
    other.deposit(step_logits(0), checkpoint=checkpoint, query_set=QUERY_SET.name)
    both = logitbank.options([bank, other]).tables
    assert both["answers"]["run"].to_list() == ["main"] * 3 + ["seed1"]
    later = CheckpointId("org/model", step=16)
    other.deposit(step_logits(0), checkpoint=later, query_set=QUERY_SET.name)
    with pytest.raises(UsageError, match="org/model main has scores of 'parity' in both"):
        logitbank.options([bank, other])


def test_a_jump_of_accuracy_is_a_change_point(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b")
    for step in range(16):
        values = np.zeros((10, 6), np.float32)
        hits = (2 if step < 8 else 9) + step % 2
        values[:hits, 1], values[hits:, 4] = 5, 5  # yes is the answer of every prompt
        bank.deposit(
            values, checkpoint=CheckpointId("org/model", step=step), query_set=QUERY_SET.name
        )
    study = logitbank.options(bank)
    (row,) = study.result.change_points.rows(named=True)
    assert (row["step"], row["kind"]) == (8, "change point")
    assert row["p_holm"] == row["p_random_walk"] <= 0.05
    (finding,) = (each for each in study.findings if "mean shift between steps" in each.text)
    assert finding.value == pytest.approx(row["mean_after"] - row["mean_before"])
    assert study.notes[-1] == CHANGE_POINTS


def test_without_a_search_nothing_is_said_of_change_points(tmp_path: Path) -> None:
    study = logitbank.options(own_prompts(tmp_path / "own"))
    assert study.result.change_points["kind"].count() == 0
    assert CHANGE_POINTS not in study.notes


def own_prompts(path: Path) -> Bank:
    """Two checkpoints over prompts that no family knows."""
    bank = new_bank(path)
    for step in (0, 8):
        bank.deposit(logits(step), checkpoint=spec(step).checkpoint, query_set=QUERY_SET.name)
    return bank


def test_shares_and_accuracy_of_any_prompts_are_those_of_numpy(tmp_path: Path) -> None:
    bank = own_prompts(tmp_path / "own")
    tables = logitbank.options(bank).tables
    for step in (0, 8):
        values = np.exp(logits(step).astype(np.float64))
        yes = values[:, 1] / (values[:, 1] + values[:, 4])
        (row,) = tables["shares"].filter(step=step, option="yes").iter_rows(named=True)
        assert row["items"] == len(QUERY_SET)
        assert row["option_probability"] == pytest.approx(yes.mean(), abs=1e-6)
        half = 2.262157 * yes.std(ddof=1) / np.sqrt(len(yes))  # t of nine degrees of freedom
        high = min(1.0, row["option_probability"] + half)
        assert row["option_probability_high"] == pytest.approx(high, abs=1e-6)
        probability = (values[:, 1] / values.sum(axis=1)).mean()
        assert row["probability"] == pytest.approx(probability, abs=1e-6)
        rank = 1 + (values > values[:, 1:2]).sum(axis=1)
        assert row["rank"] == pytest.approx(rank.mean())
        (answer,) = tables["answers"].filter(step=step).iter_rows(named=True)
        right = int((yes > 0.5).sum())
        assert answer["accuracy"] == right / 10
        wilson = binomtest(right, 10).proportion_ci(method="wilson")
        ends = answer["accuracy_low"], answer["accuracy_high"]
        assert ends == pytest.approx((wilson.low, wilson.high))


def test_many_options_are_told_apart_as_answer_and_others(tmp_path: Path) -> None:
    bank = own_prompts(tmp_path / "own")
    table = bank.prompts("parity").collect()
    named = table.with_columns(
        option=pl.col("option") + pl.col("prompt_id"), answer=pl.col("answer") + pl.col("prompt_id")
    )
    bank.add_prompts("many", named)
    shares = logitbank.options(bank, prompts="many").tables["shares"]
    assert shares["option"].unique().sort().to_list() == ["answer", "other"]
    sums = shares.group_by("step").agg(pl.col("option_probability").sum())
    assert sums["option_probability"].to_list() == pytest.approx([1.0, 1.0])
    few = logitbank.options(bank, prompts="parity").tables["shares"]
    yes = few.filter(option="yes")["option_probability"].to_list()
    answer = shares.filter(option="answer")["option_probability"].to_list()
    assert answer == pytest.approx(yes)


def with_prompts(path: Path, keep: pl.Expr) -> Bank:
    """Two checkpoints over some rows of the table of prompts."""
    bank = Bank.create(path)
    bank.add_query_set(QUERY_SET)
    bank.add_prompts("few", prompt_table().filter(keep))
    for step in (0, 8):
        asked = spec(step)
        bank.deposit(logits(step), checkpoint=asked.checkpoint, query_set=asked.query_set)
    return bank


def test_the_only_option_of_a_prompt_has_a_probability_and_no_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("logitbank.analysis.stats.summary.FEWEST_CLUSTERS", 3)
    values = np.exp(logits(8).astype(np.float64))
    alone = with_prompts(tmp_path / "alone", pl.col("option") == "yes")
    study = logitbank.options(alone)
    assert "option_probability" not in study.tables["shares"].columns
    probability = (values[:, 1] / values.sum(axis=1)).mean()
    last = study.tables["shares"].filter(step=8, option="yes")["probability"].item()
    assert last == pytest.approx(probability, abs=1e-6)
    assert study.findings[0].figure == "measures", "an answer's probability"
    both = pl.col("prompt_id").is_in(["p0", "p1", "p2"])
    mixed = with_prompts(tmp_path / "mixed", (pl.col("option") == "yes") | both)
    table = logitbank.options(mixed).tables["shares"]
    (row,) = table.filter(step=8, option="yes").iter_rows(named=True)
    shares = values[:3, 1] / (values[:3, 1] + values[:3, 4])
    mean = row["option_probability"]
    assert mean == pytest.approx(shares.mean(), abs=1e-6)
    half = 4.302653 * shares.std(ddof=1) / np.sqrt(3)
    assert row["option_probability_high"] == pytest.approx(min(1.0, mean + half), abs=1e-6)
    assert row["option_probability_low"] == pytest.approx(max(0.0, mean - half), abs=1e-6)
    assert row["clusters"] == 3
    assert row["probability"] == pytest.approx(probability, abs=1e-6)


def test_models_and_checkpoints_that_are_not_in_the_bank_are_named(tmp_path: Path) -> None:
    bank = parity(tmp_path / "b")
    with pytest.raises(AbsentError, match="'b' is not in .*org/model"):
        logitbank.options(bank, models=["b"])
    with pytest.raises(BankError, match="parity"):
        logitbank.options(new_bank(tmp_path / "empty"))


def test_prompts_of_no_option_have_entropy_and_agreement_alone(tmp_path: Path) -> None:
    bank = Bank.create(tmp_path / "free")
    bank.add_query_set(QUERY_SET)
    named = ("option", "continuation", "token", "is_answer", "answer")
    rows = prompt_table().unique("prompt_id", maintain_order=True)
    nothing = (pl.lit(None, rows.schema[name]).alias(name) for name in named)
    bank.add_prompts("free", rows.with_columns(nothing))
    for step in (0, 8):
        bank.deposit(logits(step), checkpoint=spec(step).checkpoint, query_set=QUERY_SET.name)
    study = logitbank.options(bank)
    assert study.tables["shares"].is_empty()
    assert study.tables["answers"].is_empty()
    p = np.exp(log_softmax(logits(0).astype(np.float64), axis=1))
    entropy, *other = values(study.result.measures.filter(step=0), "entropy", "free")
    assert not other
    assert entropy == pytest.approx(scipy_entropy(p, axis=1).mean(), rel=1e-6)
    assert values(study.result.measures, "answer_rank", "free") == []
    assert "No correct answer is named in free." in [each.text for each in study.findings]


def runs_of_shares(path: Path, shares: dict[tuple[str, int], float], spread: float = 0.02) -> Bank:
    """Runs and steps at which the answer "yes" has such a share, up to `spread` more or less."""
    bank = new_bank(path)
    noise = np.linspace(-spread, spread, 10)
    for (run, step), share in shares.items():
        p = share + np.roll(noise, step)
        rows = np.full((10, 6), -30.0)
        rows[:, OPTIONS["yes"]], rows[:, OPTIONS["no"]] = np.log(p), np.log(1 - p)
        bank.deposit(
            rows.astype(np.float32), checkpoint=CheckpointId("m", run, step),
            query_set=QUERY_SET.name, dtype="float32",
        )  # fmt: skip
    return bank


def test_the_headline_is_what_changes_most_for_its_interval_over_all_runs(tmp_path: Path) -> None:
    """Accuracy stays at 0 while the share goes from 0.10 to 0.45, and to 0.40 in another run."""
    runs = {("seed0", 0): 0.1, ("seed0", 9): 0.45, ("seed1", 0): 0.1, ("seed1", 9): 0.4}
    study = logitbank.options(runs_of_shares(tmp_path / "b", runs))
    (first, *_) = study.findings
    assert first.text == "m seed0: Answer probability 0.100 → 0.450 from step 0 to step 9."
    assert next(iter(study.charts)) == first.figure == "measures"
    assert [str(f) for f in study.findings].count(str(first)) == 1


def test_an_interval_that_ends_at_0_counts_too(tmp_path: Path) -> None:
    """Accuracy goes from 0 to 1 in ten prompts; the shares move as far, but spread widely."""
    runs = {("main", 0): 0.25, ("main", 9): 0.75}
    study = logitbank.options(runs_of_shares(tmp_path / "b", runs, spread=0.24))
    assert study.findings[0].text == "Accuracy 0.0% → 100.0% from step 0 to step 9."


def test_a_rise_and_fall_is_in_the_headline_if_its_interval_is_beyond_both_ends(
    tmp_path: Path,
) -> None:
    runs = {("main", 0): 0.06, ("main", 4): 0.9, ("main", 5): 0.94, ("main", 9): 0.05}
    (first, *more) = logitbank.options(runs_of_shares(tmp_path / "a", runs)).findings
    text = "Answer probability 0.060 → 0.940 at step 5 → 0.050 from step 0 to step 9."
    assert first.text == text
    assert any("highest 0.940 at step 5." in str(each) for each in more)
    runs[("main", 4)] = runs[("main", 5)] = 0.07
    for each in logitbank.options(runs_of_shares(tmp_path / "b", runs, spread=0.04)).findings:
        assert not each.extreme
        assert each.text.count("→") <= 1


def test_no_headline_says_that_a_number_becomes_itself(tmp_path: Path) -> None:
    runs = {("main", 0): 0.1, ("main", 9): 0.1}
    (first, *_) = logitbank.options(runs_of_shares(tmp_path / "b", runs)).findings
    assert first.text == "Accuracy is 0.0% at step 9."


def grouped_bank(path: Path, values: dict[int, np.ndarray], group: Sequence[str | None]) -> Bank:
    """One prompt per log-odds of the answer "yes", at each step; with a column `job`."""
    bank = Bank.create(path)
    queries = QuerySet("ab" * 32, tuple(Query((1, 2 + at), 1) for at in range(len(group))))
    bank.add_query_set(queries)
    rows = [
        {"prompt_id": f"p{at:02}", "piece": 0, "text": f"{at}", "answer": "yes", "option": option,
         "continuation": f" {option}", "token": token, "is_answer": option == "yes",
         "query_set": queries.name, "row": at, "job": job, "note": f"n{at}"}
        for at, job in enumerate(group)
        for option, token in (("yes", 0), ("no", 1))
    ]  # fmt: skip
    schema = {**PROMPTS_SCHEMA, "job": pl.String(), "note": pl.String()}
    bank.add_prompts("jobs", pl.DataFrame(rows, schema=schema))
    for step, odds in values.items():
        logits = np.stack([odds, np.zeros(len(odds)), np.full(len(odds), -9.0)], axis=1)
        checkpoint = CheckpointId("m", step=step)
        bank.deposit(logits.astype(np.float32), checkpoint=checkpoint, query_set=queries.name)
    return bank


def test_groups_of_prompts_have_values_differences_and_changes(tmp_path: Path) -> None:
    """20 nurses and 20 pilots; 18 and 10 are right at step 8, and 10 of each at step 0."""
    rng = np.random.default_rng(2)
    size = rng.uniform(0.5, 2, 40)
    right = {0: [True, False] * 20, 8: [True] * 18 + [False] * 2 + [True, False] * 10}
    odds = {step: np.where(each, size, -size) for step, each in right.items()}
    bank = grouped_bank(tmp_path / "b", odds, ["nurse"] * 20 + ["pilot"] * 20)
    study = logitbank.options(bank, group_by="job")
    table = study.result.measures.filter(step=8)
    rows = table.filter(measure="accuracy").rows_by_key(["group"], named=True, unique=True)
    nurse, pilot = rows["nurse"], rows["pilot"]
    assert (nurse["value"], pilot["value"], rows["all"]["value"]) == (0.9, 0.5, 0.7)
    (apart,) = table.filter(measure="accuracy, nurse minus pilot").iter_rows(named=True)
    assert (nurse["items"], pilot["items"], apart["items"]) == (20, 20, 40)
    wilson = [binomtest(k, 20).proportion_ci(method="wilson") for k in (18, 10)]
    low = 0.4 - np.hypot(0.9 - wilson[0].low, wilson[1].high - 0.5)
    high = 0.4 + np.hypot(wilson[0].high - 0.9, 0.5 - wilson[1].low)
    assert (apart["value"], apart["low"], apart["high"]) == pytest.approx((0.4, low, high))
    assert apart["from_baseline"] == pytest.approx(0.4)
    p = {step: 1 / (1 + np.exp(-each)) for step, each in odds.items()}
    of_option = table.filter(measure="option_probability, nurse minus pilot", option="yes")
    sides = p[8][:20], p[8][20:]
    test = ttest_ind(*sides).confidence_interval()
    found = of_option.row(0, named=True)
    assert found["value"] == pytest.approx(sides[0].mean() - sides[1].mean(), rel=1e-5)
    assert (found["low"], found["high"]) == pytest.approx((test.low, test.high), rel=1e-5)
    texts = [each.text for each in study.findings]
    assert "Accuracy, lowest: group pilot, at step 8" in texts
    assert "Accuracy, nurse minus pilot at step 8" in texts
    assert "Accuracy, nurse minus pilot, change to step 8" in texts
    assert {*study.charts} == {"measures", "by_option"}


def test_more_than_two_groups_are_compared_with_the_mean_of_the_others(tmp_path: Path) -> None:
    jobs = ["a"] * 12 + ["b"] * 12 + ["c"] * 12 + [None] * 4
    odds = np.r_[np.full(12, 1.0), np.full(24, -1.0), np.full(4, 1.0)]
    bank = grouped_bank(tmp_path / "b", {0: odds}, jobs)
    table = logitbank.options(bank, group_by="job").result.measures
    apart = table.filter(pl.col("measure").str.starts_with("accuracy, "), group="all")
    names = apart["measure"].str.strip_prefix("accuracy, ").str.strip_suffix(" minus others")
    assert dict(zip(names, apart["value"], strict=True)) == {"a": 1.0, "b": -0.5, "c": -0.5}
    assert apart["items"].to_list() == [36] * 3
    assert {*table["group"]} == {"all", "a", "b", "c"}


@pytest.mark.parametrize(
    ("column", "message"),
    [("nothing", "not a column of jobs. Columns: job"), ("note", "not a column of groups.*: job"),
     ("option", "not a column of groups")],
)  # fmt: skip
def test_a_column_that_cannot_group_is_refused_with_those_that_can(
    tmp_path: Path, column: str, message: str
) -> None:
    bank = grouped_bank(tmp_path / "b", {0: np.ones(12)}, ["a", "b"] * 6)
    with pytest.raises(UsageError, match=message):
        logitbank.options(bank, group_by=column)
