"""The numbers of fluctuation, against hand-worked ones, NumPy, SciPy and the released priors."""

import csv
import math
from collections import defaultdict
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from logitbank.analysis.charts.chart import chart_caption
from logitbank.analysis.families.fluctuation import FAMILY, fluctuation
from logitbank.analysis.families.fluctuation.metric import Fluctuation, fluctuation_metric
from logitbank.analysis.families.fluctuation.tables import PUBLISHED
from logitbank.analysis.frames.input_files import read_table
from logitbank.analysis.frames.pronoun_scores import as_scores, published_table
from logitbank.analysis.stats.correlation import pearson, pearson_matrix, variation
from logitbank.errors import UsageError
from tests.support.fluctuation_cases import (
    JOBS,
    drawn,
    professions_bank,
    published,
    random_table,
    two_runs,
)
from tests.support.paths import PUBLIC as DATA

pytestmark = pytest.mark.numerical


def test_ratios_means_and_variation_worked_by_hand() -> None:
    """R is 2 and 6; the prior's ratio is 1/2 and 3, so N is 4 and 2; C is 0.3 and 0.7."""
    table = published(
        [[[0.9, 0.1]], [[0.2, 0.1]], [[0.6, 0.1]]], [[0.5, 0.5], [0.1, 0.2], [0.3, 0.1]]
    )
    result = fluctuation_metric([table], plateaus=[1])
    (row,) = result.professions.iter_rows(named=True)
    assert row["occupation"] == "a nurse"
    assert row["certainty"] == pytest.approx(0.5, abs=1e-15)
    assert row["mean_r"] == pytest.approx(4, abs=1e-14)
    assert row["cv_r"] == pytest.approx(2 / 4, abs=1e-15)  # deviation 2, ddof 0
    assert row["mean_n"] == pytest.approx(3, abs=1e-14)
    assert row["cv_n"] == pytest.approx(1 / 3, abs=1e-15)
    (prior,) = result.plateaus.iter_rows(named=True)
    assert prior["prior_cv"] == pytest.approx(1.25 / 1.75, abs=1e-15)
    assert prior["prior_mean_r"] == pytest.approx(1.75, abs=1e-15)
    assert prior["prior_certainty"] == pytest.approx(0.35, abs=1e-15)
    assert (prior["first_step"], prior["checkpoints"]) == (1, 2)


@pytest.mark.parametrize(
    ("steps", "start", "first", "left", "rule"),
    [
        (PUBLISHED[0], 500_000, 500_000, 26, "published"),
        (PUBLISHED[1], 1_000_000, 1_000_000, 11, "published"),
        ([0, 5, 7, 9, 15], 8, 9, 2, "half of the last step"),
    ],
)
def test_without_a_start_it_is_half_of_the_last_step(
    steps: list[int], start: int, first: int, left: int, rule: str
) -> None:
    table = random_table(checkpoints=len(steps), steps=steps)
    (span,) = fluctuation_metric([table]).plateaus.iter_rows(named=True)
    assert (span["plateau"], span["first_step"], span["rule"]) == (start, first, rule)
    assert span["checkpoints"] == left


def test_published_steps_are_those_of_the_data() -> None:
    folder = DATA / "checkpoints"
    if not folder.is_dir():
        pytest.skip(f"needs the lists of checkpoints in {folder}; set LOGITBANK_DATA")
    for name, steps in zip(
        ("roberta-base-62-steps", "bert-base-uncased-29-steps"), PUBLISHED, strict=True
    ):
        assert [int(line) for line in (folder / f"{name}.txt").read_text().split()] == steps


def by_hand(scores: np.ndarray, prior: np.ndarray) -> dict[str, list[float]]:
    """Measures of one plateau by plain loops."""
    found: dict[str, list[float]] = defaultdict(list)
    for t in range(scores.shape[1]):
        r = [he / she for he, she in scores[:, t]]
        n = [x * she / he for x, (he, she) in zip(r, prior, strict=True)]
        for name, x in (("r", r), ("n", n)):
            mean = math.fsum(x) / len(x)
            found[f"mean_{name}"].append(mean)
            spread = math.sqrt(math.fsum((v - mean) ** 2 for v in x) / len(x))
            found[f"cv_{name}"].append(spread / mean)
        found["certainty"].append(math.fsum(scores[:, t].ravel()) / len(r))
    return found


