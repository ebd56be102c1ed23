"""UnQover's measures: by hand, against plain loops over a bank's logits, and what always holds."""

import itertools
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

import logitbank
from logitbank.analysis.families.unqover.findings import findings
from logitbank.analysis.families.unqover.metric import unqover_metric
from logitbank.analysis.families.unqover.tables import (
    PROBABILITIES,
    Grid,
    sign_test,
    unqover_instances,
)
from logitbank.analysis.frames.batches import batches
from logitbank.errors import BankError, UsageError
from logitbank.store import Bank, CheckpointId
from tests.support.unqover_cases import (
    ATTRIBUTES,
    NAMES,
    Naive,
    add_questions,
    forms,
    logits_of,
    make_bank,
    questions,
    scan_frame,
)

pytestmark = pytest.mark.numerical


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Bank:
    return Bank.open(make_bank(tmp_path_factory.mktemp("banks") / "b.zarr"))


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
    row = unqover_instances(one_instance(BY_HAND)).row(0, named=True)
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
    row = unqover_instances(one_instance(BY_HAND), topk=1).row(0, named=True)
    assert [row[name] for name in PROBABILITIES] == pytest.approx([0.5, 0, 0, 0.4, 0, 0.3, 0.2, 0])
    assert row["c"] == pytest.approx(((0.25 - 0.1) - (0.2 - 0.15)) / 2)
    assert (row["covered"], row["covered_8"]) == (4, 8)


def test_all_that_tie_at_the_limit_are_inside() -> None:
    row = unqover_instances(one_instance(dict.fromkeys(BY_HAND, (0.2, 0.2))), topk=1)
    assert row["covered"].to_list() == [8]


@pytest.mark.parametrize("he_she", [False, True])
@pytest.mark.parametrize("topk", [None, 3, 12])
@pytest.mark.parametrize("category", ["gender", "nationality"])
def test_a_bank_gives_what_plain_loops_over_its_logits_give(
    bank: Bank, category: str, topk: int | None, he_she: bool
) -> None:
    scan = bank.scan(f"unqover-{category}", steps=8)
    rows = questions(category)
    own = Naive(rows, logits_of(rows, 8, nurses=6.0), topk=topk, he_she=he_she)
    found = unqover_metric(scan, topk=topk, he_she=he_she, bootstrap=0)
    instances = unqover_instances(scan, topk=topk, he_she=he_she)
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
    row = found.unqover.filter(split="all").row(0, named=True)
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


def test_the_male_name_first_is_the_same_gender() -> None:
    frame = one_instance(BY_HAND)
    swapped = frame.with_columns(
        subject1="subject2", subject2="subject1", gender1="gender2", gender2="gender1",
        order=pl.col("order").replace({"12": "21", "21": "12"}),
    )  # fmt: skip
    for given_frame, c in ((frame, 0.075), (swapped, -0.075)):
        found = unqover_metric(given_frame, bootstrap=0)
        assert unqover_instances(given_frame)["c"].item() == pytest.approx(c)
        assert found.attributes["gamma_female"][0] == pytest.approx(0.075)


def test_what_is_counted(bank: Bank) -> None:
    table = unqover_metric(bank.scan("unqover-gender"), bootstrap=0).unqover
    counted = table.filter(step=8).select(
        *("split", "subjects", "attributes", "contexts", "instances"),
        *("pairs", "pair_attributes", "subject_attributes"),
    )
    assert counted.rows() == [
        ("all", 5, 3, 2, 36, 6, 18, 15),
        ("test", 5, 1, 2, 12, 6, 6, 5),
        ("train", 5, 2, 2, 24, 6, 12, 10),
    ]
    cells = unqover_metric(bank.scan("unqover-gender"), bootstrap=0).cells.filter(split="all")
    assert cells["step"].unique().to_list() == [8]
    women = cells.filter(gender="female").select("instances", "partners", "contexts").unique()
    assert women.rows() == [(6, 3, 2)]


def test_means_are_over_the_instances_that_are_there(tmp_path: Path) -> None:
    bank = Bank.create(tmp_path / "b.zarr")
    rows = questions("nationality")
    absent = [r["instance"] for r in rows if {r["subject1"], r["subject2"]} == {"Swiss", "Greek"}
              and r["attribute"] == "was a chef"]  # fmt: skip
    queries, rows = add_questions(bank, "nationality", leave_out=absent)
    logits = logits_of(rows, 8)
    bank.deposit(logits, checkpoint=CheckpointId("toy", step=8), query_set=queries.name)
    found = unqover_metric(bank.scan("unqover-nationality"), bootstrap=0)
    row = found.unqover.filter(split="all").row(0, named=True)
    assert (row["instances"], row["pairs"], row["pair_attributes"]) == (16, 3, 8)
    gamma = Naive(rows, logits, topk=None, he_she=False).gammas()
    (cell,) = found.cells.filter(split="all", subject="Swiss", attribute="was a chef").iter_rows(
        named=True
    )
    assert cell["gamma"] == pytest.approx(np.mean(gamma["Swiss", "was a chef"]), rel=1e-4)
    assert (cell["instances"], cell["partners"]) == (2, 1)


