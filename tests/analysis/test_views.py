"""Tables that people know show measures of the table of measures side by side."""

from dataclasses import dataclass

import polars as pl

from logitbank.analysis import Items, Measure, gather_items
from logitbank.analysis.results.tables import Result, table_names
from logitbank.analysis.stats.measure import View
from logitbank.analysis.stats.summary import measures_table

GAP = Measure(name="gap", plus=("b",), minus=("a",))
RANKS = tuple(Measure(name="rank", group=part, plus=(part,)) for part in "ab")
TOPS = tuple(Measure(name="top", group=part, plus=(f"top {part}",), share=True) for part in "ab")


@dataclass(frozen=True, slots=True)
class Example(Result):
    measures: pl.DataFrame
    other: pl.DataFrame
    gap = View(GAP)
    answers = View(*TOPS, *RANKS, by="gold")


def example_items() -> Items:
    rows = [
        {"model": "m", "run": "main", "step": step, "language": language, "item": f"{part}{i}",
         "part": part, "value": i * step * (1.0 if language == "en" else 3.0)}
        for step in (0, 1) for language in ("en", "de") for part in ("a", "b", "top a")
        for i in range(3)
    ]  # fmt: skip
    return gather_items([pl.DataFrame(rows)])


def test_one_measure_is_its_rows_and_several_are_columns() -> None:
    measures = measures_table(example_items(), [GAP, *RANKS, *TOPS])
    result = Example(measures, pl.DataFrame())

    assert table_names(Example) == ["measures", "gap", "answers", "other"]
    assert list(result.tables()) == ["measures", "gap", "answers", "other"]
    rows = measures.filter(measure="gap").drop("measure").rename({"value": "gap"})
    assert result.gap.equals(rows)
    answers = result.answers
    assert answers.columns == [
        "model", "run", "step", "language", "gold", "top", "top_low", "top_high", "rank",
        "rank_low", "rank_high", "items", "clusters", "missing",
    ]  # fmt: skip
    assert answers.select("step", "language", "gold", "top", "rank").rows() == [
        (step, language, gold, top and step * top, step * factor)
        for step in (0, 1)
        for language, factor in (("all", 2.0), ("de", 3.0), ("en", 1.0))
        for gold, top in (("a", factor), ("b", None))
    ]
