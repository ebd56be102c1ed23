"""GPTQ (Frantar et al. 2022), as AutoGPTQ and GPTQModel save it.

    W[o, i] = scales[g, o] · (q[i, o] − zeros[g, o]), g = g_idx[i]

`qweight` (in / n, out) and `qzeros` (groups, out / n) hold n = 32 / bits integers in an int32, the
first in its lowest bits. The first format stores zeros less one, `gptq_v2` as they are.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from logitbank.engine.weights.variants.integers import by_group, unpacked
from logitbank.engine.weights.variants.scheme import Scheme, group_size, refused, require
from logitbank.errors import WeightsError

if TYPE_CHECKING:
    import torch

METHOD = "gptq"


def scheme(fields: Mapping[str, Any], path: Path) -> Scheme:
    """How these fields of a config have weights restored."""
    require(fields, {"bits": (2, 4, 8), "checkpoint_format": (None, "gptq", "gptq_v2")}, path)
    for name in ("dynamic", "is_marlin_format", "use_marlin_format"):
        if fields.get(name):
            raise refused(path, METHOD, f"with {name}, which is not supported")
    size = group_size(fields, path)
    bits, less = int(fields["bits"]), int(fields.get("checkpoint_format") != "gptq_v2")
    each = 32 // bits

    def restored(parts: "Mapping[str, torch.Tensor]") -> "torch.Tensor":
        integers = unpacked(parts["qweight"].T, bits)  # (out, in)
        zeros = unpacked(parts["qzeros"], bits)  # (groups, out)
        if less and bool((zeros == 2**bits - 1).any()):
            # 0 less one: some mask it, which makes 0 of it again, and others add one.
            raise WeightsError(
                f"a zero is stored as {2**bits - 1}, which programs read differently in this"
                " format; save the checkpoint in the format gptq_v2"
            )
        scales, groups = parts["scales"], parts.get("g_idx")
        return by_group(integers, scales.T, zeros.T + less, groups, size)

    return Scheme(
        METHOD,
        bits,
        "qweight",
        frozenset({"qzeros", "scales"}),
        lambda shapes: (shapes["qweight"][1], shapes["qweight"][0] * each),
        restored,
        optional=frozenset({"g_idx"}),
    )
