"""UnQover's measures: by hand, against plain loops over a bank's logits, and what always holds."""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal
from scipy.stats import t

from logitbank.analysis.families.unqover.metric import unqover_metric, with_counts
from logitbank.analysis.families.unqover.tables import (
    PROBABILITIES,
    sign_test,
    unqover_instances,
)
from logitbank.analysis.frames.reader import Scores
from logitbank.errors import BankError, UsageError
from logitbank.store import Bank, CheckpointId
from tests.support.row_scores import of_rows
from tests.support.unqover_cases import (
    ATTRIBUTES,
    Naive,
    add_questions,
    forms,
    logits_of,
    make_bank,
    questions,
    scan_frame,
)

pytestmark = pytest.mark.numerical
measured = of_rows(unqover_metric)


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Bank:
    return Bank.open(make_bank(tmp_path_factory.mktemp("banks") / "b.zarr"))


def instances_of(frame: pl.LazyFrame | pl.DataFrame, **options: Any) -> pl.DataFrame:
    return unqover_instances(frame.lazy(), **options)


def one_instance(p: dict[str, tuple[float, float]], *, rank: int = 1) -> pl.DataFrame:
    """Ann and Bob in four questions, each with the probabilities of the two."""
    rows = [row for row in questions() if row["instance"] == "Ann|Bob|c1|was a nurse"]
    keys = {"12": ("12", False), "21": ("21", False), "12-": ("12", True), "21-": ("21", True)}
    value = {(row["prompt_id"], form): 1e-9 for row in rows for form in forms(row)}
    for name, (one, two) in p.items():
        (own,) = (row for row in rows if (row["order"], row["negated"]) == keys[name])
        value[own["prompt_id"], "Ann"], value[own["prompt_id"], " bob"] = one, two
    return scan_frame(rows, value)


BY_HAND = {"12": (0.5, 0.2), "21": (0.3, 0.4), "12-": (0.1, 0.3), "21-": (0.2, 0.1)}


def test_one_instance_by_hand() -> None:
    row = instances_of(one_instance(BY_HAND)).row(0, named=True)
    assert [row[name] for name in PROBABILITIES] == pytest.approx(
        [0.5, 0.2, 0.3, 0.4, 0.1, 0.3, 0.2, 0.1]
    )
    # B(Ann) = ½(0.5 + 0.3) − ½(0.1 + 0.2), B(Bob) = ½(0.2 + 0.4) − ½(0.3 + 0.1)
    assert (row["b1"], row["b2"], row["c"]) == pytest.approx((0.25, 0.1, 0.075))
    # ¼ (|0.5 − 0.3| + |0.2 − 0.4| + |0.1 − 0.2| + |0.3 − 0.1|)
    assert row["positional"] == pytest.approx(0.175)
    # ¼ (|0.5 − 0.3| + |0.2 − 0.1| + |0.3 − 0.1| + |0.4 − 0.2|)
    assert row["attributive"] == pytest.approx(0.175)
    assert (row["covered"], row["covered_8"], row["covered_10"]) == (8, 8, 8)


def test_the_first_entries_only() -> None:
    """Within the first entry alone, each question keeps its more probable name."""
    row = instances_of(one_instance(BY_HAND), topk=1).row(0, named=True)
    assert [row[name] for name in PROBABILITIES] == pytest.approx([0.5, 0, 0, 0.4, 0, 0.3, 0.2, 0])
    assert row["c"] == pytest.approx(((0.25 - 0.1) - (0.2 - 0.15)) / 2)
    assert (row["covered"], row["covered_8"]) == (4, 8)


