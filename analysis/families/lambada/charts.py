"""The chart of LAMBADA: accuracy above perplexity."""

from logitbank.analysis.charts.chart import Chart, sample_size, titled
from logitbank.analysis.charts.curves import curves, stacked
from logitbank.analysis.charts.measure import Measure
from logitbank.analysis.charts.steps import StepAxis
from logitbank.analysis.families.lambada.metric import Lambada

ACCURACY = Measure("acc", "Accuracy", scale="share")
PERPLEXITY = Measure(
    "perplexity", "Perplexity (log scale)", ("perplexity_low", "perplexity_high"), "log"
)


def charts(result: Lambada) -> dict[str, Chart]:
    """`lambada`, with all models and runs."""
    table = result.lambada
    axis = StepAxis(table["step"].to_list())
    chart = stacked(
        curves(table, axis, ACCURACY, tooltip={"Examples": "examples"}),
        curves(table, axis, PERPLEXITY),
    )
    caption = (
        "Above: share of passages whose last word is predicted, every token of it. Below: "
        f"perplexity of that word, averaged over passages. Bands: 95% confidence intervals. "
        f"{sample_size(table['examples'], 'example')}."
    )
    return {"lambada": titled(chart, "LAMBADA", caption, axis=axis)}
