"""Which tensors of a base a LoRA adapter changes, and what they become.

    W' = W + scale · B·A, scale = alpha / r, or alpha / √r where it is rank-stabilised

as in Hu et al. 2021, section 4.1, and Kalajdzievski 2023, section 3. Names are those of PEFT's
files.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from logitbank.engine.weights.heads import is_embedding, is_head
from logitbank.engine.weights.variants.adapter_config import AdapterConfig
from logitbank.errors import WeightsError

if TYPE_CHECKING:
    import torch

_NAME = re.compile(
    r"base_model\.model\.(?P<module>[\w.]+?)\.(?P<part>lora_A\.weight|lora_B\.weight|\w+)", re.ASCII
)
Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class LowRank:
    """B·A is added to a matrix."""

    a: str
    """Name of the adapter's tensor (r, in)."""
    b: str
    """Name of the adapter's tensor (out, r)."""
    scale: float
    transposed: bool

    def applied(self, weight: "torch.Tensor", adapter: "Tensors") -> "torch.Tensor":
        """The changed matrix, in float32.

        It is computed in float64, so that its bits do not depend on the order in which a processor
        adds up.
        """
        import torch

        product = adapter(self.b).to(torch.float64) @ adapter(self.a).to(torch.float64)
        product = product.mul_(self.scale)
        return (weight.to(torch.float64) + (product.T if self.transposed else product)).float()


@dataclass(frozen=True, slots=True)
class Replaced:
    """A tensor that was trained whole stands in the place of the base's."""

    name: str

    def applied(self, weight: "torch.Tensor", adapter: "Tensors") -> "torch.Tensor":
        """The adapter's own tensor."""
        return adapter(self.name)


Tensors = Callable[[str], "torch.Tensor"]
"""An adapter's tensors, by name."""
Change = LowRank | Replaced


def planned_changes(
    config: AdapterConfig, adapter: Shapes, base: Shapes, *, tied: bool, folder: Path
) -> dict[str, Change]:
    """What happens to each tensor of the base that the adapter changes, by names and shapes alone.

    `tied` says that the base's output head is its embedding.

    Raises
    ------
    WeightsError
        A tensor of the adapter has a name or shape that fits none of the base's, or half of a pair
        is missing; or the adapter changes one of two tensors that are tied.
    """
    changes: dict[str, Change] = {}
    for name in sorted(adapter):
        match = _NAME.fullmatch(name)
        if match is None:
            raise WeightsError(
                f"{folder}: its tensor {name[:120]!r} is of a kind that is not supported; only"
                " lora_A, lora_B and modules_to_save are: merge the adapter with PEFT and save that"
            )
        module, part = match["module"], match["part"]
        if part == "lora_B.weight":
            _other_half(name, "lora_B", "lora_A", adapter, folder)
            continue
        if part == "lora_A.weight":
            b = _other_half(name, "lora_A", "lora_B", adapter, folder)
            target = _in_base(f"{module}.weight", base, folder)
            change: Change = LowRank(name, b, config.scale_of(module), config.transposed)
            _check_low_rank(config, module, adapter[name], adapter[b], base[target], folder)
        else:
            if not module.endswith(config.saved or ()):
                raise WeightsError(
                    f"{folder}: its tensor {name!r} is neither lora_A nor lora_B, and no name in"
                    " modules_to_save ends so; merge the adapter with PEFT and save that"
                )
            target = _in_base(f"{module}.{part}", base, folder)
            change = Replaced(name)
            if adapter[name] != base[target]:
                raise WeightsError(
                    f"{folder}: its tensor {name} has shape {list(adapter[name])}, the base's"
                    f" {list(base[target])}; give the base that it was trained on with --base"
                )
        if tied and (is_head(target) or is_embedding(target)):
            raise WeightsError(
                f"{folder}: it changes {target}, which the base's config ties to another tensor"
                " (tie_word_embeddings), so that it is not said what the other becomes; merge the"
                " adapter with PEFT and save that"
            )
        changes[target] = change
    if not changes:
        raise WeightsError(f"{folder} holds no tensor of an adapter; save it again with PEFT")
    return changes


def _other_half(name: str, half: str, other: str, adapter: Shapes, folder: Path) -> str:
    found = name.removesuffix(f"{half}.weight") + f"{other}.weight"
    if found not in adapter:
        raise WeightsError(f"{folder} holds {name} without its {other}; save it again with PEFT")
    return found


def _in_base(name: str, base: Shapes, folder: Path) -> str:
    """The base's name of a tensor: files may have one leading part more or less than the model."""
    if name in base:
        return name
    short = name.partition(".")[2]
    others = [each for each in base if each == short or each.partition(".")[2] == name]
    if len(others) != 1:
        raise WeightsError(
            f"{folder} changes {name}, which {'several tensors' if others else 'no tensor'} of the"
            " base may be; give the base that it was trained on with --base"
        )
    return others[0]


def _check_low_rank(
    config: AdapterConfig,
    module: str,
    a: tuple[int, ...],
    b: tuple[int, ...],
    weight: tuple[int, ...],
    folder: Path,
) -> None:
    rank = config.rank_of(module)
    if len(a) != 2 or len(b) != 2 or a[0] != rank or b[1] != rank:
        raise WeightsError(
            f"{folder}: lora_A {list(a)} and lora_B {list(b)} of {module} are not of the rank"
            f" {rank} that its config says; the folder is not whole, or of two adapters"
        )
    product = (b[0], a[1])
    if weight != (product[::-1] if config.transposed else product):
        raise WeightsError(
            f"{folder}: lora_B·lora_A of {module} is {list(product)}"
            f"{' transposed' if config.transposed else ''}, the base's weight {list(weight)}; give"
            " the base that it was trained on with --base, and look at fan_in_fan_out"
        )
