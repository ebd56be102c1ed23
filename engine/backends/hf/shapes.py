"""A few sizes that batches of packs are padded to. Pure arithmetic.

Where widths are multiples of 16, PyTorch's attention takes a mask as it is; others it copies into
such a one in every layer.
"""

from typing import Literal, NamedTuple

Padding = Literal["none", "widths"]
"""What is padded: nothing on a CPU, widths on a GPU."""
_WIDTHS = 16


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

    def padded(self, padding: Padding) -> "Shape":
        """The shape that it is run in.

        Examples
        --------
        >>> Shape(53, 249, 1013).padded("widths")
        Shape(rows=53, width=256, outputs=1013)
        """
        if padding == "none":
            return self
        width = _WIDTHS * next_size(-(-self.width // _WIDTHS))
        return self._replace(width=width)


def next_size(least: int) -> int:
    """The smallest size that is not less: four of them from each power of two to the next.

    Examples
    --------
    >>> [next_size(n) for n in (1, 5, 8, 9, 15, 16, 17, 33)]
    [1, 5, 8, 10, 16, 16, 20, 40]
    """
    step = 1 << max(0, least.bit_length() - 3)
    return -(-least // step) * step
