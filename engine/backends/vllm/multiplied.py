"""What vLLM's output head multiplied last, and what is done to its logits afterwards.

A model of vLLM's calls one `LogitsProcessor` with its head and the chosen hidden states, whatever
it did to these before. A hook there sees the very rows, with the prefix cache as it is.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from vllm.model_executor.layers.logits_processor import LogitsProcessor

from logitbank.engine.backends.torch_precision import in_float32
from logitbank.store.format.heads import Operation, Scale, SoftCap

_last: list[torch.Tensor] = []  # the runner calls the head and the tap one after the other


def watch_head(model: torch.nn.Module) -> tuple[Operation, ...] | None:
    """Note what the model's head multiplies from now on; what is done to its logits.

    None where the model has no such layer, or several.
    """
    layers = [module for module in model.modules() if isinstance(module, LogitsProcessor)]
    if len(layers) != 1:
        return None
    (layer,) = layers
    layer.register_forward_pre_hook(_note, with_kwargs=True)
    cap: tuple[Operation, ...] = () if layer.soft_cap is None else (SoftCap(float(layer.soft_cap)),)
    return (*cap, Scale(float(layer.scale))) if layer.scale != 1 else cap


def heads_in_float32(model: torch.nn.Module) -> None:
    """Let a model's heads multiply in float32, whatever the products of its body are."""
    for layer in model.modules():
        if isinstance(layer, LogitsProcessor):
            layer.forward = partial(_in_float32, layer.forward)


def _in_float32(forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    with in_float32():
        return forward(*args, **kwargs)


def last_multiplied(rows: int) -> torch.Tensor | None:
    """The states (rows, width) behind the logits at hand; None where nothing is watched."""
    states = _last.pop() if _last else None
    return states if states is not None and len(states) == rows else None


def _note(_: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    # (lm_head, hidden_states, …) by vLLM's own signature.
    _last[:] = [args[1] if len(args) > 1 else kwargs["hidden_states"]]