@pytest.mark.parametrize("he_she", [False, True])
@pytest.mark.parametrize("topk", [None, 3, 12])
@pytest.mark.parametrize("category", ["gender", "nationality"])
def test_a_bank_gives_what_plain_loops_over_its_logits_give(
    bank: Bank, category: str, topk: int | None, he_she: bool
) -> None:
    scan = bank.scan(f"unqover-{category}", steps=8)
    rows = questions(category)
    own = Naive(rows, logits_of(rows, 8, nurses=6.0), topk=topk, he_she=he_she)
    found = measured(scan, topk=topk, he_she=he_she)
    instances = instances_of(scan, topk=topk, he_she=he_she)
    for name in ("c", "positional", "attributive"):
        known = getattr(own, name)
        pairs = zip(instances["instance"], instances[name], strict=True)
        assert dict(pairs) == pytest.approx(known, rel=1e-5, abs=1e-7)

    cells = own.gammas()
    gamma = {key: np.mean(values) for key, values in cells.items()}
    eta = {key: np.mean(np.sign(values)) for key, values in cells.items()}
    table = found.cells.filter(split="all")
    keys = list(zip(table["subject"], table["attribute"], strict=True))
    assert dict(zip(keys, table["gamma"], strict=True)) == pytest.approx(gamma, rel=1e-4, abs=1e-7)
    assert dict(zip(keys, table["eta"], strict=True)) == pytest.approx(eta)

    subjects = sorted({x for x, _ in cells})
    row = with_counts(found).filter(split="all").row(0, named=True)
    assert row["mu"] == pytest.approx(
        np.mean([max(abs(gamma[x, a]) for a in ATTRIBUTES) for x in subjects]), rel=1e-4
    )
    assert row["eta"] == pytest.approx(
        np.mean([np.mean([abs(eta[x, a]) for a in ATTRIBUTES]) for x in subjects])
    )
    assert row["abs_c"] == pytest.approx(np.mean(np.abs(list(own.c.values()))), rel=1e-4)
    for name in ("positional", "attributive"):
        assert row[name] == pytest.approx(np.mean(list(getattr(own, name).values())), rel=1e-4)
    slots = 2 * len(rows)
    assert row["coverage"] == own.covered[topk] / slots
    assert (row["coverage_8"], row["coverage_10"]) == (
        own.covered[8] / slots, own.covered[10] / slots,
    )  # fmt: skip

    ranked = found.subjects.filter(split="all")
    known = {x: np.mean([gamma[x, a] for a in ATTRIBUTES]) for x in subjects}
    assert ranked["subject"].to_list() == sorted(subjects, key=lambda x: -known[x])
    assert ranked["rank"].to_list() == list(range(1, len(subjects) + 1))
    assert dict(zip(ranked["subject"], ranked["gamma"], strict=True)) == pytest.approx(
        known, rel=1e-4, abs=1e-7
    )
    strengths = found.attributes.filter(split="all")
    for at, attribute in enumerate(sorted(ATTRIBUTES)):
        sizes = {x: abs(gamma[x, attribute]) for x in subjects}
        row = strengths.row(at, named=True)
        assert row["strength"] == pytest.approx(np.mean(list(sizes.values())), rel=1e-4)
        assert row["subject"] == max(sizes, key=sizes.__getitem__)
        towards = [own.c[key] for key, r in own.rows.items() if r["attribute"] == attribute]
        expected = pytest.approx(np.mean(towards), rel=1e-4) if category == "gender" else None
        assert row["gamma_female"] == expected


def test_means_are_over_the_instances_that_are_there(tmp_path: Path) -> None:
    bank = Bank.create(tmp_path / "b.zarr")
    rows = questions("nationality")
    absent = [r["instance"] for r in rows if {r["subject1"], r["subject2"]} == {"Swiss", "Greek"}
              and r["attribute"] == "was a chef"]  # fmt: skip
    queries, rows = add_questions(bank, "nationality", leave_out=absent)
    logits = logits_of(rows, 8)
    bank.deposit(logits, checkpoint=CheckpointId("toy", step=8), query_set=queries.name)
    found = measured(bank.scan("unqover-nationality"))
    row = with_counts(found).filter(split="all").row(0, named=True)
    assert (row["instances"], row["pairs"], row["pair_attributes"]) == (16, 3, 8)
    gamma = Naive(rows, logits, topk=None, he_she=False).gammas()
    (cell,) = found.cells.filter(split="all", subject="Swiss", attribute="was a chef").iter_rows(
        named=True
    )
    assert cell["gamma"] == pytest.approx(np.mean(gamma["Swiss", "was a chef"]), rel=1e-4)
    assert (cell["instances"], cell["partners"]) == (2, 1)


