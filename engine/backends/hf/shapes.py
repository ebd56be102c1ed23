"""The shape that a pass of packs is called with."""

from typing import NamedTuple


class Shape(NamedTuple):
    """What a pass of packs is called with."""

    rows: int
    width: int
    """Positions of a row."""
    outputs: int
    """Positions whose logits are asked for."""

    @property
    def numbers(self) -> int:
        """All that is sent: three numbers for each position, and two for each output."""
        return 3 * self.rows * self.width + 2 * self.outputs
