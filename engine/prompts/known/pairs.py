"""Minimal pairs of a file, or of a folder of JSONL files: BLiMP's format, or your own."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from logitbank.engine.prompts.files import scalar
from logitbank.engine.prompts.findings import read_each
from logitbank.engine.prompts.known_set import KnownSet, SetOption
from logitbank.engine.prompts.prompt_set import PromptSet
from logitbank.engine.prompts.rows import read_rows
from logitbank.engine.prompts.scoring import sentence_tokens, shared_tokens
from logitbank.engine.prompts.values import Prompt, Scalar
from logitbank.errors import PromptError, UsageError
from logitbank.store.format.limits import shown

FIELDS = {
    ("sentence_good", "sentence_bad"): ("good", "bad"),
    ("sent_more", "sent_less"): ("more", "less"),
}
"""Fields of the two sentences, and their values in the column `side`."""
_REMEDY = "Use the fields sentence_good and sentence_bad, or sent_more and sent_less."


def pairs(data: Path | None = None, *, file: str = "") -> PromptSet:
    """Both sentences of each pair of a file; the set has the name of the file without its ending.

    Causal models score every token after the begin-of-text token. Masked models score each token
    under its own mask (Salazar et al. 2020); for `sent_more` and `sent_less`, each shared token
    (Nangia et al. 2020). Columns: `pair`, `side` (good, bad or more, less), and all other fields
    of the file, such as `UID` or `group`.
    """
    path = Path(file)
    paths = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
    if not file or not paths or not all(each.is_file() for each in paths):
        raise UsageError(f"{file!r} is not a file of pairs. Use pairs:file=PATH.")
    fields = [name for names in FIELDS for name in names]
    warnings: list[str] = []
    rows = [
        row
        for each in paths
        for row in read_each(
            each, read_rows(each, fields, warnings=warnings), _row, what="pairs", remedy=_REMEDY
        )
    ]
    sentences = tuple(sentence for i, row in enumerate(rows) for sentence in _pair(i, row))
    return PromptSet(path.stem, sentences, warnings=tuple(warnings))


def _row(row: Mapping[str, Any]) -> dict[str, Scalar]:
    if not any(
        all(isinstance(row.get(name), str) and row[name] for name in names) for names in FIELDS
    ):
        raise PromptError(f"not a pair: {shown(row)}")
    if reserved := sorted({"pair", "side"} & row.keys()):
        raise PromptError(f"field {reserved[0]!r} is reserved; rename it")
    return {name: scalar(value, name) for name, value in row.items()}


def _pair(number: int, row: dict[str, Scalar]) -> Iterator[Prompt]:
    names = next(names for names in FIELDS if row.get(names[0]))
    one, other = (str(row[name]) for name in names)
    rest = {name: value for name, value in row.items() if name not in names}
    both = {"first": one, "second": other}
    for side, text in zip(FIELDS[names], both.values(), strict=True):
        name, columns = f"{number}-{side}", {**rest, "pair": number, "side": side}
        if side in ("good", "bad"):
            yield Prompt(name, text, columns=columns, scored=sentence_tokens)
        else:
            yield Prompt(name, text, columns=columns, scored=shared_tokens, parts=both)


KNOWN = KnownSet(
    pattern="pairs",
    about="the sentences of minimal pairs in a file: BLiMP's format or your own",
    size="of the file",
    license="of the file",
    analysis="pairs",
    make=pairs,
    options=(
        SetOption(
            "file", "PATH", "a JSONL, CSV, TSV or Parquet file, or a folder of JSONL files", str
        ),
    ),
)
