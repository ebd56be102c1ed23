"""A family of metrics, and the families there are: the folders of `analysis/families`.

A family is a folder of at most five modules:

* `__init__`: the public function, named as the folder, and `FAMILY`, its description. It imports
  nothing heavy, because every command reads it.
* `metric`: frames in, a `Result` of tables out.
* `tables`: the arithmetic behind those tables. `metric` and `tables` contain no sentences.
* `charts`: `charts(result) -> dict[str, Chart]`, from the result's tables; computes nothing.
* `findings`: `findings(result) -> list[Finding]`, the most important first.
"""

import inspect
import pkgutil
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

if TYPE_CHECKING:
    from logitbank.analysis.charts.chart import Chart
    from logitbank.analysis.finding import Finding
    from logitbank.analysis.frames.items import Items
    from logitbank.analysis.frames.scan_cache import ScoreSource
    from logitbank.analysis.results.tables import Result
    from logitbank.analysis.study import Study

CHANGE_POINTS = (
    "Change points are searched for in runs of 6 or more checkpoints. Their p is the largest of "
    "six null models, most of them random walks, ± its Monte Carlo error. Neighbouring checkpoints "
    "share their weights, so intervals that exclude 0 at several of them in a row are no evidence "
    "of a change."
)
"""A note of families that search for change points."""
Columns = Mapping[str, Collection[str]]
"""The columns of prompt sets, by their names."""
ChoosePrompts = Callable[[Columns], Sequence[tuple[str, ...]]]
"""Chooses the prompt sets of a family: those that are analysed together, for each analysis."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """A number that is made of means of items: a mean, or a difference of means.

    An item belongs to a part. A side of the measure is the mean over its parts of the mean over
    the items of each; the number is `plus` minus `minus`, times `scale`, through `link`.
    """

    name: str
    group: str = ""
    """What distinguishes measures of one name."""
    text: str = ""
    """As sentences name it."""
    form: str = ".3f"
    plus: tuple[str, ...] = ("",)
    minus: tuple[str, ...] = ()
    share: bool = False
    """Whether values of items are 0, 1, or ½ for a tie, so that intervals are those of shares."""
    scale: float = 1.0
    link: Literal["exp"] | None = None
    """`exp` of a mean of logarithms: a perplexity, or a geometric mean."""

    @property
    def key(self) -> str:
        """In the column `measure` of a summary."""
        return f"{self.name}, {self.group}" if self.group else self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A family of metrics: what it measures, on which prompts, and where its parts are."""

    name: str
    """Of the folder and of the public function in it; the command has dashes for underscores."""
    title: str
    order: int
    """Position among the sections of a report."""
    description: str
    """What it measures, for a reader who has never heard of it."""
    cautions: tuple[str, ...]
    """What its numbers do not show."""
    notes: tuple[str, ...] = ()
    """How its numbers are to be read: units, intervals, tests."""
    prompts: ChoosePrompts
    screen: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The tables that the terminal prints with `--table`, and which columns of them first."""
    measures: tuple[Measure, ...] = ()
    """Numbers that are means of `items`. The first is measured over several runs of a model."""
    items: "Callable[[ScoreSource], Items] | None" = None
    """The items of one prompt set; none if it is of another kind."""

    @property
    def analyze(self) -> "Callable[..., Study[Any]]":
        """The public function: banks, and by keyword prompts, models, cache and own settings."""
        function: Callable[..., Study[Any]] = getattr(self._module(), self.name)
        return function

    @property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        """The parameters of the public function."""
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
        """Whether the public function takes several prompt sets at once."""
        annotation = self.parameters["prompts"].annotation
        return any(get_origin(each) is Sequence for each in (annotation, *get_args(annotation)))

    def charts(self, result: "Result") -> "dict[str, Chart]":
        """The charts of a result by name, the most important first."""
        charts: dict[str, Chart] = self._module("charts").charts(result)
        return charts

    def findings(self, result: "Result") -> "list[Finding]":
        """The findings of a result, the most important first."""
        findings: list[Finding] = self._module("findings").findings(result)
        return findings

    def _module(self, name: str = "") -> Any:
        module = f"{__package__}.families.{self.name}"
        return import_module(f"{module}.{name}" if name else module)


def imported(package: str, name: str) -> Callable[..., Any]:
    """A function of a family's module `metric`, which is imported when the function is called."""

    def function(*arguments: Any, **options: Any) -> Any:
        return getattr(import_module(f"{package}.metric"), name)(*arguments, **options)

    return function


@cache
def families() -> Mapping[str, Family]:
    """Every family by its name, in the order of a report."""
    package = import_module(f"{__package__}.families")
    modules = (
        import_module(f"{package.__name__}.{entry.name}")
        for entry in pkgutil.iter_modules(package.__path__)
    )
    found: list[Family] = [module.FAMILY for module in modules]
    return {family.name: family for family in sorted(found, key=lambda family: family.order)}


def columns(names: str) -> tuple[str, ...]:
    """Columns of a table, written as one text.

    >>> columns("score low high")
    ('score', 'low', 'high')
    """
    return tuple(names.split())


def with_columns(*columns: str) -> ChoosePrompts:
    """Every prompt set with these columns, each analysed alone.

    >>> with_columns("paired")({"a": ["paired", "gold"], "b": ["gold"], "c": ["paired"]})
    [('a',), ('c',)]
    """
    required = set(columns)
    return lambda sets: [(name,) for name in sorted(sets) if required.issubset(sets[name])]


def with_prefix(text: str) -> ChoosePrompts:
    """The prompt sets whose names begin so, analysed together.

    >>> with_prefix("un")({"unqover-b": [], "unqover-a": [], "lambada": []})
    [('unqover-a', 'unqover-b')]
    """
    return lambda sets: _together(name for name in sorted(sets) if name.startswith(text))


def named(*names: str) -> ChoosePrompts:
    """The prompt sets of these names, analysed together.

    >>> named("b", "a", "c")({"a": [], "b": []})
    [('b', 'a')]
    """
    return lambda sets: _together(name for name in names if name in sets)


def _together(names: Iterable[str]) -> list[tuple[str, ...]]:
    chosen = tuple(names)
    return [chosen] if chosen else []
