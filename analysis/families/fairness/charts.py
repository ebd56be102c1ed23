"""The charts of fairness, from its tables."""

from collections.abc import Sequence

import altair as alt
import polars as pl

from logitbank.analysis.charts.chart import Chart, titled
from logitbank.analysis.charts.curves import (
    SERIES,
    change_caption,
    change_points,
    curves,
    horizontal,
    interval_caption,
    significance_rows,
    stacked,
    with_gaps,
    with_series,
)
from logitbank.analysis.charts.measure import Measure, power
from logitbank.analysis.charts.steps import StepAxis
from logitbank.analysis.charts.theme import DELTA
from logitbank.analysis.families.fairness.metric import Fairness
from logitbank.analysis.families.fairness.tables import MANN_WHITNEY, WILCOXON
from logitbank.analysis.frames.gender_answers import LABELS
from logitbank.analysis.frames.prompt_sums import CHECKPOINT
from logitbank.analysis.results.series import UNTRAINED
from logitbank.analysis.stats.significance import SIGNIFICANCE
from logitbank.wording import counted

GENDERS = [LABELS.male, LABELS.female]
TESTS = {"p": "Mann–Whitney", "p_bh": "BH-adjusted", "wilcoxon": "Wilcoxon pairs"}
MARKS = (
    f"Filled marks: male and female answers differ, p < {SIGNIFICANCE} (Mann–Whitney; the BH "
    "adjustment and Wilcoxon on pairs are not in the paper)."
)
SPREAD = "± 1 SD between option orders"
LEAST = 1e-12
"""The smallest p value that is drawn at its place."""
GAP = Measure("delta", "Gender gap Δ", ("low", "high"))
JSD_P = Measure("jsd_p", "JSD-P, scaled to 0–1", scale="share")
RANK = Measure("average_rank", "Average Rank (log scale)", scale="log")
ACCURACY = Measure("accuracy", "Accuracy", scale="share")
SPECIFIED = Measure("probability", "P(“ specified” | … not)", ("low", "high"), "share", level=0.5)


def charts(result: Fairness) -> dict[str, Chart]:
    """`gap` first; those without any value are left out."""
    made = {
        "gap": _gap,
        "jsd_p": _jsd_p,
        "average_rank": _average_rank,
        "neutral_options": _neutral_options,
        "accuracy": _accuracy,
        "rank_and_accuracy": _rank_and_accuracy,
        "p_values": _p_values,
        "specified": _specified,
    }
    axis = StepAxis(result.counts["step"].to_list())
    drawn = ((name, make(result, axis)) for name, make in made.items())
    return {name: chart for name, chart in drawn if chart is not None}


def _gap(result: Fairness, axis: StepAxis) -> Chart | None:
    table = with_series(with_gaps(result.gap, "delta"))
    if table.is_empty():
        return None
    names = table[SERIES].unique(maintain_order=True).to_list()
    untrained = table.filter(step=UNTRAINED)["delta"].to_list() if len(names) == 1 else []
    colors = {names[0]: DELTA} if len(names) == 1 else None
    plot = curves(table, axis, GAP, colors=colors, tooltip={"Sentences": "clusters"})
    lines = [horizontal(0), *(horizontal(level, dash=(1, 3)) for level in untrained)]
    caption = (
        "JSD-P of female answers minus that of male answers, scaled to −1 to 1. Above 0, the error "
        "is higher for female answers. "
        f"{interval_caption(table, '95% confidence intervals, pointwise')} Dashed: "
        f"{' and '.join(filter(None, ('zero', change_caption(result.change_points))))}"
        f"{'. Dotted: untrained model' if untrained else ''}. n = "
        f"{_prompts(result, GENDERS)}."
    )
    chart = alt.layer(*change_points(result.change_points, axis), *lines, plot)
    return titled(chart, "Gender gap Δ", caption, axis=axis)


def _jsd_p(result: Fairness, axis: StepAxis) -> Chart | None:
    own = result.jsd_parts.filter(pl.col("gold") == pl.col("option"), pl.col("gold").is_in(GENDERS))
    table = _banded(own, "jsd_p", least=0, most=1)
    caption = (
        "JSD-P of the correct answer, for prompts whose answer is "
        f"{' or '.join(GENDERS)}; smaller is better. {interval_caption(table, SPREAD)} {MARKS}"
    )
    chart = _above_tests(result, axis, table, JSD_P, tests="jsd_p")
    text = f"{caption}{_order(table)} n = {_prompts(result, GENDERS)}."
    return chart and titled(chart, "JSD-P per correct answer", text, axis=axis)


