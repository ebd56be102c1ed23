"""logitbank: run every checkpoint over every prompt once, keep the logits, ask later.

Names are imported when first used, so that `import logitbank` is quick and needs no engine.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from logitbank.analysis.bank_report import report
    from logitbank.analysis.compare import Comparison, compare
    from logitbank.analysis.debias import Debias, debias_train
    from logitbank.analysis.debias_compare import DebiasComparison, debias_compare
    from logitbank.analysis.debias_search import DebiasSearch, debias_search
    from logitbank.analysis.debias_train import Training
    from logitbank.analysis.fairness import Fairness, fairness, fairness_change
    from logitbank.analysis.figures import figures
    from logitbank.analysis.fluctuation import Fluctuation, fluctuation
    from logitbank.analysis.harness import read_harness
    from logitbank.analysis.stereoset import StereoSet, stereoset
    from logitbank.analysis.tradeoff import TradeOff, tradeoff
    from logitbank.analysis.unqover import Unqover, unqover
    from logitbank.cli.demo import demo
    from logitbank.engine.extract import extract
    from logitbank.engine.fetch import Fetched, fetch
    from logitbank.engine.prompts import Option, Prompt, PromptSet, load_prompts
    from logitbank.engine.suites import Checkpoint, Suite, known_suites, resolve_suite
    from logitbank.engine.winobias import winobias
    from logitbank.errors import LogitbankError
    from logitbank.store.about import describe
    from logitbank.store.bank import Bank
    from logitbank.store.filters import Filter
    from logitbank.store.mapping import map_rows
    from logitbank.store.merge import merge
    from logitbank.store.schema import CheckpointId, Keep, Query, QuerySet
    from logitbank.store.shrink import shrink
    from logitbank.store.transfer import pull, push
    from logitbank.store.verify import verify
    from logitbank.store.view import View

_HOMES = {
    "Bank": "store.bank",
    "Checkpoint": "engine.suites",
    "CheckpointId": "store.schema",
    "Comparison": "analysis.compare",
    "Debias": "analysis.debias",
    "DebiasComparison": "analysis.debias_compare",
    "DebiasSearch": "analysis.debias_search",
    "Fairness": "analysis.fairness",
    "Fetched": "engine.fetch",
    "Filter": "store.filters",
    "Fluctuation": "analysis.fluctuation",
    "Keep": "store.schema",
    "LogitbankError": "errors",
    "Option": "engine.prompts",
    "Prompt": "engine.prompts",
    "PromptSet": "engine.prompts",
    "Query": "store.schema",
    "QuerySet": "store.schema",
    "StereoSet": "analysis.stereoset",
    "Suite": "engine.suites",
    "TradeOff": "analysis.tradeoff",
    "Training": "analysis.debias_train",
    "Unqover": "analysis.unqover",
    "View": "store.view",
    "compare": "analysis.compare",
    "debias_compare": "analysis.debias_compare",
    "debias_search": "analysis.debias_search",
    "debias_train": "analysis.debias",
    "demo": "cli.demo",
    "describe": "store.about",
    "extract": "engine.extract",
    "fairness": "analysis.fairness",
    "fairness_change": "analysis.fairness",
    "fetch": "engine.fetch",
    "figures": "analysis.figures",
    "fluctuation": "analysis.fluctuation",
    "known_suites": "engine.suites",
    "load_prompts": "engine.prompts",
    "map_rows": "store.mapping",
    "merge": "store.merge",
    "pull": "store.transfer",
    "push": "store.transfer",
    "read_harness": "analysis.harness",
    "report": "analysis.bank_report",
    "resolve_suite": "engine.suites",
    "shrink": "store.shrink",
    "stereoset": "analysis.stereoset",
    "tradeoff": "analysis.tradeoff",
    "unqover": "analysis.unqover",
    "verify": "store.verify",
    "winobias": "engine.winobias",
}

__version__ = "0.1.0"
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


def open(path: str) -> "Bank":
    """Open an existing bank, in a folder or at a URL, or a view; `Bank.create` makes a new one."""
    from logitbank.store.view import open_bank

    return open_bank(path)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"logitbank.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'logitbank' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
