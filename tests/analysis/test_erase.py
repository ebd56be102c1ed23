"""A concept erased from hidden states: the new logits by the rank-one formula, and the table."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy.special import log_softmax

from logitbank.analysis.debias.compare import debias_compare
from logitbank.analysis.debias.erase import debias_erase, fit
from logitbank.errors import UsageError
from logitbank.store import (
    Bank,
    BlockData,
    CheckpointId,
    DepositSpec,
    Keep,
    Layout,
    OutputHead,
    Query,
    QuerySet,
)  # fmt: skip
from logitbank.store.format.schema import PROMPTS_SCHEMA, SCORES_SCHEMA
from tests.support import unqover_cases
from tests.support.command import Call
from tests.support.stereoset_cases import EXAMPLES, prompt_rows

pytestmark = pytest.mark.numerical

WIDTH, SENTENCES = 6, 40
GENDERS = np.array(["female", "male"])[np.arange(SENTENCES) % 2]


def states(seed: int, number: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(number, WIDTH)).astype(np.float32)


def gendered() -> np.ndarray:
    lean = 2 * (GENDERS == "male")[:, None] * np.arange(WIDTH)
    return (states(0, SENTENCES) @ np.triu(np.ones((WIDTH, WIDTH))) + lean).astype(np.float32)


def make_bank(path: Path) -> tuple[Bank, OutputHead]:
    bank = Bank.create(path)
    random = np.random.default_rng(5)
    weight = random.normal(size=(unqover_cases.VOCAB, WIDTH)).astype(np.float32)
    head = OutputHead(weight, "float32", random.normal(size=len(weight)).astype(np.float32))
    sentences = QuerySet("ab" * 32, tuple(Query((7, i), 1) for i in range(SENTENCES)))
    bank.add_query_set(sentences)
    rows = [(f"s{i}", None, 0, "x", None, "w", "w", 1, None, sentences.name, i)
            for i in range(SENTENCES)]  # fmt: skip
    table = pl.DataFrame(rows, schema=PROMPTS_SCHEMA, orient="row")
    bank.add_prompts("sentences", table.with_columns(gender=pl.Series(GENDERS)))
    questions, _ = unqover_cases.add_questions(bank)
    stereo = QuerySet("ab" * 32, tuple(Query((8, i), 1) for i in range(len(EXAMPLES) * 6)))
    bank.add_query_set(stereo)
    bank.add_prompts("stereoset-intra", prompt_rows(stereo, kind="masked", task="i"))
    for seed, queries in enumerate((sentences, questions, stereo)):
        layout = Layout(len(queries), len(weight), "float32", Keep("hidden"), 64, width=WIDTH)
        made = {"weights": "ab" * 32, "tokenizer": "ab" * 32, "engine": "test"}
        heads = {queries.queries[0].head: bank.put_head(head)}
        checkpoint = CheckpointId("toy", step=8)
        spec = DepositSpec(checkpoint, queries.name, layout, len(weight), made, heads)
        own = gendered() if seed == 0 else states(seed, len(queries))
        with bank.begin(spec) as writer:
            for block in range(layout.blocks):
                rows_ = layout.rows(block)
                part = own[rows_.start : rows_.stop]
                writer.write(block, BlockData(part, scores(bank, queries, part, head, rows_)))
            writer.seal()
    return bank, head


def scores(
    bank: Bank, queries: QuerySet, part: np.ndarray, head: OutputHead, rows: range
) -> pl.DataFrame:
    from logitbank.store.tables.prompt_tables import option_tokens

    options = option_tokens(bank.path, queries.name)
    logits = head.logits(part).astype(np.float64)
    total = np.log(np.exp(logits).sum(axis=1))
    table = [
        (row, token, kind, logits[i, token], total[i],
         1 + int((logits[i] > logits[i, token]).sum()), 0, 0, 0, True)
        for i, row in enumerate(rows)
        for kind, tokens in (("option", options.of(row)), ("top", [int(logits[i].argmax())]))
        for token in tokens
    ]  # fmt: skip
    return pl.DataFrame(table, schema=SCORES_SCHEMA, orient="row", strict=False)


def without_gender(new: np.ndarray) -> np.ndarray:
    """h − δ (δᵀ Σ⁻¹ (h − mean)) / (δᵀ Σ⁻¹ δ), with δ the difference of the two means."""
    x = gendered().astype(np.float64)
    delta = x[GENDERS == "male"].mean(axis=0) - x[GENDERS == "female"].mean(axis=0)
    direction = np.linalg.solve(np.cov(x.T), delta)
    return new - np.outer((new - x.mean(axis=0)) @ direction, delta) / (delta @ direction)


def test_the_new_logits_are_those_of_states_without_the_label(tmp_path: Path, call: Call) -> None:
    bank, head = make_bank(tmp_path / "b")
    out = call("debias", "erase", bank.path, "--prompts", "sentences", "--label", "gender")
    assert out[0] == 0, out
    assert "Erased gender (2 values) from the states of toy" in out[1]
    assert bank.models == ["toy", "toy without gender"]
    erased = without_gender(states(2, len(EXAMPLES) * 6))
    expected = log_softmax(erased @ head.weight.T.astype(np.float64) + head.bias, axis=1)
    found = bank.scan("stereoset-intra", models=["toy without gender"]).collect()
    assert len(found) == len(EXAMPLES) * 6
    logprobs = [expected[row, token] for row, token in found.select("row", "token").iter_rows()]
    assert found["logprob"].to_list() == pytest.approx(logprobs, abs=1e-5)
    means = [
        fit(gendered(), GENDERS)(gendered())[g == GENDERS].mean(axis=0) for g in ("male", "female")
    ]
    np.testing.assert_allclose(*means, atol=1e-5)

    study = debias_compare(bank, [])
    rows = study.result.comparison.filter(model="toy")
    assert rows["filter"].to_list() == ["none", "erased"]
    assert rows["label"].to_list() == ["no filter", "without gender"]
    assert rows["abs_c"].null_count() == rows["icat"].null_count() == 0
    assert rows["abs_c"][0] != rows["abs_c"][1]
    assert rows["k"].to_list() == [8, None]
    assert list(study.charts) == ["icat", "lms", "ss", "abs_c"]
    again = debias_erase(bank, prompts="sentences", label="gender")
    assert again.result.comparison.equals(study.result.comparison)


def test_what_cannot_be_erased_is_refused(tmp_path: Path) -> None:
    bank, _ = make_bank(tmp_path / "b")
    for options, message in (
        ({"label": "colour"}, "'sentences' has no column 'colour'"),
        ({"label": "text"}, "The label has 1 value"),
        ({"label": "order_seed"}, "No prompt of sentences with states has a value in the column"),
    ):
        with pytest.raises(UsageError, match=message):
            debias_erase(bank, prompts="sentences", **options)
    few = Bank.create(tmp_path / "c")
    queries, rows = unqover_cases.add_questions(few)
    logits = unqover_cases.logits_of(rows, 8)
    few.deposit(logits, checkpoint=CheckpointId("toy"), query_set=queries.name)
    with pytest.raises(UsageError, match="no states of unqover-gender. Use --keep hidden"):
        debias_erase(few, prompts="unqover-gender", label="gender1")