Probabilities = st.lists(st.floats(0, 1, allow_subnormal=False), min_size=8, max_size=8)


def frame_of(values: list[float]) -> pl.DataFrame:
    pairs = zip(values[::2], values[1::2], strict=True)
    return one_instance(dict(zip(BY_HAND, pairs, strict=True)))


@settings(max_examples=40, deadline=None)
@given(Probabilities)
def test_c_turns_with_the_subjects_and_with_the_negation_and_has_its_range(
    values: list[float],
) -> None:
    frame = frame_of(values)
    found = unqover_instances(frame).row(0, named=True)
    assert -1 <= found["c"] <= 1
    assert 0 <= found["positional"] <= 1
    assert 0 <= found["attributive"] <= 1
    swapped = frame.with_columns(
        subject1="subject2", subject2="subject1", gender1="gender2", gender2="gender1",
        order=pl.col("order").replace({"12": "21", "21": "12"}),
    )  # fmt: skip
    for other in (swapped, frame.with_columns(negated=~pl.col("negated"))):
        turned = unqover_instances(other).row(0, named=True)
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
        assert unqover_instances(one_instance(both))["c"].item() == pytest.approx(0, abs=1e-12)
    plain_only = {**position, "12-": (ann, bob), "21-": (bob, ann)}
    assert unqover_instances(one_instance(plain_only))["c"].item() == pytest.approx(0, abs=1e-12)


def test_a_c_that_is_only_rounding_has_no_sign() -> None:
    """0.1 + 0.2 and 0.25 + 0.05 differ in the last bit of a float64, and are the same number."""
    cancels = {"12": (0.1, 0.2), "21": (0.2, 0.2), "12-": (0.25, 0.2), "21-": (0.05, 0.2)}
    frame = one_instance(cancels)
    row = unqover_instances(frame).row(0, named=True)
    assert 0 < abs(row["b1"]) < 1e-16
    assert row["c"] == 0
    assert unqover_metric(frame, bootstrap=0).unqover.select("mu", "eta", "abs_c").row(0) == (
        0,
        0,
        0,
    )
    real = {**cancels, "21-": (0.05 * (1 + 6e-8), 0.2)}  # one step of a float32 logit
    assert unqover_instances(one_instance(real))["c"].item() == pytest.approx(-7.5e-10, rel=1e-3)


def test_a_logprob_of_minus_infinity_is_a_probability_of_0() -> None:
    frame = one_instance({**BY_HAND, "12": (0.0, 0.2)})
    assert frame["logprob"].min() == float("-inf")
    row = unqover_instances(frame.filter(~pl.col("continuation").is_in([" ann", "Bob"])))
    assert row["p1_12"].to_list() == [0.0]
    assert row["c"].item() == pytest.approx(((0.0 + 0.3) / 2 - 0.15 - 0.1) / 2)
    nothing = unqover_metric(frame.with_columns(logprob=float("-inf")), bootstrap=10)
    assert nothing.unqover.select("mu", "eta", "abs_c", "positional").row(0) == (0, 0, 0, 0)


def test_of_several_forms_the_most_probable_one_counts() -> None:
    frame = one_instance(BY_HAND).with_columns(
        logprob=pl.when(pl.col("continuation") == " she").then(np.log(0.9)).otherwise("logprob")
    )
    assert unqover_instances(frame)["p1_12"].item() == pytest.approx(0.5)
    assert unqover_instances(frame, he_she=True)["p1_12"].item() == pytest.approx(0.9)
    assert unqover_instances(frame, he_she=True)["p2_12"].item() == pytest.approx(0.2)


def test_three_attributes_and_three_subjects_have_no_interval(bank: Bank) -> None:
    found = unqover_metric(bank.scan("unqover-nationality", steps=8), bootstrap=100)
    for name in ("mu", "eta", "abs_c", "positional", "attributive"):
        assert found.unqover[f"{name}_low"].is_nan().all()
    assert found.subjects["gamma_high"].is_nan().all()
    told = findings(found)
    assert "not tested" in told[0].text
    assert not any(each.interval for each in told)


