"""The charts of GEST: the common ones of the rate, and every stereotype at one checkpoint."""

from logitbank.analysis.charts.chart import Chart, sample_size, titled
from logitbank.analysis.charts.curves import (
    SERIES,
    at_checkpoint,
    dots,
    drawn_checkpoint,
    interval_caption,
    with_series,
)
from logitbank.analysis.charts.measure import Measure
from logitbank.analysis.families.gest import ABOUT_WOMEN
from logitbank.analysis.families.gest.findings import of_stereotypes, shown
from logitbank.analysis.results import measured
from logitbank.analysis.results.measured import Measured
from logitbank.wording import step_name


def charts(result: Measured) -> dict[str, Chart]:
    """The common charts of the rate, and `stereotypes`."""
    drawn = measured.charts(shown(result), result)
    table = with_series(of_stereotypes(result))
    if table.is_empty():
        return drawn
    measure = Measure("score", "Score (nats)", ("score_low", "score_high"))
    tooltip = {"Stereotype": "stereotype", "Model": SERIES, "Score": "score",
               "As published": "published", "Sentences": "items"}  # fmt: skip
    chart = at_checkpoint(
        table, lambda rows: dots(rows, table, measure, "stereotype", tooltip=tooltip)
    )
    caption = (
        f"Score of each stereotype at {step_name(drawn_checkpoint(table))}, mean of templates: "
        f"above 0, a man is more probable. The first {ABOUT_WOMEN} stereotypes are about women, "
        "the others about men. "
        f"{interval_caption(table, band=('score_low', 'score_high'), of_dots=True)} "
        f"{sample_size(table['items'], 'sentence')} of a stereotype."
    )
    return {**drawn, "stereotypes": titled(chart, "Scores by stereotype", caption)}
