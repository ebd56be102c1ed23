"""From a bank to what its layers say, in one call: sentences and figures."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import polars as pl

from logitbank.analysis.drawing.names import per_run
from logitbank.analysis.drawing.paper import PALETTE, PAPER, Paper, shortened
from logitbank.analysis.drawing.sheet import Axis, Names, Panel, Sheet
from logitbank.analysis.drawing.steps import Curve, add_curve, training_sheet
from logitbank.analysis.families.layers.metric import Layers, layers_metric
from logitbank.analysis.families.options.metric import INTERVALS
from logitbank.analysis.frames.pieces import CHECKPOINT
from logitbank.analysis.frames.sources import check_there
from logitbank.analysis.results.finish import finish, models_of
from logitbank.analysis.results.study import Study
from logitbank.analysis.results.words import Row, Summary, by_run, missing_sentences
from logitbank.errors import AbsentError, KeepLevelError
from logitbank.store import Bank, open_bank
from logitbank.wording import counted, number, step_name

CAUTIONS = (
    "A layer's states were not trained for the head: the lens shows what the head would say of "
    "them, and not all that the layer knows.",
    "Layers are counted within a model: those of models with other numbers of layers are no basis "
    "for comparing them.",
)
"""What the numbers do not say."""
NUMBERED = (
    "Layer 0 is what enters the first block, and layer n the output of block n, seen through what "
    "the model does before its head, and its head."
)
UNREAD = (
    "{} of several tokens are left out here, as they take products with the whole head: "
    "`logitbank analyze layers BANK` has them."
)
LINES = len(PALETTE)
"""Layers that a figure has: first and last, and some between."""


def layers(
    bank: str | Path | Bank,
    *,
    prompts: Sequence[str] | None = None,
    models: Sequence[str] | None = None,
    several_tokens: bool = True,
    out: Path | None = None,
    paper: Paper = PAPER,
) -> Study[Layers]:
    """After which layer the right option is the first, at every checkpoint: a logit lens.

    Parameters
    ----------
    prompts
        Names of prompt sets; all of the bank if None.
    several_tokens
        Whether to ask prompts with options of several tokens too, as `layers_metric` says.
    out
        Folder for tables, figures and the report.

    Raises
    ------
    AbsentError
        The bank lacks one of the prompt sets or models, or none has prompts with two options.
    KeepLevelError
        No checkpoint of them keeps states of layers.
    LogitbankError
        As `layers_metric`.
    """
    opened = open_bank(bank, models=models, prompts=prompts, rows=True)
    names = opened.prompt_sets if prompts is None else list(prompts)
    check_there(opened, names, models)
    result = layers_metric(opened, names, models=models, several_tokens=several_tokens)
    if result.checkpoints.is_empty():
        raise KeepLevelError(
            f"{opened.path} keeps no states of layers; extract again with --keep hidden --layers "
            "all into another bank"
        )
    if result.layers.is_empty():
        raise AbsentError(
            f"{opened.path} has no prompt with two options or more of which a checkpoint has all"
            f" layers, in {', '.join(names)}"
        )
    title = f"Layers: {models_of(result)}"
    return finish(
        result,
        layers_summary(result),
        title=title,
        out=out,
        paper=paper,
        banks=[opened],
        prompts=names,
        models=models,
    )


def keeps_layers(bank: Bank) -> bool:
    """Whether a checkpoint of a bank keeps states of layers."""
    return any(deposit.layers for deposit in bank.deposits())


def layers_summary(result: Layers) -> Summary:
    """The first and the last checkpoint of every prompt set, model and run, then gaps."""
    findings = [
        f"{prefix}{name}, {_ends(rows)}"
        for (name,), table in result.settled.group_by("prompt_set", maintain_order=True)
        for prefix, rows in by_run(table)
    ]
    missing = result.checkpoints.group_by(CHECKPOINT).agg(pl.col("missing").sum())
    left_out = tuple(missing_sentences(missing, "prompt"))
    return Summary(tuple(findings), tuple(_notes(result)), CAUTIONS, left_out)


def _ends(rows: pl.DataFrame) -> str:
    ends = [rows.row(at, named=True) for at in sorted({0, len(rows) - 1})]
    shares = " → ".join(f"{row['settled']:.1%}" for row in ends)
    known = any(row["layer"] is not None for row in ends)
    depths = " → ".join(settled_from(row) for row in ends)
    then = f", and stays so from layer {depths} on (median)" if known else ""
    return (
        f"{' → '.join(step_name(row['step']) for row in ends)}: the right option is the first "
        f"after layer {ends[-1]['last']} in {shares} of {counted(ends[-1]['prompts'], 'prompt')}"
        f"{then}."
    )


def settled_from(row: Row) -> str:
    """The layer from which on the right option is the first, of a row of `settled`."""
    return "none" if row["layer"] is None else number(row["layer"])


def _notes(result: Layers) -> Iterator[str]:
    yield NUMBERED
    if long := int(
        result.checkpoints.group_by("prompt_set").agg(pl.col("long").max())["long"].sum()
    ):
        yield UNREAD.format(counted(long, "prompt with options", "prompts with options"))
    unanswered = result.checkpoints.filter(answered=0)["prompt_set"].unique().sort().to_list()
    if unanswered:
        named = ", ".join(unanswered)
        yield f"No right answer is named by {named}: the first option of a prompt stands for it."
    yield INTERVALS


def layer_figure_data(result: Layers) -> dict[str, pl.DataFrame]:
    """The table behind the figure, `layers`, of every model and run."""
    return per_run("layers", result.layers)


def layer_sheets(
    result: Layers, tables: Mapping[str, pl.DataFrame], names: Names
) -> dict[str, Sheet]:
    """The figure of each kind, from its table."""
    return {kind: _sheet(table, names) for kind, table in tables.items()}


def _sheet(table: pl.DataFrame, names: Names) -> Sheet:
    """A line for each of some layers; a panel for each prompt set, or two of one set."""
    ((series, _),) = names.parts(table, ("model", "run"))
    sets = table["prompt_set"].unique(maintain_order=True).to_list()
    every = table["layer"].unique().sort().to_list()
    drawn = _some(every)
    share = "Right option first"
    panels = [
        Panel(Axis(f"{share}, {shortened(n)}" if len(sets) > 1 else share, ends=(-0.02, 1.02)), 240)
        for n in sets
    ]
    if len(sets) == 1:
        panels.append(Panel(Axis("Its log-probability among options, nats"), 240))
    some = f" Layers {', '.join(map(str, drawn))} of {len(every)}." if drawn != every else ""
    sheet, places = training_sheet(
        "Layers over training",
        "Share of prompts whose right option has more than every other after a layer."
        f"{some} Intervals of all are in the table.",
        steps=table["step"].to_list(),
        series=[series],
        panels=panels,
        bands=f"95 % interval over prompts, after layer {drawn[-1]}",
    )
    for at, name in enumerate(sets):
        for layer in drawn:
            rows = table.filter(prompt_set=name, layer=layer)
            colour, label = PALETTE[drawn.index(layer)], f"layer {layer}"
            # Bands of six lines that lie close would hide each other.
            known = layer == drawn[-1]
            ends = {n: n if known else pl.lit(None, pl.Float64) for n in ("low", "high")}
            values = rows.select("step", value="first", **ends)
            curve = Curve(series, label, colour, values, share, panel=at, in_legend=at == 0)
            add_curve(sheet, places, curve)
            if len(sets) == 1:
                unknown = pl.lit(None, pl.Float64)
                values = rows.select("step", low=unknown, high=unknown, value="logprob")
                name_of = "Log-probability among options"
                add_curve(
                    sheet,
                    places,
                    Curve(series, label, colour, values, name_of, panel=1, in_legend=False),
                )
    return sheet


def _some(every: Sequence[int]) -> list[int]:
    """Layers that are drawn, evenly spread from the first to the last."""
    at = np.linspace(0, len(every) - 1, min(LINES, len(every))).round().astype(int)
    return [every[i] for i in np.unique(at)]
