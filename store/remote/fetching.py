"""Fetch objects of a bank at a URL into its copy, when they are first read or were damaged."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from logitbank.errors import DamagedError, RemoteError, UsageError
from logitbank.store.files import checked, locks, objects
from logitbank.store.files.objects import Digest
from logitbank.store.files.threads import in_parallel
from logitbank.store.format.index import TEXT
from logitbank.store.remote.mirror import LOG, Mirror, cache_folder, mirror_of
from logitbank.store.remote.refresh import clear, refresh

if TYPE_CHECKING:
    from logitbank.store.remote.remote import Say


def ensure_here(*files: Path | str) -> None:
    """Fetch those of these objects of one bank that its copy lacks, or has other bytes of.

    A local bank pays nothing. What is not in the bank either stays absent.

    Raises
    ------
    RemoteError
        The place does not give an object, or gives other bytes than it lists.
    """
    mirror = mirror_of(files[0]) if files else None
    if mirror is None:
        return
    paths = [Path(file) for file in files]
    present = [path for path in paths if path.exists()]
    absent = [path for path in paths if not path.exists()]
    _fetch(mirror, [path.relative_to(mirror.root).as_posix() for path in absent])
    if _damaged(mirror, present):
        with locks.locked(mirror.root / ".lock"):  # another process may bring it up to date
            mirror = mirror_of(mirror.root) or mirror
        _fetch_again(mirror, _damaged(mirror, present))


def _damaged(mirror: Mirror, paths: Iterable[Path]) -> list[str]:
    """Paths of the files in a copy that are not what is listed."""
    listed = {path: path.relative_to(mirror.root).as_posix() for path in paths}
    expected = {
        at: mirror.listed[name].digest for at, name in listed.items() if name in mirror.listed
    }
    other = [at for at in expected if not at.is_file()]
    files = {at: digest for at, digest in expected.items() if at not in other}
    return [listed[path] for path in (*other, *checked.unsound(files))]


def _fetch_again(mirror: Mirror, paths: Sequence[str], *, is_locked: bool = False) -> None:
    try:
        _fetch(mirror, paths, is_locked=is_locked)
    except RemoteError as error:
        raise RemoteError(
            f"{mirror.root / paths[0]} is damaged and cannot be fetched again: {error}"
        ) from error
    for path in paths:
        LOG.warning("%s was damaged and was fetched again", mirror.root / path)


def open_mirror(url: str) -> Path:
    """Make or refresh the copy of the bank at a URL; its folder.

    Raises
    ------
    BankFormatError
        There is no bank, or none that can be read there without an index.
    DamagedError
        Its index is none.
    RemoteError
        The place cannot be reached.
    UsageError
        The cache cannot be written to.
    """
    root = cache_folder() / objects.digest_of(url.encode()).sha256[:16]
    try:
        root.mkdir(parents=True, exist_ok=True)
        if (root / ".lock").is_dir():
            LOG.warning("%s was damaged and is made anew", clear(root, ".lock"))
        (root / ".lock").touch()
    except OSError as error:
        raise UsageError(
            f"what is read of {url} is kept in {root.parent}, which cannot be written to"
            f" ({error.strerror}); set LOGITBANK_CACHE to a folder that can"
        ) from error
    with locks.locked(root / ".lock"):
        refresh(root, url)
        _make_whole(root)
    return root


def _make_whole(root: Path) -> None:
    """Fetch the small objects of a copy that are not there, or not what is listed."""
    mirror = mirror_of(root)
    assert mirror is not None, "it was refreshed"
    small = {path: objects.plain_path(root, path) for path in mirror.listed if TEXT.fullmatch(path)}
    _fetch(mirror, [path for path, at in small.items() if not at.exists()], is_locked=True)
    _fetch_again(mirror, _damaged(mirror, small.values()), is_locked=True)


def bring(path: str, source: Path, to: Path, expected: Digest, say: "Say") -> None:
    """Copy an object of a bank or of the bank that a copy is of; checked, whole or not at all."""
    mirror = mirror_of(source)
    here = objects.plain_path(source, path)
    to.parent.mkdir(parents=True, exist_ok=True)
    if mirror is None or here.exists():
        ensure_here(here)
        data = read_checked(here, expected)
        objects.write_durable(to, data)
        say(len(data))
        return
    if to.exists() and objects.digest(to) == expected:  # from an interrupted call
        say(expected.bytes)
    else:
        to.unlink(missing_ok=True)
        try:
            mirror.remote(mirror.listed[path].part).download(path, expected, to, say)
        except FileNotFoundError:
            raise _gone(mirror, path) from None
    objects.sync(to)


def read_checked(path: Path, expected: Digest) -> bytes:
    """The bytes of an object.

    Raises
    ------
    DamagedError
        They are not what was committed.
    """
    objects.require_file(path)
    data = path.read_bytes()
    if objects.digest_of(data) != expected:
        raise DamagedError(f"{path} is not what was committed; run `logitbank verify`")
    return data


def _fetch(mirror: Mirror, paths: Sequence[str], *, is_locked: bool = False) -> None:
    """Fetch objects into the copy; where its lock is held, it is up to date."""
    if not paths:
        return

    def fetch(path: str) -> None:
        listed = mirror.listed.get(path)
        if listed is None:
            return
        to = clear(mirror.root, path)
        to.parent.mkdir(parents=True, exist_ok=True)
        try:
            mirror.remote(listed.part).download(path, listed.digest, to)
        except FileNotFoundError:
            if not is_locked:
                open_mirror(mirror.url)  # a seal may have replaced it since
            now = mirror_of(mirror.root)
            if now is not None and path in now.listed:
                raise _gone(mirror, path) from None

    in_parallel(fetch, paths)


def _gone(mirror: Mirror, path: str) -> RemoteError:
    return RemoteError(
        f"{mirror.url}/{path} is not there, although the bank lists it; ask its publisher to run"
        " `logitbank verify` and push again"
    )
