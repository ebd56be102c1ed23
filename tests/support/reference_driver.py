"""Processes that fork for references, as workers do."""

import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from logitbank.engine.backends import plain_logits
from logitbank.engine.backends.protocol import EngineSettings
from logitbank.engine.workers.reference_check import ReferenceFork
from logitbank.store import Query

BLOCKING = Path("blocking")
"""A checkpoint whose evaluation does not end."""


def started() -> ReferenceFork:
    evaluate = plain_logits.evaluate

    def blocking(folder: Path, *arguments: Any) -> object:
        return signal.pause() if folder == BLOCKING else evaluate(folder, *arguments)

    plain_logits.evaluate = blocking  # type: ignore[assignment]
    fork = ReferenceFork.start()
    assert fork is not None
    return fork


def replies(
    folders: Sequence[Path], queries: list[Query], settings: EngineSettings
) -> list[object]:
    """The reply for each folder, one after the other."""
    fork, received = started(), list[object]()
    for folder in folders:
        fork.request(folder, queries, settings)
        received.append(fork.reply())
    fork.end()
    return received


def stopped(folder: Path, queries: list[Query], settings: EngineSettings) -> object:
    """The reply after an evaluation that was stopped, and one that was killed."""
    fork = started()
    fork.request(BLOCKING, queries, settings)
    fork.close()
    fork.request(BLOCKING, queries, settings)
    os.kill(evaluating(fork), signal.SIGKILL)
    code = fork.reply()
    fork.request(folder, queries, settings)
    reply = fork.reply()
    fork.end()
    return code, reply


def die(queries: list[Query], settings: EngineSettings, pids: Path) -> None:
    """End without a word while an evaluation runs; the processes are in `pids`."""
    fork = started()
    fork.request(BLOCKING, queries, settings)
    pids.write_text(f"{fork._process} {evaluating(fork)}")
    os.kill(os.getpid(), signal.SIGKILL)


def evaluating(fork: ReferenceFork) -> int:
    """The process of the evaluation."""
    children = Path(f"/proc/{fork._process}/task/{fork._process}/children")
    while not (found := children.read_text().split()):
        time.sleep(0.01)
    return int(found[0])
