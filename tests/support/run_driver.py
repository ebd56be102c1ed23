"""One extraction in a process of its own: `python -m tests.support.run_driver BANK SERIES`.

It goes as the command line's does, in blocks so small that a signal meets it between two. Where a
test has servers (`preloaded.py`), its worker comes from them.
"""

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

from logitbank.cli.screen.extract import print_summary
from logitbank.engine.prompts.prompt_set import PromptSet
from logitbank.engine.prompts.values import Option, Prompt
from logitbank.engine.request import ExtractRequest
from logitbank.engine.suites.suites import resolve_suite
from logitbank.engine.workers.events import Event, Summary
from logitbank.store import Bank, verify
from tests.support import preloaded
from tests.support.checkpoints import WORDS
from tests.support.resolved import run

PROMPTS = 280
BLOCK_ROWS, LARGE_BLOCK_ROWS = 8, 56
"""Where a run is stopped between two blocks, and where not. A block costs 28 ms of CPU."""
OPTIONS = (Option("male", " male"), Option("female", " female"))


def questions() -> PromptSet:
    """Distinct texts of many lengths."""
    texts = [
        "".join(f" {WORDS[(i * 7 + j * j) % 31]}" for j in range(12 + i % 9))
        + f" {WORDS[i % 31]} {WORDS[i // 31]}"
        for i in range(PROMPTS)
    ]
    prompts = (Prompt(f"p{i}", text, OPTIONS, "male") for i, text in enumerate(texts))
    return PromptSet("mine", tuple(prompts))


def extraction(series: Path, **changes: Any) -> ExtractRequest:
    defaults: dict[str, Any] = {
        "engine": "transformers", "canary_every": 0, "dtype": "float32", "prompts": questions(),
        "block_rows": BLOCK_ROWS,
    }  # fmt: skip
    return ExtractRequest(suites=resolve_suite(str(series)), **(defaults | changes))


def go(bank: Path, series: Path, *, on_event: object = None, **changes: Any) -> Summary:
    def ignore(_: Event) -> None:
        pass

    return run(
        bank,
        extraction(series, **changes),
        on_event=on_event or ignore,  # type: ignore[arg-type]
    )


def assert_same(path: Path, whole: Bank) -> None:
    """A sound bank with the same deposits, sealed; batches, so sums too, may differ."""
    bank = Bank.open(path)
    assert not verify(bank)
    assert {d.checkpoint for d in bank.deposits()} == {d.checkpoint for d in whole.deposits()}
    for theirs in whole.deposits():
        (ours,) = bank.deposits(theirs.checkpoint)
        assert ours.sealed
        np.testing.assert_allclose(ours.logprobs(), theirs.logprobs(), atol=1e-4)


if __name__ == "__main__":
    if preloaded.SERVERS in os.environ:
        preloaded.processes_from_servers()
    summary = go(Path(sys.argv[1]), Path(sys.argv[2]))
    print_summary(summary, bank=sys.argv[1], dry_run=False)
    sys.exit(summary.exit_code)
