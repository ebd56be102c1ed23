"""A prompt set before it is run: its first prompts, its errors, and likely mistakes."""

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from logitbank.engine.prompts.prompt_set import PromptSet, SequenceSet
from logitbank.engine.prompts.registry import Prompts, prompt_sets
from logitbank.engine.prompts.sequences import SentencePair, SentenceTokens, SequencePrompt
from logitbank.engine.prompts.values import Finding, Prompt, once_per_kind
from logitbank.engine.prompts.warnings import sequence_warnings, text_warnings
from logitbank.errors import PromptError
from logitbank.wording import counted

if TYPE_CHECKING:
    from logitbank.engine.prompts.tokenize import Tokenization
    from logitbank.engine.tokenizers.tokenizer import Tokenizer


class Checked(NamedTuple):
    """The errors and warnings of a prompt set, in lines for people to read."""

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
        Number of prompts.

    Raises
    ------
    UsageError
        The set does not exist, or does not have one of the options.
    """
    (prompts,) = prompt_sets(prompts, data=data)
    total = len(prompts.prompts)
    lines = [f"{prompts.name}: {counted(total, 'prompt')}, {min(top, total)} shown"]
    for prompt in prompts.prompts[:top]:
        seed = prompt.order_seed if isinstance(prompt, Prompt) else None
        order = "" if seed is None else f", order {seed}"
        columns = ", ".join(f"{k}={v}" for k, v in prompt.columns.items() if v is not None)
        lines += ["", f"── {prompt.id}{order}", *_shown(prompt)]
        lines += [f"   {columns}"] if columns else []
    return lines


def _shown(prompt: Prompt | SequencePrompt) -> list[str]:
    """The text of a prompt, and its options or spans."""
    text, options = prompt.text, []
    if isinstance(prompt, Prompt):
        text = "\n".join(f"{turn.role}: {turn.content}" for turn in prompt.messages) or text
        options = [(option.label, option.text) for option in prompt.options]
    elif isinstance(prompt, SentencePair):
        text, options = "", [*prompt.sentences]
    answer = getattr(prompt, "answer", None)
    spans = prompt.spans if isinstance(prompt, SentenceTokens) else ()
    return [
        *(text.split("\n") if text else []),
        *(f"   {'→' if label == answer else ' '} {each!r} ({label})" for label, each in options),
        *(f"     {prompt.text[a:b]!r} (characters {a} to {b})" for a, b in spans),
    ]


def prompts_check(
    prompts: Prompts, *, tokenizer: Path | None = None, data: Path | None = None
) -> Checked:
    """Errors that stop a prompt set, and likely mistakes of its author.

    Parameters
    ----------
    prompts, data
        A prompt set, or what names one, as in `extract`.
    tokenizer
        Folder of a checkpoint, whose tokenizer is used to check tokens too.

    Raises
    ------
    UsageError
        The set does not exist, or does not have one of the options.
    """
    from logitbank.engine.tokenizers.tokenizer import Tokenizer
    from logitbank.engine.weights.config import ModelConfig

    (prompts,) = prompt_sets(prompts, data=data)
    count = counted(len(prompts.prompts), "prompt")
    if tokenizer is None:
        findings = _warnings(prompts)
        lines = [f"{finding.level}: {finding}" for finding in findings]
        note = "tokens were not checked: name a checkpoint folder with --tokenizer"
        failed = any(finding.level == "error" for finding in findings)
        return Checked([*lines, f"{prompts.name}: {count}, {_counts(findings)}", note], failed)
    loaded, max_length = Tokenizer.load(tokenizer), None
    if (tokenizer / "config.json").is_file():
        config = ModelConfig.read(tokenizer)
        loaded, max_length = loaded.for_task(config.task), config.max_length
    try:
        tokenization, findings = _checked(prompts, loaded, max_length)
    except PromptError as error:
        return Checked([f"error: {error}"], True)
    lines = [*tokenization.notes, *(f"{finding.level}: {finding}" for finding in findings)]
    count = counted(len(tokenization.prompts), "prompt")
    failed = any(finding.level == "error" for finding in findings)
    scored = ""
    if not failed:
        scored = (
            f", {len(tokenization.rows):,} scored tokens, {len(tokenization.queries):,} distinct "
            "queries"
        )
    return Checked([*lines, f"{prompts.name}: {count}{scored}, {_counts(findings)}"], failed)


def _counts(findings: list[Finding]) -> str:
    errors = sum(finding.level == "error" for finding in findings)
    return f"{counted(errors, 'error')}, {counted(len(findings) - errors, 'warning')}"


def check_prompts(
    prompts: PromptSet | SequenceSet,
    tokenizer: "Tokenizer | None",
    *,
    max_length: int | None = None,
) -> list[Finding]:
    """Errors that stop these prompts, and likely mistakes of their author.

    Each kind is reported once, for the first prompt that has it, with the number of other prompts.
    Without a tokenizer only spaces and columns are checked; `max_length` is the model's, in tokens.

    Raises
    ------
    PromptError
        All prompts are skipped for this tokenizer.
    """
    if tokenizer is None:
        return _warnings(prompts)
    return _checked(prompts, tokenizer, max_length)[1]


def _warnings(prompts: PromptSet | SequenceSet) -> list[Finding]:
    if isinstance(prompts, PromptSet):
        return once_per_kind(text_warnings(prompts.prompts, None))
    return once_per_kind(sequence_warnings(prompts.prompts))


def _checked(
    prompts: PromptSet | SequenceSet, tokenizer: "Tokenizer", max_length: int | None
) -> tuple["Tokenization", list[Finding]]:
    from logitbank.engine.prompts.tokenize import tokenize

    tokenization = tokenize(prompts, tokenizer)
    too_long = [
        Finding(
            "error",
            "length",
            prompt.id,
            f"it has {length} tokens, but the model takes at most {max_length}",
        )
        for prompt, length in zip(tokenization.prompts, tokenization.lengths, strict=True)
        if max_length is not None and length > max_length
    ]
    return tokenization, [*once_per_kind(too_long), *tokenization.findings]
