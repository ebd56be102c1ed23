"""What the families without a level of no preference say first, of numbers put in by hand."""

import polars as pl

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
