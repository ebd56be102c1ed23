"""Minimal pairs of a JSONL file, or of a folder of such files: BLiMP's format, or one's own."""

from collections.abc import Iterator
from pathlib import Path

from logitbank.engine.prompts.datasets import text_of_file
from logitbank.engine.prompts.files import scalar
from logitbank.engine.prompts.known_set import KnownSet, SetOption
from logitbank.engine.prompts.prompt_set import SequenceSet
from logitbank.engine.prompts.rows import json_value
from logitbank.engine.prompts.sequences import (
    Candidate,
    MaskedTokens,
    SentenceTokens,
    SequencePrompt,
)
from logitbank.engine.prompts.values import Scalar
from logitbank.errors import PromptError, UsageError

FIELDS = {
    ("sentence_good", "sentence_bad"): ("good", "bad"),
    ("sent_more", "sent_less"): ("more", "less"),
}
"""Fields of the two sentences, and how these are marked in the column `side`."""
_REMEDY = "give a JSONL file with sentence_good and sentence_bad, or sent_more and sent_less"


def pairs(data: Path | None = None, *, file: str = "") -> SequenceSet:
    """Both sentences of each pair of a file; the set has the name of the file without its ending.

    Causal models: every token after the begin-of-text token. Masked ones: each token under its own
    mask (Salazar et al. 2020); of `sent_more` and `sent_less`, each token that the two share
    (Nangia et al. 2020). Columns: `pair`, `side` (good, bad or more, less), and all other fields
    of the file, such as `UID` or `group`.
    """
    path = Path(file)
    paths = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
    if not file or not paths or not all(each.is_file() for each in paths):
        raise UsageError(f"There is no file of pairs at {file!r}: write pairs:file=PATH.")
    rows = [row for each in paths for row in _rows(each)]
    return SequenceSet(path.stem, tuple(c for at, row in enumerate(rows) for c in _pair(at, row)))


def _rows(path: Path) -> Iterator[dict[str, Scalar]]:
    for number, line in enumerate(text_of_file(path, remedy=_REMEDY).splitlines(), 1):
        try:
            row = json_value(line, "line")
            if not isinstance(row, dict) or not any(
                all(isinstance(row.get(name), str) and row[name] for name in names)
                for names in FIELDS
            ):
                raise PromptError("it is no pair")
            if own := sorted({"pair", "side"} & row.keys()):
                raise PromptError(f"the field {own[0]!r} is a column of the set: rename it")
            yield {name: scalar(value, name) for name, value in row.items()}
        except PromptError as error:
            raise PromptError(f"{path}:{number}: {error}; {_REMEDY}") from None


def _pair(number: int, row: dict[str, Scalar]) -> Iterator[SequencePrompt]:
    names = next(names for names in FIELDS if row.get(names[0]))
    one, other = (str(row[name]) for name in names)
    rest = {name: value for name, value in row.items() if name not in names}
    for side, text, partner in zip(FIELDS[names], (one, other), (other, one), strict=True):
        name, columns = f"{number}-{side}", {**rest, "pair": number, "side": side}
        if side in ("good", "bad"):
            yield SentenceTokens(name, text, columns)
        else:
            masked = MaskedTokens(name, text, partner, first=side == "more")
            yield Candidate(name, text, masked, columns, begun=True)


KNOWN = KnownSet(
    pattern="pairs",
    about="the sentences of minimal pairs in a file: BLiMP's format or your own",
    make=pairs,
    options=(SetOption("file", "PATH", "a JSONL file, or a folder of them", str),),
)
