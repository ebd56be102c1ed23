"""Files that appear whole or not at all, outside banks: results, pages, caches, local copies."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole_file(path: Path, *, is_shared: bool = True) -> Iterator[Path]:
    """A hidden file to write beside `path`, which takes its place when the block ends.

    After an error it is removed, and `path` stays unchanged. Without `is_shared`, the caller holds
    a lock, and the file of a killed process is written again. Files of banks are also durable: see
    `logitbank.store.files.objects`.
    """
    part = path.with_name(f".{path.name}{f'.{os.getpid()}' if is_shared else ''}.part")
    try:
        yield part
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
