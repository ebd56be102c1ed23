"""logitbank: run every checkpoint over every prompt once, keep the logits, ask later.

Names are imported when first used, so that `import logitbank` is quick and needs no engine.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from logitbank.version import __version__ as __version__

if TYPE_CHECKING:
    from logitbank.analysis.comparison.compare import Comparison, compare
    from logitbank.analysis.debias.compare import debias_compare
    from logitbank.analysis.debias.results import DebiasComparison, DebiasSearch
    from logitbank.analysis.debias.search import debias_search
    from logitbank.analysis.debias.study import Debias, debias_train
    from logitbank.analysis.debias.train import Training
    from logitbank.analysis.drawing.figures import figures
    from logitbank.analysis.families.fairness.metric import Fairness, fairness, fairness_change
    from logitbank.analysis.families.fluctuation.metric import Fluctuation, fluctuation
    from logitbank.analysis.families.stereoset.metric import StereoSet, stereoset
    from logitbank.analysis.families.tradeoff.metric import TradeOff, tradeoff
    from logitbank.analysis.families.unqover.metric import Unqover, unqover
    from logitbank.analysis.harness.read import read_harness
    from logitbank.analysis.report.report import report
    from logitbank.cli.demo import demo
    from logitbank.engine.extract import extract
    from logitbank.engine.prompts.files import load_prompts
    from logitbank.engine.prompts.known.winobias import winobias
    from logitbank.engine.prompts.prompt_set import PromptSet
    from logitbank.engine.prompts.values import Option, Prompt
    from logitbank.engine.suites.fetch import Fetched, fetch
    from logitbank.engine.suites.suites import Checkpoint, Suite, known_suites, resolve_suite
    from logitbank.errors import LogitbankError
    from logitbank.store.bank import Bank
    from logitbank.store.care.verify import verify
    from logitbank.store.change.about import describe
    from logitbank.store.change.merge import merge
    from logitbank.store.change.shrink import shrink
    from logitbank.store.filter.filters import Filter
    from logitbank.store.filter.view import View
    from logitbank.store.format.schema import CheckpointId, Keep, Query, QuerySet
    from logitbank.store.read.mapping import map_rows
    from logitbank.store.read.readable import Readable
    from logitbank.store.sharing.transfer import pull, push

_HOMES = {
    "Bank": "store.bank",
    "Checkpoint": "engine.suites.suites",
    "CheckpointId": "store.format.schema",
    "Comparison": "analysis.comparison.compare",
    "Debias": "analysis.debias.study",
    "DebiasComparison": "analysis.debias.results",
    "DebiasSearch": "analysis.debias.results",
    "Fairness": "analysis.families.fairness.metric",
    "Fetched": "engine.suites.fetch",
    "Filter": "store.filter.filters",
    "Fluctuation": "analysis.families.fluctuation.metric",
    "Keep": "store.format.schema",
    "LogitbankError": "errors",
    "Option": "engine.prompts.values",
    "Prompt": "engine.prompts.values",
    "PromptSet": "engine.prompts.prompt_set",
    "Query": "store.format.schema",
    "QuerySet": "store.format.schema",
    "StereoSet": "analysis.families.stereoset.metric",
    "Suite": "engine.suites.suites",
    "TradeOff": "analysis.families.tradeoff.metric",
    "Training": "analysis.debias.train",
    "Unqover": "analysis.families.unqover.metric",
    "View": "store.filter.view",
    "compare": "analysis.comparison.compare",
    "debias_compare": "analysis.debias.compare",
    "debias_search": "analysis.debias.search",
    "debias_train": "analysis.debias.study",
    "demo": "cli.demo",
    "describe": "store.change.about",
    "extract": "engine.extract",
    "fairness": "analysis.families.fairness.metric",
    "fairness_change": "analysis.families.fairness.metric",
    "fetch": "engine.suites.fetch",
    "figures": "analysis.drawing.figures",
    "fluctuation": "analysis.families.fluctuation.metric",
    "known_suites": "engine.suites.suites",
    "load_prompts": "engine.prompts.files",
    "map_rows": "store.read.mapping",
    "merge": "store.change.merge",
    "pull": "store.sharing.transfer",
    "push": "store.sharing.transfer",
    "read_harness": "analysis.harness.read",
    "report": "analysis.report.report",
    "resolve_suite": "engine.suites.suites",
    "shrink": "store.change.shrink",
    "stereoset": "analysis.families.stereoset.metric",
    "tradeoff": "analysis.families.tradeoff.metric",
    "unqover": "analysis.families.unqover.metric",
    "verify": "store.care.verify",
    "winobias": "engine.prompts.known.winobias",
}

__all__ = [  # noqa: RUF022 (sorted but for `open`, which follows Bank)
    "Bank",
    "open",
    "Checkpoint",
    "CheckpointId",
    "Comparison",
    "Debias",
    "DebiasComparison",
    "DebiasSearch",
    "Fairness",
    "Fetched",
    "Filter",
    "Fluctuation",
    "Keep",
    "LogitbankError",
    "Option",
    "Prompt",
    "PromptSet",
    "Query",
    "QuerySet",
    "StereoSet",
    "Suite",
    "TradeOff",
    "Training",
    "Unqover",
    "View",
    "compare",
    "debias_compare",
    "debias_search",
    "debias_train",
    "demo",
    "describe",
    "extract",
    "fairness",
    "fairness_change",
    "fetch",
    "figures",
    "fluctuation",
    "known_suites",
    "load_prompts",
    "map_rows",
    "merge",
    "pull",
    "push",
    "read_harness",
    "report",
    "resolve_suite",
    "shrink",
    "stereoset",
    "tradeoff",
    "unqover",
    "verify",
    "winobias",
]


def open(path: str) -> "Readable":
    """Open an existing bank, in a folder or at a URL, or a view; `Bank.create` makes a new one."""
    from logitbank.store.filter.view import open_bank

    return open_bank(path)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"logitbank.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'logitbank' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
