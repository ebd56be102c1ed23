"""What a Ray cluster is joined with."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from logitbank.store.cluster import joined


def test_what_workers_print_does_not_come_over_the_progress_of_a_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[dict[str, Any]] = []

    def init(address: str, **options: Any) -> None:
        asked.append({"address": address, **options})

    ray = SimpleNamespace(is_initialized=lambda: False, init=init, shutdown=lambda: None)
    monkeypatch.setitem(sys.modules, "ray", ray)
    with joined("auto"):
        pass
    assert asked == [{"address": "auto", "log_to_driver": False, "logging_level": "ERROR"}]
