"""Prompts in several templates: means with the uncertainty of items and templates, and orders."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy import stats

from bench.errors import templates_coverage
from logitbank.analysis import Family, Items, Measure, Scores, gather_items, register
from logitbank.analysis.families.gest import gest
from logitbank.analysis.families.options import options
from logitbank.analysis.family import REGISTERED
from logitbank.analysis.frames.choose import with_columns
from logitbank.store import Bank, CheckpointId, Query, QuerySet
from logitbank.store.format.schema import PROMPTS_SCHEMA
from tests.support import gest_cases
from tests.support.evaluation_banks import VOCAB

pytestmark = pytest.mark.numerical

SENTENCES = 40
YES, NO = 1, 2


def add_prompts(bank: Bank, templates: Sequence[str], *, nested: bool = False) -> str:
    """Each sentence in each template; or, nested, sentences of its own in each template."""
    places = [(name, i) for name in templates for i in range(SENTENCES)]
    queries = QuerySet("ab" * 32, tuple(Query((5, at), 1) for at in range(len(places))))
    rows = [
        (f"{name}-{i}", None, 0, "text", "yes", label, f" {label}", token, label == "yes",
         queries.name, at, name, f"{name * nested}{i}")
        for at, (name, i) in enumerate(places)
        for label, token in (("yes", YES), ("no", NO))
    ]  # fmt: skip
    own = {"template": pl.String, "sentence_id": pl.String}
    bank.add_query_set(queries)
    bank.add_prompts("own", pl.DataFrame(rows, dict(PROMPTS_SCHEMA) | own, orient="row"))
    return queries.name


def deposit(bank: Bank, queries: str, odds: np.ndarray, model: str, step: int) -> None:
    """`odds` (templates, sentences) of yes against no."""
    logits = np.full((odds.size, VOCAB), -5.0, np.float32)
    logits[:, YES], logits[:, NO] = odds.ravel(), 0
    bank.deposit(
        logits, checkpoint=CheckpointId(model, step=step), query_set=queries, dtype="float32"
    )


def drawn(seed: int, templates: int, skill: float = 0.0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    effects = rng.normal(0, 0.7, (templates, 1)) + rng.normal(0, 1, SENTENCES)
    odds: np.ndarray = skill + effects + rng.normal(0, 0.5, (templates, SENTENCES))
    return odds.astype(np.float32)


@pytest.fixture
def odds_family() -> Iterator[Family]:
    """A user's family: the log-odds of yes."""

    def items(scores: Scores) -> Items:
        return gather_items(
            frame.group_by("model", "run", "step", "prompt_id", "sentence_id")
            .agg(value=(pl.col("logprob") * pl.when(option="yes").then(1).otherwise(-1)).sum())
            .rename({"prompt_id": "item", "sentence_id": "cluster"})
            .collect()
            for frame in scores.frames()
        )

    yield register(
        Family(
            name="odds", title="Odds", description="Log-odds.", prompts=with_columns("template"),
            items=items, measures=(Measure(name="odds", text="Log-odds of yes"),), item="sentence",
        )
    )  # fmt: skip
    REGISTERED.pop("odds")


