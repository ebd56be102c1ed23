"""Eight or more models and runs: findings about their distribution, thin lines, one row each."""

import json
import shlex
from dataclasses import replace
from itertools import product
from pathlib import Path
from unittest import mock

import altair as alt
import numpy as np
import polars as pl
import pytest
from playwright.sync_api import Browser
from scipy.stats import norm, ttest_1samp, ttest_rel

from logitbank.analysis import Family, Items, Scores, gather_items
from logitbank.analysis import Measure as ItemMeasure
from logitbank.analysis.charts.chart import bare_spec, chart_caption, titled
from logitbank.analysis.charts.curves import curves, horizontal, stacked
from logitbank.analysis.charts.measure import Measure
from logitbank.analysis.charts.steps import StepAxis
from logitbank.analysis.families import families
from logitbank.analysis.families.options import options
from logitbank.analysis.families.stereotype import stereotype
from logitbank.analysis.family import REGISTERED
from logitbank.analysis.finding import Finding
from logitbank.analysis.frames.choose import on_request
from logitbank.analysis.frames.prompt_sums import PromptSums
from logitbank.analysis.frames.reader import read_scores
from logitbank.analysis.report import prompts
from logitbank.analysis.results.crowd import digest, model_tables
from logitbank.analysis.results.latex import latex
from logitbank.analysis.results.studies import measured_study
from logitbank.store import Bank, CheckpointId
from tests.golden.banks import add_prompts, fill
from tests.support.browser import Opened
from tests.support.command import Call
from tests.support.made_once import made_once
from tests.support.small_banks import OPTIONS, QUERY_SET, new_bank

STEPS = (0, 10, 20)


def crowded(path: Path, models: int) -> tuple[Bank, np.ndarray]:
    """Models whose share of "yes" goes from 0.3 to a value of their own; these values."""
    return Bank.open(crowd(path, models)), np.linspace(0.2, 0.7, models)


@made_once
def crowd(path: Path, models: int) -> None:
    bank = new_bank(path)
    for model, share in enumerate(np.linspace(0.2, 0.7, models)):
        for at, step in enumerate(STEPS):
            p = 0.3 + (share - 0.3) * at / 2 + np.linspace(-0.02, 0.02, 10)
            rows = np.full((10, 6), -30.0)
            rows[:, OPTIONS["yes"]], rows[:, OPTIONS["no"]] = np.log(p), np.log(1 - p)
            bank.deposit(
                rows.astype(np.float32), checkpoint=CheckpointId(f"m{model}", step=step),
                query_set=QUERY_SET.name, dtype="float32",
            )  # fmt: skip


def test_a_crowd_is_told_by_its_median_and_range(tmp_path: Path) -> None:
    bank, last = crowded(tmp_path / "b", 9)
    study = options(bank)
    (yes,) = [f for f in study.findings if "Option probability, yes at step 20" in f.text]
    assert yes.value == pytest.approx(np.median(last))
    assert yes.note == "range 0.200 (m0) to 0.700 (m8)"
    assert not [f for f in study.findings if f.series], "the rest is in the details"
    assert len([f for f in study.details if "Option probability, yes at step 20" in f.text]) == 9
    assert len(study.as_dict()["details"]) == len(study.details)
    assert study.title == "Options: 9 models"


def test_a_crowd_has_a_row_with_a_sparkline_for_each_model(tmp_path: Path) -> None:
    bank, _ = crowded(tmp_path / "b", 9)
    table = options(bank).tables["models"]
    assert table["model"].to_list() == [f"m{i}" for i in range(9)]
    assert table["first"].to_list() == [0.0] * 9
    assert table["last"].to_list() == [0.0] * 5 + [0.8] + [1.0] * 3, "above ½, of ten prompts"
    assert table["change"].to_list() == table["last"].to_list()
    assert {*table["measure"]} == {"accuracy"}
    assert {len(curve) for curve in table["curve"]} == {len(STEPS)}
    assert latex(table).isascii(), "pdflatex has no sparklines"
    assert "model_groups" not in options(bank).tables
    own = pl.DataFrame({"curve": ["up"]})
    assert "curve" in latex(own), "another column of this name stays"


