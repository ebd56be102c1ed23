"""Conditions: prompts of a file whose scores are taken away from those of others (PMI).

It knows prompts, not the rows that they are from.
"""

from collections.abc import Iterator, Sequence

from logitbank.engine.prompts.files.fields import CONDITION
from logitbank.engine.prompts.values import Prompt
from logitbank.errors import PromptError


def condition_errors(prompts: Sequence[Prompt]) -> Iterator[PromptError]:
    """What is wrong with the conditions that prompts name, one error a prompt."""
    known = {(prompt.id, prompt.order_seed): prompt for prompt in prompts}
    ids = {prompt.id for prompt in prompts}
    for prompt in prompts:
        name = prompt.columns.get(CONDITION)
        if not isinstance(name, str):
            continue
        said = f"{prompt}: condition {name!r}"
        other = known.get((name, prompt.order_seed)) or known.get((name, None))
        if name not in ids:
            yield PromptError(
                f"{said} is no prompt of this file; give the id of one, or rename the column"
            )
        elif name == prompt.id:
            yield PromptError(f"{said} is the prompt itself; give the id of another")
        elif other is None:
            yield PromptError(
                f"{said} has neither this order nor none; give it once, without an order_seed"
            )
        elif not prompt.options or _options(prompt) != _options(other):
            yield PromptError(
                f"{said} has {_listed(other)}, and the prompt {_listed(prompt)}; give both the "
                "same labels and continuations"
            )


def only_conditions(prompts: Sequence[Prompt]) -> set[str]:
    """The ids of prompts that are there as conditions of others, and have none themselves."""
    named = {prompt.columns.get(CONDITION) for prompt in prompts}
    free = {prompt.id for prompt in prompts if prompt.columns.get(CONDITION) is None}
    return {name for name in free if name in named}


def _options(prompt: Prompt) -> set[tuple[str, str]]:
    return {(option.label, option.text) for option in prompt.options}


def _listed(prompt: Prompt) -> str:
    texts = [repr(option.text) for option in prompt.options[:4]]
    more = ["..."] if len(prompt.options) > 4 else []
    return f"the options {', '.join(texts + more)}" if texts else "no options"
