"""Inputs of vLLM's output head, and what vLLM does to its logits afterwards.

A model of vLLM calls one `LogitsProcessor` with its head and the chosen hidden states. A hook there
sees exactly the rows that the head multiplies, also with a prefix cache.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from vllm.model_executor.layers.logits_processor import LogitsProcessor

from logitbank.engine.backends.torch_precision import in_float32
from logitbank.store.format.heads import Operation


class HeadInputs:
    """Remembers the last inputs of a model's output head, if it watches one."""

    def __init__(self) -> None:
        self._last: torch.Tensor | None = None

    def watch(self, model: torch.nn.Module) -> tuple[Operation, ...] | None:
        """Watch the model's head, and return the operations on its logits.

        Returns None if the model has no single `LogitsProcessor`.
        """
        layers = [module for module in model.modules() if isinstance(module, LogitsProcessor)]
        if len(layers) != 1:
            return None
        (layer,) = layers
        layer.register_forward_pre_hook(self._note, with_kwargs=True)
        cap, scale = layer.soft_cap, layer.scale
        capped = () if cap is None else (Operation("soft_cap", float(cap)),)
        return (*capped, Operation("scale", float(scale))) if scale != 1 else capped

    def take(self, rows: int) -> torch.Tensor | None:
        """The inputs (rows, width) of the logits that were just computed; None if unknown."""
        states, self._last = self._last, None
        return states if states is not None and len(states) == rows else None

    def _note(self, _: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        # vLLM's signature is (lm_head, hidden_states, …).
        self._last = args[1] if len(args) > 1 else kwargs["hidden_states"]


def heads_in_float32(model: torch.nn.Module) -> None:
    """Make a model's heads multiply in float32, whatever the products of its body use."""
    for layer in model.modules():
        if isinstance(layer, LogitsProcessor):
            layer.forward = partial(_in_float32, layer.forward)


def _in_float32(forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    with in_float32():
        return forward(*args, **kwargs)
