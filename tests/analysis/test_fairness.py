import math

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal
from scipy import stats as reference

from logitbank.analysis.families.fairness.metric import Fairness, fairness_metric
from logitbank.analysis.frames import gender_answers
from logitbank.analysis.frames.expressions import HALF_LN2
from logitbank.errors import BankError, UsageError
from tests.support.fairness_cases import FEMALE, LABELS, MALE, NEUTRAL, random_frame, scan_frame
from tests.support.row_scores import of_rows, scores_of

pytestmark = pytest.mark.numerical
measured = of_rows(fairness_metric)

NO_LOGITS = [0.0, 0.0, 0.0]


def column(table: pl.DataFrame, name: str, **where: object) -> list[float]:
    for key, value in where.items():
        table = table.filter(pl.col(key) == value)
    return table[name].to_list()


def prefer(option: int, p: float) -> list[float]:
    """Logits that give one option the probability `p` and the others equal shares."""
    z = [math.log((1 - p) / 2)] * 3
    z[option] = math.log(p)
    return z


def small(**options: object) -> Fairness:
    return measured(random_frame(sentences=6, checkpoints=3), bootstrap=50, **options)


def test_average_rank_is_the_mean_over_seeds_of_the_means_over_prompts():
    # Seed 0: male prompts 3 and 7, mean 5; seed 1: 1 and 5, mean 3. Mean 4, SD √2.
    ranks = [[[3, 100, 7, 100], [1, 300, 5, 300]]]
    frame = scan_frame(np.zeros((1, 2, 4, 3)), gold=[MALE, FEMALE] * 2, ranks=ranks)
    result = measured(frame, bootstrap=20)
    table, counts = result.average_rank, result.counts
    assert column(table, "average_rank", gold="male") == [4.0]
    assert column(table, "sd", gold="male") == pytest.approx([2**0.5])
    assert column(table, "average_rank", gold="female") == [200.0]
    assert column(table, "items", gold="male") == [4]
    assert column(counts, "prompts", gold="male") == [2]
    assert column(counts, "orders", gold="male") == [2]


def test_the_geometric_mean_rank_has_the_t_interval_of_logs():
    ranks = np.exp(np.random.default_rng(5).normal(3, 2, 24)).round() + 1
    each = np.repeat(ranks, 2)  # a male and a female prompt of each sentence
    frame = scan_frame(np.zeros((1, 2, 48, 3)), gold=[MALE, FEMALE] * 24, ranks=each)
    row = measured(frame, bootstrap=20).geometric_rank.row(0, named=True)
    logs = np.log(ranks)
    low, high = reference.t.interval(0.95, 23, loc=logs.mean(), scale=reference.sem(logs))
    assert row["geometric_rank"] == pytest.approx(reference.gmean(ranks))
    assert (row["low"], row["high"]) == pytest.approx(np.exp([low, high]))


def test_ties_bounds_and_options_without_a_prompt():
    frame = scan_frame(
        np.zeros((1, 1, 2, 3)), gold=[MALE, FEMALE], ranks=[[[4, 2]]], ties=[[[3, 0]]],
        exact=[[[True, False]]],
    )  # fmt: skip
    result = measured(frame, bootstrap=20)
    assert result.counts.select("gold", "tied", "inexact").rows() == [
        ("male", 1, 0), ("female", 0, 1), ("not specified", 0, 0)
    ]  # fmt: skip
    assert result.average_rank["average_rank"].to_list() == [4, 2]
    assert result.average_rank["low"].is_nan().all(), "of one sentence"
    for table in (result.average_rank, result.accuracy, result.jsd_parts):
        assert {*table["gold"]} == {"male", "female"}


