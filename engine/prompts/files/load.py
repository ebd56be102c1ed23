"""From a prompt file to a prompt set.

It reads rows of values and knows no tokenizer.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from logitbank.engine.prompts.files.fields import (
    FIELDS,
    answer,
    messages,
    options,
    scalar,
    text_of,
    whole,
)
from logitbank.engine.prompts.files.rows import Read, Row, rows_of
from logitbank.engine.prompts.prompt_set import PromptSet
from logitbank.engine.prompts.values import MASK, Prompt, one_error
from logitbank.errors import PromptError, UsageError


def load_prompts(
    path: Path,
    *,
    name: str | None = None,
    first_token: bool = False,
    few_shot: str | Path | None = None,
    add_special_tokens: bool | None = None,
) -> PromptSet:
    """Read the prompts of one `.jsonl`, `.csv` or `.parquet` file.

    `options` is a list of continuations, a mapping from label to continuation, or a list of
    `{"label": ..., "text": ...}`; in CSV any of these as JSON, or continuations between `|`. The
    label of a bare continuation is the continuation without the space around it. `answer` is the
    label or the continuation of an option. `id` defaults to the number of the row, from 1. A text
    with `[MASK]` is scored at that mask, or at the one of them that `mask` counts from 0. In CSV,
    empty cells are null, and a further column whose cells are all whole numbers, numbers or
    true/false becomes one of that kind. In place of a text, `messages` (in CSV as JSON) is a list
    of `{"role": ..., "content": ...}`, which the model's own chat template makes a text of.

    Parameters
    ----------
    name
        Name of the prompt set; the file's name without its ending by default, with `few_shot` and
        that file's after a plus sign.
    few_shot
        A text file that is put before every text as it is, its line ends and all.

    Raises
    ------
    UsageError
        The file is not there, or its ending is none of the three.
    PromptError
        Rows that are no prompts; the message names file and line of each, of the first 20.
    """
    path = Path(path)
    prompts, errors = _prompts(rows_of(path))
    if errors:
        raise one_error(str(path), errors)
    if not prompts:
        raise PromptError(f"prompt file {path} is empty; give it at least one prompt")
    default = path.stem
    if few_shot is not None:
        default += f"+{Path(few_shot).stem}"
        shots = _shots(Path(few_shot))
        prompts = [_after(prompt, shots) for prompt in prompts]
    return PromptSet(
        name=default if name is None else name,
        prompts=tuple(prompts),
        add_special_tokens=add_special_tokens,
        first_token=first_token,
        whole_options=True,
    )


def _shots(path: Path) -> str:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            shots = file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"few_shot: {path} cannot be read as a text ({error}); name a UTF-8 text file"
        ) from error
    if not shots.strip():
        raise PromptError(f"few_shot: {path} is empty; put the examples into it")
    if MASK in shots:
        raise PromptError(f"few_shot: {path} holds a {MASK}; write out the examples' answers")
    return shots


def _after(prompt: Prompt, shots: str) -> Prompt:
    if prompt.messages:
        raise PromptError(
            f"{prompt} is made of messages; put examples into them, before the last one"
        )
    return replace(prompt, text=shots + prompt.text)


def _prompts(rows: Iterator[Read]) -> tuple[list[Prompt], list[PromptError]]:
    """All that can be read, and all that is wrong."""
    prompts: list[Prompt] = []
    errors: list[PromptError] = []
    places: dict[tuple[str, int | None], str] = {}
    for number, row in enumerate(rows, 1):
        if isinstance(row, PromptError):
            errors.append(row)
            continue
        try:
            prompt = _prompt(row, default_id=str(number))
        except PromptError as error:
            errors.append(error)
            continue
        key = (prompt.id, prompt.order_seed)
        if key in places:
            errors.append(PromptError(f"{row.place}: {prompt} is already in {places[key]}"))
            continue
        places[key] = row.place
        prompts.append(prompt)
    return prompts, errors


def _prompt(row: Row, *, default_id: str) -> Prompt:
    values = row.values
    try:
        has_messages = values.get("messages") is not None
        if has_messages and values.get("text") is not None:
            raise PromptError("it has both a text and messages; give one of them")
        listed = tuple(options(values.get("options")))
        return Prompt(
            id=text_of(values.get("id", default_id), "id"),
            text="" if has_messages else text_of(values.get("text"), "text"),
            messages=tuple(messages(values.get("messages"))),
            options=listed,
            answer=answer(values.get("answer"), listed),
            order_seed=whole(values.get("order_seed"), "order_seed"),
            mask=whole(values.get("mask"), "mask"),
            columns={k: scalar(v, k) for k, v in values.items() if k not in FIELDS},
        )
    except PromptError as error:
        raise PromptError(f"{row.place}: {error}") from None