def test_measures_and_correlations_agree_with_loops_and_scipy() -> None:
    scores, prior = drawn(7, 6, 2), drawn(7, 2, seed=1)
    result = fluctuation_metric([published(scores, prior)], plateaus=[3])
    expected = by_hand(scores[3:], prior[3:])
    order = [JOBS.index(job) for job in result.professions["occupation"]]
    for name, values in expected.items():
        np.testing.assert_allclose(result.professions[name], np.array(values)[order], rtol=1e-13)
    for row in result.correlations.iter_rows(named=True):
        r = stats.pearsonr(expected[row["x"]], expected[row["y"]]).statistic
        assert row["r"] == pytest.approx(r, abs=1e-13)
        assert (row["n"], row["excluded"]) == (6, 0)
    for row in result.spread.iter_rows(named=True):
        values = expected[row["measure"]]
        assert row["median"] == pytest.approx(np.median(values), rel=1e-13)
        assert row["min"] == pytest.approx(min(values), rel=1e-13)
        assert row["max"] == pytest.approx(max(values), rel=1e-13)
        assert row["mean"] == pytest.approx(np.mean(values), rel=1e-13)


def assert_interval(rows: pl.DataFrame, columns: Sequence[str], values: np.ndarray) -> None:
    """The columns are the mean of values (m, t) and the ends of its t interval."""
    half = stats.t.ppf(0.975, values.shape[1] - 1) * stats.sem(values, axis=1)
    mean = values.mean(axis=1)
    for column, expected in zip(columns, (mean, mean - half, mean + half), strict=True):
        np.testing.assert_allclose(rows[column], expected, rtol=1e-9, atol=1e-12)


def test_measures_of_checkpoints_are_those_of_numpy_and_scipy() -> None:
    jobs = [f"a trade{number:02}" for number in range(12)]
    scores, prior = drawn(7, 12, 2), drawn(7, 2, seed=1)
    measures = fluctuation_metric([published(scores, prior, jobs=jobs)]).measures
    assert measures["verb"].unique().to_list() == ["is"]
    r = scores[..., 0] / scores[..., 1]
    n = r * (prior[:, 1] / prior[:, 0])[:, None]
    for name, values in {"ln_r": np.log(r), "ln_n": np.log(n), "c": scores.sum(axis=2)}.items():
        own = measures.filter(measure=name)
        assert_interval(own, ("value", "low", "high"), values)
        ends = ("from_baseline", "from_baseline_low", "from_baseline_high")
        assert_interval(own[1:], ends, values[1:] - values[0])
    he = measures.filter(measure="he")
    assert he["value"].to_list() == pytest.approx((r > 1).mean(axis=1).tolist())
    for row, hits in zip(he.iter_rows(named=True), (r > 1).sum(axis=1), strict=True):
        interval = stats.binomtest(int(hits), 12).proportion_ci(method="wilson")
        assert (row["low"], row["high"]) == pytest.approx(tuple(interval))
        assert (row["items"], row["missing"]) == (12, 0)


def test_professions_of_two_verbs_are_the_clusters_of_all() -> None:
    jobs = [f"a trade{number:02}" for number in range(12)]
    verbs = {"is": drawn(2, 12, 2), "works as": drawn(2, 12, 2, seed=1)}
    table = pl.concat(
        published(scores, drawn(2, 2), jobs=jobs, verb=verb) for verb, scores in verbs.items()
    )
    whole = fluctuation_metric([table], plateaus=[0]).headline.measures.filter(measure="c")
    means = np.mean([scores.sum(axis=2) for scores in verbs.values()], axis=0)
    assert_interval(whole, ("value", "low", "high"), means)
    assert whole.select("items", "clusters").rows() == [(24, 12)] * 2


def test_a_shift_of_ln_r_is_a_change_point() -> None:
    """From step 8 on, “he” has e² times its odds."""
    odds = np.exp(drawn(16, 6) + 2 * (np.arange(16) >= 8)[:, None])
    scores = np.stack([odds, np.ones_like(odds)], axis=2) / 50
    (change,) = fluctuation_metric([published(scores, drawn(16, 2))]).change_points.to_dicts()
    assert (change["kind"], change["before"], change["step"]) == ("change point", 7, 8)
    assert change["mean_after"] - change["mean_before"] == pytest.approx(2, abs=0.2)


