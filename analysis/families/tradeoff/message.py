"""What a trade-off says first: how much smaller the gap is for how much less performance."""

from collections.abc import Mapping
from typing import Any

from logitbank.analysis.families.tradeoff.metric import TradeOff
from logitbank.analysis.families.tradeoff.summary import (
    beside,
    no_percentage,
    performance_change,
    searched,
)
from logitbank.analysis.results.message import (
    KeyNumber,
    Message,
    apart,
    checkpoint_number,
    interval_text,
    side,
    subject_of,
)
from logitbank.analysis.results.words import Row
from logitbank.wording import counted, number, signed

NO_INTERVAL = "no interval tells that from chance"


def tradeoff_message(result: TradeOff) -> Message | None:
    """Of the two checkpoints that were asked for; else of the best one and a fairer one."""
    if result.tradeoff.is_empty():
        return None
    if len(result.pairs):
        return _of_pair(result, result.pairs.row(0, named=True))
    if len(result.choices):
        return _of_choice(result)
    return _of_front(result)


def _message(result: TradeOff, row: Row, sentence: str, numbers: list[KeyNumber]) -> Message:
    return Message(
        sentence=sentence,
        figure="tradeoff_front",
        numbers=[*numbers, checkpoint_number(result.tradeoff)],
        series=(row["model"], row["run"]),
    )


def _of_pair(result: TradeOff, row: Row) -> Message:
    gap, subject = result.settings["gap"], subject_of(row, result.tradeoff)
    change = "unknown" if no_percentage(row) else side(row["fairness_low"], row["fairness_high"], 0)
    end = {"within": ", which cannot be told from no change", "unknown": f"; {NO_INTERVAL}"}
    before, after = (_at(result, row, row[name]) for name in ("before", "after"))
    sentence = (
        f"From step {row['before']:,} to step {row['after']:,} the {gap} of {subject} goes from "
        f"{number(before['gap'])} to {number(after['gap'])}, "
        f"{performance_change(row, result.settings)}{end.get(change, '')}."
    )
    numbers = [_gap_number(one) for one in (after, before)]
    return _message(result, row, sentence, numbers)


def _of_choice(result: TradeOff) -> Message:
    """The choice that makes the gap smaller by most."""
    row = max(result.choices.to_dicts(), key=lambda row: row["gap_at_best"] - row["gap"])
    best, chosen = (_at(result, row, row[name]) for name in ("best_step", "step"))
    settings, subject = result.settings, subject_of(row, result.tradeoff)
    given = f"Giving up at most {_allowance(row, settings)} of {settings['metric']}"
    if row["step"] == row["best_step"]:
        sentence = (
            f"{given}, no checkpoint of {subject} ({searched(row)}) has a smaller "
            f"{settings['gap']} than the best one, step {row['best_step']:,}, where it is "
            f"{number(best['gap'])}."
        )
        return _message(result, row, sentence, [_gap_number(best)])
    unknown = f"; {NO_INTERVAL}" if apart(chosen, best, "gap_") is None else ""
    sentence = (
        f"{given}, the smallest {settings['gap']} of {subject} ({searched(row)}) is "
        f"{number(chosen['gap'])} at step {row['step']:,}, against {number(best['gap'])} at the "
        f"best, step {row['best_step']:,}{beside(row)}{unknown}."
    )
    numbers = [_gap_number(chosen), _gap_number(best), _cost(row, settings)]
    return _message(result, row, sentence, numbers)


def _of_front(result: TradeOff) -> Message:
    """Of what is no share, nothing is chosen unless an allowance is given."""
    row = result.tradeoff.row(0, named=True)
    own = result.tradeoff.filter(model=row["model"], run=row["run"])
    front = own.filter("on_front")
    sentence = (
        f"{len(front):,} of {counted(len(own), 'checkpoint')} of "
        f"{subject_of(row, result.tradeoff)} are beaten by no other in both "
        f"{result.settings['metric']} and {result.settings['gap']}."
    )
    fairest = front.sort("gap").row(0, named=True)
    return _message(result, row, sentence, [_gap_number(fairest)])


def _at(result: TradeOff, row: Row, step: int) -> Row:
    """Both curves at a step of the row's model and run."""
    own = result.tradeoff.filter(model=row["model"], run=row["run"], step=step)
    return own.row(0, named=True)


def _allowance(row: Row, settings: Mapping[str, Any]) -> str:
    if settings["unit"] != "points":
        return f"{row['give_up']:g}"
    return counted(1, "point") if row["give_up"] == 1 else f"{row['give_up']:g} points"


def _gap_number(row: Row) -> KeyNumber:
    rests = interval_text(row, number, "gap_").removesuffix("; ") or "no interval"
    return KeyNumber(number(row["gap"]), f"gap at step {row['step']:,}", rests)


def _cost(row: Row, settings: Mapping[str, Any]) -> KeyNumber:
    unit = " points" if settings["unit"] == "points" else ""
    change = (
        row["performance_change"] if settings["higher_is_better"] else -row["performance_change"]
    )
    share = row["chosen_share"]
    chosen = f"; chosen in {100 * share:.0f} % of resamples" if share == share else ""
    against = f"{number(row['performance'])} against {number(row['best_performance'])}{chosen}"
    return KeyNumber(f"{signed(change, ',.1f')}{unit}", str(settings["metric"]), against)
