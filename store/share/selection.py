"""Choose which objects of a bank are published or copied: whole deposits, and their tables."""

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import NamedTuple

from logitbank.errors import AbsentError, DamagedError
from logitbank.store.deposits import catalog
from logitbank.store.deposits.deposit import Deposit, check_documents
from logitbank.store.files import objects, verified
from logitbank.store.files.objects import Digest
from logitbank.store.format import commits, zarrays
from logitbank.store.format.commits import Committed
from logitbank.store.format.index import Object, text_object
from logitbank.store.heads.stored import FOLDER, StoredHead
from logitbank.store.read.choose import Names, Steps, as_names, checkpoints_chosen
from logitbank.store.tables import prompt_tables, query_tables, table_files, token_texts


def chosen(
    root: Path, *, models: Names = None, steps: Steps = None, prompts: Names = None
) -> dict[str, Object]:
    """Objects of these deposits if whole, and tables of these prompt sets; of all if None.

    Raises
    ------
    AbsentError
        The bank has no such model, step or prompt set.
    DamagedError
        An object is missing, or differs from its commit.
    """
    deposits, sets, files = selected(root, models=models, steps=steps, prompts=prompts)
    queries = [query_tables.query_file(root, name) for name in sorted(sets)]
    tokenizers = {query_tables.query_set_tokenizer(root, name) for name in sets}
    texts = [file.path for file in token_texts.tokens_files(root) if file.name in tokenizers]
    try:
        return _inventory(root, deposits, [*queries, *files, *texts])
    except FileNotFoundError as error:
        raise DamagedError(f"{error.filename} is missing. Run `logitbank verify`.") from error


class Selected(NamedTuple):
    """Parts of a bank that a user requested."""

    deposits: list[Deposit]
    query_sets: set[str]
    prompts: list[Path]
    """Tables of prompts."""


def selected(
    root: Path, *, models: Names = None, steps: Steps = None, prompts: Names = None
) -> Selected:
    """Deposits and tables of these models, training steps and prompt sets; all if None.

    Raises AbsentError if the bank has no such model, step or prompt set.
    """
    files = prompt_tables.prompt_files(root)
    sets, deposits = set(query_tables.query_set_names(root)), catalog.deposits(root)
    if prompts is not None:
        names = require_names(prompts, {file.name for file in files}, "prompt set")
        files = [file for file in files if file.name in names]
        sets = {name for file in files for name in prompt_tables.query_sets_in(file.path)}
        deposits = [deposit for deposit in deposits if deposit.query_set in sets]
    if models is not None:
        models = require_names(models, {d.checkpoint.model for d in deposits}, "model")
    if steps is not None and not isinstance(steps, str):
        steps = {steps} if isinstance(steps, int) else set(steps)
        available = {d.checkpoint.step for d in deposits}
        require_names({*map(_shown, steps)}, {*map(_shown, available)}, "step")
    deposits = checkpoints_chosen(deposits, models=models, steps=steps)
    return Selected(deposits, sets, [file.path for file in files])


def require_names(
    requested: Collection[str] | str, available: Collection[str], what: str
) -> set[str]:
    """The requested names, or AbsentError if the bank has no such model, step or prompt set."""
    names = as_names(requested)
    for name in sorted(names.difference(available)):
        listed = ", ".join(sorted(available)[:8]) or "none"
        more = ", …" if len(available) > 8 else ""
        raise AbsentError(f"The bank has no {what} {name}. Available: {listed}{more}.")
    return names


def _shown(step: int | None) -> str:
    return "release" if step is None else str(step)


def _inventory(
    root: Path, deposits: Iterable[Deposit], tables: Iterable[Path]
) -> dict[str, Object]:
    by_path = {"zarr.json": _text(root / "zarr.json", *zarrays.ATTRIBUTES)}
    for file in tables:
        table_files.require_sound(file)
        path, size = file.relative_to(root).as_posix(), file.stat().st_size
        by_path[f"{path}.sha256"] = text_object(table_files.digest_file(file).read_text())
        by_path[path] = Object(Digest(table_files.recorded_digest(file), size))
    for deposit in deposits:
        if not deposit.sealed:
            continue
        check_documents(deposit)
        by_path |= deposit_objects(deposit, deposit.state())
        for digest in deposit.spec.heads.values():
            if f"{FOLDER}/{digest}/zarr.json" not in by_path:
                by_path |= head_objects(StoredHead.open(root, digest, needed_by=str(deposit)))
    return by_path


def head_objects(head: StoredHead) -> dict[str, Object]:
    """Objects of a head, by path in its bank."""
    folder = f"{FOLDER}/{head.digest}"
    listed = {f"{folder}/{name}": Object(digest) for name, digest in head.objects.items()}
    for name, metadata in head.metadata().items():
        listed[f"{folder}/{name}/zarr.json"] = text_object(metadata.decode())
    listed[f"{folder}/zarr.json"] = _text(head.path / "zarr.json", *zarrays.ATTRIBUTES)
    listed[f"{FOLDER}/zarr.json"] = text_object(zarrays.GROUP.decode())
    return listed


def deposit_objects(deposit: Deposit, state: Committed) -> dict[str, Object]:
    """Metadata of a deposit, these commits and the objects that they list, by path in the bank."""
    digests = commits.committed_digests(deposit.path, state)
    listed = {path: Object(digest) for path, digest in digests.items()}
    for name, metadata in zarrays.array_metadata(deposit.layout).items():
        listed[f"{name}/zarr.json"] = text_object(metadata.decode())
    listed["zarr.json"] = _text(deposit.path / "zarr.json", *zarrays.ATTRIBUTES)
    for name in state.names:
        listed[f"commits/{name}.json"] = _text(deposit.path / "commits" / f"{name}.json")
    folder = deposit.path.relative_to(deposit.bank)
    groups = (f"{group.as_posix()}/zarr.json" for group in list(folder.parents)[:-1])
    by_path = dict.fromkeys(groups, text_object(zarrays.GROUP.decode()))
    return by_path | {f"{folder.as_posix()}/{path}": value for path, value in listed.items()}


def _text(path: Path, *holder: str) -> Object:
    """A document with a sound digest of its own."""
    verified.document(objects.plain_path(path.parent, path.name), *holder)
    return text_object(path.read_text())