def test_checkpoints_before_the_plateau_are_paired_too_and_n_pairs_like_r() -> None:
    scores, prior = drawn(5, 6, 2), drawn(5, 2, seed=1)
    result = fluctuation_metric([published(scores, prior)], plateaus=[3])
    r = scores[..., 0] / scores[..., 1]
    n = r * (prior[:, 1] / prior[:, 0])[:, None]
    pairs = result.checkpoint_pairs
    assert pairs.select("step_a", "step_b").rows() == list(combinations(range(5), 2))
    for matrix in (np.corrcoef(r), np.corrcoef(n)):
        expected = [matrix[a, b] for a, b in combinations(range(5), 2)]
        np.testing.assert_allclose(pairs["r"], expected, atol=1e-14)


def test_runs_are_paired_on_their_time_averages() -> None:
    result = fluctuation_metric([two_runs()], plateaus=[3])
    assert result.run_pairs.select("verb", "measure", "run_a", "run_b").rows() == [
        (verb, measure, "seed0", "seed1")
        for verb in ("is", "works as")
        for measure in ("mean_r", "mean_n")
    ]
    for row in result.run_pairs.iter_rows(named=True):
        own = result.professions.filter(pl.col("verb") == row["verb"])
        a, b = (own.filter(pl.col("run") == row[key])[row["measure"]] for key in ("run_a", "run_b"))
        assert row["r"] == pytest.approx(np.corrcoef(a, b)[0, 1], abs=1e-14)


def test_runs_are_paired_by_profession_and_not_by_place() -> None:
    scores = drawn(4, 3, 2)
    first = published(scores, drawn(4, 2), jobs=["a cook", "a dean", "a judge"])
    turned = published(scores[:, ::-1], drawn(4, 2), jobs=["a judge", "a dean", "a cook"], seed=1)
    result = fluctuation_metric([pl.concat([first, turned])], plateaus=[0])
    np.testing.assert_allclose(result.run_pairs["r"], 1.0, atol=1e-14)


def equal(one: Fluctuation, other: Fluctuation) -> bool:
    tables = zip(one.tables().values(), other.tables().values(), strict=True)
    return all(a.equals(b) for a, b in tables)


def test_the_order_of_rows_changes_nothing() -> None:
    table = two_runs()
    result = fluctuation_metric([table], plateaus=[2, 3])
    for seed in range(3):
        shuffled = table.sample(fraction=1, shuffle=True, seed=seed)
        assert equal(fluctuation_metric([shuffled], plateaus=[2, 3]), result)


def test_plateaus_stand_side_by_side_as_if_alone() -> None:
    both = fluctuation_metric([two_runs()], plateaus=[2, 4, 2])
    assert both.plateaus["plateau"].unique().sort().to_list() == [2, 4]
    for start in (2, 4):
        alone = fluctuation_metric([two_runs()], plateaus=[start])
        for name in ("professions", "correlations", "spread", "plateaus", "run_pairs"):
            part = both.tables()[name].filter(pl.col("plateau") == start)
            assert part.equals(alone.tables()[name]), name


@settings(max_examples=30, deadline=None)
@given(st.floats(1e-6, 1e6), st.integers(0, 2**31))
def test_a_cv_is_unchanged_when_its_column_is_scaled(factor: float, seed: int) -> None:
    column = drawn(9, 1, seed=seed)
    np.testing.assert_allclose(variation(column * factor), variation(column), rtol=1e-12)


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 40), st.integers(2, 9), st.integers(0, 2**31))
def test_correlations_agree_with_numpy_and_scipy(t: int, m: int, seed: int) -> None:
    rows = np.exp(np.random.default_rng(seed).normal(0, 3, (m, t)))
    found = pearson_matrix(rows)
    np.testing.assert_allclose(found, np.corrcoef(rows), atol=1e-12)
    assert (found == found.T).all()
    assert pearson(rows[0], rows[1]).r == pytest.approx(
        stats.pearsonr(rows[0], rows[1]).statistic, abs=1e-12
    )


def test_correlations_of_huge_ratios_do_not_overflow() -> None:
    assert pearson([1e200, 2e200, 3e200], [1e-200, 2e-200, 3.5e-200]).r == pytest.approx(
        stats.pearsonr([1, 2, 3], [1, 2, 3.5]).statistic
    )


@pytest.mark.parametrize("values", [[0.1] * 7, [1e300] * 3, [0.0, 0.0]])
def test_a_constant_vector_has_no_correlation(values: list[float]) -> None:
    other = np.arange(len(values))
    assert math.isnan(pearson(values, other).r)
    assert math.isnan(pearson(other, values).r)
    assert math.isnan(pearson([], []).r)
    assert math.isnan(pearson([1.0], [2.0]).r)