def test_intervals_resample_attributes_and_for_mu_subjects(
    bank: Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("logitbank.analysis.stats.bootstrap.FEWEST_CLUSTERS", 2)
    scan = bank.scan("unqover-nationality", steps=8)
    found = unqover_metric(scan, bootstrap=2000)
    rows = questions("nationality")
    own = Naive(rows, logits_of(rows, 8, nurses=6.0), topk=None, he_she=False)
    rng = np.random.default_rng(7)
    sizes = {a: [abs(own.c[k]) for k, r in own.rows.items() if r["attribute"] == a]
             for a in ATTRIBUTES}  # fmt: skip
    draws = [np.mean([sizes[a] for a in rng.choice(ATTRIBUTES, 3)]) for _ in range(4000)]
    row = found.unqover.filter(split="all").row(0, named=True)
    # Three attributes give ten means, so the ends are among them.
    assert (row["abs_c_low"], row["abs_c_high"]) == pytest.approx(
        np.quantile(draws, [0.025, 0.975]), rel=1e-3
    )
    gamma = {key: np.mean(values) for key, values in own.gammas().items()}
    greatest = [max(abs(gamma[x, a]) for a in ATTRIBUTES) for x in ("Danish", "Greek", "Swiss")]
    draws = [np.mean(rng.choice(greatest, 3)) for _ in range(4000)]
    assert (row["mu_low"], row["mu_high"]) == pytest.approx(
        np.quantile(draws, [0.025, 0.975]), rel=1e-3
    )
    assert row["mu_low"] <= row["mu"] <= row["mu_high"]
    for subject in found.subjects.filter(split="all").iter_rows(named=True):
        assert subject["gamma_low"] <= subject["gamma"] <= subject["gamma_high"]
    alone = found.unqover.filter(split="test").row(0, named=True)
    assert np.isnan([alone["abs_c_low"], alone["eta_high"], alone["positional_low"]]).all()
    assert not np.isnan(alone["mu_low"])


def test_frames_one_after_another_give_the_numbers_of_one(tmp_path: Path) -> None:
    bank = Bank.open(make_bank(tmp_path / "b.zarr", steps=[0, 8, 64, None]))
    names = ("unqover-gender", "unqover-nationality")
    whole = unqover_metric(pl.concat([bank.scan(name) for name in names]), bootstrap=50)
    parts = [frame for name in names for frame in batches(bank, name, rows=1)]
    assert len(parts) == 8
    several = unqover_metric(parts[::-1], bootstrap=50)
    for name, table in whole.tables().items():
        assert_frame_equal(several.tables()[name], table, rel_tol=1e-12, abs_tol=1e-15)
    assert whole.cells["step"].null_count() == len(whole.cells)
    every = unqover_metric(parts, bootstrap=0, cells="all").cells
    assert every["step"].n_unique() == 4
    assert len(every) == 4 * len(whole.cells)


def test_a_category_of_a_checkpoint_is_in_one_frame(bank: Bank) -> None:
    frame = bank.scan("unqover-gender")
    with pytest.raises(UsageError, match="gender of toy main step 0 is in several frames; give on"):
        unqover_metric([frame, frame], bootstrap=0)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (pl.col("negated") | (pl.col("order") == "12"), r"c1\|was a nurse' \(gender\) of m main s"
         r"tep 8 has 3 questions, and not one each for both orders, plain and negated \(1 such "),
        ((pl.col("subject1") != "Ann") | ~pl.col("negated") | (pl.col("order") == "12")
         | ~pl.col("continuation").str.to_lowercase().str.ends_with("ann"),
         r"was a nurse\|21\|neg' of m main step 8 has no option for the subject 'Ann' \(1 such pr"),
    ],
)  # fmt: skip
def test_what_is_not_whole_is_named_and_counted(spoil: pl.Expr, message: str) -> None:
    with pytest.raises(BankError, match=message):
        unqover_metric(one_instance(BY_HAND).filter(spoil))


def test_rows_that_cannot_be_right_are_refused() -> None:
    frame = one_instance(BY_HAND)
    with pytest.raises(BankError, match="neg' of m main step 8 has no option for the pronoun 'sh"):
        unqover_metric(frame.filter(pl.col("continuation") != " she"), he_she=True)
    assert (
        unqover_metric(frame.filter(pl.col("continuation") != " she")).settings["he_she"] is False
    )
    twice = frame.with_columns(prompt_id=pl.col("prompt_id") + "-b")
    with pytest.raises(BankError, match="has 8 questions, and not one each"):
        unqover_metric(pl.concat([frame, twice]))
    for value, text in ((float("nan"), "NaN|nan"), (float("inf"), "inf"), (None, "None")):
        odd = frame.with_columns(
            logprob=pl.when(pl.col("order") == "12").then(pl.lit(value)).otherwise("logprob")
        )
        with pytest.raises(BankError, match=rf"log-probability of ({text}) \(2 such prompts\)"):
            unqover_metric(odd)
    with pytest.raises(BankError, match="there is no UnQover score; extract its prompts first"):
        unqover_metric(frame.head(0))
    with pytest.raises(
        UsageError, match="the prompt set lacks context, attribute, which unqover-gender"
    ):
        unqover_metric(frame.drop("context", "attribute"))
    with pytest.raises(UsageError, match="topk is 0; give a number of entries from 1 on, or none"):
        unqover_metric(frame, topk=0)
    with pytest.raises(UsageError, match="cells is 'some'; give last or all"):
        unqover_metric(frame, cells="some")  # type: ignore[arg-type]


