"""Selection of deposits by model, run and training step."""

from collections.abc import Collection, Iterable, Sequence

from logitbank.errors import AbsentError
from logitbank.store.deposits.deposit import Deposit
from logitbank.store.steps import Step, listed, parse_steps

Names = Collection[str] | str | None
"""Models, runs or prompt sets; all if None."""
Steps = Collection[Step] | int | str | None
"""Training steps, None in a collection for the release; or a text as `--steps` takes it, such as
`last`, `log` or `0:100:10`; all if None."""


def checkpoints_chosen(
    deposits: Sequence[Deposit], *, models: Names = None, runs: Names = None, steps: Steps = None
) -> list[Deposit]:
    """Deposits of these models, runs and training steps.

    A text of steps selects among the steps of each model and run, whose last steps may differ.

    Raises AbsentError if no deposit has one of them, with the available ones; SuiteError if a text
    selects no step, and UsageError if it is invalid.
    """
    chosen = [*deposits]
    for field, names in (("model", models), ("run", runs)):
        if names is not None:
            requested = as_names(names)
            available = {getattr(d.checkpoint, field) for d in chosen}
            chosen = [d for d in chosen if getattr(d.checkpoint, field) in requested]
            if not chosen:
                raise _absent(field, joined(requested), joined(available))
    if steps is None:
        return chosen
    available_steps = {d.checkpoint.step for d in chosen}
    if isinstance(steps, str):
        selector = parse_steps(steps)
        selected = selector.select(available_steps, "this bank")
        if selected == (None,):
            return [d for d in chosen if d.checkpoint.step is None]
        by_run: dict[tuple[str, str], set[Step]] = {}
        for d in chosen:
            by_run.setdefault((d.checkpoint.model, d.checkpoint.run), set()).add(d.checkpoint.step)
        picked = {run: set(selector.pick(of_run)) for run, of_run in by_run.items()}
        return [
            d for d in chosen if d.checkpoint.step in picked[d.checkpoint.model, d.checkpoint.run]
        ]
    requested_steps = set(steps) if isinstance(steps, Collection) else {steps}
    chosen = [d for d in chosen if d.checkpoint.step in requested_steps]
    if not chosen:
        raise _absent("step", listed(requested_steps), listed(available_steps))
    return chosen


def require_scored_models(
    prompts: str, models: Names, deposits: Sequence[Deposit], bank_models: Collection[str]
) -> None:
    """Refuse models of the bank without scores of a prompt set, with an AbsentError.

    `deposits` are those of the prompt set.
    """
    if models is None:
        return
    requested, scored = as_names(models), {d.checkpoint.model for d in deposits}
    if not requested & scored and requested <= set(bank_models):
        raise AbsentError(
            f"Prompt set {prompts!r} has no scores of {joined(requested)}. Models with scores:"
            f" {joined(scored)}."
        )


def as_names(names: Collection[str] | str) -> set[str]:
    return {names} if isinstance(names, str) else set(names)


def joined(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"


def _absent(field: str, requested: str, available: str) -> AbsentError:
    return AbsentError(f"No deposit has {field} {requested}. Available: {available}.")
