"""Copy a bank at a URL, or the part that somebody asks for, into a folder of the cache."""

import logging
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote

from logitbank.errors import (
    BankFormatError,
    DamagedError,
    DiskSpaceError,
    RemoteError,
    UsageError,
)
from logitbank.store.deposits import catalog
from logitbank.store.deposits.deposit import Deposit
from logitbank.store.files import copies, documents, locks, objects, verified
from logitbank.store.files.threads import in_parallel
from logitbank.store.format import index
from logitbank.store.format.index import Object, deposit_of, head_of
from logitbank.store.share.places import Place, place_at
from logitbank.store.share.selection import Names, Steps, chosen_deposits, query_sets_in, require
from logitbank.store.share.urls import url_of
from logitbank.store.tables import query_tables
from logitbank.store.tables.table_files import TABLE_FILE
from logitbank.store.tables.token_texts import FOLDER

LOG = logging.getLogger("logitbank")
"""Reports damage that was mended; the command line and Python show it by default."""


def ensure_local(
    url: str,
    *,
    models: Names = None,
    steps: Steps = None,
    prompts: Names = None,
    rows: bool = False,
) -> Path:
    """Copy what is asked for of a bank at a URL into the cache; return the folder of the copy.

    All documents are copied. Of the prompt sets that are asked for, prompts, query sets and tokens
    are, and the scores of the deposits that are asked for. Every object is compared with the
    digest that the bank's index lists, also one of an earlier call; a damaged one is fetched again.

    Parameters
    ----------
    url
        https://…, s3://bucket/prefix, or hf://datasets/owner/name[@revision].
    models, steps, prompts
        Models, training steps and prompt sets; all if None. `prompts=[]` copies documents alone,
        `models=[]` documents and tables.
    rows
        Also copy the full rows, states and heads of these deposits.

    Raises
    ------
    AbsentError
        The bank has no such model, step or prompt set.
    BankFormatError
        There is no bank at the URL.
    DamagedError
        Its index is damaged.
    RemoteError
        The place cannot be reached, refuses, or sends other bytes than the index lists.
    UsageError
        The URL is unsupported, or the cache folder cannot be written.
    MissingExtraError
        The extra `remote` is not installed.
    """
    address = url_of(url)
    if address is None:
        raise UsageError(f"{url} is not a URL; use https://, s3:// or hf://")
    place, root = place_at(address), copies.copy_folder(address)
    try:
        root.mkdir(parents=True, exist_ok=True)
        with locks.locked(root / ".lock"):
            try:
                _Copy(root, place).select(models, steps, prompts, rows=rows)
            except FileNotFoundError:  # a seal may have replaced an object meanwhile
                _Copy(root, place).select(models, steps, prompts, rows=rows)
    except FileNotFoundError as error:
        raise RemoteError(
            f"{error} is not there, although the bank lists it. Ask its publisher to run"
            " `logitbank verify` and push again"
        ) from error
    except DiskSpaceError:
        raise
    except OSError as error:
        raise UsageError(
            f"the copy of {address} in {root} cannot be written ({error.strerror}). Delete that"
            " folder, or set LOGITBANK_CACHE to a folder that can be written"
        ) from error
    return root


