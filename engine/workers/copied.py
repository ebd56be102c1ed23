"""What another checkpoint of the same weights has is copied, and not run again."""

import threading
from collections.abc import Callable

from logitbank.engine.workers.events import BlockCommitted, Event, Note, RowsScored
from logitbank.errors import DamagedError
from logitbank.store import Deposit, DepositWriter
from logitbank.store.change.twins import COPIED, Copier


def copy_twin(
    writer: DepositWriter,
    twin: Deposit,
    wanted: set[int],
    *,
    emit: Callable[[Event], None],
    stop: threading.Event,
) -> None:
    """Take the wanted blocks that the twin has; where it cannot be read, they are left to be run.

    Ends after the block at hand where `stop` is set.
    """
    deposit, layout = writer.deposit, writer.layout
    # Nothing is taken into a deposit that was begun otherwise: its provenance does not say so.
    if deposit.spec.provenance.get(COPIED) != str(twin.checkpoint) or layout != twin.layout:
        return
    name, blocks = deposit.checkpoint, sorted(wanted.intersection(writer.missing()))
    copier = Copier(deposit, twin)
    try:
        for block in blocks:
            if stop.is_set():
                return
            copier.copy(block)
            rows = len(layout.rows(block))
            emit(RowsScored(name, rows))
            emit(BlockCommitted(name, block, rows, rows * layout.array_bytes))
        emit(Note(f"{name}: copied from {twin.checkpoint}, not run again"))
    except DamagedError as error:
        emit(Note(f"{name}: run, as its twin cannot be copied: {error}"))
    finally:
        copier.close()
