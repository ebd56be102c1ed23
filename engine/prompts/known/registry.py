"""From what a user names to a prompt set: a known family, or a file."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

from logitbank.engine.prompts.files import load_prompts
from logitbank.engine.prompts.known.names import KNOWN_PROMPTS, near
from logitbank.engine.prompts.sequences import SequenceSet
from logitbank.engine.prompts.values import Prompt, PromptSet
from logitbank.errors import PromptError, UsageError
from logitbank.wording import counted

if TYPE_CHECKING:
    from logitbank.engine.prompts.tokenizer import Tokenizer

_SUFFIXES = (".jsonl", ".csv", ".parquet")


def prompt_set(
    spec: str,
    *,
    data: Path | None = None,
    orders: int | Literal["all"] = 5,
    splits: Sequence[str] = ("dev", "test"),
    first_token: bool = False,
    instances: int | Literal["all"] = 10_000,
) -> PromptSet | SequenceSet:
    """The prompt set that `spec` names; the other arguments as in `extract`.

    Raises
    ------
    UsageError
        If `spec` is neither a known family nor a file of a known kind.
    """
    if spec == "winobias":
        from logitbank.engine.prompts.known.winobias import winobias
        from logitbank.engine.prompts.known.winobias_files import Split

        return winobias(data, orders=orders, splits=cast("Sequence[Split]", splits))
    if spec == "professions":
        from logitbank.engine.prompts.known.professions import professions

        return professions(data)
    if spec.startswith("stereoset-"):
        from logitbank.engine.prompts.known.stereoset import stereoset

        if (found := stereoset(spec, data)) is not None:
            return found
    elif spec.startswith("unqover-"):
        from logitbank.engine.prompts.known.unqover.prompts import unqover_set

        if (asked := unqover_set(spec, data, instances=instances)) is not None:
            return asked
    elif spec in KNOWN_PROMPTS:
        from logitbank.engine.prompts.known import sequence_sources
        from logitbank.engine.prompts.known.stereotype_accuracy import stereotype_accuracy
        from logitbank.engine.prompts.known.winobias_em import winobias_em

        made: dict[str, Callable[[], PromptSet | SequenceSet]] = {
            "stereotype-accuracy": lambda: stereotype_accuracy(data),
            "winobias-em": lambda: winobias_em(data),
            "lambada": lambda: sequence_sources.lambada(data),
            "crows-pairs": lambda: sequence_sources.crows_pairs(data),
        }
        return made[spec]()
    if Path(spec).suffix.lower() in _SUFFIXES:
        if Path(spec).stem in KNOWN_PROMPTS:
            raise UsageError(f"{spec}: {Path(spec).stem!r} is the name of a known set; rename it")
        return load_prompts(Path(spec), first_token=first_token)
    hint = f" (did you mean {' or '.join(close)}?)" if (close := near(spec)) else ""
    raise UsageError(
        f"{spec!r} is neither a known prompt set{hint} nor a {', '.join(_SUFFIXES)} file; known"
        f" are {', '.join(KNOWN_PROMPTS)}"
    )


def describe(prompts: PromptSet | SequenceSet, *, limit: int) -> list[str]:
    """The first `limit` prompts as they would be scored, for people to read."""
    total = len(prompts.prompts)
    lines = [f"{prompts.name}: {counted(total, 'prompt')}, {min(limit, total)} shown"]
    for prompt in prompts.prompts[:limit]:
        columns = ", ".join(f"{k}={v}" for k, v in prompt.columns.items())
        if isinstance(prompt, Prompt):
            order = "" if prompt.order_seed is None else f", order {prompt.order_seed}"
            lines += ["", f"── {prompt.id}{order}", *prompt.text.split("\n")]
            lines += [
                f"   {'→' if option.label == prompt.answer else ' '} {option.text!r} "
                f"({option.label})"
                for option in prompt.options
            ]
        else:
            lines += ["", f"── {prompt.id}", *prompt.text.split("\n")]
        lines += [f"   {columns}"] if columns else []
    return lines


def check(
    prompts: PromptSet | SequenceSet, tokenizer_folder: Path | None
) -> tuple[list[str], bool]:
    """Findings as lines, and whether one of them stops the set."""
    from logitbank.engine.prompts.fitted import fitted
    from logitbank.engine.prompts.tokenize import check_prompts
    from logitbank.engine.prompts.tokenizer import Tokenizer
    from logitbank.engine.weights.config import ModelConfig

    tokenizer, longest = None, None
    if tokenizer_folder is not None:
        tokenizer = Tokenizer.load(tokenizer_folder)
        if (tokenizer_folder / "config.json").is_file():
            longest = ModelConfig.read(tokenizer_folder).max_length
    if not isinstance(prompts, PromptSet):
        return _check_sequences(prompts, tokenizer)
    notes: tuple[str, ...] = ()
    try:
        if tokenizer is not None:
            prompts, notes = fitted(prompts, tokenizer)
    except PromptError as error:
        return [f"error: {error}"], True
    findings = check_prompts(prompts, tokenizer, max_length=longest)
    lines = [*notes]
    lines += [f"{f.level}: prompt {f.prompt_id!r}: {f.message}" for f in findings]
    errors = sum(f.level == "error" for f in findings)
    lines.append(
        f"{prompts.name}: {counted(len(prompts.prompts), 'prompt')}, {counted(errors, 'error')}, "
        f"{counted(len(findings) - errors, 'warning')}"
    )
    if tokenizer is None:
        lines.append("tokens were not checked: name a checkpoint folder with --tokenizer")
    return lines, errors > 0


def _check_sequences(prompts: SequenceSet, tokenizer: "Tokenizer | None") -> tuple[list[str], bool]:
    from logitbank.engine.prompts.tokenize import tokenize_sequences

    count = f"{prompts.name}: {counted(len(prompts.prompts), 'prompt')}"
    if tokenizer is None:
        return [f"{count}; name a checkpoint folder with --tokenizer to count their tokens"], False
    try:
        found = tokenize_sequences(prompts, tokenizer)
    except PromptError as error:
        return [f"error: {error}"], True
    sequences = len({query.ids for query in found.queries})
    return [
        f"{count}, {len(found.table):,} scored tokens, {len(found.queries):,} distinct queries in "
        f"{sequences:,} sequences"
    ], False
