"""The last layer of packed contexts, computed only where its outputs are read."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import torch
import transformers

from logitbank.engine.backends.hf.packs import PACKED

PARTS = (
    "mlp",
    "attention.dense",
    "attn.c_proj",
    "self_attn.q_proj",
    "self_attn.o_proj",
)
"""Parts of a layer whose output at a position depends on their input there alone, and which a later
position does not see. Keys and values are needed everywhere."""


class LastLayer:
    """Makes these parts of a model's last layer compute chosen positions only; the rest is 0.

    Models of a type that is not tested with packed contexts are unchanged.
    """

    def __init__(self, model: transformers.PreTrainedModel) -> None:
        self._chosen: tuple[torch.Tensor, torch.Tensor] | None = None
        for part in last_parts(model):
            part.forward = partial(self._forward, part.forward)

    @contextmanager
    def only(self, rows: torch.Tensor, positions: torch.Tensor) -> Iterator[None]:
        """Compute these positions of a batch only, meanwhile."""
        self._chosen = rows, positions
        try:
            yield
        finally:
            self._chosen = None

    def _forward(
        self, forward: Callable[[torch.Tensor], torch.Tensor], states: torch.Tensor
    ) -> torch.Tensor:
        if self._chosen is None:
            return forward(states)
        some = forward(states[self._chosen])
        whole = some.new_zeros(*states.shape[:2], some.shape[-1])
        whole[self._chosen] = some
        return whole


def last_parts(model: transformers.PreTrainedModel) -> list[torch.nn.Module]:
    """Those of `PARTS` that a model's last layer has."""
    if model.config.model_type not in PACKED:
        return []
    lists = [m for m in model.base_model.children() if isinstance(m, torch.nn.ModuleList)]
    return [part for name, part in lists[-1][-1].named_modules() if name in PARTS]
