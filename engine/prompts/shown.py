"""What people read of a prompt set before it is run: its prompts, and what is wrong with them."""

from pathlib import Path
from typing import TYPE_CHECKING

from logitbank.engine.prompts.prompt_set import PromptSet
from logitbank.engine.prompts.sequence_set import SequenceSet
from logitbank.engine.prompts.values import Prompt
from logitbank.errors import PromptError
from logitbank.wording import counted

if TYPE_CHECKING:
    from logitbank.engine.prompts.tokenizer import Tokenizer


def describe(prompts: PromptSet | SequenceSet, *, limit: int) -> list[str]:
    """The first `limit` prompts as they would be scored, for people to read."""
    total = len(prompts.prompts)
    lines = [f"{prompts.name}: {counted(total, 'prompt')}, {min(limit, total)} shown"]
    for prompt in prompts.prompts[:limit]:
        columns = ", ".join(f"{k}={v}" for k, v in prompt.columns.items())
        if isinstance(prompt, Prompt):
            order = "" if prompt.order_seed is None else f", order {prompt.order_seed}"
            lines += ["", f"── {prompt.id}{order}", *prompt.text.split("\n")]
            lines += [
                f"   {'→' if option.label == prompt.answer else ' '} {option.text!r} "
                f"({option.label})"
                for option in prompt.options
            ]
        else:
            lines += ["", f"── {prompt.id}", *prompt.text.split("\n")]
        lines += [f"   {columns}"] if columns else []
    return lines


def check(
    prompts: PromptSet | SequenceSet, tokenizer_folder: Path | None
) -> tuple[list[str], bool]:
    """Findings as lines, and whether one of them stops the set."""
    from logitbank.engine.prompts.check import check_prompts
    from logitbank.engine.prompts.tokenizer import Tokenizer
    from logitbank.engine.weights.config import ModelConfig

    tokenizer, longest = None, None
    if tokenizer_folder is not None:
        tokenizer = Tokenizer.load(tokenizer_folder)
        if (tokenizer_folder / "config.json").is_file():
            longest = ModelConfig.read(tokenizer_folder).max_length
    if not isinstance(prompts, PromptSet):
        return _check_sequences(prompts, tokenizer)
    lines, count = [], len(prompts.prompts)
    try:
        if tokenizer is not None:
            encoded = prompts.encoded(tokenizer)
            lines, count = [*encoded.notes], len(encoded.prompts)
    except PromptError as error:
        return [f"error: {error}"], True
    findings = check_prompts(prompts, tokenizer, max_length=longest)
    lines += [f"{f.level}: prompt {f.prompt_id!r}: {f.message}" for f in findings]
    errors = sum(f.level == "error" for f in findings)
    lines.append(
        f"{prompts.name}: {counted(count, 'prompt')}, {counted(errors, 'error')}, "
        f"{counted(len(findings) - errors, 'warning')}"
    )
    if tokenizer is None:
        lines.append("tokens were not checked: name a checkpoint folder with --tokenizer")
    return lines, errors > 0


def _check_sequences(prompts: SequenceSet, tokenizer: "Tokenizer | None") -> tuple[list[str], bool]:
    count = f"{prompts.name}: {counted(len(prompts.prompts), 'prompt')}"
    if tokenizer is None:
        return [f"{count}; name a checkpoint folder with --tokenizer to count their tokens"], False
    try:
        tokenized = prompts.tokenize(tokenizer)
    except PromptError as error:
        return [f"error: {error}"], True
    sequences = len({query.ids for query in tokenized.queries})
    return [
        f"{count}, {len(tokenized.table):,} scored tokens, {len(tokenized.queries):,} distinct "
        f"queries in {sequences:,} sequences"
    ], False
