"""The chart of LAMBADA: accuracy above perplexity."""

from logitbank.analysis.charts.chart import Chart, titled
from logitbank.analysis.charts.curves import curves, stacked
from logitbank.analysis.charts.steps import StepAxis
from logitbank.analysis.families.lambada.metric import Lambada
from logitbank.wording import counted


def charts(result: Lambada) -> dict[str, Chart]:
    """`lambada`, with all models and runs."""
    table = result.lambada
    axis = StepAxis(table["step"].to_list())
    accuracy = curves(
        table, axis, y="acc", title="Accuracy", zero=True, tooltip={"Examples": "examples"},
        x_title=None, x_labels=False,
    )  # fmt: skip
    perplexity = curves(
        table, axis, y="perplexity", title="Perplexity (log scale)", log=True,
        band=("perplexity_low", "perplexity_high"), legend=False,
    )  # fmt: skip
    examples = counted(int(table["examples"].max() or 0), "example")  # type: ignore[arg-type]
    caption = (
        "Above: share of passages whose last word is predicted, every token of it. Below: "
        f"perplexity of that word, averaged over passages. Bands: 95% confidence intervals. "
        f"n = {examples}."
    )
    return {"lambada": titled(stacked(accuracy, perplexity), "LAMBADA", caption, axis=axis)}