def test_accuracy_needs_the_only_maximum_and_three_way_looks_at_the_options():
    z = [[[prefer(MALE, 0.5), prefer(MALE, 0.5), prefer(MALE, 0.5), prefer(FEMALE, 0.5)]]]
    frame = scan_frame(
        z, gold=[MALE, MALE, FEMALE, FEMALE], ranks=[[[1, 1, 1, 2]]], ties=[[[0, 1, 0, 0]]]
    )
    result = measured(frame, bootstrap=0)
    assert column(result.accuracy, "accuracy", gold="male") == [0.5]
    assert column(result.accuracy, "accuracy", gold="female") == [0.5]
    assert column(result.three_way_accuracy, "three_way_accuracy", gold="male") == [1.0]
    assert column(result.three_way_accuracy, "three_way_accuracy", gold="female") == [0.5]


def test_jsd_table_has_nine_cells_in_both_units():
    z = [[[prefer(MALE, 0.5), prefer(MALE, 0.5), prefer(MALE, 0.5)]]]
    table = measured(scan_frame(z, gold=[MALE, FEMALE, NEUTRAL]), bootstrap=0).jsd_parts
    assert table.select("gold", "option").rows() == [(g, o) for g in LABELS for o in LABELS]
    # Gold at p = 0.5: 0.0424748; another at 0.5: ¼ ln 2; at 0.25: ⅛ ln 2; gold at 0.25: 0.1204655
    assert table["jsd_p_nats"].to_list() == pytest.approx(
        [
            *(0.0424748, 0.0866434, 0.0866434),
            *(0.1732868, 0.1204655, 0.0866434),
            *(0.1732868, 0.0866434, 0.1204655),
        ],
        abs=1e-6,
    )
    assert table["jsd_p"].to_list() == pytest.approx([x / HALF_LN2 for x in table["jsd_p_nats"]])


def test_gap_is_the_size_of_the_mean_and_not_the_mean_of_sizes():
    # Seed 0: male right for sure, female wrong for sure: Δ = +½ ln 2. Seed 1: the other way round.
    sure, wrong = [50.0, -50.0, -50.0], [-50.0, 50.0, -50.0]
    z = [[[sure, sure], [wrong, wrong]]]
    gap = measured(scan_frame(z, gold=[MALE, FEMALE]), bootstrap=0).gap
    assert gap["delta"][0] == pytest.approx(0, abs=1e-12)
    assert gap["sd"][0] == pytest.approx(2**0.5)


def test_gap_keeps_its_sign_and_reaches_one():
    z = [[[[50.0, -50, -50], [50.0, -50, -50]]], [[[-50.0, 50, -50], [-50.0, 50, -50]]]]
    gap = measured(scan_frame(z, gold=[MALE, FEMALE]), bootstrap=0).gap
    assert gap["delta"].to_list() == pytest.approx([1.0, -1.0])
    nats = HALF_LN2 * gap["delta"]
    assert nats.to_list() == pytest.approx([0.34657359, -0.34657359])


def test_change_table_follows_the_steps_and_leaves_the_release_out():
    result = measured(random_frame(checkpoints=4, steps=[4, 1, None, 2]), bootstrap=0)
    change, gap = result.change, result.gap.drop_nulls("step")["delta"].abs()
    assert change["step"].to_list() == [1, 2, 4]
    assert change["from_first"][0] == 0
    assert change["from_first"][2] == pytest.approx(100 * (gap[0] - gap[2]) / gap[0])
    assert change["from_previous"][2] == pytest.approx(100 * (gap[1] - gap[2]) / gap[1])
    assert change["from_previous"][0] is None or math.isnan(change["from_previous"][0])


def jsd_by_hand(z: np.ndarray, option: int) -> np.ndarray:
    """Gold part from the definition, in plain float64."""
    p = np.exp(z) / np.exp(z).sum(-1, keepdims=True)
    return 0.5 * (np.log(2 / (1 + p)) + p * np.log(2 * p / (1 + p)))[..., option]


@pytest.fixture(scope="module")
def noise() -> tuple[np.ndarray, Fairness]:
    z = np.random.default_rng(5).normal(size=(2, 3, 8, 3)).astype(np.float32)
    frame = scan_frame(z, gold=[MALE, FEMALE] * 4)
    return z.astype(np.float64), measured(frame, bootstrap=0)


