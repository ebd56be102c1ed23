"""Prompt files in JSON Lines, CSV or Parquet, read without a tokenizer.

All errors of a file are reported together, once for each kind, with the lines that have it.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from logitbank.engine.prompts.prompt_set import PromptSet, SequenceSet
from logitbank.engine.prompts.rows import (
    CONDITION,
    CONTENT,
    FIELDS,
    FURTHER,
    json_value,
    near_field,
    read_rows,
)
from logitbank.engine.prompts.sequences import SentencePair, SentenceTokens, Span
from logitbank.engine.prompts.values import (
    MASK,
    Option,
    Prompt,
    Scalar,
    Turn,
    combined_error,
    mixed_columns,
    reserved_columns,
)
from logitbank.errors import PromptError, UsageError
from logitbank.store.format.limits import shown
from logitbank.wording import counted

GOOD = "good"
"""Label of the sentence of a pair that should be more probable."""
TARGET = "target"
"""Label of the only option of a prompt with a target."""
_LINES = 10
"""Largest number of lines that an error lists."""
_VALUE = re.compile(r"""(column )?('(\\.|[^'\\])*'|"(\\.|[^"\\])*")|\d[\d,]*""")
"""What differs between errors of one kind: quoted values and numbers, but not column names."""

_FilePrompt = Prompt | SentenceTokens | SentencePair


def load_prompts(
    path: Path,
    *,
    name: str | None = None,
    first_token: bool = False,
    few_shot: str | Path | None = None,
    add_special_tokens: bool | None = None,
    separate_options: bool = False,
) -> PromptSet | SequenceSet:
    """Read the prompts of one `.jsonl`, `.csv` or `.parquet` file.

    One prompt per row: `text` or `messages`, with `options` or a `target`, `answer`, `order_seed`
    and `mask`; or `sentence`, with `spans`; or a `pair` of sentences. `id` defaults to the number
    of the row, from 1. Any other field becomes a metadata column.

    Parameters
    ----------
    name
        Name of the prompt set; by default the file's name without its ending, with `few_shot`
        followed by a plus sign and that file's name.
    separate_options
        Whether options are encoded separately from their text.
    few_shot
        A text file that is put before every text, including its line end; not before a
        text that is the condition of others.

    Returns
    -------
    A set of prompts with texts, or one of sentences and pairs.

    Raises
    ------
    UsageError
        The file does not exist, or has another ending; `few_shot` or `add_special_tokens` for a
        file of sentences.
    PromptError
        Invalid rows, reserved column names, or columns with values of different kinds: each kind of
        error once, with its lines. Texts and sentences in one file, or invalid conditions.
    """
    path = Path(path)
    read, errors = _read(path)
    if errors:
        raise combined_error(str(path), errors)
    if not read:
        raise PromptError(f"Prompt file {path} has no prompts.")
    prompts = [prompt for prompt in read if isinstance(prompt, Prompt)]
    sentences = [prompt for prompt in read if not isinstance(prompt, Prompt)]
    if prompts and sentences:
        raise PromptError(
            f"{path}: {prompts[0]} has a text, but {sentences[0]} has a sentence or a pair. Split "
            "them into two files, because they are scored in different ways."
        )
    if errors := [f"{path}: {error}" for error in _condition_errors(prompts)]:
        raise combined_error(str(path), errors)
    if sentences:
        if few_shot is not None or add_special_tokens is not None:
            what = "add_special_tokens" if few_shot is None else "few_shot"
            raise UsageError(f"{path} has sentences, but {what} is for texts. Remove {what}.")
        return SequenceSet(path.stem if name is None else name, tuple(sentences))
    default = path.stem
    if few_shot is not None:
        default += f"+{Path(few_shot).stem}"
        prompts = _after_examples(prompts, Path(few_shot))
    return PromptSet(
        name=default if name is None else name,
        prompts=tuple(prompts),
        add_special_tokens=add_special_tokens,
        first_token=first_token,
        whole_options=True,
        separate_options=separate_options,
    )


def _read(path: Path) -> tuple[list[_FilePrompt], list[str]]:
    """All prompts that can be read, and all errors."""
    prompts: list[_FilePrompt] = []
    errors: list[tuple[int, str]] = []
    lines: dict[tuple[str, int | None], int] = {}
    reserved: Counter[str] = Counter()
    for number, (line, values) in enumerate(read_rows(path), 1):
        if isinstance(values, PromptError):
            errors.append((line, str(values)))
            continue
        renamed = [name for name in values if name in reserved_columns() and name not in FIELDS]
        reserved.update(renamed)
        values = {k: v for k, v in values.items() if k not in renamed}
        try:
            prompt = _prompt_of_row(values, default_id=str(number))
        except PromptError as error:
            errors.append((line, str(error)))
            continue
        key = prompt.id, prompt.order_seed if isinstance(prompt, Prompt) else None
        if (first := lines.setdefault(key, line)) != line:
            errors.append((line, f"{prompt} is also in line {first}"))
            continue
        prompts.append(prompt)
    line_of = [*lines.values()]
    errors += [
        (line_of[mixed.other], mixed.message(f"line {line_of[mixed.first]}"))
        for mixed in mixed_columns(prompt.columns for prompt in prompts)
    ]
    messages = [
        f'Column name "{name}" is reserved ({counted(count, "row")}). Rename it in {path.name}.'
        for name, count in reserved.items()
    ]
    if messages:
        messages[0] += f" Reserved: {', '.join(reserved_columns())}"
    return prompts, [*messages, *_once_per_kind(path, errors)]