@pytest.mark.parametrize("nested", [False, True])
def test_the_interval_is_that_of_items_and_templates(
    tmp_path: Path, odds_family: Family, nested: bool
) -> None:
    """Against mean squares of the two-way layout; and of sentences that are nested in templates."""
    bank, values = Bank.create(tmp_path / "b"), drawn(1, 5)
    queries = add_prompts(bank, "abcde", nested=nested)
    deposit(bank, queries, drawn(2, 5), "m", 0)
    deposit(bank, queries, values, "m", 8)
    study = odds_family.analyze(bank)
    table = study.tables["templates"]
    assert {*table["step"]} == {8}, "the last checkpoint"
    whole, *each = table.iter_rows(named=True)
    means = values.mean(axis=1).astype(float)
    assert [row["template"] for row in each] == [*"abcde"]
    assert [row["value"] for row in each] == pytest.approx(list(means), abs=1e-5)
    for row, own in zip(each, values, strict=True):
        half = stats.t.ppf(0.975, SENTENCES - 1) * stats.sem(own)
        assert row["high"] - row["low"] == pytest.approx(2 * half, rel=1e-4)
    t, c = values.shape
    of_sentences = values.mean(axis=0)
    rest = values - means[:, None] - of_sentences + values.mean()
    of_templates, of_items = means.var(ddof=1) / t, of_sentences.var(ddof=1) / c
    both = (rest**2).sum() / ((t - 1) * (c - 1) * t * c)
    variance = of_templates + of_items - both
    if nested:  # the deviation of means contains that of their own sentences
        variance, of_items = of_templates, (values.var(axis=1, ddof=1) / c).sum() / t**2
    degrees = variance**2 / (of_templates**2 / (t - 1) + of_items**2 / (c - 1))
    half = stats.t.ppf(0.975, degrees) * variance**0.5
    assert whole["template"] == "all"
    assert whole["value"] == pytest.approx(means.mean(), abs=1e-5)
    assert whole["sd"] == pytest.approx(means.std(ddof=1), abs=1e-5)
    # Clusters of a part are corrected by their leverage, C / (C - 1), as everywhere.
    assert whole["high"] - whole["low"] == pytest.approx(2 * half, rel=0.01)
    assert (whole["templates"], whole["items"]) == (5, 200)
    assert whole["clusters"] == (200 if nested else 40)


def test_a_change_of_order_between_templates_is_said(tmp_path: Path) -> None:
    bank = Bank.create(tmp_path / "b")
    queries = add_prompts(bank, "abcd")
    shares = {"one": (30, 20, 10, 20), "two": (20, 25, 10, 20)}
    for model, right in shares.items():
        odds = np.array([[1.0 if i < n else -1.0 for i in range(SENTENCES)] for n in right])
        deposit(bank, queries, odds, model, 8)
    study = options(bank)
    table = study.tables["templates"].filter(score="accuracy")
    found = {(r["model"], r["template"]): r["value"] for r in table.iter_rows(named=True)}
    assert {key: value for key, value in found.items() if key[1] != "all"} == {
        (model, name): n / SENTENCES
        for model, right in shares.items() for name, n in zip("abcd", right, strict=True)
    }  # fmt: skip
    assert found["one", "all"] == pytest.approx(80 / 160)
    (order,) = [str(each) for each in study.findings if "order" in each.text]
    assert order == (
        "Accuracy: the order of both models changes between templates. one minus two is "
        "+25.0% in template a and −12.5% in template b."
    )
    (mean,) = [each for each in study.findings if each.text.startswith("one: Accuracy, mean over")]
    assert (mean.n, mean.note) == (
        "4 templates × 40 prompts",
        "standard deviation between templates 20.4%",
    )
    assert 0 < mean.low < 0.5 < mean.high < 1  # type: ignore[operator]


def test_fewer_than_four_templates_are_too_few_for_an_interval(tmp_path: Path) -> None:
    """GEST's two of causal models: the mean is that of the family's table."""
    study = gest(gest_cases.make_bank(tmp_path / "b"))
    table = study.tables["templates"].filter(run="seed1")
    rates = study.tables["rates"].filter(run="seed1", step=8)
    assert table["template"].to_list() == ["all", "1", "2"]
    of_rates = dict(rates.select("template", "rate").rows())
    assert dict(table.select("template", "value").rows()) == pytest.approx(of_rates)
    whole = table.row(0, named=True)
    assert np.isnan(whole["low"])
    assert np.isfinite(table["low"].tail(2).to_list()).all()
    noted = [each.note for each in study.findings if "mean over templates" in each.text]
    assert noted == ["interval: needs 4 templates"] * 2


def test_prompts_of_one_template_or_of_one_each_have_no_table(tmp_path: Path) -> None:
    for names in (["a"], [f"{at:03}" for at in range(101)]):
        bank = Bank.create(tmp_path / str(len(names)))
        queries = add_prompts(bank, names)
        deposit(bank, queries, drawn(1, len(names)), "m", 8)
        assert "templates" not in options(bank).tables


def test_coverage_of_four_to_twenty_templates() -> None:
    """The short form of `python -m bench errors`: three standard errors of 200 data sets."""
    for rate in templates_coverage((4, 8, 20), data_sets=200):
        assert rate.share >= 0.93 - 3 * rate.error, rate
