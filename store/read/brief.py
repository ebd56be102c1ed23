"""A bank as one line, as a small table, and as one row per deposit."""

from collections.abc import Sequence
from pathlib import Path

from logitbank.notebook import abbreviated, html_table
from logitbank.store.deposits.deposit import Deposit
from logitbank.store.format import commits
from logitbank.store.format.commits import Committed
from logitbank.store.heads.stored import head_sizes
from logitbank.store.steps import Step, in_order
from logitbank.wording import counted


def bank_line(deposits: Sequence[Deposit], prompt_sets: Sequence[str]) -> str:
    """Models, checkpoints and prompts: "toy; 24 checkpoints, steps 0 to 720; prompts winobias"."""
    checkpoints = {d.checkpoint for d in deposits}
    models = sorted({c.model for c in checkpoints})
    steps = f", {_span([c.step for c in checkpoints])}" if checkpoints else ""
    return (
        f"{abbreviated(models) if models else 'no model yet'};"
        f" {counted(len(checkpoints), 'checkpoint')}{steps}; prompts {abbreviated(prompt_sets)}"
    )


def bank_table(where: str, deposits: Sequence[Deposit], prompt_sets: Sequence[str]) -> str:
    """HTML with one row per model and run; its caption names the prompt sets."""
    runs: dict[tuple[str, str], list[Deposit]] = {}
    for deposit in deposits:
        runs.setdefault((deposit.checkpoint.model, deposit.checkpoint.run), []).append(deposit)
    rows = [(model, run, *_of_run(of_run)) for (model, run), of_run in sorted(runs.items())]
    header = ("model", "run", "checkpoints", "training", "keep", "deposits")
    return html_table(f"{where}; prompts {abbreviated(prompt_sets)}", header, rows)


def _of_run(deposits: Sequence[Deposit]) -> tuple[str, ...]:
    checkpoints = {d.checkpoint for d in deposits}
    complete = sum(d.complete for d in deposits)
    unfinished = "" if complete == len(deposits) else f", {len(deposits) - complete} unfinished"
    return (
        str(len(checkpoints)),
        _span([c.step for c in checkpoints]),
        abbreviated(sorted({str(d.layout.keep) for d in deposits})),
        f"{len(deposits)}{unfinished}",
    )


def _span(steps: Sequence[Step]) -> str:
    """From the first step to the last, and whether there is a release.

    >>> _span([8, 0, None]), _span([None]), _span([5])
    ('steps 0 to 8, release', 'release', 'step 5')
    """
    numbers = [step for step in in_order(steps) if step is not None]
    words = []
    if numbers:
        words = [f"steps {numbers[0]} to {numbers[-1]}" if numbers[1:] else f"step {numbers[0]}"]
    return ", ".join([*words, *(["release"] if None in steps else [])])


def info_rows(root: Path, deposits: Sequence[Deposit]) -> list[tuple[object, ...]]:
    """The rows of `Bank.info`; the first deposit that names a head includes its bytes."""
    heads = head_sizes(root) if any(d.spec.heads for d in deposits) else {}
    return [_info_row(d, sum(heads.pop(h, 0) for h in d.spec.heads.values())) for d in deposits]


def _info_row(deposit: Deposit, heads: int) -> tuple[object, ...]:
    return deposit.retrying(lambda state: _row(deposit, state, heads))


def _row(deposit: Deposit, state: Committed, heads: int) -> tuple[object, ...]:
    checkpoint, layout = deposit.checkpoint, deposit.layout
    engine = deposit.spec.provenance.get("engine")
    return (
        checkpoint.model,
        checkpoint.run,
        checkpoint.step,
        deposit.query_set,
        layout.queries,
        sum(len(layout.rows(block)) for block in state.blocks),
        layout.blocks,
        state.sealed,
        str(layout.keep),
        layout.dtype,
        None if engine is None else str(engine),
        _bytes(deposit, state) + heads,
    )


def _bytes(deposit: Deposit, state: Committed) -> int:
    """Bytes of the objects in the commits."""
    parts = [commits.digests(deposit.path, name) for name in state.names]
    return sum(digest.bytes for part in parts for digest in part.values())
