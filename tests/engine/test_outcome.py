"""Every failure of a checkpoint leads to one decision: the whole table."""

import pytest

from logitbank.engine.workers.events import Cause, CheckpointFailed
from logitbank.engine.workers.outcome import Abort, Decision, History, Retry, Skip, Stop, decide
from logitbank.store.format.schema import CheckpointId

SMALLER = Retry(smaller=True)


@pytest.mark.parametrize(
    ("cause", "out_of_memory", "history", "decision"),
    [
        ("checkpoint", False, History(), Skip()),
        ("checkpoint", False, History(engine_failures=1), Skip()),
        ("checkpoint", False, History(engine_failures=2), Skip()),
        ("load", False, History(can_shrink=True), Skip()),
        ("load", False, History(engine_failures=2), Skip()),
        ("engine", False, History(engine_failures=1), Skip()),
        ("engine", False, History(engine_failures=2), Abort()),
        ("engine", False, History(engine_failures=2, done=1), Skip()),
        ("engine", True, History(can_shrink=True, engine_failures=5), SMALLER),
        ("engine", True, History(can_shrink=True, stopping=True, engine_failures=1), Skip()),
        ("engine", True, History(can_shrink=False, engine_failures=1), Skip()),
        ("crash", False, History(crashes=1, engine_failures=1), Retry()),
        ("crash", True, History(crashes=1, can_shrink=True), SMALLER),
        ("crash", True, History(crashes=2, can_shrink=True, engine_failures=1), Skip()),
        ("crash", False, History(crashes=2, engine_failures=2), Abort()),
        ("crash", False, History(crashes=2, engine_failures=2, done=3), Skip()),
        ("crash", False, History(crashes=1, stopping=True), Stop()),
        ("lost", False, History(losses=9), Retry()),
        ("lost", False, History(losses=10), Skip()),
        ("lost", True, History(losses=1, can_shrink=True), SMALLER),
        ("lost", True, History(losses=2, can_shrink=True), Skip()),
        ("lost", False, History(losses=1, stopping=True), Stop()),
        ("fatal", False, History(done=9), Abort()),
        ("fatal", False, History(stopping=True), Abort()),
    ],
)
def test_a_failure_leads_to_one_decision(
    cause: Cause, out_of_memory: bool, history: History, decision: Decision
) -> None:
    failure = CheckpointFailed(CheckpointId("tiny", step=1), "it failed", cause, out_of_memory)
    assert decide(failure, history) == decision