def test_published_test_averages_over_orders_first(noise):
    z, result = noise
    male = jsd_by_hand(z[:, :, 0::2], MALE).mean(axis=1)
    female = jsd_by_hand(z[:, :, 1::2], FEMALE).mean(axis=1)
    rows = result.tests.filter((pl.col("measure") == "jsd_p") & (pl.col("test") == "mann_whitney"))
    for c in range(2):
        one = reference.mannwhitneyu(male[c], female[c], method="asymptotic")
        assert rows["p"][c] == pytest.approx(one.pvalue)
        assert rows["statistic"][c] == one.statistic
    assert rows["origin"].unique().to_list() == ["published"]
    assert rows.select("n1", "n2").unique().rows() == [(4, 4)]


def test_pairs_are_twins_of_a_sentence(noise):
    z, result = noise
    d = (jsd_by_hand(z[:, :, 0::2], MALE) - jsd_by_hand(z[:, :, 1::2], FEMALE)).mean(axis=1)
    rows = result.tests.filter((pl.col("measure") == "jsd_p") & (pl.col("test") == "wilcoxon"))
    expected = reference.wilcoxon(d, axis=1, method="asymptotic").pvalue
    assert rows["p"].to_list() == pytest.approx(expected.tolist())
    assert rows["origin"].unique().to_list() == ["ours"]


def test_sentences_without_a_twin_are_not_pairs():
    z = np.random.default_rng(0).normal(size=(1, 1, 6, 3))
    gold = [MALE, FEMALE, MALE, MALE, MALE, FEMALE]
    tests = measured(scan_frame(z, gold=gold), bootstrap=0).tests
    assert column(tests, "n1", test="wilcoxon", measure="jsd_p") == [2]
    marked = measured(scan_frame(z, gold=gold, paired=False), bootstrap=0).tests
    assert column(marked, "n1", test="wilcoxon", measure="jsd_p") == [0]
    assert math.isnan(column(marked, "p", test="wilcoxon", measure="jsd_p")[0])


def test_a_shift_is_found_at_its_checkpoint_with_its_sign():
    result = measured(random_frame(checkpoints=9, skew_from=5), bootstrap=200)
    (change,) = result.change_points.iter_rows(named=True)
    assert (change["kind"], change["step"], change["last_step"]) == ("change point", 16, 128)
    assert change["mean_after"] > change["mean_before"]
    u = result.tests.filter((pl.col("measure") == "jsd_p") & (pl.col("test") == "mann_whitney"))
    assert u["significant"].to_list()[5:] == [True] * 4


def test_no_shift_has_no_change_point_and_the_search_begins_after_step_0():
    (change,) = measured(random_frame(checkpoints=12)).change_points.iter_rows(named=True)
    assert change["kind"] == "none"
    assert 0 < change["from_step"] <= 102, "the first tenth of the run, at most"
    assert change["checkpoints"] < 12
    assert change["p_random_walk"] > 0.05


def test_several_runs_are_adjusted_for():
    """Holm: the smallest p counts as often as there are runs."""
    skewed = random_frame(checkpoints=9, model="a", skew_from=5)
    frames = [skewed, random_frame(checkpoints=9, model="b")]
    changes = measured(pl.concat(frames), bootstrap=20).change_points
    p = dict(changes.select("model", "p_random_walk").iter_rows())
    assert dict(changes.select("model", "p_holm").iter_rows()) == {
        "a": pytest.approx(2 * p["a"]), "b": pytest.approx(p["b"])
    }  # fmt: skip