def test_what_is_constant_up_to_rounding_has_no_correlation() -> None:
    ratio = np.array([0.1, 0.7, 0.4, 0.9])
    same = (ratio * 3 / 3 + 1e6) * (1 + np.array([0, 1, -1, 2]) * 2.0**-52)
    constant = np.full(4, 1e6) * (1 + np.array([0, 1, -1, 2]) * 2.0**-52)
    assert len(set(constant)) > 1
    assert math.isnan(pearson(ratio, constant).r)
    assert np.isnan(pearson_matrix([ratio, constant])[1]).all()
    assert pearson(ratio, same).r == pytest.approx(1)  # small beside its mean, and still a signal
    assert variation(constant[:, None]).tolist() == [0]
    assert variation(same[:, None])[0] == pytest.approx(ratio.std() / 1e6, rel=1e-5)


def test_zero_for_she_is_kept_as_infinity_left_out_and_counted() -> None:
    scores, prior = drawn(4, 6, 2), drawn(4, 2)
    scores[2, 1, 1] = 0  # “she is a judge”, in the plateau
    scores[0, 3, 1] = 0  # “she is a cook”, before it
    result = fluctuation_metric([published(scores, prior)], plateaus=[1])
    judge = result.professions.filter(pl.col("occupation") == "a judge").row(0, named=True)
    assert (judge["mean_r"], judge["mean_n"], judge["she_zero"]) == (math.inf, math.inf, 1)
    assert math.isnan(judge["cv_r"])
    at = result.checkpoints.filter(step=2).row(0, named=True)
    assert (at["items"], at["missing"]) == (6, 0), "C has a value"
    lacking = dict(result.measures.filter(step=2).select("measure", "missing").iter_rows())
    assert lacking == {"ln_r": 1, "ln_n": 1, "he": 0, "c": 0}
    assert judge["certainty"] == pytest.approx(scores[1:, 1].sum(axis=1).mean())
    others = [t for t in range(6) if t != 1]
    expected = by_hand(scores[1:, others], prior[1:])
    first = result.correlations.row(0, named=True)
    assert (first["n"], first["excluded"]) == (5, 1)
    assert first["r"] == pytest.approx(
        np.corrcoef(expected["certainty"], expected["cv_r"])[0, 1], abs=1e-13
    )
    assert result.checkpoint_pairs["n"].unique().to_list() == [4]
    assert result.checkpoint_pairs["excluded"].unique().to_list() == [2]
    assert result.spread.filter(pl.col("measure") == "cv_n")["excluded"].to_list() == [1]


def test_a_release_is_in_no_statistic() -> None:
    trained = random_table()
    release = published(drawn(1, 6, 2, seed=9), drawn(1, 2, seed=8), steps=[None])
    alone = fluctuation_metric([trained], plateaus=[3])
    both = fluctuation_metric([pl.concat([trained, release])], plateaus=[3])
    for name, table in both.tables().items():
        if name not in ("measures", "checkpoints", "trajectories"):
            assert table.equals(alone.tables()[name]), name
    last = both.checkpoints.row(-1, named=True)
    assert (last["step"], last["items"], last["missing"]) == (None, 6, 0)
    shown = both.trajectories.filter(pl.col("step").is_null())
    assert shown["pronoun"].to_list() == ["he", "she"] * 3


def test_trajectories_are_relative_to_their_own_maximum_and_show_the_extremes() -> None:
    result = fluctuation_metric([random_table()], plateaus=[3])
    cv = dict(result.professions.select("occupation", "cv_r").iter_rows())
    roles = dict(result.trajectories.select("role", "occupation").iter_rows())
    assert roles == {
        "prior": "a [MASK]",
        "largest cv_r": max(cv, key=cv.__getitem__),
        "smallest cv_r": min(cv, key=cv.__getitem__),
    }
    for _, rows in result.trajectories.group_by("occupation", "pronoun"):
        np.testing.assert_allclose(rows["relative"], rows["score"] / rows["score"].max())


