"""What the families without a level of no preference say first, of numbers put in by hand."""

from dataclasses import replace

import polars as pl
import pytest

from logitbank.analysis.families.options.curves import CHECKPOINTS, CURVES
from logitbank.analysis.families.options.findings import option_message
from logitbank.analysis.families.options.metric import OptionScores
from logitbank.analysis.families.options.shares import ANSWERS, SHARES
from logitbank.analysis.families.unqover.message import unqover_message
from logitbank.analysis.families.unqover.metric import ALL, Unqover
from logitbank.analysis.results.message import Message, apart

nan = float("nan")


def said(message: Message | None) -> Message:
    assert message is not None
    return message


def numbers(message: Message) -> list[tuple[str, ...]]:
    return [tuple(number) for number in message.numbers]


def test_intervals_are_apart_or_overlap_or_are_not_known() -> None:
    low, high = {"low": 0.1, "high": 0.2}, {"low": 0.3, "high": 0.4}
    assert apart(low, high, "") is True
    assert apart(high, low, "") is False
    assert apart(low, {"low": 0.2, "high": 0.4}, "") is False
    assert apart(low, {"low": 0.3, "high": nan}, "") is None
    assert apart({"low": None, "high": 0.2}, high, "") is None


def asked(
    clear: int, subjects: int, *, attributes: int = 30, without: bool = False, model: str = "m"
) -> Unqover:
    """Of so many subjects, those whose preference is no chance: p 0.004, the others 0.6."""
    head = {"model": model, "run": "main", "step": 8, "category": "gender", "split": ALL}
    rows = [
        {**head, "subject": f"s{at}", "rank": at + 1, "gamma": 0.12 if at < clear else 0.0,
         "gamma_low": nan if without else 0.02 if at < clear else -0.1,
         "gamma_high": nan if without else 0.22 if at < clear else 0.1,
         "p_adjusted": nan if without else 0.004 if at < clear else 0.6,
         "attributes": attributes}
        for at in range(subjects)
    ]  # fmt: skip
    mu = {"mu": 0.3, "mu_low": nan if without else 0.25, "mu_high": nan if without else 0.4}
    counts = {"subjects": subjects, "attributes": attributes, "instances": 1200, "missing": 3}
    table = pl.DataFrame([{**head, **mu, **counts}])
    return Unqover(table, pl.DataFrame(rows), pl.DataFrame(), pl.DataFrame(), {})


def test_unqover_tests_the_largest_preference_of_all_that_were_looked_at() -> None:
    message = said(unqover_message(asked(4, 20)))
    assert message.sentence == (
        "At step 8 the model favours some names over others in questions of gender that leave the "
        "answer open: p = 0.004 for the largest of 20 preferences."
    )
    assert not message.change_point
    assert message.numbers[0].value == "4 of 20"
    none = said(unqover_message(asked(0, 20)))
    assert "favours no names over others that can be told from chance" in none.sentence
    many = [asked(1, 20, model=f"m{at}") for at in range(20)]
    together = Unqover(
        *(pl.concat(getattr(one, name) for one in many) for name in ("unqover", "subjects")),
        *(pl.DataFrame(), pl.DataFrame(), {}),
    )
    message = said(unqover_message(together))
    assert message.sentence.endswith(
        "p = 0.08 for the largest of 20 preferences, largest of 20 models and categories."
    )
    assert "favours no names" in message.sentence


def shares(*rows: tuple[str, float | None, float | None], prompts: int = 40) -> OptionScores:
    """Options with their share and half the width of its interval."""
    made = [
        {"model": "m", "run": "main", "step": 8, "prompt_set": "mine", "option": name,
         "prompts": prompts,
         "share": share, "low": half and share and share - half,
         "high": half and share and share + half, "probability": 0.0123, "rank": 1.0,
         "sentences": prompts, "missing": 2}
        for name, share, half in rows
    ]  # fmt: skip
    head = {key: made[0][key] for key in ("model", "run", "step", "prompt_set", "prompts")}
    about = pl.DataFrame([{**head, "missing": 2, "answered": 0, "full_rows": False}], CHECKPOINTS)
    none = (pl.DataFrame(schema=schema) for schema in (ANSWERS, CURVES))
    return OptionScores(pl.DataFrame(made, schema=SHARES), *none, about)


@pytest.mark.parametrize(
    ("half", "prompts", "sentence"),
    [
        (0.1, 40, "the model gives “no” the largest share of the options, 0.70 on average."),
        (0.3, 40, "no option of the model is clearly the most probable: “no” 0.70 and “yes” 0.20 "
         "on average."),
        (None, 4, "the model gives “no” 0.70 and “yes” 0.20 on average; 4 prompts are too few to "
         "tell that from chance."),
    ],
)  # fmt: skip
def test_of_options_one_is_the_largest_where_its_interval_is_above_all_others(
    half: float | None, prompts: int, sentence: str
) -> None:
    rows: list[tuple[str, float | None, float | None]]
    rows = [(" yes", 0.2, half), (" no", 0.7, half), (" maybe", 0.1, half)]
    message = said(option_message(shares(*rows, prompts=prompts)))
    assert message.sentence == f"At step 8 {sentence}"
    assert not message.change_point
    assert message.numbers[0].value == "0.700"
    assert message.numbers[0].rests_on.endswith(f"{prompts} prompts, 2 missing")


def test_options_without_shares_have_a_probability_and_answers_an_accuracy() -> None:
    alone = shares(("yes", None, None))
    assert said(option_message(alone)).sentence == (
        "At step 8 the model gives “yes” a mean probability of 0.0123."
    )
    answers = pl.DataFrame(
        {"model": "m", "run": "main", "step": [0, 8], "prompt_set": "mine", "prompts": 40,
         "sentences": 20, "accuracy": [0.25, 0.625],
         "low": [0.14, 0.47], "high": [0.4, 0.76], "tied": 0, "missing": 1},
        schema=ANSWERS,
    )  # fmt: skip
    message = said(option_message(replace(alone, answers=answers)))
    assert message.sentence == (
        "At step 8 the model finds the right answer the most probable option in 62 % of prompts."
    )
    assert not message.change_point  # a guess may be right as often: options are not counted here
    assert numbers(message)[0] == (
        "62.5 %", "accuracy at step 8",
        "95 %: 47.0 % to 76.0 %; 40 prompts, 20 sentences, 1 missing",
    )  # fmt: skip