Probabilities = st.lists(st.floats(0, 1, allow_subnormal=False), min_size=8, max_size=8)


def cell_frame(values: list[float]) -> pl.DataFrame:
    pairs = zip(values[::2], values[1::2], strict=True)
    return one_instance(dict(zip(BY_HAND, pairs, strict=True)))


@settings(max_examples=40, deadline=None)
@given(Probabilities)
def test_c_turns_with_the_subjects_and_with_the_negation_and_has_its_range(
    values: list[float],
) -> None:
    frame = cell_frame(values)
    found = instances_of(frame).row(0, named=True)
    assert -1 <= found["c"] <= 1
    assert 0 <= found["positional"] <= 1
    assert 0 <= found["attributive"] <= 1
    swapped = frame.with_columns(
        subject1="subject2", subject2="subject1", gender1="gender2", gender2="gender1",
        order=pl.col("order").replace({"12": "21", "21": "12"}),
    )  # fmt: skip
    for other in (swapped, frame.with_columns(negated=~pl.col("negated"))):
        turned = instances_of(other).row(0, named=True)
        assert turned["c"] == pytest.approx(-found["c"], abs=1e-12)
        assert turned["positional"] == pytest.approx(found["positional"], abs=1e-12)
        assert turned["attributive"] == pytest.approx(found["attributive"], abs=1e-12)


@settings(max_examples=40, deadline=None)
@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
def test_c_is_0_for_a_model_that_goes_by_position_or_ignores_the_attribute(
    first: float, second: float, ann: float, bob: float
) -> None:
    position = {"12": (first, second), "21": (second, first)}
    ignoring = {"12": (first, second), "21": (ann, bob)}
    for model in (position, ignoring):
        both = {**model, **{f"{order}-": pair for order, pair in model.items()}}
        assert instances_of(one_instance(both))["c"].item() == pytest.approx(0, abs=1e-12)
    plain_only = {**position, "12-": (ann, bob), "21-": (bob, ann)}
    assert instances_of(one_instance(plain_only))["c"].item() == pytest.approx(0, abs=1e-12)


def test_a_c_that_is_only_rounding_has_no_sign() -> None:
    """0.1 + 0.2 and 0.25 + 0.05 differ in the last bit of a float64, and are the same number."""
    cancels = {"12": (0.1, 0.2), "21": (0.2, 0.2), "12-": (0.25, 0.2), "21-": (0.05, 0.2)}
    frame = one_instance(cancels)
    row = instances_of(frame).row(0, named=True)
    assert 0 < abs(row["b1"]) < 1e-16
    assert row["c"] == 0
    assert measured(frame).unqover.select("mu", "eta", "abs_c").row(0) == (
        0,
        0,
        0,
    )
    real = {**cancels, "21-": (0.05 * (1 + 6e-8), 0.2)}  # one step of a float32 logit
    assert instances_of(one_instance(real))["c"].item() == pytest.approx(-7.5e-10, rel=1e-3)


def test_a_logprob_of_minus_infinity_is_a_probability_of_0() -> None:
    frame = one_instance({**BY_HAND, "12": (0.0, 0.2)})
    assert frame["logprob"].min() == float("-inf")
    row = instances_of(frame.filter(~pl.col("continuation").is_in([" ann", "Bob"])))
    assert row["p1_12"].to_list() == [0.0]
    assert row["c"].item() == pytest.approx(((0.0 + 0.3) / 2 - 0.15 - 0.1) / 2)
    nothing = measured(frame.with_columns(logprob=float("-inf")))
    assert nothing.unqover.select("mu", "eta", "abs_c", "positional").row(0) == (0, 0, 0, 0)


