"""Public data files: in a folder that the user names, or downloaded from their home."""

import csv
import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

from logitbank.engine.cache import offline, user_cache
from logitbank.errors import LogitbankError, PromptError, UsageError
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


def digests(lines: str, folder: str = "") -> dict[str, str]:
    """File name to SHA-256, from lines of digest and name; names are put into `folder`."""
    pairs = [line.split() for line in lines.strip().split("\n")]
    return {folder + name: digest for digest, name in pairs}


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


@dataclass(frozen=True, slots=True)
class PublicFile:
    """A file that is read from a data folder and not downloaded."""

    folder: str
    """Folder inside a data folder."""
    name: str
    home: str
    """URL to get it from."""
    sha256: str = ""
    """Hex; empty if its home has no fixed version."""


def public_file(file: PublicFile, data: Path | None) -> Path:
    """A file in a data folder.

    Raises
    ------
    UsageError
        The file does not exist; the message names its source.
    """
    root = data or os.environ.get("LOGITBANK_DATA")
    path = Path(root or ".") / file.folder / file.name
    if root is None or not path.is_file():
        checksum = f" (SHA-256 {file.sha256})" if file.sha256 else ""
        raise UsageError(
            f"{file.folder}/{file.name} is missing. Download {file.home}{checksum} into a folder "
            f"{file.folder}/, and pass the folder around it as --data or LOGITBANK_DATA."
        )
    return path


def read_data_text(path: Path, *, remedy: str) -> str:
    """The text of a data file, with its line ends.

    Parameters
    ----------
    remedy
        Last sentence of error messages, such as "Use LAMBADA's own file."

    Raises
    ------
    PromptError
        The file is empty, or not UTF-8 text.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        reason = f"{error.reason} at byte {error.start}"
        raise PromptError(f"{path} is not UTF-8 text ({reason}). {remedy}") from None
    if "\0" in text:
        raise PromptError(f"{path} is not text: it has a zero byte. {remedy}")
    if not text.strip():
        raise PromptError(f"{path} is empty. {remedy}")
    return text


def csv_rows(path: Path, *, remedy: str) -> Iterator[tuple[str, dict[str, str]]]:
    """`file:line` and values of each row of a CSV file with a header.

    Raises
    ------
    PromptError
        As `read_data_text`; broken CSV, or a row with more or fewer cells than the header.
    """
    rows = csv.DictReader(StringIO(read_data_text(path, remedy=remedy), newline=""))
    try:
        for row in rows:
            if None in row or None in row.values():
                raise PromptError(f"{path}:{rows.line_num} does not fit the header. {remedy}")
            yield f"{path}:{rows.line_num}", row
    except csv.Error as error:
        raise PromptError(f"{path}:{rows.line_num} is broken CSV ({error}). {remedy}") from None


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
    """What to do on a machine without a network."""
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
