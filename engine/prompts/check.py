"""A prompt set before it is run: its first prompts, its errors, and likely mistakes."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from logitbank.engine.prompts.prompt_set import PromptSet, SequenceSet
from logitbank.engine.prompts.registry import Prompts, prompt_sets
from logitbank.engine.prompts.sequences import Encoder, SentencePair, SentenceTokens, SequencePrompt
from logitbank.engine.prompts.values import (
    Finding,
    Prompt,
    once_per_kind,
)
from logitbank.engine.prompts.warnings import sequence_warnings, warnings
from logitbank.errors import PromptError
from logitbank.wording import counted

if TYPE_CHECKING:
    from logitbank.engine.prompts.tokenize import Encoded
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
        seed = prompt.order_seed if isinstance(prompt, Prompt) else None
        order = "" if seed is None else f", order {seed}"
        columns = ", ".join(f"{k}={v}" for k, v in prompt.columns.items() if v is not None)
        lines += ["", f"── {prompt.id}{order}", *_shown(prompt)]
        lines += [f"   {columns}"] if columns else []
    return lines


def _shown(prompt: Prompt | SequencePrompt) -> list[str]:
    """A prompt's text, and what of it is scored, where that is not the whole text."""
    texts, scored = prompt.text, []
    if isinstance(prompt, Prompt):
        texts = "\n".join(f"{turn.role}: {turn.content}" for turn in prompt.messages) or texts
        scored = [(option.label, option.text) for option in prompt.options]
    elif isinstance(prompt, SentencePair):
        texts, scored = "", [*prompt.sentences]
    spans = prompt.spans if isinstance(prompt, SentenceTokens) else ()
    return [
        *(texts.split("\n") if texts else []),
        *(f"   {'→' if x == _answer(prompt) else ' '} {text!r} ({x})" for x, text in scored),
        *(f"     {prompt.text[a:b]!r} (characters {a} to {b})" for a, b in spans),
    ]


def _answer(prompt: Prompt | SequencePrompt) -> str | None:
    return getattr(prompt, "answer", None)


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
    from logitbank.engine.tokenizers.tokenizer import Tokenizer
    from logitbank.engine.weights.config import ModelConfig

    (prompts,) = prompt_sets(prompts, data=data)
    loaded, longest = None, None
    if tokenizer is not None:
        loaded = Tokenizer.load(tokenizer)
        if (tokenizer / "config.json").is_file():
            config = ModelConfig.read(tokenizer)
            loaded, longest = loaded.for_task(config.task), config.max_length
    try:
        return _checked(prompts, loaded, longest)
    except PromptError as error:
        return Checked([f"error: {error}"], True)


def _checked(
    prompts: PromptSet | SequenceSet, tokenizer: "Tokenizer | None", longest: int | None
) -> Checked:
    lines, count = [], len(prompts.prompts)
    if isinstance(prompts, PromptSet):
        if tokenizer is not None:
            encoded = prompts.encoded(tokenizer)
            lines, count = [*encoded.notes], len(encoded.prompts)
        found = check_prompts(prompts, tokenizer, max_length=longest)
    else:
        found = check_sequences(prompts, tokenizer, max_length=longest)
    lines += [f"{f.level}: prompt {f.prompt_id!r}: {f.message}" for f in found]
    errors = sum(f.level == "error" for f in found)
    total = f"{prompts.name}: {counted(count, 'prompt')}"
    if isinstance(prompts, SequenceSet) and not errors and tokenizer is not None:
        tokenized = prompts.tokenize(tokenizer)
        sequences = len({query.ids for query in tokenized.queries})
        total += (
            f", {len(tokenized.table):,} scored tokens, {len(tokenized.queries):,} distinct "
            f"queries in {sequences:,} sequences"
        )
    else:
        total += f", {counted(errors, 'error')}, {counted(len(found) - errors, 'warning')}"
    lines.append(total)
    if tokenizer is None:
        lines.append("tokens were not checked: name a checkpoint folder with --tokenizer")
    return Checked(lines, errors > 0)


def check_prompts(
    prompt_set: PromptSet, tokenizer: "Tokenizer | None", *, max_length: int | None = None
) -> list[Finding]:
    """What stops these prompts, and what their author may not have meant.

    Each kind is reported once, for the first prompt that has it, with the number of other prompts.
    Without a tokenizer only spaces and columns are looked at; `max_length` is the model's, in
    tokens. Optional options may be other tokens in their place.

    Raises
    ------
    PromptError
        Everything is left out for this tokenizer.
    """
    encoded = None if tokenizer is None else prompt_set.encoded(tokenizer)
    errors: list[Finding] = []
    if encoded is not None:
        errors = [*encoded.errors, *_too_long(encoded, max_length)]
    flag = prompt_set.add_special_tokens
    return once_per_kind([*errors, *warnings(prompt_set.prompts, encoded, add_special_tokens=flag)])


def check_sequences(
    prompt_set: SequenceSet, tokenizer: "Tokenizer | None", *, max_length: int | None = None
) -> list[Finding]:
    """What stops these prompts of many queries, as `check_prompts` reports it.

    Without a tokenizer only columns are looked at.
    """
    found = [*sequence_warnings(prompt_set.prompts)]
    if tokenizer is not None:
        found += _sequence_errors(prompt_set, tokenizer, max_length)
    return once_per_kind(found)


def _sequence_errors(
    prompt_set: SequenceSet, tokenizer: "Tokenizer", max_length: int | None
) -> Iterator[Finding]:
    from logitbank.engine.prompts.tokenize import sequence_error

    encoder = Encoder(tokenizer, prompt_set.language, prompt_set.add_special_tokens)
    for prompt in prompt_set.prompts:
        try:
            scored = [*prompt.scored_tokens(encoder)]
        except PromptError as error:
            yield sequence_error(prompt, error)
            continue
        length = max((len(token.query.ids) for token in scored), default=0)
        if max_length is not None and length > max_length:
            message = f"it is {length} tokens, the model takes at most {max_length}"
            yield Finding("error", "length", prompt.id, message)


def _too_long(encoded: "Encoded", max_length: int | None) -> Iterator[Finding]:
    for prompt, options in zip(encoded.prompts, encoded.options, strict=True):
        beyond = max((len(encoded.scored(tokens)) - 1 for tokens in options if tokens), default=0)
        length = len(encoded.texts[prompt.text]) + beyond
        if max_length is not None and length > max_length:
            what = "text and its longest option are" if beyond else "text is"
            message = f"the {what} {length} tokens, the model takes at most {max_length}"
            yield Finding("error", "length", prompt.id, message)
