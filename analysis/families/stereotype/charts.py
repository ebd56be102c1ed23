"""The charts of stereotype accuracy: the common one, and the gender gap above it."""

from logitbank.analysis.charts.chart import Chart, chart_caption, titled
from logitbank.analysis.charts.curves import curves, stacked
from logitbank.analysis.charts.measure import Measure
from logitbank.analysis.charts.steps import StepAxis
from logitbank.analysis.charts.theme import PALETTE
from logitbank.analysis.families.stereotype import FAMILY
from logitbank.analysis.results import measured
from logitbank.analysis.results.measured import Measured

JSD_P = Measure("jsd_p", "JSD-P, scaled to 0–1", scale="share")


def charts(result: Measured) -> dict[str, Chart]:
    """The common chart; with WinoBias also `gap_and_stereotype`, below JSD-P (Fig. 3)."""
    drawn = measured.charts(FAMILY, result)
    jsd_p = result.further.get("jsd_p")
    if drawn and jsd_p is not None and len(jsd_p := jsd_p.filter(jsd_p["jsd_p"] >= 0)):
        axis = StepAxis([*result.measures["step"], *jsd_p["step"]])
        above = curves(jsd_p, axis, JSD_P, group="group")
        chart = stacked(above, *measured.plots(FAMILY, result, axis, PALETTE[2:]))
        caption = (
            "Above: JSD-P of the correct answer, for prompts whose answer is male or female. "
            f"Their distance is the gender gap. Below: {chart_caption(drawn['measures'])}"
        )
        title = "Gender gap and stereotype accuracy"
        drawn["gap_and_stereotype"] = titled(chart, title, caption, axis=axis)
    return drawn