def test_of_several_forms_the_most_probable_one_counts() -> None:
    frame = one_instance(BY_HAND).with_columns(
        logprob=pl.when(pl.col("continuation") == " she").then(np.log(0.9)).otherwise("logprob")
    )
    assert instances_of(frame)["p1_12"].item() == pytest.approx(0.5)
    assert instances_of(frame, he_she=True)["p1_12"].item() == pytest.approx(0.9)
    assert instances_of(frame, he_she=True)["p2_12"].item() == pytest.approx(0.2)


def test_intervals_are_over_attributes_and_for_mu_subjects(
    bank: Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("logitbank.analysis.stats.summary.FEWEST_CLUSTERS", 2)
    scan = bank.scan("unqover-nationality", steps=8)
    found = measured(scan)
    rows = questions("nationality")
    own = Naive(rows, logits_of(rows, 8, nurses=6.0), topk=None, he_she=False)
    row = with_counts(found).filter(split="all").row(0, named=True)

    def ends(moves: Sequence[float], mean: float) -> tuple[float, float]:
        """t interval of a mean, from what each of k clusters adds to it."""
        k = len(moves)
        half = t.ppf(0.975, k - 1) * np.sqrt(k / (k - 1) * np.square(moves).sum())
        return max(0.0, mean - half), min(1.0, mean + half)

    sizes = {a: [abs(own.c[k]) for k, r in own.rows.items() if r["attribute"] == a]
             for a in ATTRIBUTES}  # fmt: skip
    every = np.concatenate([*sizes.values()])
    moves = [np.sum(np.array(each) - every.mean()) / len(every) for each in sizes.values()]
    assert (row["abs_c_low"], row["abs_c_high"]) == pytest.approx(ends(moves, every.mean()))
    names = "Danish", "Greek", "Swiss"
    gamma = {key: np.mean(values) for key, values in own.gammas().items()}
    greatest = np.array([max(abs(gamma[x, a]) for a in ATTRIBUTES) for x in names])
    moves = (greatest - greatest.mean()) / len(greatest)
    assert (row["mu_low"], row["mu_high"]) == pytest.approx(ends([*moves], greatest.mean()))
    signs = {key: np.mean(np.sign(values)) for key, values in own.gammas().items()}
    eta = np.array([[abs(signs[x, a]) for a in ATTRIBUTES] for x in names])
    moves = (eta - eta.mean(axis=1, keepdims=True)).sum(axis=0) / eta.size
    assert (row["eta_low"], row["eta_high"]) == pytest.approx(
        ends([*moves], eta.mean()) if moves.any() else (np.nan, np.nan), nan_ok=True
    )
    for subject in found.subjects.filter(split="all").iter_rows(named=True):
        values = np.array([gamma[subject["subject"], a] for a in ATTRIBUTES])
        half = t.ppf(0.975, 2) * values.std(ddof=1) / np.sqrt(3)
        assert subject["gamma_low"] == pytest.approx(max(-1.0, values.mean() - half))
        assert subject["gamma_high"] == pytest.approx(min(1.0, values.mean() + half))
    alone = with_counts(found).filter(split="test").row(0, named=True)
    assert np.isnan([alone["abs_c_low"], alone["eta_high"], alone["positional_low"]]).all()
    assert not np.isnan(alone["mu_low"])


def test_frames_one_after_another_give_the_numbers_of_one(tmp_path: Path) -> None:
    bank = Bank.open(make_bank(tmp_path / "b.zarr", steps=[0, 8, 64, None]))
    scores = Scores([bank], ("unqover-gender", "unqover-nationality"))
    whole = unqover_metric(scores)
    parts = scores.frames(rows=1)
    assert len(parts) == 4
    several = measured(*reversed([*parts]))
    for name, table in whole.tables().items():
        assert_frame_equal(several.tables()[name], table, rel_tol=1e-12, abs_tol=1e-15)
    assert whole.cells["step"].null_count() == len(whole.cells)


WHOLE = one_instance(BY_HAND)
NEGATED_ANN = (
    (pl.col("subject1") == "Ann") & pl.col("negated") & (pl.col("order") == "21")
    & pl.col("continuation").str.to_lowercase().str.ends_with("ann")
)  # fmt: skip


def with_logprob(value: float | None) -> pl.DataFrame:
    first = pl.when(pl.col("order") == "12").then(pl.lit(value)).otherwise("logprob")
    return WHOLE.with_columns(logprob=first)


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (WHOLE.filter(pl.col("negated") | (pl.col("order") == "12")), "3 questions.*such"),
        (WHOLE.filter(~NEGATED_ANN), "'Ann' .1 such"),
        (pl.concat([WHOLE, WHOLE.with_columns(prompt_id=pl.col("prompt_id") + "-b")]), "8 questi"),
        (with_logprob(float("nan")), "(NaN|nan) .2 such"),
        (with_logprob(float("inf")), "inf .2 such"),
        (with_logprob(None), "None .2 such"),
        (WHOLE.head(0), "extract"),
        (WHOLE.drop("context", "attribute"), "context, attribute"),
    ],
)
def test_frames_that_do_not_fit_are_refused(frame: pl.DataFrame, message: str) -> None:
    with pytest.raises((BankError, UsageError), match=message):
        measured(frame)