def test_models_of_a_crowd_are_compared_in_pairs(tmp_path: Path) -> None:
    """Paired t tests by SciPy over the ten prompts, adjusted for 36 pairs."""
    bank = new_bank(tmp_path / "b")
    rng = np.random.default_rng(3)
    right = rng.random((9, 10)) < np.linspace(0.1, 0.9, 9)[:, None]
    for model, own in enumerate(right):
        rows = np.full((10, 6), -30.0)
        rows[:, OPTIONS["yes"]], rows[:, OPTIONS["no"]] = own, ~own
        for step in (0, 10):
            bank.deposit(
                (rows if step else -rows).astype(np.float32),
                checkpoint=CheckpointId(f"m{model}", step=step), query_set=QUERY_SET.name,
                dtype="float32",
            )  # fmt: skip
    study = options(bank)
    table = study.tables["model_differences"]
    assert len(table) == 36
    for row in table.iter_rows(named=True):
        one, other = (right[int(row[name][1:])] * 1.0 for name in ("model", "other_model"))
        assert row["difference"] == pytest.approx((one - other).mean(), abs=1e-12)
        if (one == other).all():
            assert row["p"] == 1
        elif (one - other).std():
            test = ttest_rel(one, other)
            assert row["p"] == pytest.approx(test.pvalue)
            assert row["low"] == pytest.approx(test.confidence_interval().low)
    differ = (table["p_holm"] <= 0.05).sum()
    text = str(study.findings[1])
    assert text.startswith(f"Accuracy: {differ} of 36 pairs of models differ (adjusted p ≤ 0.05).")
    assert 0 < differ < 36


def test_models_of_a_crowd_are_compared_in_each_prompt_set(tmp_path: Path) -> None:
    bank = Bank.create(tmp_path / "b")
    add_prompts(bank, steps=())
    for seed in range(8):
        fill(bank, CheckpointId(f"m{seed}", step=8), keep="options", seed=seed)
    study = stereotype(bank)
    sets = (("stereotype-accuracy", "10 sentences"), ("winobias", "12 sentences"))
    for finding, (name, n) in zip(study.findings[1:3], sets, strict=True):
        table = study.tables["model_differences"].filter(prompts=name)
        pairs = table.drop_nulls("other_model")
        assert finding.text.startswith(f"Stereotype accuracy of {name}: ")
        assert " of 8 models and runs differ from 0.500; " in finding.text
        assert " of 28 pairs of models differ" in finding.text
        assert abs(finding.value or 0) == pairs["difference"].abs().max()
        assert finding.n == n


