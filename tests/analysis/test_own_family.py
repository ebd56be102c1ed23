"""A family of a user: registered by a call or an entry point, then as any other."""

from collections.abc import Iterator
from dataclasses import replace
from importlib import metadata
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy import stats

from logitbank.analysis import Family, Items, Measure, Scores, gather_items, register
from logitbank.analysis import families as listing
from logitbank.analysis.charts.chart import chart_caption
from logitbank.analysis.comparison.compare import compare
from logitbank.analysis.everything import analyses
from logitbank.analysis.families import families
from logitbank.analysis.family import REGISTERED
from logitbank.analysis.finding import Finding
from logitbank.analysis.frames.choose import with_columns
from logitbank.analysis.frames.reader import read_scores
from logitbank.analysis.results.measured import Measured, changes_of, charts, findings, measure
from logitbank.errors import UsageError
from logitbank.store import Bank, CheckpointId
from tests.support.evaluation_banks import VOCAB, add_pieces

pytestmark = pytest.mark.numerical


def log_odds(scores: Scores) -> Items:
    """The log-probability of each prompt's token; parts are its kind."""
    return gather_items(
        frame.select(
            "model", "run", "step", item="prompt_id", part="kind_of", value="logprob"
        ).collect()
        for frame in scores.frames()
    )


MINE = Family(
    name="mine",
    title="Mine",
    description="A number of my own.",
    prompts=with_columns("kind_of"),
    items=log_odds,
    measures=(
        Measure(name="first", text="First kind", plus=("a",)),
        Measure(name="gap", text="First minus second", plus=("a",), minus=("b",)),
    ),
)


@pytest.fixture
def mine() -> Iterator[Family]:
    yield register(MINE)
    REGISTERED.pop("mine")


def make(path: Path, seed: int) -> tuple[Bank, np.ndarray]:
    bank = Bank.create(path)
    queries = add_pieces(
        bank, "own", [(f"p{i:02}", (1,), {"kind_of": "ab"[i % 2]}) for i in range(40)]
    )
    logits = np.random.default_rng(seed).normal(size=(2, 40, VOCAB)).astype(np.float32)
    for step, values in zip((0, 8), logits, strict=True):
        bank.deposit(values, checkpoint=CheckpointId("toy", step=step), query_set=queries.name)
    p = np.exp(logits.astype(float))
    return bank, np.log(p[..., 1] / p.sum(axis=-1))


def test_a_registered_family_has_values_intervals_and_changes(mine: Family, tmp_path: Path) -> None:
    bank, values = make(tmp_path / "a", 1)
    study = mine.analyze(bank)
    rows = study.tables["measures"].filter(step=8).rows_by_key("measure", named=True, unique=True)
    first = values[1, ::2]
    low, high = stats.t.interval(0.95, 19, first.mean(), stats.sem(first))
    found = rows["first"]
    assert (found["value"], found["low"], found["high"]) == pytest.approx((first.mean(), low, high))
    moved = (values[1] - values[0])[::2]
    low, high = stats.t.interval(0.95, 19, moved.mean(), stats.sem(moved))
    ends = found["from_baseline"], found["from_baseline_low"], found["from_baseline_high"]
    assert ends == pytest.approx((moved.mean(), low, high))
    gap = rows["gap"]
    assert gap["value"] == pytest.approx(first.mean() - values[1, 1::2].mean())
    error = np.hypot(stats.sem(first), stats.sem(values[1, 1::2]))
    assert gap["high"] - gap["value"] == pytest.approx(stats.t.ppf(0.975, 38) * error)
    before, after = (f"{values[at, ::2].mean():.3f}" for at in (0, 1))
    expected = f"First kind {before} → {after} from step 0 to step 8."
    assert study.findings[0].text == expected.replace("-", "−")
    assert list(study.charts) == ["measures"]
    assert (study.save(tmp_path / "out")).is_file()


def test_the_shift_and_the_rise_and_fall_of_a_registered_family_are_said(
    mine: Family, tmp_path: Path
) -> None:
    """P(a) jumps at step 10 and falls at the end; P(b) hardly moves."""
    bank = Bank.create(tmp_path / "a")
    queries = add_pieces(
        bank, "own", [(f"p{i:02}", (1,), {"kind_of": "ab"[i % 2]}) for i in range(40)]
    )
    random = np.random.default_rng(0)
    for step in range(24):
        logits = random.normal(0, 0.01, size=(40, VOCAB)).astype(np.float32)
        logits[::2, 1] += 0 if step < 10 else 1 if step > 20 else 3
        bank.deposit(logits, checkpoint=CheckpointId("toy", step=step), query_set=queries.name)
    study = mine.analyze(bank)
    p = np.log(np.exp(1) / (np.exp(1) + VOCAB - 1)), np.log(1 / VOCAB)
    course = "−2.483 → −0.436 at step 14 → −1.621"
    assert study.findings[0].text == f"First kind {course} from step 0 to step 23."
    assert "mean shift between steps 9 and 10" in "".join(study.summary)
    (now,) = (f for f in study.findings if f.text == "First kind at step 23")
    assert now.value == pytest.approx(p[0], abs=0.01)
    assert "highest" in now.extreme
    assert study.tables["change_points"]["step"].to_list()[0] == 10
    caption = chart_caption(study.charts["measures"])
    assert "Bands: 95% confidence intervals. Dashed, in the first plot: change points" in caption
    assert any("seven null models" in note for note in study.notes)


