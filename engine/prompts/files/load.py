"""From a prompt file to a prompt set.

It reads rows of values and knows no tokenizer.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from logitbank.engine.doing import each
from logitbank.engine.prompts.files.conditions import condition_errors, only_conditions
from logitbank.engine.prompts.files.prompts import prompt_of
from logitbank.engine.prompts.files.rows import Read, rows_of
from logitbank.engine.prompts.prompt_set import PromptSet
from logitbank.engine.prompts.sentences import SentencePair, SentenceTokens
from logitbank.engine.prompts.sequence_set import SequenceSet
from logitbank.engine.prompts.values import MASK, Prompt, mixed_columns, one_error
from logitbank.errors import PromptError, UsageError


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
        Rows that are no prompts, or columns with values of different kinds; the message names
        file and line of each, of the first 20. Or texts and sentences in one file, or conditions
        that are none.
    """
    path = Path(path)
    read, errors = _prompts(each(rows_of(path), f"reading prompts of {path}"))
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
    if wrong := [PromptError(f"{path}: {error}") for error in condition_errors(prompts)]:
        raise one_error(str(path), wrong)
    if sentences:
        if few_shot is not None or add_special_tokens is not None:
            what = "add_special_tokens" if few_shot is None else "few_shot"
            raise UsageError(f"{path} has sentences, and {what} is for texts; leave it out")
        return SequenceSet(path.stem if name is None else name, tuple(sentences))
    default = path.stem
    if few_shot is not None:
        default += f"+{Path(few_shot).stem}"
        shots = _shots(Path(few_shot))
        conditions = only_conditions(prompts)
        prompts = [p if p.id in conditions else _after(p, shots) for p in prompts]
    return PromptSet(
        name=default if name is None else name,
        prompts=tuple(prompts),
        add_special_tokens=add_special_tokens,
        first_token=first_token,
        whole_options=True,
        separate_options=separate_options,
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


def _prompts(
    rows: Iterator[Read],
) -> tuple[list[Prompt | SentenceTokens | SentencePair], list[PromptError]]:
    """All that can be read, and all that is wrong."""
    prompts: list[Prompt | SentenceTokens | SentencePair] = []
    errors: list[PromptError] = []
    places: dict[tuple[str, int | None], str] = {}
    for number, row in enumerate(rows, 1):
        if isinstance(row, PromptError):
            errors.append(row)
            continue
        try:
            prompt = prompt_of(row, default_id=str(number))
        except PromptError as error:
            errors.append(error)
            continue
        key = prompt.id, prompt.order_seed if isinstance(prompt, Prompt) else None
        if key in places:
            errors.append(PromptError(f"{row.place}: {prompt} is already in {places[key]}"))
            continue
        places[key] = row.place
        prompts.append(prompt)
    at = [*places.values()]
    errors += [
        PromptError(f"{at[mixed.other]}: {mixed.message(at[mixed.first])}")
        for mixed in mixed_columns(prompt.columns for prompt in prompts)
    ]
    return prompts, errors
