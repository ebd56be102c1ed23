"""What is doubtful about the prompts of a set, before they are run."""

from collections.abc import Iterator

from logitbank.engine.prompts.encoded import Encoded, Remark
from logitbank.engine.prompts.prompt_set import PromptSet
from logitbank.engine.prompts.remarks import Finding, remarks, sequence_remarks, told_once
from logitbank.engine.prompts.sequence_set import SequenceSet, said_of
from logitbank.engine.tokenizers.tokenizer import Tokenizer
from logitbank.errors import PromptError


def check_prompts(
    prompt_set: PromptSet, tokenizer: Tokenizer | None, *, max_length: int | None = None
) -> list[Finding]:
    """What stops these prompts, and what their author may not have meant.

    Each thing is told once, for the first prompt that has it, with the number of other prompts.
    Without a tokenizer only spaces and columns are looked at; `max_length` is the model's, in
    tokens. Optional options may be other tokens in their place.

    Raises
    ------
    PromptError
        Everything is left out for this tokenizer.
    """
    encoded = None if tokenizer is None else prompt_set.encoded(tokenizer)
    errors: list[Remark] = []
    if encoded is not None:
        errors = [*encoded.problems(), *_length_remarks(encoded, max_length)]
    flag = prompt_set.add_special_tokens
    return told_once([*errors, *remarks(prompt_set.prompts, encoded, add_special_tokens=flag)])


def check_sequences(
    prompt_set: SequenceSet, tokenizer: Tokenizer | None, *, max_length: int | None = None
) -> list[Finding]:
    """What stops these prompts of many queries, as `check_prompts` tells it.

    Without a tokenizer only columns are looked at.
    """
    found = [*sequence_remarks(prompt_set.prompts)]
    if tokenizer is not None:
        found += _errors(prompt_set, tokenizer, max_length)
    return told_once(found)


def _errors(
    prompt_set: SequenceSet, tokenizer: Tokenizer, max_length: int | None
) -> Iterator[Remark]:
    for prompt in prompt_set.prompts:
        try:
            lengths = [
                len(p.query.ids)
                for p in prompt.pieces(
                    tokenizer, prompt_set.language, prompt_set.add_special_tokens
                )
            ]
        except PromptError as error:
            message = said_of(prompt, error)
            yield Remark("error", message, prompt, message)
            continue
        if max_length is not None and max(lengths, default=0) > max_length:
            message = f"it is {max(lengths)} tokens, the model takes at most {max_length}"
            yield Remark("error", "length", prompt, message)


def _length_remarks(encoded: Encoded, max_length: int | None) -> Iterator[Remark]:
    for prompt, options in zip(encoded.prompts, encoded.options, strict=True):
        beyond = max((len(encoded.scored(tokens)) - 1 for tokens in options if tokens), default=0)
        length = len(encoded.texts[prompt.text]) + beyond
        if max_length is not None and length > max_length:
            what = "text and its longest option are" if beyond else "text is"
            message = f"the {what} {length} tokens, the model takes at most {max_length}"
            yield Remark("error", "length", prompt, message)
