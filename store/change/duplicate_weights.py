"""Copy blocks from another deposit of the same weights in this bank, so that they are run once.

Each byte is compared with its commit during the copy, as in a merge.
"""

from collections.abc import Callable, Collection

from logitbank.errors import DamagedError
from logitbank.store.bank import Bank
from logitbank.store.change.copying import copy_block
from logitbank.store.change.merge_plan import Addition
from logitbank.store.deposits import catalog
from logitbank.store.deposits.deposit import Deposit
from logitbank.store.files import locks
from logitbank.store.files.staging import Staging, remove_dead_staging
from logitbank.store.format import commits
from logitbank.store.format.commits import SEAL, Committed
from logitbank.store.format.layout import DepositSpec
from logitbank.store.format.schema import Json

COPIED_FROM = "copied_from"
_MAY_DIFFER = frozenset(
    {
        *("source", "host", "platform", "time"),
        *("canary_difference", "canary_rounding", COPIED_FROM),
    }
)
"""Provenance fields that may differ between deposits of the same numbers."""


def find_duplicate(bank: Bank, spec: DepositSpec, blocks: Collection[int]) -> Deposit | None:
    """A deposit of the same model and weights, made with the same settings, with all of `blocks`.

    None if its scores lack an option that prompts have named since. None also if the model ships
    with code: code may differ between checkpoints of equal weights.
    """
    if spec.provenance.get("weights") is None or spec.provenance.get("trust_remote_code"):
        return None
    model, _, _ = spec.checkpoint.path.partition("/")
    for folder in catalog.deposit_folders(bank.path):
        if not (folder.startswith(f"{model}/") and folder.endswith(f"/{spec.query_set}")):
            continue
        try:
            deposit = Deposit.open(bank.path, folder)
        except FileNotFoundError:  # its writer has only made the folder yet
            continue
        if _same_settings(deposit.spec, spec) and deposit.committed().issuperset(blocks):
            listed = not deposit.state().options and bank.missing_options(deposit) is None
            return deposit if listed else None
    return None


def _same_settings(one: DepositSpec, other: DepositSpec) -> bool:
    def made(spec: DepositSpec) -> dict[str, Json]:
        return {name: value for name, value in spec.provenance.items() if name not in _MAY_DIFFER}

    return (
        one.checkpoint != other.checkpoint
        and (one.layout, one.vocab_entries) == (other.layout, other.vocab_entries)
        and one.heads == other.heads
        and made(one) == made(other)
    )


class BlockCopier:
    """Copies single blocks of `duplicate` into `deposit`. `close` removes the staging folder."""

    def __init__(self, deposit: Deposit, duplicate: Deposit) -> None:
        self._deposit, self._duplicate = deposit, duplicate
        with locks.locked(deposit.path / ".lock"):
            remove_dead_staging(deposit.path)
            self._staging = Staging(deposit.path)

    def copy(self, block: int, *, copied: Callable[[int], None] = lambda _: None) -> None:
        """Commit a copy of a block, unless the block is committed already.

        Raises
        ------
        DamagedError
            The source's bytes differ from its commit. Nothing of the block is kept.
        """
        state = self._duplicate.state()
        try:
            self._copy(block, state, copied)
        except DamagedError:
            if state.sealed or not self._duplicate.sealed:
                raise
            self._copy(block, self._duplicate.state(), copied)  # a seal has just replaced its parts

    def _copy(self, block: int, state: Committed, copied: Callable[[int], None]) -> None:
        source = self._duplicate
        digests = commits.digests(source.path, SEAL if state.sealed else str(block))
        paths = [f"scores/{block}.parquet"] * (not state.sealed)
        paths += source.layout.shards(block)
        taken = {path: digests[path] for path in paths}
        addition = Addition(
            source, commits.folder_of(self._deposit.path), (block,), (), False, taken
        )
        copy_block(self._deposit, addition, block, self._staging.path, copied)

    def close(self) -> None:
        self._staging.remove()
