"""From what a user names to a prompt set: a known family, or a file."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, cast

from logitbank.engine.prompt_files import load_prompts
from logitbank.engine.prompt_set import PromptSet
from logitbank.errors import UsageError

KNOWN_PROMPTS = {
    "winobias": "3,168 gender questions on the WinoBias Type 2 sentences, in several option orders"
}
_SUFFIXES = (".jsonl", ".csv", ".parquet")


def prompt_set(
    spec: str,
    *,
    data: Path | None = None,
    orders: int | Literal["all"] = 5,
    splits: Sequence[str] = ("dev", "test"),
    first_token: bool = False,
) -> PromptSet:
    """The prompt set that `spec` names; the other arguments as in `extract`.

    Raises
    ------
    UsageError
        If `spec` is neither a known family nor a file of a known kind.
    """
    if spec == "winobias":
        from logitbank.engine.winobias import winobias
        from logitbank.engine.winobias_files import Split

        return winobias(data, orders=orders, splits=cast("Sequence[Split]", splits))
    if Path(spec).suffix.lower() in _SUFFIXES:
        return load_prompts(Path(spec), first_token=first_token)
    raise UsageError(
        f"{spec!r} is neither a known prompt set ({', '.join(KNOWN_PROMPTS)}) nor a "
        f"{', '.join(_SUFFIXES)} file"
    )