def test_the_change_point_may_be_at_any_step_where_resampled_sentences_have_it():
    # Half of the sentences change at step 4, the others at step 8; by a little more in the former.
    z = np.random.default_rng(5).normal(0, 0.3, (12, 1, 80, 3))
    early, late = np.arange(80) % 4 < 2, np.arange(80) % 4 >= 2
    z[5:, :, early, FEMALE] -= 1.6
    z[6:, :, late, FEMALE] -= 1.5
    frame = scan_frame(z, gold=[MALE, FEMALE] * 40, sentences=[f"s{i // 2}" for i in range(80)])
    change = measured(frame, bootstrap=300).change_points.row(0, named=True)
    assert change["step"] in (5, 6)
    assert (change["earliest"], change["latest"]) == (5, 6)


def test_the_difference_from_the_first_checkpoint_is_paired():
    # Sentences differ much, in the same way at both checkpoints: only pairing is narrow.
    rng = np.random.default_rng(0)
    sentence = rng.normal(0, 1, 20)
    z = np.zeros((2, 1, 40, 3))
    z[:, 0, 1::2, FEMALE] = sentence
    z[1, 0, 1::2, FEMALE] += 0.3 + rng.normal(0, 0.01, 20)
    names = [f"s{i // 2:02}" for i in range(40)]
    frame = scan_frame(z, gold=[MALE, FEMALE] * 20, steps=[0, 8], sentences=names)
    tests = measured(frame, bootstrap=400).tests
    row = tests.filter(measure="jsd_p", test="mann_whitney", step=8).row(0, named=True)
    p = 1 / (1 + 2 * np.exp(-z[:, 0, 1::2, FEMALE]))  # of the right answer, female
    m = (1 + p) / 2
    jsd = 0.5 * (np.log(1 / m) + p * np.log(p / m)) / HALF_LN2  # (2, 20), scaled
    assert row["baseline_step"] == 0
    assert row["from_baseline"] == pytest.approx((jsd[1] - jsd[0]).mean())
    moved = jsd[1] - jsd[0]
    low, high = reference.t.interval(0.95, 19, loc=moved.mean(), scale=reference.sem(moved))
    assert (row["from_baseline_low"], row["from_baseline_high"]) == pytest.approx((low, high))
    assert high - low < 0.5 * (row["high"] - row["low"])


def test_the_finding_of_a_test_includes_the_untrained_baseline():
    # Untrained, every sentence has the same prior for "male": the test calls that significant.
    z = np.zeros((2, 1, 80, 3))
    z[..., MALE] = 0.5
    z += np.random.default_rng(0).normal(0, 0.01, z.shape)
    tests = measured(scan_frame(z, gold=[MALE, FEMALE] * 40, steps=[0, 64]), bootstrap=300).tests
    rows = tests.filter(measure="jsd_p", test="mann_whitney")
    assert rows["significant"].to_list() == [True, True]
    assert rows["rank_biserial"].to_list() == [1.0, 1.0]  # every female one is greater
    assert rows["baseline_rank_biserial"].to_list() == [1.0, 1.0]
    assert rows["low"].min() > 0.1
    assert rows["from_baseline_low"][1] <= 0 <= rows["from_baseline_high"][1]


def test_fewer_than_ten_sentences_have_no_interval_and_are_counted():
    for sentences, known in ((9, False), (10, True)):
        result = measured(random_frame(sentences=sentences, checkpoints=2), bootstrap=50)
        for table, bound in (
            (result.average_rank, "low"),
            (result.jsd_parts, "high"),
            (result.gap, "low"),
            (result.tests, "from_baseline_high"),
        ):
            if bound == "from_baseline_high":  # none at the baseline itself
                itself = pl.col("step") == pl.col("baseline_step")
                assert table.filter(itself).select(pl.col("^from_.*$").is_nan().all()).row(0) == (
                    (True,) * 3
                )
                table = table.filter(~itself)
            assert table[bound].is_not_nan().all() == known
            assert table["clusters"].unique().to_list() == [sentences]


