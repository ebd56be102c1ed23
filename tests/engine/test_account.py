"""What a run says of its time and of the work that was done only once."""

from pathlib import Path

import pytest

from logitbank.cli.screen.extract import account
from logitbank.engine.plan.plan import Plan
from logitbank.engine.prompts.prompt_set import PromptSet
from logitbank.engine.prompts.values import Option, Prompt
from logitbank.engine.workers.events import Summary
from logitbank.store import Bank
from tests.support.checkpoints import VOCAB
from tests.support.fakes import FakeBackend, go, write_series


def test_the_summary_lists_time_by_phase_and_reused_tokens() -> None:
    plan = Plan((), checkpoints=2, queries=15_300, prompts=15_840, orders=5)
    summary = Summary(plan, workers=2, tokens=2_000_000, reused=620_000)
    summary.spent = {"wait": 5.0, "load": 10.0, "score": 80.0, "write": 5.0}
    assert list(account(summary, "b.zarr"))[1:] == [
        "Time of 2 workers: load 10.0 s (10%), score 80.0 s (80%), write 5.0 s (5%), "
        "wait 5.0 s (5%)",
        "15,840 prompts in 5 option orders: 15,300 distinct contexts, "
        "2,000,000 tokens, 31% saved by shared prefixes",
    ]


@pytest.mark.parametrize(
    ("reused", "said"),
    [
        (0, ", 400 tokens"),
        (100, ", 400 tokens, 25% saved by shared prefixes"),
    ],
)
def test_shared_prefixes_are_mentioned_only_if_they_saved_tokens(reused: int, said: str) -> None:
    plan = Plan((), checkpoints=1, queries=4, prompts=4)
    summary = Summary(plan, tokens=400, reused=reused, spent={"score": 1.0})
    assert list(account(summary, "b.zarr"))[2] == "4 prompts: 4 distinct contexts" + said


def test_queries_that_orders_and_prompt_sets_share_are_scored_and_counted_once(
    tmp_path: Path, backend: FakeBackend
) -> None:
    options = (Option("male", " male"), Option("female", " female"))
    first = [Prompt("p", " the nurse said", options, "male", order_seed=s) for s in range(5)]
    second = [Prompt("q", text, options, "male") for text in (" the nurse said", " the doctor")]
    second[1] = Prompt("r", " the doctor", options, "male")
    sets = (PromptSet("orders", tuple(first)), PromptSet("others", tuple(second)))
    series = write_series(tmp_path / "tiny", "step0", "step1")
    summary = go(tmp_path / "b.zarr", series, *sets, dtype="float16")
    plan = summary.plan
    assert (plan.prompts, plan.orders, plan.queries) == (7, 5, 2)
    assert backend.scored == 2 * 2
    stored = Bank.open(tmp_path / "b.zarr").query_sets().values()
    lengths = {len(query.ids) for each in stored for query in each.queries}
    assert summary.tokens == 2 * sum(lengths)
    assert summary.bytes == 2 * 2 * VOCAB * 2
    said = "7 prompts in 5 option orders: 2 distinct contexts, "
    assert list(account(summary, "b.zarr"))[2].startswith(said)
