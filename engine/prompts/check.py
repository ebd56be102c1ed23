"""A prompt set before it is run: its first prompts, its errors, and likely mistakes."""

from pathlib import Path
from typing import NamedTuple

from logitbank.engine.prompts.prompt_set import PromptSet
from logitbank.engine.prompts.registry import Prompts, prompt_sets
from logitbank.engine.prompts.warnings import likely_mistakes
from logitbank.errors import PromptError, UsageError
from logitbank.wording import counted


class Checked(NamedTuple):
    """The errors and warnings of a prompt set, in lines for people to read."""

    lines: list[str]
    failed: bool
    """Whether an error stops the set."""


def prompts_show(prompts: Prompts, *, top: int = 3, data: Path | None = None) -> list[str]:
    """The first prompts of a set as they would be scored, in lines for people to read.

    Parameters
    ----------
    prompts, data
        A prompt set, or what names one, as in `extract`.
    top
        Number of prompts.

    Raises
    ------
    UsageError
        The set does not exist, or does not have one of the options.
    """
    lines = [_shown(each, top) for each in prompt_sets(prompts, data=data)]
    return [line for own in lines for line in own]


def _shown(prompts: PromptSet, top: int) -> list[str]:
    total = len(prompts.prompts)
    lines = [f"{prompts.name}: {counted(total, 'prompt')}, {min(top, total)} shown"]
    for prompt in prompts.prompts[:top]:
        order = "" if prompt.order_seed is None else f", order {prompt.order_seed}"
        options = [
            f"   {'→' if option.label == prompt.answer else ' '} {option.text!r} ({option.label})"
            for option in prompt.options
        ]
        columns = ", ".join(f"{k}={v}" for k, v in prompt.columns.items() if v is not None)
        lines += ["", f"── {prompt.id}{order}", *prompt.text.split("\n"), *options]
        lines += [f"   {columns}"] if columns else []
    return lines


def prompts_check(
    prompts: Prompts, *, tokenizer: Path | None = None, data: Path | None = None
) -> Checked:
    """Errors that stop prompt sets, and likely mistakes of their author.

    Each kind is reported once, for the first prompt that has it, with the number of other prompts.

    Parameters
    ----------
    prompts, data
        A prompt set, or what names one, as in `extract`.
    tokenizer
        Folder of a checkpoint, whose tokenizer and config are used to check tokens too.

    Raises
    ------
    UsageError
        The set does not exist, or does not have one of the options.
    """
    found = [_checked(each, tokenizer) for each in prompt_sets(prompts, data=data)]
    return Checked([line for each in found for line in each.lines], any(e.failed for e in found))


def _checked(chosen: PromptSet, tokenizer: Path | None) -> Checked:
    if tokenizer is None:
        warnings, scored = likely_mistakes(chosen), ""
        notes = ["tokens were not checked: name a checkpoint folder with --tokenizer"]
        notes += [f"{chosen.name}: {chosen.masked_note}"] if chosen.masked_note else []
    else:
        from logitbank.engine.plan.engine_choice import fitting_task
        from logitbank.engine.plan.prepare import supported_sets
        from logitbank.engine.prompts.tokenize import tokenized_for
        from logitbank.engine.tokenizers.tokenizer import Tokenizer, tokenizer_folder
        from logitbank.engine.weights.config import ModelConfig

        has_config = (tokenizer / "config.json").is_file()
        config = ModelConfig.read(tokenizer) if has_config else None
        loaded = Tokenizer.load(tokenizer_folder(tokenizer))
        loaded = loaded.for_task(None if config is None else config.task)
        try:
            if config is not None:
                supported_sets([chosen], config, tokenizer)
            tokenized = tokenized_for(chosen, loaded, config)
            if config is not None:
                fitting_task([tokenized], config)
        except (PromptError, UsageError) as error:
            return Checked([f"error: {error}"], failed=True)
        warnings, notes = [*tokenized.warnings], [*tokenized.notes]
        contexts = f"{len(tokenized.queries):,} distinct contexts"
        scored = f", {len(tokenized.table):,} scored tokens, {contexts}"
    count = counted(len(chosen.prompts), "prompt")
    summary = f"{chosen.name}: {count}{scored}, 0 errors, {counted(len(warnings), 'warning')}"
    lines = [*(f"warning: {each}" for each in warnings), summary, *chosen.notes, *notes]
    return Checked(lines, failed=False)