def test_order_of_the_rows_does_not_matter():
    frame = random_frame(sentences=4, checkpoints=3, steps=[8, 2, None])
    shuffled = frame.collect().sample(fraction=1, shuffle=True, seed=0).lazy()
    a, b = (
        measured(frame, bootstrap=0),
        measured(shuffled, bootstrap=0),
    )
    assert a.gap["step"].to_list() == [2, 8, None]
    assert a.gap["delta"].to_list() == pytest.approx(b.gap["delta"].to_list(), abs=1e-12)


def test_prompts_that_a_checkpoint_lacks_are_left_out_and_counted():
    frame = random_frame(sentences=12, checkpoints=2, steps=[1, 2], orders=2)
    gone = (pl.col("step") == 2) & pl.col("prompt_id").is_in(["prompt-0", "prompt-1"])
    result = measured(frame.filter(~gone), bootstrap=50)
    whole = result.counts.group_by("step").agg(pl.col("prompts").sum(), pl.col("orders").max())
    assert whole.sort("step").select("prompts", "orders").rows() == [(48, 2), (46, 2)]
    assert column(result.gap, "missing") == [0, 4]
    assert column(result.average_rank, "missing", step=2) == [2, 2, 0]
    alone = measured(frame.filter(~gone & (pl.col("step") == 2)), bootstrap=0)
    assert result.gap["delta"][1] == pytest.approx(alone.gap["delta"][0])
    assert column(result.tests, "n1", step=2) == [11] * 4
    assert column(result.tests, "p", step=2) == pytest.approx(column(alone.tests, "p"))
    assert result.gap["low"].is_not_nan().all()


def test_the_change_of_the_gap_is_over_what_both_checkpoints_have():
    frame = random_frame(sentences=12, checkpoints=2, steps=[0, 8], orders=2)
    lacking = (pl.col("step") == 8) & (pl.col("order_seed") == 1)
    row = measured(frame.filter(~lacking), bootstrap=0).tests.row(-4, named=True)
    assert (row["step"], row["measure"]) == (8, "jsd_p")
    alone = measured(frame.filter(pl.col("order_seed") == 0), bootstrap=0).tests
    assert row["from_baseline"] == pytest.approx(alone.row(-4, named=True)["from_baseline"])


def two_models(**options: object) -> Fairness:
    one = random_frame(sentences=6, checkpoints=2, steps=[1, 2], model="one")
    two = random_frame(sentences=6, checkpoints=2, steps=[2, 4], model="two", seed=1)
    return measured(pl.concat([one, two]), bootstrap=0, **options)


def test_two_models_are_compared_on_neutral_prompts_at_the_same_step():
    result = two_models()
    assert result.comparison.select("model", "other_model", "step", "option", "test").rows() == [
        ("one", "two", 2, option, test)
        for option in ("male", "female")
        for test in ("mann_whitney", "wilcoxon")
    ]
    assert result.comparison["n1"].to_list() == [12] * 4
    assert result.comparison["from_baseline"].is_nan().all()  # its only step is the baseline


def test_the_same_answers_in_other_option_orders_tie():
    """What is averaged in another order differs in the last bit, and must not in rank."""
    one = random_frame(sentences=30, checkpoints=3, orders=5)
    other = one.with_columns(
        model=pl.lit("copy"), order_seed=(3 * pl.col("order_seed") % 5).cast(pl.Int32)
    )
    found = measured(pl.concat([one, other]), bootstrap=0).comparison
    ranked = found.filter(test="mann_whitney")
    assert ranked["statistic"].to_list() == (ranked["n1"] * ranked["n2"] / 2).to_list()
    assert ranked["p"].to_list() == [1.0] * len(ranked)
    paired = found.filter(test="wilcoxon")
    assert paired["statistic"].to_list() == [0.0] * len(paired)
    assert paired["p"].to_list() == [1.0] * len(paired)