def test_missing_scores_make_a_profession_nan_and_are_counted() -> None:
    table = random_table()
    hole = (pl.col("occupation") == "a cook") & (pl.col("checkpoint") == 4)
    early = (pl.col("occupation") == "a dean") & (pl.col("checkpoint") == 0)
    result = fluctuation_metric([table.filter(~hole & ~early)], plateaus=[3])
    full = fluctuation_metric([table], plateaus=[3])
    cook = result.professions.filter(pl.col("occupation") == "a cook").row(0, named=True)
    assert cook["missing"] == 1
    assert all(math.isnan(cook[name]) for name in ("certainty", "mean_r", "cv_r", "cv_n"))
    others = pl.col("occupation") != "a cook"
    assert result.professions.filter(others).equals(full.professions.filter(others))
    assert result.correlations["n"].to_list() == [5, 5]
    assert result.correlations["excluded"].to_list() == [1, 1]
    assert result.checkpoint_pairs["n"].unique().to_list() == [4]
    lacking = dict(result.checkpoints.select("step", "missing").iter_rows())
    assert lacking == {0: 1, 1: 0, 2: 0, 3: 0, 4: 1, 5: 0}


def test_a_run_without_the_common_checkpoint_uses_its_own_and_reports_it() -> None:
    table = pl.concat(
        [random_table(seed=0), random_table(seed=1).filter(pl.col("checkpoint") != 4)]
    )
    result = fluctuation_metric([table], plateaus=[3])
    assert result.plateaus["checkpoints"].to_list() == [3, 2]
    assert "Plateaus have 2 to 3 checkpoints" in texts(result)


PRIORS = {
    "roberta-base": (500_000, {"main": (0.2897512483681441, 0.03846735278001198)}),
    "bert-base-uncased": (
        1_000_000,
        {
            "seed0": (0.11797997357902376, 0.5255761761218309),
            "seed1": (0.15250981818877551, 0.5495592105117711),
            "seed2": (0.24628708601889746, 0.5291644588790156),
            "seed3": (0.24540209005293595, 0.44135756485841493),
            "seed4": (0.3744974394741703, 0.700692430138588),
        },
    ),
}
"""First step of the plateau; CV of he / she and mean certainty of “is a”, by run."""


