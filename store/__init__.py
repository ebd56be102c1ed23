"""Keep logits; know nothing of models or metrics."""

from logitbank.store.about import describe
from logitbank.store.bank import Bank
from logitbank.store.damage import Damage
from logitbank.store.deposit import Deposit
from logitbank.store.filters import Filter
from logitbank.store.leftovers import leftovers
from logitbank.store.merge import Merged, merge
from logitbank.store.repair import Repaired, repair
from logitbank.store.rescore import rescore
from logitbank.store.schema import (
    BlockData,
    CheckpointId,
    DepositSpec,
    Keep,
    Layout,
    OptionTokens,
    Query,
    QuerySet,
)
from logitbank.store.shrink import Shrunk, shrink
from logitbank.store.verify import verify
from logitbank.store.view import View, open_bank
from logitbank.store.writer import DepositWriter

__all__ = [
    "Bank",
    "BlockData",
    "CheckpointId",
    "Damage",
    "Deposit",
    "DepositSpec",
    "DepositWriter",
    "Filter",
    "Keep",
    "Layout",
    "Merged",
    "OptionTokens",
    "Query",
    "QuerySet",
    "Repaired",
    "Shrunk",
    "View",
    "describe",
    "leftovers",
    "merge",
    "open_bank",
    "repair",
    "rescore",
    "shrink",
    "verify",
]
