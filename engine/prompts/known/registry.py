"""From what a user names to a prompt set: a known family, or a file."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, cast

from logitbank.engine.prompts.files import load_prompts
from logitbank.engine.prompts.known.names import KNOWN_PROMPTS, near
from logitbank.engine.prompts.prompt_set import PromptSet
from logitbank.engine.prompts.sequences import SequenceSet
from logitbank.errors import UsageError

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
