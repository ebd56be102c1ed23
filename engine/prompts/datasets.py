"""Public data files: in a folder that the user names, or downloaded from their home."""

import hashlib
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from logitbank.engine.cache import offline, user_cache
from logitbank.errors import LogitbankError, UsageError
from logitbank.wording import counted, without_credentials

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
    """Ending of the file names here that their home does not have."""


@cache
def _published() -> Mapping[str, Any]:
    listed = files(__package__).joinpath("assets", "published.toml").read_text(encoding="utf-8")
    return tomllib.loads(listed)


def published(name: str) -> Dataset:
    """The dataset of this name in `assets/published.toml`."""
    entry = _published()[name]
    return Dataset(name, entry["home"], entry["files"], entry.get("suffix", ""))


def dataset_folder(dataset: Dataset, *, data: Path | None = None) -> Path:
    """The folder with the files of `dataset`, which are downloaded if the user has none.

    In this order: `data/<name>`; `$LOGITBANK_DATA/<name>`, if it exists; the cache folder, filled
    from the files' public home. Files in the user's folder may differ from the published ones;
    downloaded files may not.

    Raises
    ------
    UsageError
        The user's folder is incomplete; or files are missing and `HF_HUB_OFFLINE` is set.
    LogitbankError
        A file cannot be downloaded, or is not the published one.
    """
    if data is not None:
        return _complete(Path(data) / dataset.name, dataset)
    if variable := os.environ.get("LOGITBANK_DATA"):
        folder = Path(variable) / dataset.name
        if folder.is_dir():
            return _complete(folder, dataset)
    return _cached(dataset)


def public_file(folder: str, name: str, data: Path | None) -> Path:
    """A file that is read from this folder of a data folder, and not downloaded.

    Raises
    ------
    UsageError
        The file does not exist; the message names its source.
    """
    root = data or os.environ.get("LOGITBANK_DATA")
    path = Path(root or ".") / folder / name
    if root is None or not path.is_file():
        entry = _published()[folder][name]
        checksum = f" (SHA-256 {entry['sha256']})" if "sha256" in entry else ""
        raise UsageError(
            f"{folder}/{name} is missing. Download {entry['home']}{checksum} into a folder "
            f"{folder}/, and pass the folder around it as --data or LOGITBANK_DATA."
        )
    return path


def _complete(folder: Path, dataset: Dataset) -> Path:
    if missing := [name for name in dataset.files if not (folder / name).is_file()]:
        raise UsageError(
            f"{folder} has no {', '.join(missing)}. Copy {dataset.name} from {dataset.base_url}, or"
            " leave out the data folder to download it."
        )
    return folder


def _cached(dataset: Dataset) -> Path:
    folder = user_cache(dataset.name)
    missing = []
    for name, sha256 in dataset.files.items():
        if not (path := folder / name).is_file():
            missing.append(name)
        elif hashlib.sha256(path.read_bytes()).hexdigest() != sha256:
            # It may be an edit of the user, which pooch would replace.
            raise LogitbankError(
                f"{path} differs from the published file. Remove it to download that one."
            )
    if missing and offline():
        raise UsageError(
            f"{folder} needs {counted(len(missing), 'file')}, but HF_HUB_OFFLINE is set. "
            + _elsewhere(dataset)
        )
    for name in missing:
        _download(dataset, name, folder)
    return folder


def _elsewhere(dataset: Dataset) -> str:
    """Advice for a machine without a network."""
    return (
        "Run `logitbank fetch` with the same --prompts on a machine with a network, or copy the "
        f"files into DIR/{dataset.name} and pass --data DIR."
    )


def _download(dataset: Dataset, name: str, folder: Path) -> None:
    """Download one file completely or not at all, also when several processes do so at once."""
    import pooch  # 0.5 s with requests, which few runs need

    pooch.get_logger().setLevel("WARNING")  # it would print every file and its hash
    url = f"{dataset.base_url.rstrip('/')}/{name.removesuffix(dataset.suffix)}"
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    downloader = pooch.HTTPDownloader(timeout=TIMEOUT_S)
    try:
        pooch.retrieve(
            url, dataset.files[name], fname=path.name, path=path.parent, downloader=downloader
        )
    except (OSError, ValueError) as error:
        reason = without_credentials(" ".join(str(error).split()))
        raise LogitbankError(f"Cannot download {url} ({reason}). {_elsewhere(dataset)}") from error
