"""Prompt files in JSON Lines, CSV, TSV or Parquet, read without a tokenizer.

All errors of a file are reported together, once for each kind, with the lines that have it.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from logitbank.engine.collection import paused_collection
from logitbank.engine.prompts.findings import read_each
from logitbank.engine.prompts.prompt_set import PromptSet
from logitbank.engine.prompts.rows import (
    FIELDS,
    TEXT_FIELDS,
    Row,
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
_MOST_SHARED = 10_000
"""Largest number of different values that are looked up to be shared."""


@paused_collection()
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
    warnings: list[str] = []
    shared, names = _Shared(), dict[str, None]()
    # Read twice, because the rows of a million prompts take a gigabyte.
    answers = _Answers.of(_values(read_rows(path, warnings=warnings), names), shared)
    missing = missing_content(names, ("options", "target", "sentence"))
    if answers.count and missing:
        raise PromptError(f"{path}: column {missing}")
    if answers.fits_both:
        warnings.append(
            f"{path}: every answer is the label of an option, and may also be an index from 0. It "
            "is read as a label; write the option's text if indices are meant"
        )
    lines: dict[object, int] = {}
    kinds: dict[str, tuple[str, int]] = {}

    def parse(row: tuple[int, str, Mapping[str, Any]]) -> Prompt:
        line, default_id, values = row
        prompt = _parse_row(values, default_id=default_id, answers=answers, shared=shared)
        key = prompt.id if prompt.order_seed is None else (prompt.id, prompt.order_seed)
        if (first := lines.setdefault(key, line)) != line:
            raise PromptError(f"{prompt} is also in line {first}")
        _check_kinds(prompt.columns, kinds, line)
        return prompt

    numbered = (
        (line, v if isinstance(v, PromptError) else (line, str(number), v))
        for number, (line, v) in enumerate(read_rows(path), 1)
    )
    prompts = read_each(path, numbered, parse)
    options, sentences = ([p for p in prompts if (p.scored is None) == no] for no in (True, False))
    if options and sentences:
        raise PromptError(
            f"{path}: {options[0]} has a text, but {sentences[0]} has a sentence. Split them into "
            "two files, because they are scored in different ways."
        )
    name = path.stem if name is None else name
    return PromptSet(name, tuple(prompts), whole_options=bool(options), warnings=tuple(warnings))


def _values(rows: Iterable[Row], names: dict[str, None]) -> Iterator[Mapping[str, Any]]:
    """The values of rows without an error; their names are added to `names`."""
    for _, values in rows:
        if not isinstance(values, PromptError):
            names.update(dict.fromkeys(values))
            yield values


class _Shared:
    """Equal options, columns and short texts of many rows, kept once."""

    def __init__(self) -> None:
        self._options: dict[Any, tuple[Option, ...]] = {}
        self._columns: dict[tuple[object, ...], Mapping[str, Scalar]] = {}

    def options(self, value: Any) -> tuple[Option, ...]:
        is_texts = isinstance(value, list) and all(isinstance(each, str) for each in value)
        if not is_texts and not isinstance(value, str):
            return tuple(_options(value))
        key = tuple(value) if is_texts else value
        if (known := self._options.get(key)) is None:
            known = tuple(_options(value))
            if len(self._options) < _MOST_SHARED:
                self._options[key] = known
        return known

    def columns(self, columns: dict[str, Scalar]) -> Mapping[str, Scalar]:
        if len(self._columns) < _MOST_SHARED:
            kinds = tuple((name, type(value), value) for name, value in columns.items())
            return self._columns.setdefault(kinds, columns)
        return columns


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


def _parse_row(
    values: Mapping[str, Any], *, default_id: str, answers: "_Answers", shared: _Shared
) -> Prompt:
    columns = shared.columns({k: scalar(v, k) for k, v in values.items() if k not in FIELDS})
    name = _text(values.get("id", default_id), "id")
    if values.get("sentence") is None and "text" in values:
        return _prompt(name, values, columns, shared.options(values.get("options")), answers)
    if others := [field for field in TEXT_FIELDS if values.get(field) is not None]:
        raise PromptError(f"fields sentence and {others[0]} exclude each other")
    text = _text(values["sentence"], "sentence")
    return Prompt(name, text, columns=columns, scored=sentence_tokens)


def _prompt(
    name: str,
    values: Mapping[str, Any],
    columns: Mapping[str, Scalar],
    options: tuple[Option, ...],
    answers: "_Answers",
) -> Prompt:
    answer = values.get("answer") if _is_given(values.get("answer")) else None
    if (target := values.get("target")) is not None:
        if options or answer is not None:
            other = "options" if options else "answer"
            raise PromptError(f"fields target and {other} exclude each other")
        options, answer = (Option(TARGET, _text(target, "target")),), TARGET
    return Prompt(
        id=name,
        text=_text(values["text"], "text"),
        options=options,
        answer=answers.label(answer, options),
        order_seed=_integer(values.get("order_seed"), "order_seed"),
        mask=_integer(values.get("mask"), "mask"),
        columns=columns,
    )


# One value


def _text(value: Any, name: str) -> str:
    """A text; the `id` of a prompt may also be a whole number."""
    if name == "id" and (number := _whole(value)) is not None:
        return str(number)
    if value is None:
        raise PromptError(f"no {name}")
    if not isinstance(value, str):
        raise PromptError(f"{name} is {shown(value)}; it must be a text")
    return value


def _integer(value: Any, name: str) -> int | None:
    number = _whole(value)
    if number is None and _is_given(value):
        raise PromptError(f"{name} is {shown(value)}; it must be a whole number")
    return number


def _whole(value: Any) -> int | None:
    """A whole number, also one such as 2.0: a column of them with gaps is one of floats."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _is_given(value: Any) -> bool:
    """Whether a value is not missing; in a column of floats NaN is."""
    return value is not None and value == value


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
        if empty := [label for label, text in value.items() if text is None]:
            raise PromptError(
                f"options have the member {empty[0]!r} without a text. A struct of Parquet has the "
                "same members in every row: use a list of the row's own options"
            )
        value = [{"label": label, "text": text} for label, text in value.items()]
    if value is not None and not isinstance(value, list):
        raise PromptError(f"options are {shown(value)}; use a list or a mapping")
    for entry in value or []:
        if isinstance(entry, str):
            yield Option(label=entry.strip(), text=entry)
        elif isinstance(entry, dict) and set(entry) == {"label", "text"}:
            yield Option(_member(entry, "label"), _member(entry, "text"))
        else:
            raise PromptError(
                f'option {shown(entry)} is invalid; use a text or {{"label": ..., "text": ...}}'
            )