def test_ties_hold_where_logits_were_rounded_apart_from_their_sum():
    """Scores made later are stored log-probabilities plus a log-sum-exp, rounded to float32."""
    random = np.random.default_rng(5)
    palette = random.normal(-6, 3, (4, 3)).astype(np.float16).astype(np.float64)
    answers = palette[random.integers(0, 4, (2, 2, 40))]
    gold = [0, 1] * 20
    mirrored = np.where(np.array(gold)[None, None, :, None] == 0, answers, answers[..., [1, 0, 2]])
    total = random.normal(20, 4, (2, 2, 40, 1))
    sound = scan_frame(mirrored, gold=gold)
    later = scan_frame((mirrored + total).astype(np.float32), gold=gold, exact=False)
    for test in ("mann_whitney", "wilcoxon"):
        expected, found = (
            measured(frame, bootstrap=0).tests.filter(test=test, measure="jsd_p")
            for frame in (sound, later)
        )
        for name in ("statistic", "p", "n1", "n2"):
            assert found[name].to_list() == expected[name].to_list()


def test_only_two_models_that_share_a_step_are_compared():
    one, two, three = (
        random_frame(sentences=2, checkpoints=1, steps=[step], model=model)
        for model, step in (("one", 1), ("two", 2), ("three", 1))
    )
    assert measured(pl.concat([one, two]), bootstrap=0).comparison.is_empty()
    both = measured(pl.concat([one, three]), bootstrap=0).comparison
    assert measured(pl.concat([one, two, three]), bootstrap=0).comparison.is_empty()
    assert both.select("model", "other_model").unique().rows() == [("one", "three")]


def test_two_models_are_compared_beside_one_without_scores(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one, two = (
        random_frame(sentences=6, checkpoints=1, steps=[2], model=model, seed=seed)
        for seed, model in enumerate(("one", "two"))
    )
    alone = measured(pl.concat([one, two]), bootstrap=0).comparison
    monkeypatch.setattr(gender_answers, "VALUES", 1)
    third = one.with_columns(model=pl.lit("three"))
    expected = pl.concat([one, two, third]).collect()
    beside = scores_of(one, two, expected=expected, at_once=1)
    assert len([*gender_answers.answer_blocks(beside)]) == 2
    assert_frame_equal(fairness_metric(beside, bootstrap=0).comparison, alone, check_exact=True)


ONE = random_frame(sentences=1, checkpoints=1, orders=1)
PROMPT = pl.col("prompt_id") == "prompt-0"
IS_FEMALE = pl.col("option") == "female"


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (ONE.filter(~(PROMPT & IS_FEMALE)), "'prompt-0' .*'?female"),
        (ONE.with_columns(is_answer=False, answer=None), "'prompt-0' has no answer"),
        (ONE.with_columns(is_answer=pl.col("is_answer") | PROMPT & IS_FEMALE), "two answers"),
        (pl.concat([ONE, ONE.with_columns(piece=1)], how="vertical_relaxed"), "has 2 tokens"),
        (ONE.with_columns(prompt_id=pl.when(~PROMPT).then("prompt_id")), "1 prompt has no"),
        (ONE.drop("sentence_id", "paired"), "sentence_id, paired"),
        (ONE.with_columns(pl.col("option").replace("male", "er")), "'er'"),
        (scan_frame([[[[np.nan, 0, 0], NO_LOGITS]]], gold=[MALE, FEMALE]), "the logit nan"),
    ],
)
def test_frames_that_do_not_fit_are_refused(frame, message):
    with pytest.raises((BankError, UsageError), match=message):
        measured(frame, bootstrap=0)


def test_a_bank_without_a_score_is_refused():
    with pytest.raises(BankError, match="no scores. Run `logitbank extract`"):
        measured(ONE.filter(False), expected=ONE.collect())


def test_a_prompt_with_some_of_its_options_is_refused():
    with pytest.raises(
        BankError, match="'prompt-0' has no score for option 'female' at toy main step 0"
    ):
        measured(ONE.filter(~(PROMPT & IS_FEMALE)), expected=ONE.collect())


def test_a_negative_number_of_resamples_is_refused():
    with pytest.raises(UsageError, match="-1 is negative"):
        measured(ONE, bootstrap=-1)
