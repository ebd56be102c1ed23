"""Where public data files are: in a folder that the user names, else fetched from their home.

It knows names and checksums of files and nothing of what is in them.
"""

import hashlib
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from logitbank.errors import LogitbankError, UsageError

TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Dataset:
    """Public files that belong together."""

    name: str
    """Name of their folder inside a data folder."""
    base_url: str
    """Their home, pinned to one version."""
    files: Mapping[str, str]
    """File name to SHA-256 (hex)."""
    suffix: str = ""
    """What the file names end in here and not at their home."""


def dataset_folder(
    dataset: Dataset, *, data: Path | None = None, base_url: str | None = None
) -> Path:
    """The folder with the files of `dataset`, downloaded if the user has none.

    Looked for in this order: `data/<name>`; `$LOGITBANK_DATA/<name>`, where it exists; the cache
    folder, filled from `base_url` (by default the files' public home). Files in a folder of the
    user's own may differ from the published ones; downloaded files may not.

    Raises
    ------
    UsageError
        A folder of the user's that lacks some of the files.
    LogitbankError
        A file cannot be downloaded, or is not the published one.
    """
    if data is not None:
        return _complete(Path(data) / dataset.name, dataset)
    if variable := os.environ.get("LOGITBANK_DATA"):
        folder = Path(variable) / dataset.name
        if folder.is_dir():
            return _complete(folder, dataset)
    return _cached(dataset, base_url or dataset.base_url)


def public_file(folder: str, name: str, data: Path | None) -> Path:
    """A file in a data folder; one of a set that is not downloaded."""
    root = data or os.environ.get("LOGITBANK_DATA")
    path = Path(root or ".") / folder / name
    if root is None or not path.is_file():
        raise UsageError(
            f"{folder}/{name} is not at hand; name a folder that holds it with --data or "
            "LOGITBANK_DATA"
        )
    return path


def _complete(folder: Path, dataset: Dataset) -> Path:
    if missing := [name for name in dataset.files if not (folder / name).is_file()]:
        raise UsageError(
            f"{folder} lacks {', '.join(missing)}; put the files of {dataset.name} there, or name "
            "no data folder to have them downloaded"
        )
    return folder


def _cached(dataset: Dataset, base_url: str) -> Path:
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(root) / "logitbank" / dataset.name
    for name, sha256 in dataset.files.items():
        path = folder / name
        if not path.is_file():
            url = f"{base_url.rstrip('/')}/{name.removesuffix(dataset.suffix)}"
            content = _download(url, dataset)
            _check(content, sha256, what=url, advice="nothing was kept; try again later")
            _write(path, content)
        else:
            _check(path.read_bytes(), sha256, what=str(path), advice="remove that file, run again")
    return folder


def _download(url: str, dataset: Dataset) -> bytes:
    try:
        with urlopen(url, timeout=TIMEOUT_S) as response:
            content: bytes = response.read()
    except (OSError, ValueError) as error:
        if isinstance(error, URLError) and hasattr(error, "close"):
            error.close()  # an HTTP error holds the connection
        raise LogitbankError(
            f"cannot download {url} ({error}); get the files another way and name the folder "
            f"that holds {dataset.name}/ with --data or LOGITBANK_DATA"
        ) from error
    return content


def _check(content: bytes, sha256: str, *, what: str, advice: str) -> None:
    found = hashlib.sha256(content).hexdigest()
    if found != sha256:
        raise LogitbankError(
            f"{what} is not the published file: its SHA-256 is {found}, not {sha256}; {advice}"
        )


def _write(path: Path, content: bytes) -> None:
    """Whole or not at all, also when several processes write at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