def _separated(cell: str) -> list[str]:
    """Options with `|` between them; white space before it is no part of an option."""
    return [part.rstrip() or part for part in cell.split("|")]


def _member(option: Mapping[str, Any], name: str) -> str:
    if option[name] is None:
        raise PromptError(f"option {shown(dict(option))} has no {name}")
    return _text(option[name], f"the {name} of an option")


@dataclass(frozen=True, slots=True)
class _Answers:
    """How all answers of a file are read: as labels (or texts) of options, or as their indices.

    They are labels if each is one. They are indices if one is no label and all are indices, which
    is certain only if one of them is 0: otherwise they may count from 1.
    """

    count: int = 0
    """Number of rows with an answer."""
    as_index: bool = False
    fits_both: bool = False
    """Whether every answer is a label, and would be another option as an index."""
    undecided: bool = False
    """Whether every answer is a whole number, none a label, and none 0."""

    @classmethod
    def of(cls, rows: Iterable[Mapping[str, Any]], shared: _Shared) -> "_Answers":
        labels = indices = differ = total = count = 0
        numbers: set[int | None] = set()
        for row in rows:
            if not _is_given(row.get("answer")):
                continue
            count += 1
            try:
                options = shared.options(row.get("options"))
            except PromptError:
                continue  # reported with the row
            total += 1
            index = _index(row["answer"])
            numbers.add(index)
            label = _named(row["answer"], options)
            by_index = options[index].label if index is not None and index < len(options) else None
            labels += label is not None
            indices += by_index is not None
            differ += label != by_index
        is_numeric = total > 0 and None not in numbers
        if labels == total or not is_numeric or 0 not in numbers:
            both = is_numeric and 0 in numbers and indices == total and differ > 0
            undecided = is_numeric and labels == 0 and 0 not in numbers
            return cls(count, fits_both=both, undecided=undecided)
        return cls(count, as_index=indices > labels)

    def label(self, value: Any, options: Sequence[Option]) -> str | None:
        """The label of the answer of one prompt; None without one."""
        if value is None:
            return None
        index = _index(value)
        if self.as_index and index is not None:
            if index < len(options):
                return options[index].label
            reason = f"the prompt has {counted(len(options), 'option')}"
        elif (label := _named(value, options)) is not None or not self.undecided:
            return label or (_text(value, "answer") if index is None else str(value))
        else:
            reason = "no answer of the file is 0, so an index may count from 0 or from 1"
        raise PromptError(f"answer is {value}, but {reason}; write the option's label or text")


def _named(answer: Any, options: Sequence[Option]) -> str | None:
    """The label of the option that an answer names by its label or text; None without one."""
    index = _index(answer)
    names = [answer] if isinstance(answer, str) else []
    names += [] if index is None else [str(index)]
    for name in names:
        if labels := [option.label for option in options if option.label == name]:
            return labels[0]
        named = [option.label for option in options if option.text == name]
        if len(named) == 1:
            return named[0]
    return None


def _index(value: Any) -> int | None:
    """The index of an option that an answer may be: a whole number, also as a text of digits."""
    if isinstance(value, str):
        # pandas writes a column of whole numbers with gaps as 0.0 and 1.0.
        return int(value.split(".")[0]) if re.fullmatch(r"[0-9]{1,9}(\.0)?", value) else None
    number = _whole(value)
    return number if number is not None and number >= 0 else None
