"""How much of the disk downloads may take, and who uses what of it."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from logitbank.engine.hub.blobs import Blob, Claim
from logitbank.errors import UsageError
from logitbank.wording import readable_bytes

_UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


def parse_bytes(size: str | int) -> int:
    """A number of bytes, from a number or from text with B, KB, MB, GB or TB (powers of 1000).

    >>> parse_bytes("1.5 GB")
    1500000000

    Raises
    ------
    UsageError
        It is neither, or not above 0.
    """
    match = re.fullmatch(r"(\d{1,15}(?:\.\d{1,9})?) ?([KMGT]?B)?", str(size).strip().upper())
    number = int(float(match[1]) * _UNITS[match[2] or "B"]) if match else 0
    if number <= 0:
        raise UsageError(f"size {str(size)!r} is unknown; write one such as 500MB, 100GB or 2TB")
    return number


class Room:
    """A budget of bytes, the blobs that take part of it, and the checkpoints that use those.

    Not to be used by two threads at once, but for `learn`.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.snapshots: dict[int, Path] = {}
        """Folders of the checkpoints that were fetched."""
        self._blobs: dict[int, tuple[Blob, ...]] = {}
        self._looked_for: set[int] = set()
        self._claims: dict[Path, Claim] = {}
        self._released: set[Path] = set()

    @property
    def taken(self) -> int:
        """Bytes in use, or about to be."""
        return sum(claim.blob.size for claim in self._claims.values())

    def knows(self, index: int) -> bool:
        return index in self._blobs

    def look(self, index: int, size: Callable[[], None]) -> Callable[[], None] | None:
        """`size`, for the first that asks; None while that is at it."""
        if index in self._looked_for:
            return None
        self._looked_for.add(index)
        return size

    def forget(self, index: int) -> None:
        """Look again when it is asked for again."""
        self._looked_for.discard(index)

    def learn(self, index: int, blobs: Sequence[Blob], *, what: str = "") -> None:
        """What a checkpoint consists of.

        Raises
        ------
        UsageError
            It is larger than the budget.
        """
        needed = sum(blob.size for blob in {b.path: b for b in blobs if b.evictable}.values())
        if needed > self.limit:
            raise UsageError(
                f"the weights of {what} take {readable_bytes(needed)} and --disk-budget is "
                f"{readable_bytes(self.limit)}; give at least {readable_bytes(needed)}, or twice "
                "that to download the next checkpoint while one runs"
            )
        self._blobs[index] = tuple(blobs)

    def take(self, index: int) -> bool:
        """Set aside what a checkpoint needs; False, and nothing set aside, where that is too much.

        What the user has is not counted.
        """
        blobs = [b for b in self._blobs[index] if b.path in self._claims or b.evictable]
        new = {blob.path: blob for blob in blobs if blob.path not in self._claims}
        if self.taken + sum(blob.size for blob in new.values()) > self.limit:
            return False
        for path, blob in new.items():
            self._claims[path] = Claim(blob)
        for blob in blobs:
            self._claims[blob.path].users.add(index)
        return True

    def release(self, index: int) -> None:
        """Evict what only this checkpoint used."""
        if index in self.snapshots:
            self._released.add(self.snapshots[index])
        for path, claim in list(self._claims.items()):
            claim.users.discard(index)
            if not claim.users:
                claim.evict(self._released)
                del self._claims[path]

    def close(self) -> None:
        """Leave everything where it is, for the next run to use or evict."""
        for claim in self._claims.values():
            claim.release()
        self._claims.clear()
