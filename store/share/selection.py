"""Choose which objects of a bank are published or copied: whole deposits, and tables for them."""

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

import polars as pl

from logitbank.errors import AbsentError, DamagedError
from logitbank.store.deposits import catalog
from logitbank.store.deposits.deposit import Deposit
from logitbank.store.files import objects, verified
from logitbank.store.files.objects import Digest
from logitbank.store.format import commits, zarrays
from logitbank.store.format.commits import Committed
from logitbank.store.format.index import Object, text_object
from logitbank.store.heads.stored import FOLDER, StoredHead
from logitbank.store.steps import Step, parse_steps
from logitbank.store.tables import prompt_tables, query_tables, table_files, token_texts

Names = Collection[str] | str | None
"""Names of models or prompt sets; all if None."""
Steps = Collection[Step] | int | str | None
"""Training steps, None in a collection for a release, or a text such as `log` or `0:100:10`."""


def chosen(
    root: Path, *, models: Names = None, steps: Steps = None, prompts: Names = None
) -> dict[str, Object]:
    """Committed objects of these deposits, their query sets and prompts; of all where None.

    Raises
    ------
    AbsentError
        The bank has no such model, step or prompt set, or no deposit of all of them.
    DamagedError
        An object is missing, or is not what was committed.
    """
    deposits = catalog.deposits(root)
    files = prompt_tables.prompt_files(root)
    sets: set[str] | None = None
    if prompts is not None:
        wanted = {prompts} if isinstance(prompts, str) else set(prompts)
        require(wanted, {f.name for f in files}, "prompt set")
        files = [f for f in files if f.name in wanted]
        sets = {name for f in files for name in query_sets_in(f.path)}
        deposits = [d for d in deposits if d.query_set in sets]
    if (models, steps) != (None, None):
        deposits = chosen_deposits(deposits, models, steps)
        used = {d.query_set for d in deposits}
        files = [f for f in files if used & query_sets_in(f.path)]
        sets = used | {name for f in files for name in query_sets_in(f.path)}
    if sets is None:
        sets = set(query_tables.query_set_names(root))
    queries = [query_tables.query_file(root, name) for name in sorted(sets)]
    tokenizers = {query_tables.tokenizer_of(root, name) for name in sets}
    texts = [f.path for f in token_texts.tokens_files(root) if f.name in tokenizers]
    try:
        return _inventory(root, deposits, [*queries, *(f.path for f in files), *texts])
    except FileNotFoundError as error:
        raise DamagedError(f"{error.filename} is missing; run `logitbank verify`") from error


def chosen_deposits(deposits: Sequence[Deposit], models: Names, steps: Steps) -> list[Deposit]:
    """Deposits of these models and training steps.

    Raises
    ------
    AbsentError
        None is of one of them.
    """
    if models is not None:
        wanted = {models} if isinstance(models, str) else set(models)
        require(wanted, {d.checkpoint.model for d in deposits}, "model")
        deposits = [d for d in deposits if d.checkpoint.model in wanted]
    if steps is not None:
        available = {d.checkpoint.step for d in deposits}
        if isinstance(steps, str):
            selected = set(parse_steps(steps).select(available, of="this bank"))
        else:
            selected = {steps} if isinstance(steps, int) else set(steps)
        require(selected, available, "step")
        deposits = [d for d in deposits if d.checkpoint.step in selected]
    return list(deposits)


def require(requested: Iterable[object], available: Collection[object], what: str) -> None:
    """Raise AbsentError if the bank has no such model, step or prompt set."""
    for value in requested:
        if value not in available:
            listed = ", ".join(sorted({_shown(each) for each in available})) or "none"
            raise AbsentError(f"the bank has no {what} {_shown(value)}; it has {listed}")


def _shown(value: object) -> str:
    return "release" if value is None else str(value)


def query_sets_in(path: Path) -> set[str]:
    """Query sets that a table of prompts points into."""
    table_files.require_sound(path)
    column = pl.read_parquet(path, columns=["query_set"], glob=False)["query_set"]
    return set(column.unique().drop_nulls())


def _inventory(
    root: Path, deposits: Iterable[Deposit], tables: Iterable[Path]
) -> dict[str, Object]:
    objects_by_path = {"zarr.json": _text(root / "zarr.json", *zarrays.ATTRIBUTES)}
    for file in tables:
        table_files.require_sound(file)
        beside, path = table_files.digest_file(file), file.relative_to(root).as_posix()
        objects_by_path[f"{path}.sha256"] = text_object(beside.read_text())
        objects_by_path[path] = Object(
            Digest(table_files.recorded_digest(file), file.stat().st_size)
        )
    for deposit in deposits:
        folder = deposit.path.relative_to(root)
        of_deposit = deposit.retrying(lambda state, d=deposit: _deposit(d, state))  # type: ignore[misc]
        if not any(path.startswith("commits/") for path in of_deposit):
            continue
        for group in list(folder.parents)[:-1]:
            if (root / group / "zarr.json").exists():
                objects_by_path[f"{group.as_posix()}/zarr.json"] = text_object(
                    zarrays.GROUP.decode()
                )
        objects_by_path |= {
            f"{folder.as_posix()}/{path}": value for path, value in of_deposit.items()
        }
        for digest in deposit.spec.heads.values():
            if f"{FOLDER}/{digest}/zarr.json" not in objects_by_path:
                head = StoredHead.open(root, digest, needed_by=str(deposit))
                objects_by_path |= _head(head)
    return objects_by_path


def _head(head: StoredHead) -> dict[str, Object]:
    where = f"{FOLDER}/{head.digest}"
    listed = {f"{where}/{name}": Object(digest) for name, digest in head.objects.items()}
    for name, metadata in head.metadata().items():
        listed[f"{where}/{name}/zarr.json"] = text_object(metadata.decode())
    listed[f"{where}/zarr.json"] = _text(head.path / "zarr.json", *zarrays.ATTRIBUTES)
    listed[f"{FOLDER}/zarr.json"] = text_object(zarrays.GROUP.decode())
    return listed


def _deposit(deposit: Deposit, state: Committed) -> dict[str, Object]:
    texts = {"zarr.json": _text(deposit.path / "zarr.json", *zarrays.ATTRIBUTES)}
    for name, metadata in zarrays.array_metadata(deposit.layout).items():
        if objects.plain_path(deposit.path, f"{name}/zarr.json").exists():
            texts[f"{name}/zarr.json"] = text_object(metadata.decode())
    for name in state.names:
        texts[f"commits/{name}.json"] = _text(deposit.path / "commits" / f"{name}.json")
    return {
        path: Object(d) for path, d in commits.committed_digests(deposit.path, state).items()
    } | texts


def _text(path: Path, *holder: str) -> Object:
    """A document, whose own digest is right."""
    verified.document(objects.plain_path(path.parent, path.name), *holder)
    return text_object(path.read_text())
