"""Bring the listing of a copy up to date with the bank at its URL."""

import shutil
from collections.abc import Mapping
from pathlib import Path

from logitbank.errors import BankFormatError, DamagedError, UsageError
from logitbank.store.files import documents, objects
from logitbank.store.files.threads import in_parallel
from logitbank.store.format.index import Object, is_object, part_url
from logitbank.store.remote.mirror import LISTING, LOG, Mirror, mirror_of

_SYNCED_AT_ONCE = 32
"""Small files that are made durable at once; one after the other, 1,400 take five times as long."""


def clear(root: Path, relative: str) -> Path:
    """Where a file of a copy goes; a folder there is removed, and so is a file above it.

    Raises
    ------
    UsageError
        It cannot be.
    """
    path = objects.plain_path(root, relative)
    if path.is_file():
        return path
    try:
        for above in [*path.relative_to(root).parents][-2::-1]:
            _remove_file(root / above)
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    except FileNotFoundError:
        pass  # another process removes it too
    except OSError as error:
        raise UsageError(
            f"{error.filename} is where the cache has another file or folder, and cannot be removed"
            f" ({error.strerror}); remove it"
        ) from error
    return path


def _remove_file(path: Path) -> None:
    """Where a folder is wanted; another thread may have removed it too, and made the folder."""
    if path.exists() and not path.is_dir():
        try:
            path.unlink(missing_ok=True)
        except OSError:
            if not path.is_dir():
                raise


def refresh(root: Path, url: str) -> None:
    """Read the index again where it has changed, and make the copy agree; its lock is held."""
    from logitbank.store.remote.published import is_unchanged, read_index
    from logitbank.store.remote.remote import Remote

    try:
        old = mirror_of(root)
    except DamagedError:
        LOG.warning("%s was damaged and is made anew", root / LISTING)
        old = None
    etags = old.etags if old else ()
    parts, part, new_etags = 1, 1, []
    listed: dict[str, Object] = {}
    while part <= parts:
        remote = Remote.at(part_url(url, part))
        if part == 1 and len(etags) == 1 and is_unchanged(remote, unless=etags[0]):
            return
        published = read_index(remote)
        parts = published.parts if part == 1 else parts
        new_etags.append(published.etag)
        listed |= {
            p: Object(o.digest, o.text, part)
            for p, o in published.objects.items()
            if p not in listed
        }
        part += 1
    if "zarr.json" not in listed:
        raise BankFormatError(f"{url} lists no zarr.json, so it is no bank; check the address")
    _write(root, url, tuple(new_etags), listed, old)


def _write(
    root: Path,
    url: str,
    etags: tuple[str | None, ...],
    listed: Mapping[str, Object],
    old: Mirror | None,
) -> None:
    """Bring the copy up to date: what is new first, so that a reader meanwhile lacks nothing."""
    had = old.listed if old else {}
    texts: dict[Path, bytes] = {}
    for path, value in listed.items():
        at = objects.plain_path(root, path)
        if value.text is not None and (
            path not in had or had[path].digest != value.digest or not at.exists()
        ):
            clear(root, path)
            at.parent.mkdir(parents=True, exist_ok=True)
            texts[at] = value.text.encode()
    in_parallel(lambda item: _replace(*item), list(texts.items()), at_once=_SYNCED_AT_ONCE)
    digests = {p: [o.digest.bytes, o.digest.sha256, o.part] for p, o in listed.items()}
    content = {"url": url, "etags": list(etags), "objects": digests}
    clear(root, LISTING)
    _replace(root / LISTING, documents.signed(content, content))
    replaced = [p for p in had if p in listed and listed[p].digest != had[p].digest]
    gone = [p for p in replaced if listed[p].text is None] + sorted(
        _present(root, old) - set(listed)
    )
    for path in gone:
        clear(root, path).unlink(missing_ok=True)


def _present(root: Path, old: Mirror | None) -> set[str]:
    """Objects that are in the copy, or were listed; where the listing was lost, what lies there."""
    if old is not None:
        return set(old.listed)
    files = (path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())
    return {path for path in files if is_object(path)}


def _replace(path: Path, data: bytes) -> None:
    beside = path.with_name(f".{path.name}.new")  # the caller holds the copy's lock
    if beside.is_dir():
        clear(beside.parent, beside.name)
    objects.write_durable(beside, data)
    beside.replace(path)
