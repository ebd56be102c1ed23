"""From a bank to curves over training, in one call: what is said of them, and drawn."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import polars as pl

from logitbank.analysis.drawing.names import per_run
from logitbank.analysis.drawing.paper import PALETTE, PAPER, Paper
from logitbank.analysis.drawing.sheet import Axis, Names, Panel, Sheet
from logitbank.analysis.drawing.steps import Curve, add_curve, training_sheet
from logitbank.analysis.families.curves.means import BOUNDS, Measure
from logitbank.analysis.families.curves.metric import Curves, curves_metric
from logitbank.analysis.families.options.metric import INTERVALS
from logitbank.analysis.frames.pieces import CHECKPOINT
from logitbank.analysis.frames.sources import check_there
from logitbank.analysis.results.finish import finish, models_of
from logitbank.analysis.results.study import Study
from logitbank.analysis.results.words import Summary, by_run, missing_sentences
from logitbank.errors import AbsentError
from logitbank.store import Bank, open_bank
from logitbank.wording import counted, number, step_name

CAUTIONS = (
    "A low entropy says that the model is sure, and not that it is right.",
    "Entropy and ranks are over all outputs of a model: those of models with other vocabularies "
    "are no basis for comparing them.",
)
"""What the numbers do not say."""
AGREEMENT = (
    "Agreement is the share of positions whose most probable token is that of the run's last "
    "checkpoint, the release where there is one, at which it is 1."
)
UNREAD = (
    "Entropy takes full rows, which are not read here: `logitbank analyze curves BANK` reads them."
)
NAMES: dict[Measure, str] = {
    "entropy": "entropy",
    "probability": "probability of the right answer",
    "rank": "rank of the right answer",
    "agreement": "agreement with the last checkpoint",
}
PANELS: dict[Measure, Axis] = {
    "entropy": Axis("Entropy, nats", from_zero=True),
    "probability": Axis("Probability of the answer", from_zero=True),
    "rank": Axis("Rank of the answer, log scale", log=True),
    "agreement": Axis("Agreement with the end", ends=(-0.02, 1.02)),
}


def curves(
    bank: str | Path | Bank,
    *,
    prompts: Sequence[str] | None = None,
    models: Sequence[str] | None = None,
    entropy: bool = True,
    out: Path | None = None,
    paper: Paper = PAPER,
) -> Study[Curves]:
    """Curves over training of the prompt sets of a bank.

    Parameters
    ----------
    prompts
        Names of prompt sets; all of the bank if None.
    entropy
        Whether to read full rows, as `curves_metric` says.
    out
        Folder for tables, figures and the report.

    Raises
    ------
    AbsentError
        The bank lacks one of the prompt sets or models, or has no checkpoint of them.
    LogitbankError
        As `curves_metric`.
    """
    opened = open_bank(bank, models=models, prompts=prompts, rows=entropy)
    names = opened.prompt_sets if prompts is None else list(prompts)
    check_there(opened, names, models)
    result = curves_metric(opened, names, models=models, entropy=entropy)
    if result.checkpoints.is_empty():
        raise AbsentError(
            f"{opened.path} has no checkpoint of {', '.join(names) or 'any prompts'}; run "
            "`logitbank extract` first"
        )
    title = f"Curves over training: {models_of(result)}"
    return finish(
        result,
        curves_summary(result),
        title=title,
        out=out,
        paper=paper,
        banks=[opened],
        prompts=names,
        models=models,
    )


def curves_summary(result: Curves) -> Summary:
    """The first and the last checkpoint of every prompt set, model and run, then gaps."""
    findings = [
        sentence
        for (name,), rows in result.curves.group_by("prompt_set", maintain_order=True)
        for prefix, run in by_run(rows)
        for sentence in _ends(f"{prefix}{name}, ", run)
    ]
    missing = result.checkpoints.group_by(CHECKPOINT).agg(pl.col("missing").sum())
    left_out = tuple(missing_sentences(missing, "prompt"))
    return Summary(tuple(findings), tuple(_notes(result)), CAUTIONS, left_out)


def _ends(prefix: str, rows: pl.DataFrame) -> Iterator[str]:
    # A checkpoint without any row is no end.
    rows = rows.filter(pl.col("value").is_not_null().any().over("step"))
    if rows.is_empty():
        return
    steps = list(dict.fromkeys((rows["step"][0], rows["step"][-1])))
    ends = rows.filter(pl.col("step").is_in(steps, nulls_equal=True))
    said, end = [], ""
    for measure, name in NAMES.items():
        values = ends.filter(measure=measure)["value"]
        if measure == "agreement":  # the last one's with itself is 1
            if len(values) > 1 and (share := values[0]) is not None:
                end = _agrees(share, steps[0], steps[-1])
        elif values.count():
            texts = ("none" if value is None else number(value) for value in values)
            said.append(f"{name} {' → '.join(texts)}")
    if said or end:
        changes = f"{prefix}{' → '.join(map(step_name, steps))}: {', '.join(said)}"
        yield f"{changes}; {end}." if said and end else f"{changes}{end}."


def _agrees(share: float, first: int | None, last: int | None) -> str:
    """How often the first checkpoint's most probable token is the last one's."""
    same = "the release" if last is None else step_name(last)
    percent = number(100 * share)
    return f"at {step_name(first)}, {percent} % of the most probable tokens are those of {same}"


def _notes(result: Curves) -> Iterator[str]:
    yield AGREEMENT
    if not result.entropy:
        yield UNREAD
    elif len(without := result.checkpoints.filter(~pl.col("full_rows")).unique(CHECKPOINT)):
        yield f"Entropy needs full rows; not kept by {counted(len(without), 'checkpoint')}."
    unanswered = result.checkpoints.filter(answered=0)["prompt_set"].unique().sort().to_list()
    if unanswered:
        yield f"No right answer is named by {', '.join(unanswered)}."
    yield INTERVALS


def curve_figure_data(result: Curves) -> dict[str, pl.DataFrame]:
    """The table behind the figure, `curves`, of every model and run."""
    return per_run("curves", result.curves.drop_nulls("value"))


def curve_sheets(
    result: Curves, tables: Mapping[str, pl.DataFrame], names: Names
) -> dict[str, Sheet]:
    """The figure of each kind, from its table."""
    return {kind: _sheet(table, names) for kind, table in tables.items()}


def _sheet(table: pl.DataFrame, names: Names) -> Sheet:
    """A panel for each measure that there is; prompt sets have colours, or series of one set."""
    parts = names.parts(table, ("model", "run"))
    measures = [measure for measure in BOUNDS if measure in table["measure"]]
    sheet, places = training_sheet(
        "Curves over training",
        f"Means over prompts: {', '.join(NAMES[measure] for measure in measures)}.",
        steps=table["step"].to_list(),
        series=[name for name, _ in parts],
        panels=[Panel(PANELS[measure], 220) for measure in measures],
        bands="95 % intervals over prompts",
    )
    sets = table["prompt_set"].unique(maintain_order=True).to_list()
    for series, part in parts:
        named = set()  # a set without a right answer is not in every panel
        for (name, measure), rows in part.group_by("prompt_set", "measure", maintain_order=True):
            panel, label = measures.index(measure), NAMES[measure].capitalize()
            several = len(sets) > 1
            colour = PALETTE[sets.index(name) % len(PALETTE)] if several else sheet.colour(series)
            group = name if several else ""
            first = name not in named
            named.add(name)
            curve = Curve(series, group, colour, rows, label, panel=panel, in_legend=first)
            add_curve(sheet, places, curve)
    return sheet