def test_it_is_in_the_python_api(bank: Bank) -> None:
    found = unqover_metric(bank.scan("unqover-gender"), bootstrap=0)
    assert isinstance(found, logitbank.Unqover)
    nurses = found.attributes.filter(step=8, split="all", attribute="was a nurse")
    assert nurses["gamma_female"].item() > 0.2
    assert set(found.subjects.filter(step=8)["subject"]) == {*NAMES["female"], *NAMES["male"]}


MEMORY = """
import json, sys
import polars as pl
from logitbank.analysis import unqover_metric

def checkpoint(step):
    row = pl.int_range(pl.len())
    question, form = row // 4, row % 4
    instance = question // 4
    name = lambda at, n: pl.format("{}{}", pl.lit(at), instance % n)
    return pl.LazyFrame({"step": [step]}).select(
        step=pl.col("step").repeat_by(80_000).explode()
    ).with_columns(
        model=pl.lit("m"), run=pl.lit("main"), category=pl.lit("gender"), split=pl.lit("train"),
        prompt_id=question.cast(pl.String), instance=instance.cast(pl.String),
        context=(instance % 4).cast(pl.String), attribute=(instance % 70).cast(pl.String),
        attribute_class=pl.lit("x"), subject1=name("F", 9), subject2=name("M", 8),
        gender1=pl.lit("female"), gender2=pl.lit("male"), negated=question % 2 == 1,
        order=pl.when(question % 4 < 2).then(pl.lit("12")).otherwise(pl.lit("21")),
        continuation=pl.when(form < 2).then(name("F", 9)).otherwise(name("M", 8)),
        logprob=-((row * (step + 7)).hash() % 1000 / 250), rank=1 + row % 9,
    )

unqover_metric([checkpoint(step) for step in range(int(sys.argv[1]))], bootstrap=50)
with open("/proc/self/status") as status:
    print(json.dumps([int(line.split()[1]) for line in status if line.startswith("VmHWM")][0]))
"""


@pytest.mark.whole
def test_memory_does_not_grow_with_the_checkpoints() -> None:
    def peak_mb(checkpoints: int) -> float:
        done = subprocess.run(
            [sys.executable, "-c", MEMORY, str(checkpoints)],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        return float(json.loads(done.stdout)) / 1024

    few, many = peak_mb(3), peak_mb(14)
    assert many < few + 60, (few, many)


def signs_of(gamma: np.ndarray) -> Grid:
    subjects = pl.DataFrame({"subject": [f"s{at}" for at in range(len(gamma))]})
    return Grid(subjects, pl.DataFrame(), gamma, np.sign(gamma))


def test_p_values_of_preferences_are_shares_of_all_flips_of_signs() -> None:
    gamma = np.random.default_rng(1).normal(0.2, 1.0, (3, 10))
    own = np.abs(gamma.sum(axis=1)) / np.sqrt((gamma**2).sum(axis=1))
    largest = [
        (np.abs(gamma @ signs) / np.sqrt((gamma**2).sum(axis=1))).max()
        for signs in itertools.product((-1, 1), repeat=10)
    ]
    exact = [np.mean(np.array(largest) >= one - 1e-9) for one in own]
    assert sign_test(signs_of(gamma), 20_000) == pytest.approx(exact, abs=0.012)
    assert np.isnan(sign_test(signs_of(gamma[:, :9]), 100)).all()
    assert np.isnan(sign_test(signs_of(gamma), 0)).all()


def test_subjects_that_are_not_preferred_seldom_look_so() -> None:
    """500 models of 8 subjects, partners of one another, and 20 attributes."""
    rng, found = np.random.default_rng(2), []
    for _ in range(500):
        gamma = rng.standard_t(3, (8, 20)) * rng.lognormal(0, 1, 20)
        gamma -= gamma.mean(axis=0)  # what one gains the others lose
        found.append(sign_test(signs_of(gamma), 400).min())
    assert 0.02 < (np.array(found) <= 0.05).mean() < 0.08
    gamma[0] += 3 * np.abs(gamma).mean()
    assert sign_test(signs_of(gamma), 400)[0] < 0.05