def _average_rank(result: Fairness, axis: StepAxis) -> Chart | None:
    table = _banded(result.average_rank, "average_rank", least=1)
    caption = (
        "Rank of the correct answer's token in the vocabulary, mean over prompts; 1 is best. "
        f"{interval_caption(table, SPREAD)} {MARKS}"
    )
    chart = _above_tests(result, axis, table, RANK, tests="average_rank")
    text = f"{caption}{_order(table)} n = {_prompts(result, LABELS)}."
    return chart and titled(chart, "Average Rank per correct answer", text, axis=axis)


def _above_tests(
    result: Fairness, axis: StepAxis, table: pl.DataFrame, measure: Measure, *, tests: str
) -> Chart | None:
    """A curve for each correct answer, above the tests of male against female."""
    if table.is_empty():
        return None
    rows = result.tests.filter(measure=tests)
    paired = rows.filter(test=WILCOXON).select(*CHECKPOINT, wilcoxon="p_bh")
    both = rows.filter(test=MANN_WHITNEY).join(
        paired, on=CHECKPOINT, how="left", nulls_equal=True, maintain_order="left"
    )
    above = curves(table, axis, measure, group="gold", tooltip={"Answers": "items"})
    return stacked(above, significance_rows(both, axis, TESTS))


def _order(table: pl.DataFrame) -> str:
    """The models and runs whose marks stand below each other in a row."""
    names = with_series(table)[SERIES].unique().sort().to_list()
    return f" In a row of marks, from above: {', '.join(names)}." * (len(names) > 1)


def _neutral_options(result: Fairness, axis: StepAxis) -> Chart | None:
    neutral = result.jsd_parts.filter(
        pl.col("gold") == LABELS.neutral, pl.col("option").is_in(GENDERS)
    )
    table = _banded(neutral, "jsd_p", least=0, most=1)
    if table.is_empty():
        return None
    chart: Chart = curves(table, axis, JSD_P, group="option", tooltip={"Answers": "items"})
    caption = (
        f"JSD-P of the {LABELS.male} and the {LABELS.female} option on prompts whose answer is "
        f"“{LABELS.neutral}”: the probability that each takes. {interval_caption(table, SPREAD)}"
    )
    tests = result.comparison.filter(test=MANN_WHITNEY)
    if len(tests):
        by_option = tests.pivot(on="option", index=CHECKPOINT, values="p")
        rows = {label: f"{label} option" for label in GENDERS}
        chart = stacked(chart, significance_rows(by_option, axis, rows))
        caption += f" Filled marks: the two models differ, Mann–Whitney p < {SIGNIFICANCE}."
    text = f"{caption} n = {_prompts(result, [LABELS.neutral])}."
    return titled(chart, "Gendered options on neutral prompts", text, axis=axis)


def _accuracy(result: Fairness, axis: StepAxis) -> Chart | None:
    options = result.three_way_accuracy.select(*CHECKPOINT, "gold", "three_way_accuracy")
    table = _banded(result.accuracy, "accuracy", least=0, most=1).join(
        options, on=[*CHECKPOINT, "gold"], nulls_equal=True, maintain_order="left"
    )
    if table.is_empty():
        return None
    tooltip = {"Accuracy over the options": "three_way_accuracy", "Answers": "items"}
    plot = curves(table, axis, ACCURACY, group="gold", tooltip=tooltip)
    caption = (
        "Share of prompts whose correct answer's token is the only maximum of the whole "
        f"vocabulary. {interval_caption(table, SPREAD)} n = {_prompts(result, LABELS)}."
    )
    return titled(plot, "Accuracy per correct answer", caption, axis=axis)


