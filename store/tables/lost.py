"""Tables that a bank had and has no more: of prompts, and of what tokens say.

Where the digest beside a table is left, the loss is plain. Where that is gone too, deposits that
`logitbank extract` made tell it: it writes the prompts and the tokens' texts before a model runs.
Deposits by other writers, and by extractions before texts were kept, do not count: their banks may
never have had such a table.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from logitbank.errors import BankError, DamagedError
from logitbank.store.files import locks
from logitbank.store.format.parquet import PARQUET_ERRORS
from logitbank.store.format.schema import folder_name
from logitbank.store.remote import mirror
from logitbank.store.tables import prompt_tables, query_tables, token_texts

AGAIN = (
    "the same `logitbank extract` or `merge` writes it again, or take it from another copy of the "
    "bank"
)
_BY_EXTRACT = "config"
"""A field of provenance that extractions write, all of which write prompts and texts too."""
_SIDECAR = ".parquet.sha256"


def by_extraction(provenance: Mapping[str, Any]) -> bool:
    """Whether a deposit is by an extraction that wrote prompts and tokens' texts beforehand."""
    return _BY_EXTRACT in provenance


def lost_tables(
    root: Path, made: Iterable[tuple[str, Mapping[str, Any]]], *, others: Sequence[Path] = ()
) -> dict[str, str]:
    """Tables of prompts and of tokens that are gone, relative to the bank, each with how one knows.

    Parameters
    ----------
    made
        Of deposits, the name of the query set and the provenance; one `by_extraction` will do of
        each query set that has any, as a query set is of one tokenizer.
    others
        Banks to be joined with this one: what one of them has is not gone.
    """
    lost = {
        path: "the digest beside it is there, and the table is not"
        for folder in ("prompts", token_texts.FOLDER)
        for path in _without_table(root, folder)
    }
    extracted = {name: how for name, how in made if by_extraction(how)}
    known = any(path.startswith("prompts/") for path in lost)
    unasked = set(extracted) - _asked(root, *others) if extracted and not known else ()
    if unasked:
        names = ", ".join(sorted(unasked))
        lost["prompts/*.parquet"] = f"no table of prompts asks the queries of {names}"
    kept = {file.tokenizer for each in (root, *others) for file in token_texts.tokens_files(each)}
    for tokenizer in sorted({str(how.get("tokenizer")) for how in extracted.values()} - kept):
        start = f"{token_texts.FOLDER}/{folder_name(tokenizer)}-"
        if not any(path.startswith(start) for path in lost):
            lost[f"{start}*.parquet"] = "deposits name this tokenizer, and its tokens have no texts"
    return {
        path: how
        for path, how in lost.items()
        if not any(path.rpartition("/")[2] in _names(each, path) for each in others)
    }


def require_tables(
    root: Path, made: Iterable[tuple[str, Mapping[str, Any]]], *, others: Sequence[Path] = ()
) -> None:
    """Refuse a bank that lacks a query set of its deposits or prompts, or has lost another table.

    Parameters are those of `lost_tables`; query sets of `others` do not count, as nothing can be
    read of a bank without its own.

    Raises
    ------
    DamagedError
        It does; names the table.
    """
    made = list(made)
    named = {name for name, _ in made} | _asked(root)
    absent = sorted(named - set(query_tables.query_set_names(root)))
    lost = {
        f"queries/{name}.parquet": "deposits or prompts are about its queries" for name in absent
    }
    for path, how in (lost | lost_tables(root, made, others=others)).items():
        raise DamagedError(f"{root}/{path} is missing ({how}); {AGAIN}")


def _names(root: Path, path: str) -> set[str]:
    """Names in the folder of a table that has this path in a bank."""
    return set(mirror.names(root / path.rpartition("/")[0]))


def _without_table(root: Path, folder: str) -> Iterator[str]:
    names = set(mirror.names(root / folder))
    alone = [
        name.removesuffix(".sha256")
        for name in sorted(names)
        if name.endswith(_SIDECAR) and name.removesuffix(".sha256") not in names
    ]
    if alone:
        locks.wait_for(root / ".lock")  # a writer puts the table in place just after its digest
    return (f"{folder}/{name}" for name in alone if not (root / folder / name).exists())


def _asked(*roots: Path) -> set[str]:
    """Query sets that prompts point to; all that there are where a table cannot be read."""
    asked: set[str] = set()
    for root in roots:
        names = {file.name for file in prompt_tables.prompt_files(root)}
        try:
            for name in names:
                asked |= set(prompt_tables.query_sets_of(prompt_tables.scan_prompts(root, name)))
        except (BankError, *PARQUET_ERRORS):  # it may ask any; verification names it
            asked |= set(query_tables.query_set_names(root))
    return asked