def _once_per_kind(path: Path, errors: Iterable[tuple[int, str]]) -> Iterator[str]:
    """The first error of each kind, with the other lines that have it."""
    kinds: dict[str, list[tuple[int, str]]] = {}
    for line, message in errors:
        kind = _VALUE.sub(lambda match: match[0] if match[1] else "", message)
        kinds.setdefault(kind, []).append((line, message))
    unit, colon = ("row", ": row ") if path.suffix.lower() == ".parquet" else ("line", ":")
    for (line, message), *others in kinds.values():
        listed = ", ".join(f"{other:,}" for other, _ in others[:_LINES])
        more = f" and {len(others) - _LINES:,} more" if len(others) > _LINES else ""
        plural = "s" if len(others) > 1 else ""
        also = f" (also in {unit}{plural} {listed}{more})" if others else ""
        yield f"{path}{colon}{line}: {message}{also}"


# Examples and conditions


def _after_examples(prompts: Sequence[Prompt], path: Path) -> list[Prompt]:
    """Prompts with the text of a file before theirs, except conditions of others."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            examples = file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"few_shot: {path} cannot be read as UTF-8 text ({error}).") from error
    if not examples.strip() or MASK in examples:
        raise PromptError(f"few_shot: {path} needs complete examples: it is empty or has a {MASK}.")
    named = {prompt.columns.get(CONDITION) for prompt in prompts}
    conditions = {p.id for p in prompts if p.columns.get(CONDITION) is None and p.id in named}
    if messages := [p for p in prompts if p.messages and p.id not in conditions]:
        raise PromptError(f"{messages[0]} has messages. Put few_shot examples into the messages.")
    return [
        prompt if prompt.id in conditions else replace(prompt, text=examples + prompt.text)
        for prompt in prompts
    ]


def _condition_errors(prompts: Sequence[Prompt]) -> Iterator[str]:
    """Invalid conditions, one error per prompt."""
    known = {(prompt.id, prompt.order_seed): prompt for prompt in prompts}
    ids = {prompt.id for prompt in prompts}
    for prompt in prompts:
        name = prompt.columns.get(CONDITION)
        if not isinstance(name, str):
            continue
        condition = f"{prompt}: condition {name!r}"
        other = known.get((name, prompt.order_seed)) or known.get((name, None))
        if name not in ids or name == prompt.id:
            yield f"{condition} is not the id of another prompt of this file"
        elif other is None:
            yield f"{condition} exists neither in this order nor without an order_seed"
        elif not prompt.options or {*prompt.options} != {*other.options}:
            yield f"{condition} has other options than the prompt; both need the same"


# One row


def _prompt_of_row(values: Mapping[str, Any], *, default_id: str) -> _FilePrompt:
    content = _content_field(values)
    fields = set(FIELDS)
    if content != "pair" and values.get("pair") is not None:
        fields.remove("pair")  # a column that groups sentences
    columns = {k: scalar(v, k) for k, v in values.items() if k not in fields}
    name = _text(values.get("id", default_id), "id")
    if content == "sentence":
        text = _text(values["sentence"], "sentence")
        spans = () if values.get("spans") is None else tuple(_spans(values["spans"], text))
        return SentenceTokens(name, text, columns, spans)
    return (_pair if content == "pair" else _prompt)(name, values, columns)


def _content_field(values: Mapping[str, Any]) -> str:
    """The field with the content of a row; refuses fields that do not belong to it."""
    present = [name for name in CONTENT if values.get(name) is not None]
    if len(present) > 1 and present[-1] == "pair" and not isinstance(values["pair"], list | dict):
        present.pop()
    if not present:
        raise PromptError(f"no {next((name for name in CONTENT if name in values), 'text')}")
    if len(present) > 1:
        raise PromptError(f"fields {present[0]} and {present[1]} exclude each other")
    for name, accompanied in FURTHER.items():
        if values.get(name) is not None and present[0] not in accompanied:
            raise PromptError(f"fields {present[0]} and {name} exclude each other")
    return present[0]


def _prompt(name: str, values: Mapping[str, Any], columns: Mapping[str, Scalar]) -> Prompt:
    options = tuple(_options(values.get("options")))
    answer = values.get("answer")
    if (target := values.get("target")) is not None:
        if options or answer is not None:
            other = "options" if options else "answer"
            raise PromptError(f"fields target and {other} exclude each other")
        options, answer = (Option(TARGET, _text(target, "target")),), TARGET
    if (condition := values.get(CONDITION)) is not None:
        columns = {**columns, CONDITION: _text(condition, CONDITION)}
    turns = tuple(_messages(values.get("messages")))
    return Prompt(
        id=name,
        text="" if turns else _text(values.get("text"), "text"),
        messages=turns,
        options=options,
        answer=_answer(answer, options),
        order_seed=_integer(values.get("order_seed"), "order_seed"),
        mask=_integer(values.get("mask"), "mask"),
        columns=columns,
    )


def _pair(name: str, values: Mapping[str, Any], columns: Mapping[str, Scalar]) -> SentencePair:
    """Two sentences with their labels, by default `good` and `bad`."""
    value = values["pair"]
    options = tuple(_options(value, "pair")) if isinstance(value, str | list | dict) else ()
    if len(options) != 2:
        raise PromptError(f'pair is {shown(value)}; use {{"good": ..., "bad": ...}}')
    if all(option.label == option.text.strip() for option in options):
        options = Option(GOOD, options[0].text), Option("bad", options[1].text)
    answer = values.get("answer")
    if answer is None and GOOD in (option.label for option in options):
        answer = GOOD
    one, other = ((option.label, option.text) for option in options)
    return SentencePair(name, (one, other), _answer(answer, options), columns)


# One value


def _text(value: Any, name: str) -> str:
    """A text; the `id` of a prompt or its condition may also be a whole number."""
    if name in ("id", CONDITION) and isinstance(value, int) and not isinstance(value, bool):
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


def _messages(value: Any) -> Iterator[Turn]:
    if value is None:
        return
    if isinstance(value, str):
        value = json_value(value, "messages")
    turns = value if isinstance(value, list) else []
    if not turns or not all(isinstance(t, dict) and set(t) == {"role", "content"} for t in turns):
        raise PromptError(
            f'messages are {shown(value)}; use [{{"role": ..., "content": ...}}, ...]'
        )
    for turn in turns:
        yield Turn(_text(turn["role"], "role"), _text(turn["content"], "content"))


def _options(value: Any, name: str = "options") -> Iterator[Option]:
    if isinstance(value, str):
        value = _cell(value, name)
    if isinstance(value, dict):
        value = [{"label": label, "text": text} for label, text in value.items()]
    if value is not None and not isinstance(value, list):
        raise PromptError(f"{name} are {shown(value)}; use a list or a mapping")
    for entry in value or []:
        if isinstance(entry, str):
            yield Option(label=entry.strip(), text=entry)
        elif isinstance(entry, dict) and set(entry) == {"label", "text"}:
            yield Option(_text(entry["label"], "label"), _text(entry["text"], "an option's text"))
        else:
            raise PromptError(
                f'option {shown(entry)} is invalid; use a text or {{"label": ..., "text": ...}}'
            )


def _answer(value: Any, options: Sequence[Option]) -> str | None:
    """The label of the answer, which may also be written as the option's continuation."""
    if value is None:
        return None
    answer = _text(value, "answer")
    labels = [option.label for option in options if option.text == answer]
    is_label = answer in [option.label for option in options]
    return labels[0] if len(labels) == 1 and not is_label else answer


def _spans(value: Any, text: str) -> Iterator[Span]:
    """Spans of a text, which may be written as words that occur once."""
    if isinstance(value, str):
        value = _cell(value, "spans")
    if not isinstance(value, list) or not value:
        raise PromptError(f"spans are {shown(value)}; use a list of words, or of [start, end]")
    for entry in value:
        if isinstance(entry, str):
            yield _span_of_word(entry, text)
        elif isinstance(entry, list) and len(entry) == 2 and {type(at) for at in entry} == {int}:
            yield entry[0], entry[1]
        else:
            raise PromptError(f"span {shown(entry)} is invalid; use a word, or [start, end]")


def _span_of_word(word: str, text: str) -> Span:
    spans = [match.span() for match in re.finditer(rf"(?<!\w){re.escape(word)}(?!\w)", text)]
    if len(spans) == 1 and word:
        return spans[0]
    raise PromptError(f"span {word!r} is not exactly once in the sentence; use [start, end]")


def _cell(cell: str, name: str) -> Any:
    """The value of a cell: JSON, or texts separated by `|`."""
    return json_value(cell, name) if cell.lstrip()[:1] in ("[", "{") else cell.split("|")
