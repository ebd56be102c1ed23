"""Options of several tokens, compared in every way that a bank of their tokens allows."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy.stats import binomtest

import logitbank
from logitbank.analysis.families.options.metric import option_scores
from logitbank.analysis.families.options.score import MEANINGS
from logitbank.analysis.prompts.scores import PromptScores
from logitbank.errors import AbsentError, UsageError
from logitbank.store import Bank, CheckpointId, Query, QuerySet
from logitbank.store.format.schema import PROMPTS_SCHEMA
from tests.support.command import Call

TEXTS = [("a", " ab"), ("a", " cd"), ("b", " é")]
"""Option and text of each scored token: one option of two tokens, and one of a letter of two
bytes."""
LOGPROBS = np.log([0.5, 0.25, 0.3])


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
        ("byte", (0.5 * 0.25) ** (1 / 5), 0.3 ** (1 / 2)),  # "ab cd" and "é"
        ("character", (0.5 * 0.25) ** (1 / 5), 0.3),
        ("first", 0.5, 0.3),
    ],
)
def test_scores_are_those_worked_out_by_hand(bank: Bank, score: str, a: float, b: float) -> None:
    study = logitbank.options(bank, score=score)  # type: ignore[arg-type]
    shares = study.result.shares
    assert shares["option"].to_list() == ["a", "b"]
    assert shares["probability"].to_list() == pytest.approx([a, b], rel=1e-5)
    assert shares["share"].to_list() == pytest.approx([a / (a + b), b / (a + b)], rel=1e-5)
    assert shares["rank"].to_list() == [None, 2], "of one token alone"
    assert study.result.answers["accuracy"].to_list() == [float(a > b)]
    assert MEANINGS[score] in study.summary.notes  # type: ignore[index]


def test_the_command_prints_tables_and_writes_a_page(
    bank: Bank, tmp_path: Path, call: Call
) -> None:
    out = tmp_path / "out"
    arguments = ("analyze", "options", str(bank.path), "--score", "token", "--out", str(out))
    status, printed, _ = call(*arguments)
    assert status == 0
    assert "mean share of a 0.541" in " ".join(printed.split())
    assert (out / "report.html").is_file()
    assert pl.read_csv(out / "tables" / "shares.csv")["option"].to_list() == ["a", "b"]


def test_what_is_not_there_is_named(bank: Bank) -> None:
    with pytest.raises(AbsentError, match="'other'"):
        logitbank.options(bank, prompts="other")
    with pytest.raises(UsageError, match="score 'best' is unknown; use one of sum, token, byte"):
        logitbank.options(bank, score="best")  # type: ignore[arg-type]
    bank.add_prompts("second", bank.prompts("mine").collect())
    with pytest.raises(UsageError, match=r"has 2 prompt sets \(mine, second\); name one"):
        logitbank.options(bank)


def test_options_may_begin_alike_and_not_be_alike(tmp_path: Path) -> None:
    queries = QuerySet("0" * 64, (Query((1,), 0), Query((1, 2), 1)))
    made = Bank.create(tmp_path / "b.zarr")
    made.add_query_set(queries)
    rows = {"option": ["a", "a", "b", "b"], "piece": [0, 1, 0, 1], "row": [0, 1, 0, 1]}
    table = pl.DataFrame(
        rows
        | {"prompt_id": ["p"] * 4, "order_seed": [None] * 4, "text": ["t"] * 4}
        | {"answer": [None] * 4, "continuation": ["x"] * 4, "token": [2, 3, 2, 4]}
        | {"is_answer": [None] * 4, "query_set": [queries.name] * 4},
        schema_overrides=PROMPTS_SCHEMA,
    ).select(*PROMPTS_SCHEMA)
    made.add_prompts("mine", table)
    with pytest.raises(UsageError, match="'p' has options 'a' and 'b' with the same token 2"):
        made.add_prompts("other", table.with_columns(token=pl.Series([2, 3, 2, 3], dtype=pl.Int32)))


def scores_of(share: np.ndarray, sentences: list[str] | None) -> PromptScores:
    """Prompts of two options; the answer has `share` (c, p)."""
    c, p = share.shape
    prompts = pl.DataFrame(
        {"prompt_id": [str(at) for at in range(p)], "order_seed": pl.Series([None] * p, dtype=int)}
    )
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
        found = option_scores([scores_of(share, sentences)])
        for name, table in (
            ("share", found.shares.filter(option="a")),
            ("accuracy", found.answers),
        ):
            assert set(table["sentences"]) == {20 if sentences else 100}
            inside = (table["low"] <= truth[name]) & (table["high"] >= truth[name])
            covered.append(inside.mean())
    assert min(covered[:2]) > 0.91
    assert max(covered[2:]) < 0.75, "as if all prompts were independent"


def test_without_sentences_accuracy_has_wilsons_interval_of_all_prompts() -> None:
    share = np.where(np.arange(40) < 30, 0.9, 0.1)[None]
    row = option_scores([scores_of(share, None)]).answers.row(0, named=True)
    expected = binomtest(30, 40).proportion_ci(method="wilson")
    assert (row["low"], row["high"]) == pytest.approx((expected.low, expected.high))
    alike = option_scores([scores_of(np.full((1, 40), 0.9), None)])
    assert alike.shares["low"].to_list() == [None, None]
    assert alike.answers["low"][0] > 0.9
