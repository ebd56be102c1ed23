"""Keep logits; know nothing of models or metrics."""

# As in `logitbank` itself: read by type checkers, and by `front_door` as text.

from typing import TYPE_CHECKING

from logitbank.front_door import front_door

if TYPE_CHECKING:
    from logitbank.store.bank import Bank as Bank
    from logitbank.store.bank import open_bank as open_bank
    from logitbank.store.care.damage import Damage as Damage
    from logitbank.store.care.repair import Repaired as Repaired
    from logitbank.store.care.repair import repair as repair
    from logitbank.store.care.verify import verify as verify
    from logitbank.store.change.about import describe as describe
    from logitbank.store.change.merge import Merged as Merged
    from logitbank.store.change.merge import merge as merge
    from logitbank.store.change.rescore import rescore as rescore
    from logitbank.store.change.shrink import Shrunk as Shrunk
    from logitbank.store.change.shrink import shrink as shrink
    from logitbank.store.deposits.deposit import Deposit as Deposit
    from logitbank.store.deposits.writer import DepositWriter as DepositWriter
    from logitbank.store.filter.apply import Applied as Applied
    from logitbank.store.filter.apply import apply_filter as apply_filter
    from logitbank.store.filter.filters import Filter as Filter
    from logitbank.store.format.heads import Operation as Operation
    from logitbank.store.format.heads import OutputHead as OutputHead
    from logitbank.store.format.layout import BlockData as BlockData
    from logitbank.store.format.layout import DepositSpec as DepositSpec
    from logitbank.store.format.layout import Layout as Layout
    from logitbank.store.format.queries import QuerySet as QuerySet
    from logitbank.store.format.schema import CheckpointId as CheckpointId
    from logitbank.store.format.schema import Keep as Keep
    from logitbank.store.format.schema import OptionTokens as OptionTokens
    from logitbank.store.format.schema import Query as Query

__getattr__, __dir__ = front_door(__name__, __file__)
__all__ = __dir__()
