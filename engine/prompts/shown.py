"""What people read of a prompt set before it is run: its prompts, and what is wrong with them."""

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from logitbank.engine.prompts.prompt_set import PromptSet
from logitbank.engine.prompts.registry import Prompts, prompt_sets
from logitbank.engine.prompts.sentences import SentencePair, SentenceTokens
from logitbank.engine.prompts.sequence_set import SequenceSet
from logitbank.engine.prompts.sequences import SequencePrompt
from logitbank.engine.prompts.values import Prompt
from logitbank.errors import PromptError
from logitbank.wording import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from logitbank.engine.prompts.remarks import Finding
    from logitbank.engine.tokenizers.tokenizer import Tokenizer


class Checked(NamedTuple):
    """What is wrong with a prompt set, or odd."""

    lines: list[str]
    failed: bool
    """Whether one of them stops the set."""


def prompts_show(prompts: Prompts, *, top: int = 3, data: Path | None = None) -> list[str]:
    """The first prompts of a set as they would be scored, in lines for people to read.

    Parameters
    ----------
    prompts, data
        A prompt set, or what names one, as in `extract`.
    top
        Prompts to show.

    Raises
    ------
    UsageError
        There is no such set, or it has no such option.
    """
    (prompts,) = prompt_sets(prompts, data=data)
    total = len(prompts.prompts)
    lines = [f"{prompts.name}: {counted(total, 'prompt')}, {min(top, total)} shown"]
    for prompt in prompts.prompts[:top]:
        columns = ", ".join(f"{k}={v}" for k, v in prompt.columns.items() if v is not None)
        order = ""
        if isinstance(prompt, Prompt) and prompt.order_seed is not None:
            order = f", order {prompt.order_seed}"
        lines += ["", f"── {prompt.id}{order}", *_said(prompt)]
        lines += [f"   {columns}"] if columns else []
    return lines


def _said(prompt: Prompt | SequencePrompt) -> list[str]:
    """A prompt's text, and what of it is scored, where that is not the whole text."""
    if isinstance(prompt, SentencePair):
        return [
            f"   {'→' if label == prompt.answer else ' '} {text!r} ({label})"
            for label, text in prompt.sentences
        ]
    if isinstance(prompt, Prompt):
        said = [f"{turn.role}: {turn.content}" for turn in prompt.messages] or [prompt.text]
        return "\n".join(said).split("\n") + [
            f"   {'→' if option.label == prompt.answer else ' '} {option.text!r} ({option.label})"
            for option in prompt.options
        ]
    spans = prompt.spans if isinstance(prompt, SentenceTokens) else ()
    return prompt.text.split("\n") + [
        f"     {prompt.text[start:end]!r} (characters {start} to {end})" for start, end in spans
    ]


def prompts_check(
    prompts: Prompts, *, tokenizer: Path | None = None, data: Path | None = None
) -> Checked:
    """What stops a prompt set, and what its author may not have meant.

    Parameters
    ----------
    prompts, data
        A prompt set, or what names one, as in `extract`.
    tokenizer
        Folder of a checkpoint, with whose tokenizer options are checked too.

    Raises
    ------
    UsageError
        There is no such set, or it has no such option.
    """
    (prompts,) = prompt_sets(prompts, data=data)
    return _checked(prompts, tokenizer)


def _checked(prompts: PromptSet | SequenceSet, tokenizer_folder: Path | None) -> Checked:
    from logitbank.engine.prompts.check import check_prompts
    from logitbank.engine.tokenizers.tokenizer import Tokenizer
    from logitbank.engine.weights.config import ModelConfig

    tokenizer, longest = None, None
    if tokenizer_folder is not None:
        tokenizer = Tokenizer.load(tokenizer_folder)
        if (tokenizer_folder / "config.json").is_file():
            config = ModelConfig.read(tokenizer_folder)
            tokenizer, longest = tokenizer.for_task(config.task), config.max_length
    if not isinstance(prompts, PromptSet):
        return _check_sequences(prompts, tokenizer, longest)
    lines, count = [], len(prompts.prompts)
    try:
        if tokenizer is not None:
            encoded = prompts.encoded(tokenizer)
            lines, count = [*encoded.notes], len(encoded.prompts)
    except PromptError as error:
        return Checked([f"error: {error}"], True)
    findings = check_prompts(prompts, tokenizer, max_length=longest)
    errors = sum(f.level == "error" for f in findings)
    lines += [*map(_line, findings), _total(prompts.name, count, findings)]
    if tokenizer is None:
        lines.append("tokens were not checked: name a checkpoint folder with --tokenizer")
    return Checked(lines, errors > 0)


def _check_sequences(
    prompts: SequenceSet, tokenizer: "Tokenizer | None", longest: int | None
) -> Checked:
    from logitbank.engine.prompts.check import check_sequences

    findings = check_sequences(prompts, tokenizer, max_length=longest)
    lines = [*map(_line, findings)]
    if any(f.level == "error" for f in findings):
        return Checked([*lines, _total(prompts.name, len(prompts.prompts), findings)], True)
    count = f"{prompts.name}: {counted(len(prompts.prompts), 'prompt')}"
    if tokenizer is None:
        line = f"{count}; name a checkpoint folder with --tokenizer to count their tokens"
        return Checked([*lines, line], False)
    try:
        tokenized = prompts.tokenize(tokenizer)
    except PromptError as error:
        return Checked([f"error: {error}"], True)
    sequences = len({query.ids for query in tokenized.queries})
    line = (
        f"{count}, {len(tokenized.table):,} scored tokens, {len(tokenized.queries):,} distinct "
        f"queries in {sequences:,} sequences"
    )
    return Checked([*lines, line], False)


def _line(finding: "Finding") -> str:
    return f"{finding.level}: prompt {finding.prompt_id!r}: {finding.message}"


def _total(name: str, count: int, findings: "Sequence[Finding]") -> str:
    errors = sum(f.level == "error" for f in findings)
    return (
        f"{name}: {counted(count, 'prompt')}, {counted(errors, 'error')}, "
        f"{counted(len(findings) - errors, 'warning')}"
    )
