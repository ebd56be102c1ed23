"""Prompt files of users: JSON Lines, CSV and Parquet become a prompt set, without a tokenizer.

All errors of a file are reported together, once for each kind, with the lines that have it.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from logitbank.engine.doing import each
from logitbank.engine.prompts.prompt_set import PromptSet, SequenceSet
from logitbank.engine.prompts.rows import (
    ABOUT,
    BESIDE,
    CONDITION,
    FIELDS,
    json_value,
    rows_of,
)
from logitbank.engine.prompts.sequences import SentencePair, SentenceTokens, Span
from logitbank.engine.prompts.values import (
    MASK,
    Option,
    Prompt,
    Scalar,
    Turn,
    mixed_columns,
    one_error,
    reserved_columns,
)
from logitbank.errors import PromptError, UsageError
from logitbank.store.format.limits import shown
from logitbank.wording import counted

GOOD = "good"
"""Label of the sentence of a pair that should be the more probable."""
TARGET = "target"
"""Label of the one option of a prompt with a target."""
_LINES = 10
"""Lines that an error lists; of more, the number."""
_VALUE = re.compile(r"""(column )?('(\\.|[^'\\])*'|"(\\.|[^"\\])*")|\d[\d,]*""")
"""What differs between errors of one kind: quoted values and numbers, but no names of columns."""


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

    One prompt a row: `text` or `messages`, with `options` or a `target`, `answer`, `order_seed` and
    `mask`; or `sentence`, with `spans`; or a `pair` of sentences. The page about prompt files says
    what each field holds, in each kind of file. `id` defaults to the number of the row, from 1;
    what is no field is a column of the user's own.

    Parameters
    ----------
    name
        Name of the prompt set; the file's name without its ending by default, with `few_shot` and
        that file's after a plus sign.
    separate_options
        Whether options are encoded apart from their text.
    few_shot
        A text file that is put before every text as it is, its line ends and all; not before one
        that is there as the condition of others.

    Returns
    -------
    A set of prompts with texts, or one of sentences and pairs.

    Raises
    ------
    UsageError
        The file is not there, or its ending is none of the three; `few_shot` or
        `add_special_tokens` for a file of sentences.
    PromptError
        Rows that are no prompts, columns with reserved names, or columns with values of different
        kinds: each kind of error once, with its lines. Or texts and sentences in one file, or
        conditions that are none.
    """
    path = Path(path)
    read, errors = _read(path)
    if errors:
        raise one_error(str(path), errors)
    if not read:
        raise PromptError(f"prompt file {path} is empty; give it at least one prompt")
    prompts = [prompt for prompt in read if isinstance(prompt, Prompt)]
    sentences = [prompt for prompt in read if not isinstance(prompt, Prompt)]
    if prompts and sentences:
        raise PromptError(
            f"{path}: {prompts[0]} has a text, and {sentences[0]} a sentence or a pair of them, "
            "which are scored in other ways; make two files of them"
        )
    if errors := [f"{path}: {error}" for error in _condition_errors(prompts)]:
        raise one_error(str(path), errors)
    if sentences:
        if few_shot is not None or add_special_tokens is not None:
            what = "add_special_tokens" if few_shot is None else "few_shot"
            raise UsageError(f"{path} has sentences, and {what} is for texts; leave it out")
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


def _read(path: Path) -> tuple[list[Prompt | SentenceTokens | SentencePair], list[str]]:
    """All prompts that can be read, and all errors."""
    prompts: list[Prompt | SentenceTokens | SentencePair] = []
    errors: list[tuple[int, str]] = []
    lines: dict[tuple[str, int | None], int] = {}
    reserved: Counter[str] = Counter()
    rows = each(rows_of(path), f"reading prompts of {path}")
    for number, (line, values) in enumerate(rows, 1):
        if isinstance(values, PromptError):
            errors.append((line, str(values)))
            continue
        taken = [name for name in values if name in reserved_columns() and name not in FIELDS]
        reserved.update(taken)
        values = {k: v for k, v in values.items() if k not in taken}
        try:
            prompt = _prompt_of(values, default_id=str(number))
        except PromptError as error:
            errors.append((line, str(error)))
            continue
        key = prompt.id, prompt.order_seed if isinstance(prompt, Prompt) else None
        if (first := lines.setdefault(key, line)) != line:
            errors.append((line, f"{prompt} is already in line {first}"))
            continue
        prompts.append(prompt)
    at = [*lines.values()]
    errors += [
        (at[mixed.other], mixed.message(f"line {at[mixed.first]}"))
        for mixed in mixed_columns(prompt.columns for prompt in prompts)
    ]
    return prompts, [*_reserved_errors(path, reserved), *_once_per_kind(path, errors)]


def _reserved_errors(path: Path, columns: Mapping[str, int]) -> Iterator[str]:
    for at, (name, count) in enumerate(columns.items()):
        names = "" if at else f" Reserved: {', '.join(reserved_columns())}"
        yield (
            f'Column name "{name}" is reserved ({counted(count, "row")}). '
            f"Rename it in {path.name}.{names}"
        )


def _once_per_kind(path: Path, errors: Iterable[tuple[int, str]]) -> Iterator[str]:
    """Errors of lines: of each kind the first one, with the other lines that have it."""
    kinds: dict[str, list[tuple[int, str]]] = {}
    for line, message in errors:
        kind = _VALUE.sub(lambda match: match[0] if match[1] else "", message)
        kinds.setdefault(kind, []).append((line, message))
    unit, colon = ("row", ": row ") if path.suffix.lower() == ".parquet" else ("line", ":")
    for (line, message), *others in kinds.values():
        also = ", ".join(f"{other:,}" for other, _ in others[:_LINES])
        more = f" and {len(others) - _LINES:,} more" if len(others) > _LINES else ""
        also = f" (also in {unit}{'s' if len(others) > 1 else ''} {also}{more})" if others else ""
        yield f"{path}{colon}{line}: {message}{also}"


# Examples and conditions


def _after_examples(prompts: Sequence[Prompt], path: Path) -> list[Prompt]:
    """Prompts with the text of a file before theirs, but for conditions of others."""
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
    named = {prompt.columns.get(CONDITION) for prompt in prompts}
    conditions = {p.id for p in prompts if p.columns.get(CONDITION) is None and p.id in named}
    after = []
    for prompt in prompts:
        if prompt.messages and prompt.id not in conditions:
            raise PromptError(
                f"{prompt} is made of messages; put examples into them, before the last one"
            )
        before = "" if prompt.id in conditions else shots
        after.append(replace(prompt, text=before + prompt.text))
    return after


def _condition_errors(prompts: Sequence[Prompt]) -> Iterator[str]:
    """What is wrong with the conditions that prompts name, one error a prompt."""
    known = {(prompt.id, prompt.order_seed): prompt for prompt in prompts}
    ids = {prompt.id for prompt in prompts}
    for prompt in prompts:
        name = prompt.columns.get(CONDITION)
        if not isinstance(name, str):
            continue
        condition = f"{prompt}: condition {name!r}"
        other = known.get((name, prompt.order_seed)) or known.get((name, None))
        if name not in ids:
            yield (
                f"{condition} is no prompt of this file; give the id of one, or rename the column"
            )
        elif name == prompt.id:
            yield f"{condition} is the prompt itself; give the id of another"
        elif other is None:
            yield (
                f"{condition} has neither this order nor none; give it once, without an order_seed"
            )
        elif not prompt.options or {*prompt.options} != {*other.options}:
            yield (
                f"{condition} has {_listed(other)}, and the prompt {_listed(prompt)}; give both "
                "the same labels and continuations"
            )


def _listed(prompt: Prompt) -> str:
    texts = [repr(option.text) for option in prompt.options[:4]]
    more = ["..."] if len(prompt.options) > 4 else []
    return f"the options {', '.join(texts + more)}" if texts else "no options"


# One row


def _prompt_of(
    values: Mapping[str, Any], *, default_id: str
) -> Prompt | SentenceTokens | SentencePair:
    about = _about(values)
    grouped = about != "pair" and values.get("pair") is not None
    own = set(FIELDS) - ({"pair"} if grouped else set())
    columns = {k: scalar(v, k) for k, v in values.items() if k not in own}
    name = _text(values.get("id", default_id), "id")
    if about == "sentence":
        text = _text(values["sentence"], "sentence")
        places = () if values.get("spans") is None else tuple(_spans(values["spans"], text))
        return SentenceTokens(name, text, columns, places)
    return (_pair if about == "pair" else _prompt)(name, values, columns)


def _about(values: Mapping[str, Any]) -> str:
    """The field that a row is about, with nothing beside it that belongs to another."""
    given = [name for name in ABOUT if values.get(name) is not None]
    # Beside others, `pair` is a column that says which sentences belong together.
    if len(given) > 1 and given[-1] == "pair" and not isinstance(values["pair"], list | dict):
        given.pop()
    if not given:
        missing = next((name for name in ABOUT if name in values), "text")
        raise PromptError(f"no {missing}; give every prompt one")
    if len(given) > 1:
        raise PromptError(f"it has both a {given[0]} and {_an(given[1])}; give one of them")
    for name, beside in BESIDE.items():
        if values.get(name) is not None and given[0] not in beside:
            raise PromptError(
                f"{name} stands beside {_an(beside[0])}, and this prompt has {_an(given[0])}; "
                "leave one out"
            )
    return given[0]


def _an(field: str) -> str:
    return field if field == "messages" else f"a {field}"


def _prompt(name: str, values: Mapping[str, Any], columns: Mapping[str, Scalar]) -> Prompt:
    options = tuple(_options(values.get("options")))
    answer = values.get("answer")
    if (target := values.get("target")) is not None:
        if options or answer is not None:
            other = "options" if options else "an answer"
            raise PromptError(f"it has both a target and {other}; give one of them")
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
        order_seed=_whole(values.get("order_seed"), "order_seed"),
        mask=_whole(values.get("mask"), "mask"),
        columns=columns,
    )


def _pair(name: str, values: Mapping[str, Any], columns: Mapping[str, Scalar]) -> SentencePair:
    """Two sentences with their labels, which are `good` and `bad` where none are given."""
    value = values["pair"]
    listed = tuple(_options(value, "pair")) if isinstance(value, str | list | dict) else ()
    if len(listed) != 2:
        raise PromptError(
            f'pair is {shown(value)}; give two sentences, as {{"good": ..., "bad": ...}}'
        )
    if all(option.label == option.text.strip() for option in listed):
        listed = Option(GOOD, listed[0].text), Option("bad", listed[1].text)
    one, other = listed
    answer = values.get("answer")
    if answer is None and GOOD in (one.label, other.label):
        answer = GOOD
    sentences = (one.label, one.text), (other.label, other.text)
    return SentencePair(name, sentences, _answer(answer, listed), columns)


# One value


def _text(value: Any, name: str) -> str:
    """A text; an `id`, of a prompt or its condition, may be a whole number too."""
    if name in ("id", CONDITION) and isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if value is None:
        raise PromptError(f"no {name}; give every prompt one")
    if not isinstance(value, str):
        raise PromptError(f"{name} is {shown(value)}; it must be a text")
    return value


def _whole(value: Any, name: str) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise PromptError(f"{name} is {shown(value)}; it must be a whole number")


def scalar(value: Any, name: str) -> Scalar:
    """The value of a further column."""
    if value is None or isinstance(value, str | int | float | bool):
        return value
    near = get_close_matches(name, FIELDS, n=1, cutoff=0.7)
    hint = "further columns hold texts, numbers or true/false"
    hint = f"did you mean {near[0]!r}?" if near else hint
    raise PromptError(f"column {name!r} holds {shown(value)}; {hint}")


def _messages(value: Any) -> Iterator[Turn]:
    if isinstance(value, str):
        value = json_value(value, "messages")
    if value is not None and not (isinstance(value, list) and value):
        raise PromptError(f"messages are {shown(value)}; give a list of them")
    for entry in value or []:
        if not isinstance(entry, dict) or set(entry) != {"role", "content"}:
            raise PromptError(
                f'message {shown(entry)} is no {{"role": ..., "content": ...}}; write it so'
            )
        yield Turn(_text(entry["role"], "role"), _text(entry["content"], "content"))


def _options(value: Any, name: str = "options") -> Iterator[Option]:
    if isinstance(value, str):
        value = _cell(value, name)
    if isinstance(value, dict):
        value = [{"label": label, "text": text} for label, text in value.items()]
    if value is not None and not isinstance(value, list):
        raise PromptError(f"{name} are {shown(value)}; give a list or a mapping")
    for entry in value or []:
        if isinstance(entry, str):
            yield Option(label=entry.strip(), text=entry)
        elif isinstance(entry, dict) and set(entry) == {"label", "text"}:
            yield Option(_text(entry["label"], "label"), _text(entry["text"], "an option's text"))
        else:
            raise PromptError(
                f'option {shown(entry)} is neither a text nor {{"label": ..., "text": ...}}'
            )


def _answer(value: Any, listed: Sequence[Option]) -> str | None:
    """The label of the answer, which may be written as the option's continuation too."""
    if value is None:
        return None
    answer = _text(value, "answer")
    written = [option.label for option in listed if option.text == answer]
    is_label = answer in [option.label for option in listed]
    return written[0] if len(written) == 1 and not is_label else answer


def _spans(value: Any, text: str) -> Iterator[Span]:
    """Places in a text, which may be written as words that are there once."""
    if isinstance(value, str):
        value = _cell(value, "spans")
    if not isinstance(value, list) or not value:
        raise PromptError(f"spans are {shown(value)}; give a list of words, or of [start, end]")
    for entry in value:
        if isinstance(entry, str):
            yield _place(entry, text)
        elif isinstance(entry, list) and len(entry) == 2 and {type(at) for at in entry} == {int}:
            yield entry[0], entry[1]
        else:
            raise PromptError(f"span {shown(entry)} is neither a word nor [start, end]")


def _place(word: str, text: str) -> Span:
    found = [match.span() for match in re.finditer(rf"(?<!\w){re.escape(word)}(?!\w)", text)]
    if len(found) == 1 and word:
        return found[0]
    times = f"{len(found)} times" if found and word else "nowhere"
    raise PromptError(
        f"span {word!r} is {times} in the sentence as a word of its own, and should be there once; "
        "give its place, as [start, end]"
    )


def _cell(cell: str, name: str) -> Any:
    """The value of a cell: JSON, or texts between `|`."""
    return json_value(cell, name) if cell.lstrip()[:1] in ("[", "{") else cell.split("|")
