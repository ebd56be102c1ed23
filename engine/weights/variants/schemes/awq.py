"""AWQ (Lin et al. 2023), as AutoAWQ saves it in its version `gemm`.

    W[o, i] = scales[g, o] · (q[i, o] − zeros[g, o]), g = i // group_size

`qweight` (in, out / 8) and `qzeros` (groups, out / 8) hold eight integers of four bits in an int32,
of the outputs 0, 2, 4, 6, 1, 3, 5, 7 from its lowest bits on.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from logitbank.engine.weights.variants.integers import by_group, unpacked
from logitbank.engine.weights.variants.scheme import Scheme, group_size, require

if TYPE_CHECKING:
    import torch

METHOD = "awq"
_PLACES = (0, 4, 1, 5, 2, 6, 3, 7)
"""Where each of eight outputs is."""


def scheme(fields: Mapping[str, Any], path: Path) -> Scheme:
    """How these fields of a config have weights restored."""
    fields = {"bits": fields.get("w_bit"), **fields}
    version = fields.get("version")
    fields["version"] = version.lower() if isinstance(version, str) else version
    size = group_size(fields, path)
    require(fields, {"bits": (4,), "version": (None, "gemm"), "zero_point": (None, True)}, path)

    def ordered(packed: "torch.Tensor") -> "torch.Tensor":
        integers = unpacked(packed, 4)
        return integers.view(len(integers), -1, 8)[:, :, _PLACES].reshape(integers.shape)

    def restored(parts: "Mapping[str, torch.Tensor]") -> "torch.Tensor":
        integers, zeros = ordered(parts["qweight"]).T, ordered(parts["qzeros"]).T
        return by_group(integers, parts["scales"].T, zeros, None, size)

    return Scheme(
        METHOD,
        4,
        "qweight",
        frozenset({"qzeros", "scales"}),
        lambda shapes: (shapes["qweight"][1] * 8, shapes["qweight"][0]),
        restored,
    )
