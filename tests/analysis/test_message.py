"""What a page says first: the sentence, and numbers that say what they rest on."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from logitbank.analysis.drawing.figures import figure_data, interactive_figures
from logitbank.analysis.drawing.paper import kind_of
from logitbank.analysis.families.crows_pairs.message import crows_pairs_message
from logitbank.analysis.families.crows_pairs.metric import ALL, CrowsPairs
from logitbank.analysis.families.fairness.message import fairness_message
from logitbank.analysis.families.fairness.metric import Fairness, fairness_metric
from logitbank.analysis.families.lambada.message import lambada_message
from logitbank.analysis.families.lambada.metric import Lambada
from logitbank.analysis.families.stereotype.message import stereotype_message
from logitbank.analysis.families.stereotype.metric import StereotypeAccuracy
from logitbank.analysis.family import family_of
from logitbank.analysis.results.message import Message
from tests.support.drawing_cases import RESULTS
from tests.support.fairness_cases import random_frame

STEPS = (0, 10, 20, 30)
nan = float("nan")


@pytest.fixture(scope="module", name="made")
def fixture_made() -> Fairness:
    """Of ten sentences at four steps; tests put their own numbers in."""
    return fairness_metric(random_frame(checkpoints=4, sentences=10, steps=STEPS), bootstrap=20)


def with_gap(made: Fairness, deltas: tuple[float, ...], *, half: float = 0.01) -> Fairness:
    values = pl.Series("delta_scaled", deltas)
    gap = made.gap.with_columns(
        values,
        gap_scaled=values.abs(),
        low_scaled=values - half,
        high_scaled=values + half,
    )
    return replace(made, gap=gap)


CHANGE = {
    "kind": "change point", "step": 20, "earliest": 20, "latest": 20, "p_random_walk": 0.0021,
    "p_error": 0.0004, "p_holm": 0.0021,
}  # fmt: skip


def with_change(made: Fairness, **about: Any) -> Fairness:
    changes = made.change_points.with_columns(
        pl.lit(value).cast(made.change_points.schema[name]).alias(name)
        for name, value in {**CHANGE, **about}.items()
    )
    return replace(made, change_points=changes)


def said(result: Fairness) -> Message:
    message = fairness_message(result)
    assert message is not None
    return message


def test_a_change_point_is_the_message_with_its_step_and_both_levels(made: Fairness) -> None:
    result = with_gap(made, (0.02, -0.05, 0.70, 0.72))
    message = said(with_change(result, mean_before=-0.015, mean_after=0.714))
    assert message.sentence == (
        "Change point at step 20: mean Δ of the model rises from −0.01 to +0.71, worse for women."
    )
    assert message.change_point
    assert (message.figure, message.series) == ("gap", ("toy", "main"))
    (gap, change, *_) = message.numbers
    assert gap.rests_on.startswith("95 %: +0.710 to +0.730; ")
    assert change.rests_on.startswith("p = 0.0021 ± 0.0004, random-walk null")


@pytest.mark.parametrize(
    ("deltas", "half", "sentence"),
    [
        ((0.1, 0.2, 0.1, -0.3), 0.1, "−0.30 (pointwise 95 % interval −0.40 to −0.20), −0.30 to "
         "+0.20 over the last 4 checkpoints."),
        ((0.1, 0.2, 0.1, 0.05), nan, "+0.05 (no interval was made that would tell that from "
         "chance), +0.05 to +0.20 over the last 4 checkpoints."),
    ],
)  # fmt: skip
@pytest.mark.parametrize("about", [{"kind": None}, {"kind": "none"}, {"p_holm": 0.08}])
def test_without_a_change_the_last_checkpoint_is_the_message_with_the_range_of_the_last_ten(
    made: Fairness, deltas: tuple[float, ...], half: float, sentence: str, about: dict[str, Any]
) -> None:
    message = said(with_change(with_gap(made, deltas, half=half), **about))
    assert message.sentence == f"At step 30 the gap Δ of the model is {sentence}"
    assert not message.change_point
    assert message.numbers[1][:2] == (f"{max(map(abs, deltas)):.3f}", "largest gap")


def test_a_change_claims_no_direction_that_the_last_interval_does_not_have(made: Fairness) -> None:
    change = {"mean_before": -0.015, "mean_after": 0.03}
    near = said(with_change(with_gap(made, (0.0, 0.0, 0.03, 0.03), half=0.05), **change))
    assert near.sentence.endswith("from −0.01 to +0.03; the interval of step 30 contains 0.")
    turned = said(with_change(with_gap(made, (0.0, 0.0, 0.1, -0.04)), **change))
    assert turned.sentence.endswith("from −0.01 to +0.03; at step 30 it has the other sign.")
    bare = with_gap(made, (0.0, 0.0, 0.03, 0.03), half=nan)
    few = replace(bare, gap=bare.gap.with_columns(sentences=pl.lit(4)))
    message = said(with_change(few, **change))
    assert message.sentence.endswith("; 4 sentences are too few to tell that from chance.")


def test_a_run_without_an_interval_does_not_go_before_one_that_has_one() -> None:
    """NaN is greater than every number to Polars."""
    table = levels(low=[49.0, 52.0, nan, nan], high=[51.0, 56.0, nan, nan])
    table = table.with_columns(
        score=pl.Series([50.0, 54.0, 50.0, 90.0]), score_kind=pl.lit("sentence"),
        bias_type=pl.lit(ALL), pairs=3,
    )  # fmt: skip
    checkpoints = table.select("model", "run", "step", missing=0)
    message = crows_pairs_message(CrowsPairs(table, checkpoints, {}))
    assert message is not None
    assert (message.series, message.change_point) == (("a", "main"), False)
    assert message.sentence.endswith(" (largest of 2 runs).")


@pytest.mark.parametrize("end", [nan, None])
def test_too_few_for_an_interval_are_said_to_be_so(end: float | None) -> None:
    none = {"low": [end, end], "high": [end, end]}
    table = levels(**none, score=[50.0, 70.0], accuracy=[0.5, 0.7], acc=[0.5, 0.7]).with_columns(
        score_kind=pl.lit("sentence"), bias_type=pl.lit(ALL), measure=pl.lit("sa"), type=2,
        pairs=3, sentences=4, examples=1, missing=0,
    )  # fmt: skip
    checkpoints, empty = table.select("model", "run", "step", missing=0), pl.DataFrame()
    messages = [
        crows_pairs_message(CrowsPairs(table, checkpoints, {})),
        stereotype_message(StereotypeAccuracy(table, empty, {})),
        lambada_message(Lambada(table, checkpoints, {})),
    ]
    told = [
        "prefers the stereotyping sentence in 70 % of pairs; 3 pairs are",
        "gives occupations the gender of the stereotype 70 % of the time; 4 sentences are",
        "knows the last word of 70 % of passages; 1 passage is",
    ]
    for message, text in zip(messages, told, strict=True):
        assert message is not None
        assert (
            message.sentence == f"At step 1,000 the model {text} too few to tell that from chance."
        )
        assert not message.change_point
        assert "95 %" not in message.numbers[0].rests_on


def test_what_is_missing_is_said_and_without_a_gap_nothing(made: Fairness) -> None:
    checkpoints = made.checkpoints.with_columns(
        missing=pl.lit(7, made.checkpoints["missing"].dtype)
    )
    message = said(replace(with_gap(made, (0.1,) * 4), checkpoints=checkpoints))
    assert message.numbers[0].rests_on.endswith("10 sentences, 7 scores missing")
    one = random_frame(checkpoints=1, sentences=3).filter(pl.col("answer") != "male")
    assert fairness_message(fairness_metric(one, bootstrap=20)) is None


def levels(**columns: list[Any]) -> pl.DataFrame:
    """Checkpoints of one run, and of a second model where there are more than two."""
    count = len(columns["low"])
    models = ["a"] * min(2, count) + ["b"] * (count - 2)
    steps = [0, 1_000, 0, 1_000][:count]
    return pl.DataFrame({"model": models, "run": "main", "step": steps, **columns})


def crows(scores: list[float], *, half: float = 2.0, missing: int = 0) -> CrowsPairs:
    table = levels(low=[s - half for s in scores], high=[s + half for s in scores], score=scores)
    table = table.with_columns(score_kind=pl.lit("sentence"), bias_type=pl.lit(ALL), pairs=1508)
    return CrowsPairs(table, table.select("model", "run", "step", missing=missing), {})


def test_a_level_without_preference_is_what_a_share_is_set_against() -> None:
    message = crows_pairs_message(crows([50.2, 61.4], missing=3))
    assert message is not None
    assert message.sentence == (
        "At step 1,000 the model prefers the stereotyping sentence in 61 % of pairs; 50 % is "
        "neither."
    )
    assert not message.change_point, "one of many checkpoints"
    assert message.numbers[0].rests_on == "95 %: 59.4 % to 63.4 %; 1,508 pairs, 3 sentences missing"
    less = crows_pairs_message(crows([50.2, 40.0]))
    assert less is not None
    assert "prefers the less stereotyping sentence in 60 % of pairs" in less.sentence
    none = crows_pairs_message(crows([50.2, 51.0]))
    assert none is not None
    assert not none.change_point
    assert none.sentence.endswith(
        "no preference for stereotyping sentences that is more than chance."
    )


def test_of_several_models_the_clearest_speaks_and_is_named() -> None:
    message = crows_pairs_message(crows([50.0, 55.0, 50.0, 70.0]))
    assert message is not None
    assert message.sentence == (
        "At step 1,000 b prefers the stereotyping sentence in 70 % of pairs; 50 % is neither "
        "(largest of 2 runs)."
    )
    assert message.series == ("b", "main")
    assert message.numbers[-1] == ("4", "checkpoints", "2 models, 2 runs, steps 0 to 1,000")
    assert crows_pairs_message(crows([float("nan")])) is None


@pytest.mark.parametrize("name", RESULTS)
def test_a_message_names_a_figure_and_a_run_of_its_result(name: str, tmp_path: Path) -> None:
    result = RESULTS[name]("m", tmp_path)
    family = family_of(result)
    message = family.message(result) if family and family.message else None
    assert (message is None) == name.startswith("debias")
    if message is None:
        return
    assert message.figure in interactive_figures(result)
    table = pl.concat(
        table.select("model", "run")
        for figure, table in figure_data(result).items()
        if kind_of(figure) == kind_of(message.figure)
    )
    assert message.series[:2] in table.rows()
    assert message.sentence.endswith(".")
    assert all(number.value and number.what for number in message.numbers)


def blanked(result: Any, value: float | None, *, ends: bool) -> Any:
    """A result with this in all intervals, or in all columns of floats."""

    def chosen(table: pl.DataFrame) -> list[str]:
        floats = table.select(pl.col(pl.Float64)).columns
        return [c for c in floats if not ends or c.endswith(("low", "high", "_scaled_low"))
                or c in ("low_scaled", "high_scaled")]  # fmt: skip

    tables = {
        name: table.with_columns(pl.lit(value, pl.Float64).alias(c) for c in chosen(table))
        for name, table in result.tables().items()
    }
    return replace(result, **tables)


@pytest.mark.parametrize("value", [nan, None])
@pytest.mark.parametrize("name", [name for name in RESULTS if not name.startswith("debias")])
def test_without_intervals_nothing_is_a_change_point_and_without_numbers_nothing_is_said(
    name: str, value: float | None, tmp_path: Path
) -> None:
    result = RESULTS[name]("m", tmp_path)
    family = family_of(result)
    assert family is not None and family.message is not None  # noqa: PT018
    message = family.message(blanked(result, value, ends=True))
    assert message is not None
    assert not message.change_point
    assert "95 %" not in "".join(number.rests_on for number in message.numbers)
    if name != "fluctuation":  # which has no intervals, and says how much something varies
        assert "chance" in message.sentence
    if name != "tradeoff":  # which refuses what is not finite
        assert family.message(blanked(result, value, ends=False)) is None
