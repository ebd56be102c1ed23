"""What stereotype accuracy says first: how often the last checkpoint gives the stereotype."""

from logitbank.analysis.families.stereotype.metric import StereotypeAccuracy
from logitbank.analysis.results.level_message import level_message
from logitbank.analysis.results.message import Message, missing_text, side, untold
from logitbank.analysis.results.words import Row
from logitbank.wording import counted, step_name

TYPE = 2
"""The type of WinoBias that is meant where none is named."""


def stereotype_message(result: StereotypeAccuracy) -> Message | None:
    """Of pronouns, or of genders where there are no pronouns."""
    table = result.stereotype_accuracy
    measures = table["measure"].unique(maintain_order=True).to_list()
    if not measures:
        return None
    of_measure = table.filter(measure=measures[0])
    kinds = of_measure["type"].to_list()
    return level_message(
        of_measure.filter(type=TYPE if TYPE in kinds else kinds[0]),
        value="accuracy", middle=0.5, figure="stereotype_accuracy", what="stereotype accuracy",
        form=lambda share: f"{share:.3f}", over=_over, sentence=_sentence,
    )  # fmt: skip


def _over(row: Row) -> str:
    return counted(row["sentences"], "sentence") + missing_text(row)


def _sentence(subject: str, row: Row) -> str:
    where = f"At {step_name(row['step'])} {subject}"
    interval = side(row["low"], row["high"], 0.5)
    if interval == "within":
        return f"{where} leans to no stereotype of occupations that is more than chance."
    end = ", less than half" if interval == "below" else ""
    if interval == "unknown":
        end = f"; {untold(row['sentences'], 'sentence')}"
    share = f"{100 * row['accuracy']:.0f} %"
    return f"{where} gives occupations the gender of the stereotype {share} of the time{end}."
