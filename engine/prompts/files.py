"""Prompt files in JSON Lines, CSV, TSV or Parquet, read without a tokenizer.

All errors of a file are reported together, once for each kind, with the lines that have it.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from logitbank.engine.prompts.findings import read_each
from logitbank.engine.prompts.prompt_set import PromptSet
from logitbank.engine.prompts.rows import (
    FIELDS,
    TEXT_FIELDS,
    json_value,
    missing_content,
    near_field,
    read_rows,
)
from logitbank.engine.prompts.scoring import sentence_tokens
from logitbank.engine.prompts.values import KINDS, Option, Prompt, Scalar
from logitbank.errors import PromptError
from logitbank.store.format.limits import shown
from logitbank.wording import counted

TARGET = "target"
"""Label of the only option of a prompt with a target."""


def load_prompts(path: Path, *, name: str | None = None) -> PromptSet:
    """Read the prompts of one `.jsonl`, `.csv`, `.tsv` or `.parquet` file.

    One prompt per row: `text`, with `options` or a `target`, `answer`, `order_seed` and `mask`; or
    `sentence`. `id` defaults to the number of the row, from 1. Any other field becomes a metadata
    column.

    Parameters
    ----------
    name
        Name of the prompt set; by default the file's name without its ending.

    Raises
    ------
    UsageError
        The file does not exist, or has another ending.
    PromptError
        Invalid rows, reserved column names, or columns with values of different kinds: each kind of
        error once, with its lines. Texts and sentences in one file.
    """
    path = Path(path)
    rows = [*read_rows(path)]
    read = [values for _, values in rows if not isinstance(values, PromptError)]
    answers = [values["answer"] for values in read if values.get("answer") is not None]
    names = dict.fromkeys(name for values in read for name in values)
    if answers and (missing := missing_content(names, ("options", "target", "sentence"))):
        raise PromptError(f"{path}: column {missing}")
    from_zero = any(_index(answer) == 0 for answer in answers)
    numbered = (
        (line, v if isinstance(v, PromptError) else (line, str(number), v))
        for number, (line, v) in enumerate(rows, 1)
    )
    lines: dict[tuple[str, int | None], int] = {}
    kinds: dict[str, tuple[str, int]] = {}

    def parse(row: tuple[int, str, Mapping[str, Any]]) -> Prompt:
        line, default_id, values = row
        prompt = _parse_row(values, default_id=default_id, from_zero=from_zero)
        key = prompt.id, prompt.order_seed
        if (first := lines.setdefault(key, line)) != line:
            raise PromptError(f"{prompt} is also in line {first}")
        _check_kinds(prompt.columns, kinds, line)
        return prompt

    prompts = read_each(path, numbered, parse)
    options, sentences = ([p for p in prompts if (p.scored is None) == no] for no in (True, False))
    if options and sentences:
        raise PromptError(
            f"{path}: {options[0]} has a text, but {sentences[0]} has a sentence. Split them into "
            "two files, because they are scored in different ways."
        )
    name = path.stem if name is None else name
    return PromptSet(name, tuple(prompts), whole_options=bool(options))


def _check_kinds(
    columns: Mapping[str, Scalar], kinds: dict[str, tuple[str, int]], line: int
) -> None:
    """Refuse a value of another kind than the first one of its column; `kinds` has those."""
    for name, value in columns.items():
        if value is not None:
            kind = KINDS[type(value)]
            first_kind, first = kinds.setdefault(name, (kind, line))
            if kind != first_kind:
                raise PromptError(
                    f"column {name!r} has {kind} here and {first_kind} in line {first}"
                )


# One row


def _parse_row(values: Mapping[str, Any], *, default_id: str, from_zero: bool) -> Prompt:
    columns = {k: scalar(v, k) for k, v in values.items() if k not in FIELDS}
    name = _text(values.get("id", default_id), "id")
    if values.get("sentence") is None and "text" in values:
        return _prompt(name, values, columns, from_zero=from_zero)
    if others := [field for field in TEXT_FIELDS if values.get(field) is not None]:
        raise PromptError(f"fields sentence and {others[0]} exclude each other")
    text = _text(values["sentence"], "sentence")
    return Prompt(name, text, columns=columns, scored=sentence_tokens)


def _prompt(
    name: str, values: Mapping[str, Any], columns: Mapping[str, Scalar], *, from_zero: bool
) -> Prompt:
    options = tuple(_options(values.get("options")))
    answer = values.get("answer")
    if (target := values.get("target")) is not None:
        if options or answer is not None:
            other = "options" if options else "answer"
            raise PromptError(f"fields target and {other} exclude each other")
        options, answer = (Option(TARGET, _text(target, "target")),), TARGET
    return Prompt(
        id=name,
        text=_text(values["text"], "text"),
        options=options,
        answer=_answer(answer, options, from_zero=from_zero),
        order_seed=_integer(values.get("order_seed"), "order_seed"),
        mask=_integer(values.get("mask"), "mask"),
        columns=columns,
    )


# One value


def _text(value: Any, name: str) -> str:
    """A text; the `id` of a prompt may also be a whole number."""
    if name == "id" and isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if value is None:
        raise PromptError(f"no {name}")
    if not isinstance(value, str):
        raise PromptError(f"{name} is {shown(value)}; it must be a text")
    return value


def _integer(value: Any, name: str) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise PromptError(f"{name} is {shown(value)}; it must be a whole number")


def scalar(value: Any, name: str) -> Scalar:
    """The value of a metadata column."""
    if value is None or isinstance(value, str | int | float | bool):
        return value
    near = near_field(name)
    hint = f"did you mean {near!r}?" if near else "use texts, numbers or true/false"
    raise PromptError(f"column {name!r} has {shown(value)}; {hint}")


def _options(value: Any) -> Iterator[Option]:
    if isinstance(value, str):  # a cell of a CSV file: JSON, or texts separated by `|`
        is_json = value.lstrip()[:1] in ("[", "{")
        value = json_value(value, "options") if is_json else _separated(value)
    if isinstance(value, dict):
        value = [{"label": label, "text": text} for label, text in value.items()]
    if value is not None and not isinstance(value, list):
        raise PromptError(f"options are {shown(value)}; use a list or a mapping")
    for entry in value or []:
        if isinstance(entry, str):
            yield Option(label=entry.strip(), text=entry)
        elif isinstance(entry, dict) and set(entry) == {"label", "text"}:
            yield Option(_text(entry["label"], "label"), _text(entry["text"], "an option's text"))
        else:
            raise PromptError(
                f'option {shown(entry)} is invalid; use a text or {{"label": ..., "text": ...}}'
            )


def _separated(cell: str) -> list[str]:
    """Options with `|` between them; white space before it is no part of an option."""
    return [part.rstrip() or part for part in cell.split("|")]


def _answer(value: Any, options: Sequence[Option], *, from_zero: bool) -> str | None:
    """The label of the answer, which may also be the option's continuation, or its index.

    Whether an index counts from 0 is certain only if an answer of the file is 0.
    """
    if value is None:
        return None
    index = _index(value)
    answer = str(value) if index is not None else _text(value, "answer")
    labels = [option.label for option in options]
    if answer in labels:
        return answer
    named = [option.label for option in options if option.text == answer]
    if index is None or named:
        return named[0] if len(named) == 1 else answer
    if from_zero and index < len(options):
        return labels[index]
    reason = (
        f"the prompt has {counted(len(options), 'option')}"
        if from_zero
        else "no answer of the file is 0, so an index may count from 0 or from 1"
    )
    raise PromptError(f"answer is {value}, but {reason}; write the option's label or text")


def _index(value: Any) -> int | None:
    """The index of an option that an answer may be: a whole number, also as a text of digits."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