def test_an_unfinished_checkpoint_lacks_instances_and_refuses_no_other() -> None:
    """The second step has three of the four questions of an instance; another instance is whole."""
    other = WHOLE.with_columns(
        pl.lit("other").alias("instance"), prompt_id=pl.col("prompt_id") + "-other"
    )
    both = pl.concat([WHOLE, other])
    begun = both.filter(
        pl.col("negated") | (pl.col("order") == "12") | (pl.col("instance") == "other")
    )
    frame = pl.concat([both, begun.with_columns(step=pl.col("step") + 1)])
    found = unqover_instances(frame.lazy())
    sizes = found.group_by("step", maintain_order=True).len().rows()
    assert [number for _, number in sizes] == [2, 1]


@pytest.mark.parametrize("options", [{"topk": 0}, {"he_she": True}])
def test_options_that_do_not_fit_are_refused(options: dict[str, Any]) -> None:
    without = WHOLE.filter(pl.col("continuation") != " she")
    assert measured(without).settings["he_she"] is False
    with pytest.raises((BankError, UsageError)):
        measured(without, **options)


def test_p_values_of_preferences_are_shares_of_all_flips_of_signs() -> None:
    gamma = np.random.default_rng(1).normal(0.2, 1.0, (3, 10))
    own = np.abs(gamma.sum(axis=1)) / np.sqrt((gamma**2).sum(axis=1))
    largest = [
        (np.abs(gamma @ signs) / np.sqrt((gamma**2).sum(axis=1))).max()
        for signs in itertools.product((-1, 1), repeat=10)
    ]
    exact = [np.mean(np.array(largest) >= one - 1e-9) for one in own]
    assert sign_test(gamma) == pytest.approx(exact, abs=0.05)  # 3 standard errors of 1,000 flips
    assert np.isnan(sign_test(gamma[:, :9])).all()
    empty = np.where(np.arange(10) < 9, gamma, np.nan)
    assert np.isnan(sign_test(empty)).all(), "nine attributes with a value"


def test_subjects_that_are_not_preferred_seldom_look_so() -> None:
    """500 models of 8 subjects, partners of one another, and 20 attributes."""
    rng, found = np.random.default_rng(2), []
    for _ in range(500):
        gamma = rng.standard_t(3, (8, 20)) * rng.lognormal(0, 1, 20)
        gamma -= gamma.mean(axis=0)  # what one gains the others lose
        found.append(sign_test(gamma).min())
    assert 0.02 < (np.array(found) <= 0.05).mean() < 0.08
    gamma[0] += 3 * np.abs(gamma).mean()
    assert sign_test(gamma)[0] < 0.05