def test_runs_and_models_share_one_reading_of_the_items(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b")
    for model, run in product(range(3), range(3)):
        rows = np.random.default_rng(10 * model + run).normal(size=(10, 6)).astype(np.float32)
        checkpoint = CheckpointId(f"m{model}", f"seed{run}", 10)
        bank.deposit(rows, checkpoint=checkpoint, query_set=QUERY_SET.name, dtype="float32")
    read = list[Scores]()

    def items(scores: Scores) -> Items:
        read.append(scores)
        return families()["options"].items(scores).only(part="accuracy")  # type: ignore[misc]

    family = Family(
        name="own", title="Own", description="", prompts=on_request, items=items,
        measures=(ItemMeasure(name="accuracy", plus=("accuracy",), share=True),),
    )  # fmt: skip
    with mock.patch.dict(REGISTERED, {"own": family}):
        study = measured_study(family, read_scores(bank, "parity"))
    assert {"runs", "agreement", "model_differences"} <= {*study.tables}
    assert len(read) == 1


def test_models_of_a_crowd_are_compared_with_no_effect(tmp_path: Path) -> None:
    """One-sample t tests by SciPy of a mean, and score tests of a share, over the ten prompts."""
    bank, last = crowded(tmp_path / "b", 9)
    shares = np.array([0.3 + (end - 0.3) + np.linspace(-0.02, 0.02, 10) for end in last])
    for is_share, reference in ((False, 0.45), (True, 0.5)):

        def items(scores: Scores, is_share: bool = is_share) -> Items:
            def read(sums: PromptSums) -> pl.DataFrame:
                rows = sums.rows.filter(option="yes")
                p = pl.col("logprob").exp()
                value = (p > 0.5).cast(pl.Float64) if is_share else p
                return rows.select("model", "run", "step", item="prompt_id", value=value)

            return gather_items(scores.map_prompts(read, family="own", by=["option"]))

        family = Family(
            name="own", title="Own", description="", prompts=on_request, items=items,
            measures=(ItemMeasure(name="yes", share=is_share, reference=reference),),
        )  # fmt: skip
        study = measured_study(family, read_scores(bank, "parity"))
        table = study.tables["model_differences"]
        alone = table.filter(pl.col("other_model").is_null())
        assert len(alone) == 9
        for row, values in zip(alone.iter_rows(named=True), shares, strict=True):
            values = np.where(values > 0.5, 1.0, 0.0) if is_share else values
            assert row["difference"] == pytest.approx(values.mean() - reference, abs=1e-6)
            z = (values.mean() - reference) / np.sqrt(reference * (1 - reference) / 10)
            expected = 2 * norm.sf(abs(z)) if is_share else ttest_1samp(values, reference).pvalue
            assert row["p"] == pytest.approx(expected, rel=1e-3)
        differ = (alone["p_holm"] <= 0.05).sum()
        assert 0 < differ < 9
        text = str(study.findings[1])
        assert text.startswith(f"yes: {differ} of 9 models and runs differ from {reference:.3f}; ")


def test_a_crowd_of_groups_has_one_row_per_model_and_another_table() -> None:
    rows = [(f"m{i}", "main", step, group, 0.1 * step)
            for i in range(8) for step in (0, 4) for group in ("age", "all")]  # fmt: skip
    table = pl.DataFrame(rows, schema=["model", "run", "step", "group", "score"], orient="row")
    family = replace(families()["pairs"], screen={"pairs": ("group", "score")})
    found = model_tables(family, {"pairs": table})
    assert found["models"]["group"].to_list() == ["all"] * 8
    assert len(found["model_groups"]) == 16
    measured = table.rename({"group": "measure", "score": "value"})
    own = model_tables(replace(family, screen={}), {"measures": measured})
    assert own["models"]["model"].to_list() == [f"m{i}" for i in range(8)]


def test_a_chart_of_a_crowd_names_the_extremes_and_has_one_colour_for_the_rest(
    tmp_path: Path,
) -> None:
    bank, _ = crowded(tmp_path / "b", 9)
    charts = options(bank).charts
    spec = json.dumps(charts["measures"].to_dict())
    assert '"7 others"' in spec
    assert "the highest and the lowest at the end" in spec
    assert "medians" in json.dumps(charts["by_option"].to_dict())


def test_all_panels_name_the_series_that_the_first_one_names() -> None:
    axis, rows = StepAxis([0, 10]), []
    for model in range(9):
        for step in (0, 10):
            # Of `up`, model 8 is the highest; of `down`, model 0; of `other`, models 4 and 5.
            other = (model * 2) % 9
            rows.append((f"m{model}", "main", step, float(model), -float(model), float(other)))
    table = pl.DataFrame(rows, schema=["model", "run", "step", "up", "down", "other"], orient="row")
    table = table.with_columns(group=pl.lit("g"))
    panels = [curves(table, axis, Measure(name, name, None)) for name in ("up", "down", "other")]
    panels[1] = alt.layer(horizontal(0), panels[1])
    chart = titled(stacked(*panels), "T", "C.", axis=axis)
    spec = bare_spec(chart)
    named = [
        {row["series"]: row["shown"] for row in data}
        for data in spec["datasets"].values() if "shown" in data[0]
    ]  # fmt: skip
    expected = {f"m{i}": f"m{i}" if i in (0, 8) else "7 others" for i in range(9)}
    assert named == [expected] * 3
    text = json.dumps(spec)
    assert text.count('"domain": ["m0", "m8", "7 others"]') == text.count('"domain": ["')
    both = titled(
        stacked(panels[0], curves(table, axis, Measure("up", "up", None), group="group")), "", ""
    )
    assert chart_caption(chart).endswith("the highest and the lowest at the end of the first plot.")
    assert chart_caption(both).endswith("the highest and the lowest at the end; medians.")


def test_a_page_shows_all_models_of_a_crowd(tmp_path: Path, chromium: Browser) -> None:
    bank, _ = crowded(tmp_path / "b", 9)
    (tmp_path / "out").mkdir()
    opened = Opened(chromium, options(bank).save(tmp_path / "out"))
    opened.draw()
    menus = opened.page.get_by_label("Model", exact=True)
    assert [menu.input_value() for menu in menus.all()] == [""] * 2
    assert opened.complaints == []
    opened.close()


def test_prompts_of_a_page_are_those_of_the_models_that_change_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bank, last = crowded(tmp_path / "b", 9)
    monkeypatch.setattr(prompts, "SERIES", 3)
    found = prompts.prompt_data([bank], "parity")
    most = sorted(range(9), key=lambda at: abs(last[at] - 0.3))[-3:]
    assert [one["name"] for one in found["series"]] == [f"m{at}" for at in sorted(most)]
    assert found["left_out"] == 6


def test_a_crowd_is_printed_as_one_list_and_the_table_of_models_is_named(
    call: Call, tmp_path: Path
) -> None:
    crowded(tmp_path / "b", 9)
    code, out, _ = call("show", tmp_path / "b", "--top", 12)
    rows = [line.split() for line in out.splitlines() if "even?" in line]
    assert (code, len(rows), {row[0] for row in rows}) == (0, 12, {"m8", "m7"})
    assert "Prompts of one model: --model NAME." in out
    command = shlex.split(out.splitlines()[-1])
    assert command[-4:] == ["--model", "m8", "--prompt", rows[0][2]]
    assert call(*command[1:])[0] == 0
    assert call("show", tmp_path / "b", "--model", "m1")[1].count("even?") == 10
    hint = "`logitbank analyze options BANK --table models`"
    assert hint in call("analyze", "options", tmp_path / "b")[1]
    assert hint in call("analyze", tmp_path / "b")[1]


def test_ends_of_a_range_count_who_is_there() -> None:
    values = [0.0, 0.0, 0.0, 0.1, 0.2, 0.3, 0.4, 0.4]
    findings = [
        Finding(text=f"m{i}: X", value=value, series=(f"m{i}", "main"))
        for i, value in enumerate(values)
    ]
    (found,), _ = digest(findings)
    assert found.note == "range 0.000 (m0 and 2 more) to 0.400 (m6 and 1 more)"


def test_fewer_models_are_told_one_by_one(tmp_path: Path) -> None:
    bank, _ = crowded(tmp_path / "b", 7)
    study = options(bank)
    assert not study.details
    assert "models" not in study.tables
    assert {f.series[0] for f in study.findings if f.series} == {f"m{i}" for i in range(7)}


def test_outliers_are_those_of_tukey() -> None:
    values = [*np.linspace(0.4, 0.6, 11), 0.9]
    found = [
        Finding(text=f"m{i}: X at step 5", value=float(v), low=v - 0.3, high=v + 0.3,
                series=(f"m{i}", "main"))
        for i, v in enumerate(values)
    ]  # fmt: skip
    other = Finding(text="All had prompts.")
    (first, second), details = digest([*found, other])
    lower, upper = np.percentile(values, [25, 75])
    assert sum(v > upper + 1.5 * (upper - lower) for v in values) == 1
    assert first.text == "X at step 5, median of 12 models and runs"
    assert first.value == pytest.approx(np.median(values))
    assert first.note.endswith("outliers m11 (0.900)")
    wide = [replace(each, low=0.0, high=1.0) for each in found]
    assert digest(wide)[0][0].note.endswith("farthest m11 (0.900)")
    assert not digest([replace(each, value=0.0) for each in found])[0]
    moved = [replace(each, text=each.text.replace("5", "6")) for each in found[:3]]
    assert digest([*moved, *found[3:]])[0][0].text.endswith("median of 9 of 12 models and runs")
    assert (second, details) == (other, found)
