"""Prompt sets that users bring: JSON Lines, CSV and Parquet.

One prompt a row: `text` or `messages`, and optionally `id`, `options`, `answer`, `order_seed` and
`mask`; every further column is kept for grouping. It reads files and knows no tokenizer.
"""

import csv
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

from logitbank.engine.prompts.prompt_set import PromptSet
from logitbank.engine.prompts.values import MASK, Option, Prompt, Scalar, Turn, one_error
from logitbank.errors import PromptError, UsageError

_KINDS: tuple[tuple[str, Callable[[str], Scalar]], ...] = (
    (r"-?(0|[1-9]\d{0,17})", int),
    (r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?", float),
    (r"[Tt]rue|[Ff]alse", lambda cell: cell.lower() == "true"),
)
_TEXTS = {"text", "messages"}
_FIELDS = ("id", "text", "messages", "options", "answer", "order_seed", "mask")


class _Row(NamedTuple):
    place: str
    """`file:line`, for messages."""
    values: Mapping[str, Any]


_Read = _Row | PromptError
"""A row, or why it cannot be one; the next is read all the same."""


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
    readers = {".jsonl": _jsonl, ".csv": _csv, ".parquet": _parquet}
    if path.suffix.lower() not in readers:
        raise UsageError(
            f"prompt file {path} ends in {path.suffix!r}; allowed are {', '.join(readers)}"
        )
    if not path.is_file():
        raise UsageError(f"prompt file {path} is not there; check the path")
    try:
        prompts, errors = _prompts(readers[path.suffix.lower()](path))
    except UnicodeDecodeError as error:
        raise PromptError(f"{path} is not UTF-8 text ({error.reason}); convert it") from error
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


def _prompts(rows: Iterator[_Read]) -> tuple[list[Prompt], list[PromptError]]:
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


def _prompt(row: _Row, *, default_id: str) -> Prompt:
    values = row.values
    try:
        options = tuple(_options(values.get("options")))
        return Prompt(
            id=_text(values.get("id", default_id), "id"),
            text="" if _has_messages(values) else _text(values.get("text"), "text"),
            messages=tuple(_messages(values.get("messages"))),
            options=options,
            answer=_answer(values.get("answer"), options),
            order_seed=_whole(values.get("order_seed"), "order_seed"),
            mask=_whole(values.get("mask"), "mask"),
            columns={k: _scalar(v, k) for k, v in values.items() if k not in _FIELDS},
        )
    except PromptError as error:
        raise PromptError(f"{row.place}: {error}") from None


def _text(value: Any, name: str) -> str:
    if name == "id" and isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if value is None:
        raise PromptError(f"no {name}; give every prompt one")
    if not isinstance(value, str):
        raise PromptError(f"{name} is {_shown(value)}; it must be a text")
    return value


def _has_messages(values: Mapping[str, Any]) -> bool:
    if values.get("messages") is None:
        return False
    if values.get("text") is not None:
        raise PromptError("it has both a text and messages; give one of them")
    return True


def _messages(value: Any) -> Iterator[Turn]:
    if isinstance(value, str):
        value = _json(value, "messages")
    if value is not None and not (isinstance(value, list) and value):
        raise PromptError(f"messages are {_shown(value)}; give a list of them")
    for entry in value or []:
        if not isinstance(entry, dict) or set(entry) != {"role", "content"}:
            raise PromptError(
                f'message {_shown(entry)} is no {{"role": ..., "content": ...}}; write it so'
            )
        yield Turn(_text(entry["role"], "role"), _text(entry["content"], "content"))


def _answer(value: Any, options: tuple[Option, ...]) -> str | None:
    """The label of the answer, which may be written as the option's continuation too."""
    if value is None:
        return None
    answer = _text(value, "answer")
    labels = [option.label for option in options]
    written = [option.label for option in options if option.text == answer]
    return written[0] if answer not in labels and len(written) == 1 else answer


def _whole(value: Any, name: str) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise PromptError(f"{name} is {_shown(value)}; it must be a whole number")


def _scalar(value: Any, name: str) -> Scalar:
    if value is None or isinstance(value, str | int | float | bool):
        return value
    near = get_close_matches(name, _FIELDS, n=1, cutoff=0.7)
    hint = (
        f"did you mean {near[0]!r}?"
        if near
        else "further columns hold texts, numbers or true/false"
    )
    raise PromptError(f"column {name!r} holds {_shown(value)}; {hint}")


def _options(value: Any) -> Iterator[Option]:
    if isinstance(value, str):
        value = _options_in_a_cell(value)
    if isinstance(value, dict):
        value = [{"label": label, "text": text} for label, text in value.items()]
    if value is not None and not isinstance(value, list):
        raise PromptError(f"options are {_shown(value)}; give a list or a mapping")
    for entry in value or []:
        if isinstance(entry, str):
            yield Option(label=entry.strip(), text=entry)
        elif isinstance(entry, dict) and set(entry) == {"label", "text"}:
            yield Option(_text(entry["label"], "label"), _text(entry["text"], "an option's text"))
        else:
            raise PromptError(
                f'option {_shown(entry)} is neither a text nor {{"label": ..., "text": ...}}'
            )


def _options_in_a_cell(cell: str) -> Any:
    if cell.lstrip()[:1] not in ("[", "{"):
        return cell.split("|")
    return _json(cell, "options")


def _json(text: str, what: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_once)
    except (json.JSONDecodeError, RecursionError) as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else "nested too deeply"
        raise PromptError(f"{what} {_shown(text)} is broken JSON ({reason})") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object, which may not name a key twice."""
    members: dict[str, Any] = {}
    for key, value in pairs:
        if key in members:
            raise PromptError(f"{key!r} is there twice; rename one")
        members[key] = value
    return members


def _jsonl(path: Path) -> Iterator[_Read]:
    with path.open(encoding="utf-8-sig") as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                yield _json_row(line, f"{path}:{number}")


def _json_row(line: str, place: str) -> _Read:
    try:
        values = _json(line.rstrip("\n"), "line")
    except PromptError as error:
        return PromptError(f"{place}: {error}")
    if not isinstance(values, dict):
        return PromptError(
            f"{place}: {_shown(values)} is no prompt; write a JSON object with a text"
        )
    if _TEXTS.isdisjoint(values):
        return PromptError(f"{place}: no 'text'; found {_listed(values)}")
    return _Row(place, values)


def _csv(path: Path) -> Iterator[_Read]:
    with path.open(encoding="utf-8-sig", newline="") as lines:
        reader = csv.reader(lines, strict=True)
        places, cells = [], []
        try:
            header = next(reader, [])
            start = reader.line_num + 1
            for row in reader:
                if row:
                    places.append(f"{path}:{start}")
                    cells.append(row)
                start = reader.line_num + 1
        except csv.Error as error:
            raise PromptError(f"{path}:{reader.line_num}: broken CSV ({error})") from None
    _check_header(path, header)
    whole = [row for row in cells if len(row) == len(header)]
    columns = {
        name: _typed(list(column), name)
        for name, column in zip(header, zip(*whole, strict=True), strict=False)
    }
    typed = iter(zip(*columns.values(), strict=True))
    for place, row in zip(places, cells, strict=True):
        if len(row) == len(header):
            yield _Row(place, dict(zip(header, next(typed), strict=True)))
        else:
            yield PromptError(f"{place}: {len(row)} cells, the header has {len(header)}")


def _check_header(path: Path, header: list[str]) -> None:
    if _TEXTS.isdisjoint(header):
        raise PromptError(f"{path}:1: no column 'text'; found {_listed(header)}")
    for name in header:
        if not name.strip() or header.count(name) > 1:
            raise PromptError(f"{path}:1: column {name!r} is blank or there twice; rename it")


def _typed(cells: list[str], name: str) -> list[Scalar]:
    """Empty cells as null, and a column of numbers as numbers; `007` stays a text."""
    filled = [cell for cell in cells if cell]
    if name in ("id", "text", "messages", "options", "answer") or not filled:
        return [cell or None for cell in cells]
    for pattern, read in _KINDS:
        if all(re.fullmatch(pattern, cell) for cell in filled):
            return [read(cell) if cell else None for cell in cells]
    return [cell or None for cell in cells]


def _parquet(path: Path) -> Iterator[_Read]:
    import polars as pl

    try:
        frame = pl.read_parquet(path)
    except (pl.exceptions.PolarsError, OSError) as error:
        reason = str(error).splitlines()[0]
        raise PromptError(f"{path} cannot be read as Parquet: {reason}") from error
    if _TEXTS.isdisjoint(frame.columns):
        raise PromptError(f"{path}: no column 'text'; found {_listed(frame.columns)}")
    for number, values in enumerate(frame.iter_rows(named=True), 1):
        yield _Row(f"{path}: row {number}", values)


def _listed(names: Any) -> str:
    return ", ".join(map(repr, names)) or "nothing"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
