"""Select deposits by the names of their checkpoints."""

import operator
from collections.abc import Collection, Iterable, Sequence
from typing import cast

from logitbank.errors import AbsentError
from logitbank.store.deposits.deposit import Deposit
from logitbank.store.steps import Step, StepSelector, listed, parse_steps

Names = Collection[str] | str | None
"""Models or runs; all if None."""
Steps = Collection[Step] | int | str | None
"""Training steps, None in a collection for the release; or a text as `--steps` takes it, such as
`last`, `log` or `0:100:10`; all if None."""


def checkpoints_chosen(
    deposits: Sequence[Deposit], *, models: Names = None, runs: Names = None, steps: Steps = None
) -> list[Deposit]:
    """Deposits of these models, runs and training steps.

    Raises AbsentError or SuiteError if one of them is missing, which lists the available ones, and
    UsageError if a text is no selection of steps.
    """
    deposits = _of_names(_of_names(list(deposits), "model", models), "run", runs)
    if isinstance(steps, str):
        return _selected(deposits, parse_steps(steps))
    if steps is None:
        return deposits
    wanted = set(steps) if isinstance(steps, Collection) else {operator.index(steps)}
    chosen = [d for d in deposits if d.checkpoint.step in wanted]
    if not chosen:
        available = {d.checkpoint.step for d in deposits}
        raise _absent("step", listed(wanted), listed(available))
    return chosen


def require_scored_models(
    prompts: str, models: Names, deposits: Sequence[Deposit], *, there: Collection[str]
) -> None:
    """Refuse models of the bank without scores of a prompt set, with an AbsentError.

    `deposits` are those of the prompt set, `there` the models of the whole bank.
    """
    if models is None:
        return
    scored = {d.checkpoint.model for d in deposits}
    wanted = {models} if isinstance(models, str) else set(models)
    if not wanted & scored and wanted <= set(there):
        have = "have" if len(wanted) > 1 else "has"
        raise AbsentError(
            f"{_together(wanted)} {have} no scores of prompt set {prompts!r}, only of others; of it"
            f" the bank has {_together(scored)}"
        )


def _of_names(deposits: list[Deposit], field: str, names: Names) -> list[Deposit]:
    if names is None:
        return deposits
    wanted = {names} if isinstance(names, str) else set(names)
    chosen = [d for d in deposits if getattr(d.checkpoint, field) in wanted]
    if not chosen:
        available = {cast(str, getattr(d.checkpoint, field)) for d in deposits}
        raise _absent(field, _together(wanted), _together(available))
    return chosen


def _selected(deposits: list[Deposit], selector: StepSelector) -> list[Deposit]:
    """Deposits that a selector picks of each model and run, whose last steps may differ."""
    by_run: dict[tuple[str, str], set[Step]] = {}
    for deposit in deposits:
        checkpoint = deposit.checkpoint
        by_run.setdefault((checkpoint.model, checkpoint.run), set()).add(checkpoint.step)
    everywhere = set().union(*by_run.values())
    if selector.select(everywhere, of="this bank") == (None,):
        return [d for d in deposits if d.checkpoint.step is None]
    picked = {run: set(selector.pick(steps)) for run, steps in by_run.items()}
    return [
        d for d in deposits if d.checkpoint.step in picked[d.checkpoint.model, d.checkpoint.run]
    ]


def _absent(field: str, wanted: str, available: str) -> AbsentError:
    return AbsentError(f"no deposit has {field} {wanted}; the bank has {available}")


def _together(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"