def _rank_and_accuracy(result: Fairness, axis: StepAxis) -> Chart | None:
    """Average Rank above accuracy, of the prompts whose answer is "female"."""
    answer = LABELS.female
    ranks = _banded(result.average_rank.filter(gold=answer), "average_rank", least=1)
    hits = _banded(result.accuracy.filter(gold=answer), "accuracy", least=0, most=1)
    if ranks.is_empty() or hits.is_empty():
        return None
    several = ranks.select("model", "run").n_unique() > 1
    plots = [
        curves(
            table, axis, measure, group=None if several else "gold", tooltip={"Answers": "items"}
        )
        for table, measure in ((ranks, RANK), (hits, ACCURACY))
    ]
    caption = (
        f"Above: Average Rank of the answer “{answer}”, mean over prompts; 1 is best. Below: share "
        "of the same prompts whose answer's token is the only maximum of the whole vocabulary. "
        f"{interval_caption(ranks, SPREAD)} n = {_prompts(result, [answer])}."
    )
    title = f"Average Rank and accuracy of “{answer}”"
    return titled(stacked(*plots), title, caption, axis=axis)


def _p_values(result: Fairness, axis: StepAxis) -> Chart | None:
    """Mann–Whitney's p at each checkpoint, for every comparison of the paper."""
    names = {"jsd_p": "JSD-P", "average_rank": "Average Rank"}
    genders = result.tests.filter(test=MANN_WHITNEY).with_columns(
        test=pl.col("measure").replace(names)
    )
    models = result.comparison.filter(test=MANN_WHITNEY).with_columns(
        test=pl.format("{} option", "option")
    )
    columns = [*CHECKPOINT, "test", "p", "n1", "n2"]
    table = pl.concat([genders.select(columns), models.select(columns)])
    table = table.filter(pl.col("p").is_not_nan()).with_columns(drawn=pl.col("p").clip(LEAST))
    if table.is_empty():
        return None
    tooltip = {"p": "p", "n of the first sample": "n1", "n of the second sample": "n2"}
    drawn = Measure("drawn", "p (log scale)", None, "log", level=(SIGNIFICANCE, 1))
    plot = curves(table, axis, drawn, group="test", tooltip=tooltip)
    both = " Options: JSD-P of the two models on neutral prompts." if len(models) else ""
    caption = (
        "Two-sided Mann–Whitney tests of male against female answers at each checkpoint, not "
        f"adjusted for their number.{both} Dashed: p = {SIGNIFICANCE}. Values below {power(LEAST)} "
        f"are drawn there. n = {_prompts(result, LABELS)}."
    )
    chart = alt.layer(horizontal(SIGNIFICANCE), plot)
    return titled(chart, "p values of the tests", caption, axis=axis)


def _specified(result: Fairness, axis: StepAxis) -> Chart | None:
    """Whether " not" begins "not specified", which the paper's neutral answer rests on."""
    if result.specified is None:
        return None
    table = result.specified.filter(pl.col("gold") != "all", pl.col("probability").is_not_nan())
    plot = curves(table, axis, SPECIFIED, group="gold", tooltip={"Prompts": "prompts"})
    prompts = table.group_by(CHECKPOINT).agg(pl.col("prompts").sum())["prompts"].to_list()
    caption = (
        "Probability of “ specified” after “ not”, the token that stands for “not specified”, per "
        "correct answer. Below the dashed line, that token usually begins something else. "
        f"{interval_caption(table)} "
        f"n = {counted(max(prompts), 'prompt')}."
    )
    chart = alt.layer(horizontal(0.5), plot)
    return titled(chart, "P(“ specified” | … not)", caption, axis=axis)


def _banded(
    table: pl.DataFrame, value: str, *, least: float, most: float | None = None
) -> pl.DataFrame:
    """Rows with a value, and a band of one SD around it that stays on the axis."""
    return with_gaps(table, value, *({"gold", "option"} & {*table.columns})).with_columns(
        low=(pl.col(value) - pl.col("sd")).clip(least),
        high=(pl.col(value) + pl.col("sd")).clip(upper_bound=most),
    )


def _prompts(result: Fairness, answers: Sequence[str]) -> str:
    """The number of prompts with these answers at the checkpoint with most, and of orders."""
    counts = result.counts.filter(pl.col("gold").is_in(list(answers)))
    prompts = counts.group_by(CHECKPOINT).agg(pl.col("prompts").sum())["prompts"].to_list()
    orders = max(result.counts["orders"].to_list())
    text = counted(max(prompts), "prompt")
    return text if orders == 1 else f"{text} in {orders} option orders"
