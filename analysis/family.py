"""A family of metrics, and the families there are: the folders of `analysis/families`, and those
that users register.

A family that is registered consists of its `measures` and `items`; see `docs/own-metric.md`. A
family in a folder may have tables, charts and sentences of its own, in at most five modules:

* `__init__`: the public function, named as the folder, and `FAMILY`, its description. It imports
  nothing heavy, because every command reads it.
* `metric`: frames in, a `Result` of tables out.
* `tables`: the arithmetic behind those tables. `metric` and `tables` contain no sentences.
* `charts`: `charts(result) -> dict[str, Chart]`, from the result's tables; computes nothing.
* `findings`: `findings(result) -> list[Finding]`, the most important first. It names facts and
  their order; the sentences are those of `results.series`, such as `Curve.change`.
"""

import inspect
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin

from logitbank.analysis.frames.choose import ChoosePrompts
from logitbank.analysis.stats.measure import Measure
from logitbank.errors import UsageError

if TYPE_CHECKING:
    from logitbank.analysis.charts.chart import Chart
    from logitbank.analysis.finding import Finding
    from logitbank.analysis.frames.items import Items
    from logitbank.analysis.frames.reader import Scores
    from logitbank.analysis.results.tables import Result
    from logitbank.analysis.study import Study

CHANGE_POINTS = (
    "Change points are searched for in runs of 6 or more checkpoints. Their p is the largest of "
    "seven null models, most of them random walks, ± its Monte Carlo error. Neighbouring "
    "checkpoints share their weights, so intervals that exclude 0 at several of them in a row are "
    "no evidence of a change."
)
"""A note of families that search for change points."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A family of metrics: what it measures, on which prompts, and where its parts are."""

    name: str
    """Name of the folder and of its public function; the command has dashes for underscores."""
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
    measures: tuple[Measure, ...] = ()
    """Numbers that are means of `items`. The first is measured over several runs of a model."""
    ranks: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Columns of tables that need ranks, which a filtered bank does not have. A note names the
    first of each table."""
    items: "Callable[[Scores], Items] | None" = None
    """The items of one prompt set; none if it is of another kind."""

    @property
    def analyze(self) -> "Callable[..., Study[Any]]":
        """The public function: banks, and by keyword prompts, models, cache and own settings."""
        if not self._has_folder:
            return self._measured("analyze")
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
        own = self._module("charts").charts if self._has_folder else self._measured("charts")
        charts: dict[str, Chart] = own(result)
        return charts

    def findings(self, result: "Result") -> "list[Finding]":
        """The findings of a result, the most important first."""
        own = self._module("findings").findings if self._has_folder else self._measured("findings")
        findings: list[Finding] = own(result)
        return findings

    @property
    def _has_folder(self) -> bool:
        return self.name in _folders()

    def _measured(self, name: str) -> Callable[..., Any]:
        """Common parts of families without a folder."""
        function = getattr(import_module(f"{__package__}.results.measured"), name)
        return partial(function, self)

    def _module(self, name: str = "") -> Any:
        module = f"{__package__}.families.{self.name}"
        return import_module(f"{module}.{name}" if name else module)


def imported(package: str, name: str) -> Callable[..., Any]:
    """A function of a family's module `metric`, which is imported when the function is called."""

    def function(*arguments: Any, **options: Any) -> Any:
        return getattr(import_module(f"{package}.metric"), name)(*arguments, **options)

    return function


def families() -> Mapping[str, Family]:
    """Every family by its name, in the order of a report."""
    found = {**_folders(), **_installed(), **_registered}
    return dict(sorted(found.items(), key=lambda item: (item[1].order, item[0])))


def register(family: Family) -> Family:
    """Add a family to those of analyses, reports and comparisons of this process.

    An installed package does the same with an entry point of the group `logitbank_families`.

    Raises
    ------
    UsageError
        The name is taken or is no identifier, or the family has no measures or items.
    """
    if family.name in _folders():
        raise UsageError(f"Family {family.name!r} exists. Give yours another name.")
    if not family.name.isidentifier():
        raise UsageError(f"Family {family.name!r} needs a name of letters, digits and underscores.")
    if not family.measures or family.items is None:
        raise UsageError(f"Family {family.name!r} has no measures, or no items. Name both.")
    _registered[family.name] = family
    return family


_registered: dict[str, Family] = {}


@cache
def _folders() -> Mapping[str, Family]:
    """The families in folders."""
    package = import_module(f"{__package__}.families")
    names = (entry.name for entry in pkgutil.iter_modules(package.__path__))
    return {name: import_module(f"{package.__name__}.{name}").FAMILY for name in names}


@cache
def _installed() -> Mapping[str, Family]:
    """The families of installed packages."""
    found = [entry.load() for entry in entry_points(group="logitbank_families")]
    return {family.name: family for family in found}


def columns(names: str) -> tuple[str, ...]:
    """Columns of a table, written as one text.

    >>> columns("score low high")
    ('score', 'low', 'high')
    """
    return tuple(names.split())
