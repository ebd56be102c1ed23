"""The folder of the numbers that a GGUF file stands for: found in the cache, or written there once.

A process of its own reads the file (`written.py`): what that takes of memory goes with it, and a
file that ends it ends nothing else. It knows neither models nor formats.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from logitbank import errors
from logitbank.engine.cache import user_cache
from logitbank.engine.tokenizers.tokenizer import files_digest, tokenizer_folder, vocabulary_in
from logitbank.engine.weights.weights import GGUF_MAGIC
from logitbank.errors import LogitbankError, SuiteError, WeightsError
from logitbank.store.files.locks import locked
from logitbank.wording import readable_bytes


def numbers_of(file: Path, tell: Callable[[str], None] = lambda _: None) -> Path:
    """A folder with config, safetensors and tokenizer, as a checkpoint has them.

    Named by the SHA-256 of the file, and of the tokenizer's files where there are some beside it.
    `tell` is told where it is written and how large, where it is not there yet.

    Raises
    ------
    WeightsError
        The file is damaged, no GGUF file, or stands for what transformers cannot run as it is.
    DiskSpaceError
        The disk of the cache has no room for it.
    MissingExtraError
        What reads such files is not installed.
    SuiteError
        The cache cannot be written.
    """
    try:
        with file.open("rb") as content:
            if content.read(len(GGUF_MAGIC)) != GGUF_MAGIC:
                raise WeightsError(f"{file} does not begin as a GGUF file does; fetch it again")
            content.seek(0)
            digest = hashlib.file_digest(content, "sha256").hexdigest()
    except OSError as error:
        raise WeightsError(f"{file} cannot be read ({error.strerror})") from error
    cache, name, beside = numbers_cache(), digest, tokenizer_folder(file.parent)
    tokenizer = beside if vocabulary_in(beside) else None
    if tokenizer is not None:
        name = hashlib.sha256(f"{digest} {files_digest(tokenizer)}".encode()).hexdigest()
    if not (cache / name).is_dir():
        try:
            cache.mkdir(parents=True, exist_ok=True)
            with locked(cache / f"{name}.lock"):
                if not (cache / name).is_dir():
                    _write(file, cache / name, digest, tokenizer, tell)
        except OSError as error:
            if isinstance(error, LogitbankError):
                raise
            raise SuiteError(
                f"{cache} cannot be written ({error.strerror}), where numbers of GGUF files are"
                " kept; set XDG_CACHE_HOME to a folder that can"
            ) from error
    return cache / name


def numbers_cache() -> Path:
    """Where such folders are kept: `logitbank/gguf` in `XDG_CACHE_HOME`, or in `~/.cache`."""
    return user_cache("gguf")


def _write(
    file: Path, folder: Path, digest: str, tokenizer: Path | None, tell: Callable[[str], None]
) -> None:
    """Have it written beside, and put it into its place."""
    partial = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)  # of one that was killed: we hold the lock
    partial.mkdir()
    try:
        _run([file, partial, digest, tokenizer or ""], file, folder, tell)
        os.replace(partial, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _run(
    arguments: list[Path | str], file: Path, folder: Path, tell: Callable[[str], None]
) -> None:
    """Start the process, pass on what it tells, and raise what it raised."""
    # It needs no network and no card, whatever is in the file.
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-W", "ignore", "-m", "logitbank.engine.gguf.written"]
    with (
        tempfile.TemporaryFile() as log,
        subprocess.Popen(
            [*command, *(os.path.abspath(a) if isinstance(a, Path) else a for a in arguments)],
            stdin=subprocess.PIPE,  # closed by our end, which ends it too
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            errors="replace",
            env=environment,
        ) as process,
    ):
        assert process.stdout is not None
        said = {}
        for line in process.stdout:
            said = json.loads(line)
            if "bytes" in said:
                tell(
                    f"{file}: the numbers that it stands for are written once, at most"
                    f" {readable_bytes(said['bytes'])}, to {folder}"
                )
        process.wait()
        log.seek(0)
        rest = log.read().decode(errors="replace")
    if "error" in said:
        raise getattr(errors, said["error"])(f"{file} {said['message']}")
    if process.returncode:
        last = (rest.strip().splitlines() or ["without a word"])[-1][:200]
        raise WeightsError(
            f"{file} could not be read: the process that did ended with {process.returncode}"
            f" ({last}); it needs memory for twice the numbers, in float32"
        )
