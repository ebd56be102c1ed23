"""Take blocks from a deposit of the same weights in the same bank: what was run is not run again.

Each byte is checked against its commit while it is copied, as in a merge.
"""

from collections.abc import Callable, Collection

from logitbank.errors import DamagedError
from logitbank.store.bank import Bank
from logitbank.store.change.adopt import adopt_block
from logitbank.store.change.merge_plan import Addition
from logitbank.store.deposits import catalog
from logitbank.store.deposits.deposit import Deposit
from logitbank.store.files import locks
from logitbank.store.files.staging import Staging, remove_dead_staging
from logitbank.store.format import commits
from logitbank.store.format.commits import SEAL, Committed
from logitbank.store.format.layout import DepositSpec
from logitbank.store.format.schema import Json

COPIED = "copied_from"
_OWN = frozenset(
    {
        *("source", "host", "platform", "time"),
        *("canary_difference", "canary_rounding", COPIED),
    }
)
"""What of the provenance may differ between deposits of the same numbers."""


def twin_of(bank: Bank, spec: DepositSpec, blocks: Collection[int]) -> Deposit | None:
    """A deposit of the same model and weights, made in the same way, that has all of `blocks`.

    None where its scores lack an option that prompts name by now, or the model ships with code,
    which may differ where weights do not.
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
        if _made_alike(deposit.spec, spec) and deposit.committed().issuperset(blocks):
            listed = not deposit.state().options and bank.missing_options(deposit) is None
            return deposit if listed else None
    return None


def _made_alike(one: DepositSpec, other: DepositSpec) -> bool:
    def made(spec: DepositSpec) -> dict[str, Json]:
        return {name: value for name, value in spec.provenance.items() if name not in _OWN}

    return (
        one.checkpoint != other.checkpoint
        and (one.layout, one.vocab_entries) == (other.layout, other.vocab_entries)
        and one.heads == other.heads
        and made(one) == made(other)
    )


class Copier:
    """Copies blocks of `twin` into `deposit`, one at a time. `close` removes what is left over."""

    def __init__(self, deposit: Deposit, twin: Deposit) -> None:
        self._deposit, self._twin = deposit, twin
        with locks.locked(deposit.path / ".lock"):
            remove_dead_staging(deposit.path)
            self._staging = Staging(deposit.path)

    def copy(self, block: int, *, copied: Callable[[int], None] = lambda _: None) -> None:
        """Commit a block as the twin has it; nothing happens where somebody else has.

        Raises
        ------
        DamagedError
            The twin's bytes are not what was committed. Nothing of the block is kept.
        """
        state = self._twin.state()
        try:
            self._copy(block, state, copied)
        except DamagedError:
            if state.sealed or not self._twin.sealed:
                raise
            self._copy(block, self._twin.state(), copied)  # a seal has just replaced its parts

    def _copy(self, block: int, state: Committed, copied: Callable[[int], None]) -> None:
        twin = self._twin
        digests = commits.digests(twin.path, SEAL if state.sealed else str(block))
        paths = [f"scores/{block}.parquet"] * (not state.sealed)
        paths += twin.layout.shards(block)
        taken = {path: digests[path] for path in paths}
        addition = Addition(twin, commits.folder_of(self._deposit.path), (block,), (), False, taken)
        adopt_block(self._deposit, addition, block, self._staging.path, copied)

    def close(self) -> None:
        self._staging.remove()