class _Copy:
    """A copy that is up to date with the index of its bank; its lock is held."""

    def __init__(self, root: Path, place: Place) -> None:
        self._root, self._place = root, place
        self._listed = self._refreshed()

    def select(self, models: Names, steps: Steps, prompts: Names, *, rows: bool) -> None:
        """Bring what is asked for; see `ensure_local`."""
        sets = self._tables(prompts)
        if models is not None and not list(models):
            return
        deposits = [d for d in catalog.deposits(self._root) if d.query_set in sets]
        self._deposits(chosen_deposits(deposits, models, steps), rows=rows)

    def _deposits(self, deposits: Iterable[Deposit], *, rows: bool) -> None:
        folders, heads = set[str](), set[str]()
        for deposit in deposits:
            folders.add(deposit.path.relative_to(self._root).as_posix())
            heads |= {f"heads/{digest}" for digest in deposit.spec.heads.values()}
        self._bring(
            path
            for path in self._listed
            if (deposit_of(path) in folders and (rows or "/scores/" in path))
            or (rows and head_of(path) in heads)
        )

    def _tables(self, prompts: Names) -> set[str]:
        """Bring the tables of these prompt sets; their query sets."""
        names = {
            path: unquote(match[1])
            for path in self._listed
            if path.startswith("prompts/") and (match := TABLE_FILE.fullmatch(path[8:]))
        }
        wanted = {prompts} if isinstance(prompts, str) else prompts
        require(wanted or (), names.values(), "prompt set")
        tables = [path for path, name in names.items() if wanted is None or name in wanted]
        self._bring(tables)
        sets = {name for path in tables for name in query_sets_in(self._root / path)}
        files = [f"queries/{name}.parquet" for name in sets]
        if wanted is None:
            files = [p for p in self._listed if p.startswith("queries/") and index.is_data(p)]
            sets |= {Path(path).stem for path in files}
        self._bring(path for path in files if path in self._listed)
        tokenizers = {query_tables.tokenizer_of(self._root, Path(path).stem) for path in files}
        self._bring(
            path
            for path in self._listed
            if path.startswith(f"{FOLDER}/")
            and (match := TABLE_FILE.fullmatch(path.rpartition("/")[2]))
            and unquote(match[1]) in tokenizers
        )
        return sets

    def _refreshed(self) -> dict[str, Object]:
        """What the index lists now, whose documents are in the copy."""
        url, file, source = self._place.url, self._root / index.NAME, self._root / copies.SOURCE
        etag, known = None, dict[str, Object]()
        with suppress(OSError, KeyError, DamagedError):
            known = index.parse(file.read_bytes(), where=str(file))
            etag = verified.document(source)["etag"]
        try:
            answer = self._place.read_changed(index.NAME, etag, limit=index.MAX_BYTES)
        except FileNotFoundError as error:
            raise BankFormatError(
                f"there is no bank at {url}: {url}/{index.NAME} is not there. Check the address, or"
                " publish the bank there with `logitbank push`"
            ) from error
        if answer is None:
            self._listed = known
            self._bring(path for path, value in known.items() if value.text is not None)
            return known
        self._listed = index.parse(answer.data, where=f"{url}/{index.NAME}")
        if "zarr.json" not in self._listed:
            raise BankFormatError(f"the index of {url} lists no zarr.json. Check the address")
        # A reader meanwhile misses nothing: new documents come first, what they replace goes last.
        self._bring(p for p, value in self._listed.items() if value.text is not None)
        _write(file, answer.data)
        about = {"url": url, "etag": answer.etag}
        _write(source, documents.signed(about, about))
        for path in self._root.rglob("*"):
            name = path.relative_to(self._root).as_posix()
            if index.is_object(name) and name not in self._listed and path.is_file():
                path.unlink()
        return self._listed

    def _bring(self, paths: Iterable[str]) -> None:
        """Fetch listed objects that the copy does not contain, or contains with other bytes."""
        expected = {path: self._listed[path].digest for path in paths}
        here = {path: objects.plain_path(self._root, path) for path in expected}
        present = {here[path]: expected[path] for path in expected if here[path].is_file()}
        damaged = set(verified.unsound(present))
        for file in damaged:
            file.unlink()
        in_parallel(
            self._fetch, [p for p in expected if here[p] in damaged or here[p] not in present]
        )
        for file in damaged:
            LOG.warning("%s was damaged and was fetched again", file)

    def _fetch(self, path: str) -> None:
        value, to = self._listed[path], objects.plain_path(self._root, path)
        to.parent.mkdir(parents=True, exist_ok=True)
        if value.text is not None:
            _write(to, value.text.encode())
        else:
            self._place.download(path, value.digest, to)


def _write(path: Path, data: bytes) -> None:
    beside = path.with_name(f".{path.name}.new")  # the caller holds the copy's lock
    beside.write_bytes(data)
    beside.replace(path)
