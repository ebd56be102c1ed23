"""Where public data files are: in a folder that the user names, else fetched from their home.

It knows names and checksums of files, and of what is in them only whether it is text.
"""

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from logitbank.engine.cache import offline, user_cache
from logitbank.errors import LogitbankError, PromptError, UsageError
from logitbank.wording import counted

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


def digests(lines: str, folder: str = "") -> dict[str, str]:
    """File name to SHA-256, from lines of digest and name; names are put into `folder`."""
    pairs = [line.split() for line in lines.strip().split("\n")]
    return {folder + name: digest for digest, name in pairs}


def dataset_folder(dataset: Dataset, *, data: Path | None = None) -> Path:
    """The folder with the files of `dataset`, downloaded if the user has none.

    Looked for in this order: `data/<name>`; `$LOGITBANK_DATA/<name>`, where it exists; the cache
    folder, filled from the files' public home. Files in a folder of the
    user's own may differ from the published ones; downloaded files may not.

    Raises
    ------
    UsageError
        A folder of the user's that lacks some of the files; or none is named, and there is no
        network, or `HF_HUB_OFFLINE` forbids it.
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
    """Of a data folder."""
    name: str
    home: str
    """Where to get it."""
    sha256: str = ""
    """Hex; empty where its home has published no fixed bytes."""


def public_file(file: PublicFile, data: Path | None) -> Path:
    """A file in a data folder.

    Raises
    ------
    UsageError
        It is not there; the message says where to get it.
    """
    root = data or os.environ.get("LOGITBANK_DATA")
    path = Path(root or ".") / file.folder / file.name
    if root is None or not path.is_file():
        checksum = f" (SHA-256 {file.sha256})" if file.sha256 else ""
        raise UsageError(
            f"{file.folder}/{file.name} is not at hand; get it from {file.home}{checksum}, put it "
            f"into a folder {file.folder}/, and name the folder that holds that one with --data or "
            "LOGITBANK_DATA"
        )
    return path


def text_of_file(path: Path, *, remedy: str) -> str:
    """What a data file says, its line ends as they are.

    Parameters
    ----------
    remedy
        What messages advise, such as "give LAMBADA's own file".

    Raises
    ------
    PromptError
        It is empty, or no UTF-8 text.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise PromptError(
            f"{path} is not UTF-8 text ({error.reason} at byte {error.start}); {remedy}"
        ) from None
    if (at := text.find("\0")) >= 0:
        line = 1 + text.count("\n", 0, at)
        raise PromptError(f"{path}:{line} is no text, it holds a zero byte; {remedy}")
    if not text.strip():
        raise PromptError(f"{path} is empty; {remedy}")
    return text


def _complete(folder: Path, dataset: Dataset) -> Path:
    if missing := [name for name in dataset.files if not (folder / name).is_file()]:
        ending = f", where their names end without {dataset.suffix}" if dataset.suffix else ""
        raise UsageError(
            f"{folder} lacks {', '.join(missing)}; put the files of {dataset.name} there, from "
            f"{dataset.base_url.rstrip('/')}/{ending}, or name no data folder to have them "
            "downloaded"
        )
    return folder


def _cached(dataset: Dataset) -> Path:
    folder = user_cache(dataset.name)
    missing = []
    for name, sha256 in dataset.files.items():
        if (path := folder / name).is_file():
            # Pooch would fetch a damaged file again without a word; it may be somebody's edit.
            _check(path, sha256, what=str(path), advice="remove that file, run again")
        else:
            missing.append(name)
    if missing and offline():
        raise UsageError(
            f"{folder} lacks {counted(len(missing), 'file')} and HF_HUB_OFFLINE is set; "
            + _elsewhere(dataset)
        )
    for name in missing:
        url = f"{dataset.base_url.rstrip('/')}/{name.removesuffix(dataset.suffix)}"
        _download(url, folder / name, dataset.files[name], dataset)
    return folder


def _elsewhere(dataset: Dataset) -> str:
    """What to do on a machine that reaches no network."""
    return (
        "run `logitbank fetch` with the same --prompts where there is a network, or put them into "
        f"DIR/{dataset.name} and give --data DIR, which tells the names and addresses of all that "
        "it lacks"
    )


def _download(url: str, path: Path, sha256: str, dataset: Dataset) -> None:
    """Whole or not at all, also when several processes fetch the file at once."""
    import pooch  # 0.5 s with requests, which few runs need
    from requests import ConnectionError, Timeout

    pooch.get_logger().setLevel("WARNING")  # it would print every file and its hash
    fetch = pooch.HTTPDownloader(timeout=TIMEOUT_S)

    def fetch_checked(url: str, file: str, pup: object) -> None:
        # Before the file takes its place: Pooch's own message names neither the URL nor the advice.
        fetch(url, file, pup)
        _check(Path(file), sha256, what=url, advice="nothing was kept; try again later")

    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        pooch.retrieve(
            url, known_hash=sha256, fname=path.name, path=path.parent, downloader=fetch_checked
        )
    except (ConnectionError, Timeout) as error:
        raise UsageError(
            f"cannot reach {urlsplit(url).netloc} for the files of {dataset.name} "
            f"({type(error).__name__}); {_elsewhere(dataset)}"
        ) from error
    except (OSError, ValueError) as error:
        raise LogitbankError(
            f"cannot download {url} ({error}); get the files another way and name the folder "
            f"that holds {dataset.name}/ with --data or LOGITBANK_DATA"
        ) from error


def _check(path: Path, sha256: str, *, what: str, advice: str) -> None:
    actual = hashlib.sha256(path.read_bytes()).hexdigest()
    if actual != sha256:
        raise LogitbankError(
            f"{what} is not the published file: its SHA-256 is {actual}, not {sha256}; {advice}"
        )
