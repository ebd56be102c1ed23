"""States of a model's layers, as they would come to its head: a logit lens.

What lies between the last block and the head (a norm, a transform, a projection) is not looked for
by name: the model runs it itself, in a pass whose blocks do nothing but hand over given states.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
import transformers

from logitbank.engine.backends.hf.head import AtHead, ClassHead, SelectingHead
from logitbank.engine.backends.torch_precision import products_dtype
from logitbank.errors import EngineError
from logitbank.store.format.schema import Head

_TOGETHER = 4096
"""States that one pass shows to the head."""
_ROUNDINGS = 8
"""A state may differ by so many of its dtype's roundings, as a part of the row's largest entry."""
_RELATIVE = 1e-4
"""And by this in any case, as logits of a head may."""


class Lens:
    """Takes states behind the blocks of a model's own passes, and shows them to its heads."""

    def __init__(
        self,
        model: transformers.PreTrainedModel,
        heads: Mapping[Head, SelectingHead | ClassHead],
        one_token: Callable[[int], dict[str, Any]],
        *,
        layers: Sequence[int],
        each: bool = False,
    ) -> None:
        """`one_token` gives the inputs of so many sequences of one token; `each` state may be
        shown by itself, as sums of products depend on how many there are."""
        self._model, self._heads, self._one_token = model, heads, one_token
        self._layers, self._together = tuple(layers), 1 if each else _TOGETHER
        self._blocks = _blocks(model)
        self._forwards = [block.forward for block in self._blocks]
        self._rest: list[tuple[Any, ...] | None] = [None] * len(self._blocks)
        self._rows = self._positions = torch.empty(0, dtype=torch.long)
        self._kept: dict[int, torch.Tensor] = {}
        self._passed: list[int] = []
        self._stream = torch.empty(0)
        self._broken = ""
        self.proved = False
        """What it shows of the last block is what the heads multiply, with the weights at hand."""
        self._shown: torch.Tensor | None = None
        for at, block in enumerate(self._blocks):
            block.forward = partial(self._through, at)

    @property
    def count(self) -> int:
        """Blocks of the model."""
        return len(self._blocks)

    def select(self, *, rows: torch.Tensor, positions: torch.Tensor) -> None:
        """Which positions of the next pass are looked at."""
        self._rows, self._positions = rows, positions
        self._kept, self._passed, self._broken = {}, [], ""

    def seen(self, head: Head) -> torch.Tensor:
        """What a head would multiply after each layer: (n, layers, width) float32."""
        return self._seen(head, self._layers)

    def refusal(self, head: Head, passes: Iterable[torch.Tensor | None]) -> str:
        """Why states of layers cannot be seen through a head; "" where they can.

        `passes` runs the model again and again, and gives what the head multiplied, (n, width).
        """
        try:
            return next(filter(None, (self._refusal(head, hidden) for hidden in passes)), "")
        except Exception as error:  # an architecture's own code may raise anything
            return f"{type(error).__name__}: {error}".splitlines()[0]

    def _refusal(self, head: Head, hidden: torch.Tensor | None) -> str:
        """Why not what the last pass gave, where the head multiplied `hidden`."""
        last = len(self._blocks)
        if not last:
            return "it has no list of as many blocks as its config has layers"
        if self._broken:
            return self._broken
        if self._passed != [*range(last)]:
            return f"of its {last} blocks {len(self._passed)} ran"
        if hidden is None:
            return "its head multiplies something else than a state"
        seen = self._seen(head, [last])[:, 0]
        if seen.shape != hidden.shape:
            return f"its head multiplies states of shape {(*hidden.shape,)}, not {(*seen.shape,)}"
        relative = max(_RELATIVE, _ROUNDINGS * torch.finfo(products_dtype(self._stream.dtype)).eps)
        limit = relative * hidden.abs().amax(dim=1, keepdim=True).clamp(min=1)
        difference = (seen - hidden).abs()
        if not (difference <= limit).all():
            return (
                "what its last block gives is not what its head multiplies: they differ by"
                f" {difference.max().item():.3g}"
            )
        return ""

    def _through(self, at: int, *args: Any, **kwargs: Any) -> Any:
        """A block of the model: its own, or in a pass that shows states one that hands them on."""
        if self._shown is not None:
            rest = self._rest[at]
            return self._shown if rest is None else (self._shown, *rest)
        stream = args[0] if args else kwargs["hidden_states"]
        if at and stream is not self._stream and not torch.equal(stream, self._stream):
            self._broken = f"what enters its block {at + 1} is not what came out of block {at}"
        if not at:
            self._keep(0, stream)
        output = self._forwards[at](*args, **kwargs)
        whole = isinstance(output, torch.Tensor)
        self._stream = output if whole else output[0]
        self._rest[at] = None if whole else tuple(output[1:])
        self._passed.append(at)
        self._keep(at + 1, self._stream)
        return output

    def _keep(self, layer: int, stream: torch.Tensor) -> None:
        if layer in self._layers or layer == len(self._blocks):
            self._kept[layer] = stream[self._rows, self._positions]

    def _seen(self, head: Head, layers: Sequence[int]) -> torch.Tensor:
        states = torch.stack([self._kept[layer] for layer in layers], dim=1)
        parts = torch.split(states.flatten(0, 1), self._together)
        shown = torch.cat([self._show(part, self._heads[head]) for part in parts])
        return shown.view(len(states), len(layers), -1)

    def _show(self, states: torch.Tensor, head: SelectingHead | ClassHead) -> torch.Tensor:
        """What a head multiplies where the last block gives these states (n, width)."""
        count, none = len(states), slice(0, None if isinstance(head, SelectingHead) else 0)
        for each in self._heads.values():
            if isinstance(each, SelectingHead):
                at = torch.arange(count, device=states.device)[none]
                each.select(rows=at, positions=torch.zeros_like(at))
        head.hidden, head.stops, self._shown = None, True, states[:, None]
        try:
            self._model(**self._one_token(count))
        except AtHead:
            pass
        finally:
            head.stops, self._shown = False, None
        if head.hidden is None:
            raise EngineError("the head did not run; report this architecture")
        return head.hidden


def _blocks(model: transformers.PreTrainedModel) -> list[torch.nn.Module]:
    """The blocks of a model, outermost of what lies in lists as long as it has layers."""
    count = getattr(model.config.get_text_config(), "num_hidden_layers", None)
    lists = (m for m in model.modules() if isinstance(m, torch.nn.ModuleList))
    return next(([*found] for found in lists if len(found) == count), [])