def test_names_have_one_colour_in_all_plots_whatever_values_are_missing(tmp_path: Path) -> None:
    bank, _ = make(tmp_path / "bank.zarr", 0)
    kinds = [
        Measure(name=name, group=kind, plus=(kind,)) for name in ("one", "two") for kind in "ab"
    ]
    family = replace(MINE, measures=tuple(kinds))
    result = measure(family, read_scores(bank, "own"))
    missing = (pl.col("step") == 0) & (pl.col("measure") == "one, a")
    table = result.measures.with_columns(
        value=pl.when(missing).then(float("nan")).otherwise("value")
    )
    assert table["value"].is_nan().sum() == 1
    (chart,) = charts(family, replace(result, measures=table)).values()
    scales = [
        layer["encoding"]["color"]["scale"]
        for plot in chart.to_dict()["vconcat"]
        for layer in plot["layer"][-1].get("layer", [plot["layer"][-1]])
    ]
    assert len(scales) > 2
    assert all(scale == scales[0] for scale in scales)
    assert scales[0]["domain"] == ["a", "b"]


def test_a_line_has_a_gap_where_a_value_is_missing(tmp_path: Path) -> None:
    bank = Bank.create(tmp_path / "bank.zarr")
    prompts = [(f"p{i:02}", (1,), {"kind_of": "ab"[i % 2]}) for i in range(40)]
    queries = add_pieces(bank, "own", prompts)
    logits = np.random.default_rng(0).normal(size=(5, 40, VOCAB)).astype(np.float32)
    for step, values in enumerate(logits):
        bank.deposit(values, checkpoint=CheckpointId("toy", step=step), query_set=queries.name)
    family = replace(MINE, measures=MINE.measures[:1])
    result = measure(family, read_scores(bank, "own"))
    value = pl.when(pl.col("step").is_in([0, 2])).then(float("nan")).otherwise("value")
    result = replace(result, measures=result.measures.with_columns(value=value))
    (chart,) = charts(family, result).values()
    rows = (row for rows in chart.to_dict()["datasets"].values() for row in rows)
    assert [(row["step"], row["value"] is None) for row in rows if "value" in row] == [
        (1, False), (2, True), (3, False), (4, False),
    ]  # fmt: skip


def test_a_registered_family_is_in_reports_and_comparisons(mine: Family, tmp_path: Path) -> None:
    a, one = make(tmp_path / "a", 1)
    b, other = make(tmp_path / "b", 2)
    assert [plan.family.name for plan in analyses(a)] == ["mine"]
    metrics = compare(a, b).result.metrics.filter(step=8, metric="gap")
    gaps = [values[1, ::2].mean() - values[1, 1::2].mean() for values in (one, other)]
    (row,) = metrics.to_dicts()
    assert (row["a"], row["b"], row["difference"]) == pytest.approx((*gaps, gaps[1] - gaps[0]))
    moved = other[1] - one[1]
    error = np.hypot(stats.sem(moved[::2]), stats.sem(moved[1::2]))
    assert row["high"] - row["difference"] == pytest.approx(stats.t.ppf(0.975, 38) * error)


def test_a_family_may_be_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EntryPoint("mine", f"{__name__}:MINE", "logitbank_families")
    monkeypatch.setattr(metadata, "entry_points", lambda group: [entry])
    listing._load.cache_clear()
    assert families()["mine"].measures is MINE.measures
    REGISTERED.pop("mine")