def priors(name: str, first_step: int) -> dict[str, tuple[float, float]]:
    """CV of he / she and mean certainty by seed, with “is a”, from the released file, plainly."""
    found: dict[str, dict[int, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
    with (DATA / "professions" / name).open(newline="") as file:
        for row in csv.DictReader(file):
            if row["verb"] == "is" and row["article"] == "a" and row["checkpoint"]:
                step = int(row["checkpoint"])
                found[row["seed"]][step][row["pronoun"].lower()] = float(row["score"])
    result = {}
    for seed, steps in found.items():
        kept = [steps[step] for step in sorted(steps) if step >= first_step]
        ratios = [cell["he"] / cell["she"] for cell in kept]
        mean = math.fsum(ratios) / len(ratios)
        spread = math.sqrt(math.fsum((x - mean) ** 2 for x in ratios) / len(ratios))
        certainty = math.fsum(cell["he"] + cell["she"] for cell in kept) / len(kept)
        result[seed] = (spread / mean, certainty)
    return result


@pytest.mark.parametrize("model", PRIORS)
def test_the_released_priors_have_their_variation_and_certainty(model: str) -> None:
    name = f"{model}-pronoun-prior-by-checkpoint.csv"
    if not (DATA / "professions" / name).is_file():
        pytest.skip(f"needs {name} in {DATA / 'professions'}; set LOGITBANK_DATA")
    start, pinned = PRIORS[model]
    plain = priors(name, start)
    result = fluctuation_metric([read_table(DATA / "professions" / name)])
    rows = result.plateaus.filter(pl.col("verb") == "is")
    assert rows["plateau"].unique().to_list() == [start]
    found = {run: values for run, *values in rows.select(
        "run", "prior_cv", "prior_certainty").iter_rows()}  # fmt: skip
    assert set(found) == set(pinned)
    for run, values in found.items():
        assert values == pytest.approx(pinned[run], abs=1e-12)
        assert values == pytest.approx(
            plain[run.removeprefix("seed").replace("main", "0")], abs=1e-12
        )
    checkpoints = 62 if model == "roberta-base" else 5 * 29
    # Two verbs and two pronouns, at the release too.
    assert result.settings["an_priors"] == 4 * (checkpoints + 1)


@pytest.mark.parametrize("n", [10, 20, 923])
def test_intervals_of_correlations_are_scipys(n: int) -> None:
    x, noise = np.random.default_rng(n).normal(size=(2, n))
    found = pearson(x, x + noise)
    expected = stats.pearsonr(x, x + noise).confidence_interval()
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
    for none in (pearson(x[:9], noise[:9]), pearson(x, x)):
        assert math.isnan(none.low)
        assert math.isnan(none.high)


def texts(result: Fluctuation) -> str:
    return "\n".join(map(str, FAMILY.findings(result)))


def test_findings_are_the_numbers_of_the_tables() -> None:
    """The headline's run is that of largest median CV; each run has its own numbers."""
    result = fluctuation_metric([two_runs()], plateaus=[2])
    headline, *found = FAMILY.findings(result)
    assert len(headline.text.split()) <= 15
    largest = result.spread.filter(measure="cv_r").sort("median").row(-1, named=True)
    assert headline.series == (largest["model"], largest["run"])
    of_run = [each for each in found if each.series == headline.series and each.value is not None]
    assert of_run[0].value == largest["median"]
    assert of_run[0].n == "6 professions, 4 checkpoints"
    assert of_run[1].value == largest["max"]
    prior = result.plateaus.filter(run=largest["run"], verb=largest["verb"])["prior_cv"][0]
    assert of_run[2].value == prior
    r = result.correlations.filter(
        run=largest["run"], verb=largest["verb"], x="certainty", y="cv_r"
    )
    assert of_run[3].value == r["r"][0]
    (pair,) = {each.value for each in found if "between seed0 and seed1" in each.text}
    assert pair == result.run_pairs.filter(measure="mean_r")["r"][0]


def test_charts_have_n_and_no_heat_map_of_one_number() -> None:
    charts = FAMILY.charts(fluctuation_metric([two_runs()], plateaus=[2]))
    assert list(charts) == ["trajectories", "certainty_cv", "checkpoint_pairs", "measures"]
    assert all("n = " in chart_caption(chart) for chart in charts.values())
    three = pl.concat([two_runs(), random_table(seed=2)])
    assert "run_pairs" in FAMILY.charts(fluctuation_metric([three], plateaus=[2]))


@pytest.mark.parametrize(
    "scores",
    [
        drawn(3, 1, 2),  # one profession
        np.full((3, 4, 2), 0.25),  # nothing varies
        np.stack([drawn(3, 4), np.zeros((3, 4))], axis=2),  # she is never there
        np.zeros((3, 4, 2)),
        drawn(3, 0, 2),  # the prior only
    ],
    ids=["one", "constant", "no she", "zeros", "prior"],
)
def test_any_result_is_drawn_and_summed_up(scores: np.ndarray) -> None:
    result = fluctuation_metric([published(scores, drawn(3, 2))], plateaus=[1])
    assert "trajectories" in FAMILY.charts(result)
    assert "nan" not in texts(result)


def test_plateaus_may_be_those_of_one_model() -> None:
    other = random_table(model="roberta-base", seed=0)
    table = pl.concat([random_table(), other])
    given = ["2", "roberta-base=3,4"]
    found = fluctuation_metric([table], plateaus=given).plateaus
    rows = {*found.select("model", "plateau").iter_rows()}
    assert rows == {("bert", 2), ("roberta-base", 3), ("roberta-base", 4)}
    alone = fluctuation_metric([table], plateaus=["roberta-base=3"]).plateaus
    assert {*alone.select("model", "plateau").iter_rows()} == {("bert", 3), ("roberta-base", 3)}
    with pytest.raises(UsageError, match="no model 'robert'. bert, roberta-base are"):
        fluctuation_metric([table], plateaus=["robert=3"])
    with pytest.raises(UsageError, match="--plateaus 3,x: 'x' is no step"):
        fluctuation_metric([table], plateaus=["3,x"])


def test_scores_in_the_published_format_are_read_back_to_the_same_tables(tmp_path: Path) -> None:
    bank = professions_bank(tmp_path / "b.zarr")
    for name in ("scores.csv", "scores.parquet"):
        ours = fluctuation(bank, scores=str(tmp_path / name)).result
        theirs = fluctuation(tmp_path / name).result
        assert equal(ours, theirs), name
    columns = pl.read_csv(tmp_path / "scores.csv").columns
    assert columns[:8] == [
        "pronoun", "score", "occupation", "template", "sentence", "model", "seed", "checkpoint"
    ]  # fmt: skip
    with pytest.raises(UsageError, match=r"scores.csv is there already"):
        fluctuation(bank, scores=str(tmp_path / "scores.csv"))


def test_a_run_without_a_seed_in_its_name_is_not_written() -> None:
    rows = as_scores(two_runs()).with_columns(run=pl.lit("mine").cast(pl.Categorical))
    with pytest.raises(UsageError, match="Run 'mine' is not named by a seed"):
        published_table(rows)
