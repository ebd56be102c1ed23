"""Keep logits; know nothing of models or metrics."""

from logitbank.store.bank import Bank
from logitbank.store.care.damage import Damage
from logitbank.store.care.leftovers import leftovers
from logitbank.store.care.repair import Repaired, repair
from logitbank.store.care.verify import verify
from logitbank.store.change.about import describe
from logitbank.store.change.merge import Merged, merge
from logitbank.store.change.rescore import rescore
from logitbank.store.change.shrink import Shrunk, shrink
from logitbank.store.deposits.deposit import Deposit
from logitbank.store.deposits.writer import DepositWriter
from logitbank.store.filter.filters import Filter
from logitbank.store.filter.view import View, open_bank
from logitbank.store.format.heads import OutputHead, Scale, SoftCap
from logitbank.store.format.layout import BlockData, DepositSpec, Layout
from logitbank.store.format.queries import QuerySet
from logitbank.store.format.schema import CheckpointId, Keep, OptionTokens, Query
from logitbank.store.read.readable import Readable

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
    "OutputHead",
    "Query",
    "QuerySet",
    "Readable",
    "Repaired",
    "Scale",
    "Shrunk",
    "SoftCap",
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