def test_own_tables_charts_and_sentences_replace_the_common_ones(tmp_path: Path) -> None:
    bank, values = make(tmp_path / "a", 1)

    def spread(scores: Scores, items: Items) -> dict[str, pl.DataFrame]:
        spread = np.nanstd(items.values, axis=1)
        return {"spread": items.checkpoints.with_columns(sd=pl.Series(spread))}

    def said(result: Measured) -> list[Finding]:
        return [Finding(text="Spread", value=result.tables()["spread"]["sd"][-1])]

    own = replace(MINE, tables=spread, findings=said)
    try:
        study = register(own).analyze(bank)
    finally:
        REGISTERED.pop("mine")
    assert list(study.tables) == ["measures", "change_points", "spread"]
    assert study.findings[0].value == pytest.approx(values[1].std())
    assert list(study.charts) == ["measures"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "gest"}, "'gest' exists"),
        ({"name": "a b"}, "letters, digits"),
        ({"measures": ()}, "no measures"),
        ({"items": None}, "no measures, or no items"),
        ({"analyze": print, "name": "options"}, "'options' exists"),
    ],
)
def test_a_family_needs_a_name_measures_and_items(change: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        register(replace(MINE, **change))  # type: ignore[arg-type]


def test_a_share_near_its_bounds_has_wilson_s_interval_and_a_paired_change() -> None:
    from logitbank.analysis import summarise

    rows = pl.DataFrame(
        {"model": "m", "run": "main", "step": [0] * 20 + [8] * 20,
         "item": [f"{i:02}" for i in range(20)] * 2, "value": [0.0] * 20 + [1.0] * 19 + [0.0]}
    )  # fmt: skip
    table = summarise(gather_items([rows]), [Measure(name="hit", share=True)])
    expected = stats.binomtest(19, 20).proportion_ci(method="wilson")
    assert table.row(1, named=True)["low"] == pytest.approx(expected.low)
    assert table.row(1, named=True)["high"] == pytest.approx(expected.high)
    assert table["low"][0] == 0
    # Bonett and Price: 19 of 20 moved up, one item added for each direction.
    centre = 19 / 22
    half = stats.norm.ppf(0.975) * np.sqrt((21 / 22 - centre**2) / 22)
    assert table["from_baseline_low"][1] == pytest.approx(centre - half)
    assert table["from_baseline_high"][1] == pytest.approx(min(1.0, centre + half))


def of_shares(*sides: tuple[int, int], paired: bool = False) -> dict[str, Any]:
    """The summary of a difference of shares: hits among items, of the parts a and b."""
    from logitbank.analysis import summarise

    rows = [
        {"model": "m", "run": "main", "step": 0, "item": f"{part}{i}", "part": part,
         "cluster": f"{i:03}" if paired else f"{part}{i:03}", "value": float(i < hits)}
        for part, (hits, n) in zip("ab", sides, strict=True)
        for i in range(n)
    ]  # fmt: skip
    measure = Measure(name="x", plus=("a",), minus=("b",), share=True)
    return summarise(gather_items([pl.DataFrame(rows)]), [measure]).row(0, named=True)


@pytest.mark.parametrize(
    ("sides", "low", "high"),
    [  # Newcombe 1998, Stat. Med. 17: 873, table II, method 10
        (((56, 70), (48, 80)), 0.0524, 0.3339),
        (((9, 10), (3, 10)), 0.1705, 0.8090),
        (((10, 10), (0, 20)), 0.6791, 1.0),
    ],
)
def test_a_difference_of_shares_has_newcombe_s_interval(
    sides: tuple[tuple[int, int], tuple[int, int]], low: float, high: float
) -> None:
    row = of_shares(*sides)
    assert (row["low"], row["high"]) == pytest.approx((low, high), abs=5e-5)
    assert row["value"] == pytest.approx(sides[0][0] / sides[0][1] - sides[1][0] / sides[1][1])


def test_a_paired_difference_of_shares_is_shorter() -> None:
    """Both sides hit the same sentences but two: their errors are correlated."""
    row, apart = of_shares((16, 20), (14, 20), paired=True), of_shares((16, 20), (14, 20))
    one, other = (stats.binomtest(k, 20).proportion_ci(method="wilson") for k in (16, 14))
    phi = np.corrcoef(np.arange(20) < 16, np.arange(20) < 14)[0, 1]
    first, second = 0.8 - one.low, other.high - 0.7
    distance = np.sqrt(first**2 - 2 * phi * first * second + second**2)
    assert row["low"] == pytest.approx(0.1 - distance)
    assert apart["low"] < row["low"] < 0.1 < row["high"] < apart["high"]


@pytest.mark.parametrize("clusters", [20, 50])
def test_intervals_of_a_summary_cover_the_truth(clusters: int) -> None:
    """At least 90 and 93 of 100, of values and of changes; 500 data sets err by 0.011."""
    from bench.errors import summary_coverage

    least = {20: 0.90, 50: 0.93}[clusters] - 2 * 0.011
    rates = [*summary_coverage(clusters, data_sets=500)]
    assert len(rates) == 24
    assert {rate.what: rate.share for rate in rates if rate.share < least} == {}


def test_the_headline_of_groups_that_have_no_whole_names_the_extremes() -> None:
    rows = [("low", 0.25), ("middle", 0.5), ("high", 0.75)]
    table = pl.DataFrame(
        [("toy", "main", 0, group, "first", value) for group, value in rows],
        schema=["model", "run", "step", "kind", "measure", "value"],
        orient="row",
    ).with_columns(
        **dict.fromkeys(("low", "high", "from_baseline"), pl.lit(float("nan"))),
        items=pl.lit(20),
        clusters=pl.lit(20),
        baseline_step=pl.lit(0),
        common=pl.lit(20),
        missing=pl.lit(0),
        skewed=pl.lit(False),
    )
    found = findings(MINE, Measured(table, changes_of(table, MINE.measures[0])))
    assert found[0].text == "First kind is from 0.250 (low) to 0.750 (high) at step 0."
