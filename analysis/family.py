"""A family of metrics: which prompts, which measures, which items; and, where the common analysis
does not say it, tables, charts and sentences of its own.

See `docs/own-metric.md`. A family of `analysis/families` is a module, or a folder of at most five:

* `__init__`: `FAMILY`, registered, and its public function if it has settings. It imports nothing
  heavy, because every command reads it.
* `metric`: frames in, a `Result` of tables out.
* `tables`: the arithmetic behind those tables. `metric` and `tables` contain no sentences.
* `charts`: `charts(result) -> dict[str, Chart]`, from the result's tables; computes nothing.
* `findings`: `findings(result) -> list[Finding]`, the most important first. It names facts and
  their order; the sentences are those of `results.series`, such as `Curve.change`.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin

from logitbank.analysis.frames.choose import ChoosePrompts
from logitbank.analysis.stats.measure import Measure, View
from logitbank.errors import UsageError

if TYPE_CHECKING:
    import polars as pl

    from logitbank.analysis.charts.chart import Chart
    from logitbank.analysis.finding import Finding
    from logitbank.analysis.frames.items import Items
    from logitbank.analysis.frames.reader import Scores

CHANGE_POINTS = (
    "Change points are searched for in runs of 6 or more checkpoints. Their p is the largest of "
    "seven null models, most of them random walks, ± its Monte Carlo error. Neighbouring "
    "checkpoints share their weights, so intervals that exclude 0 at several of them in a row are "
    "no evidence of a change."
)
"""The note of a study with a search for change points."""


def unregistered(banks: Any, *, prompts: str | None = None) -> Any:
    """Refuse to analyse: `register` gives a family its analysis."""
    raise UsageError("This family is not registered. Call `register(family)`, and use its result.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A family of metrics: prompts, measures and items, and what the common analysis leaves out.

    Without `findings` and `charts`, it has those of `results.measured`.
    """

    name: str
    """An identifier; the command has dashes for underscores."""
    title: str
    order: int = 100
    """Position among the sections of a report."""
    description: str
    """Its measures, for a reader who has never heard of it."""
    cautions: tuple[str, ...] = ()
    """The limits of its numbers."""
    notes: tuple[str, ...] = ()
    """How its numbers are to be read: units, intervals, tests."""
    prompts: ChoosePrompts
    example: str = ""
    """The prompt set that `extract` makes for it, chosen if a bank has several."""
    screen: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The tables that the terminal prints with `--table`, and which columns of them first."""
    item: str = "item"
    """What an item is called, such as "sentence"."""
    cluster: str = "cluster"
    """What a cluster of items is called."""
    measures: tuple[Measure, ...] = ()
    """Numbers that are means of `items`. The first is measured over several runs of a model."""
    views: Mapping[str, View] = field(default_factory=dict)
    """Names of tables that people know, and which measures they show."""
    items: "Callable[[Scores], Items] | None" = None
    """The items of one prompt set; none if it is of another kind."""
    tables: "Callable[[Scores, Items], Mapping[str, pl.DataFrame]] | None" = None
    """Further tables by name, beside that of the measures."""
    charts: "Callable[[Any], dict[str, Chart]] | None" = None
    """The charts of a result by name, the most important first."""
    findings: "Callable[[Any], list[Finding]] | None" = None
    """The findings of a result, the most important first."""
    analyze: Callable[..., Any] = unregistered
    """Banks, and by keyword prompts, models, cache and own settings, to a `Study`. It is needed
    only if there are settings."""

    @property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        """The parameters of `analyze`."""
        return inspect.signature(self.analyze).parameters

    def settings(self) -> Mapping[str, inspect.Parameter]:
        """The parameters that are options of the command: those annotated with a help text."""
        return {
            name: each
            for name, each in self.parameters.items()
            if get_origin(each.annotation) is Annotated
        }

    @property
    def several_prompts(self) -> bool:
        """Whether `analyze` takes several prompt sets at once."""
        annotation = self.parameters["prompts"].annotation
        return any(get_origin(each) is Sequence for each in (annotation, *get_args(annotation)))


SHARED_TABLES = ("runs", "agreement", "templates", "models", "model_groups", "model_differences")
"""Tables about several models and runs, which every analysis may have."""
REGISTERED: dict[str, Family] = {}
"""Families by name, as they are registered; `families.families` imports all first."""


def columns(names: str) -> tuple[str, ...]:
    """Columns of a table, written as one text.

    >>> columns("score low high")
    ('score', 'low', 'high')
    """
    return tuple(names.split())
