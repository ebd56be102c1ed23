"""Causal models on vLLM, scored at many positions of a sequence: vLLM's model class with a pooler.

Only contexts that no other context continues are run; their prefixes are read on the way.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from vllm import ModelRegistry
from vllm.config import VllmConfig
from vllm.engine.arg_utils import EngineArgs

from logitbank.engine.backends.contexts import leaf_contexts
from logitbank.engine.backends.protocol import EngineSettings
from logitbank.engine.backends.vllm.engine import (
    cache_arguments,
    common_arguments,
)
from logitbank.engine.backends.vllm.head_inputs import HeadInputs
from logitbank.engine.backends.vllm.pooled import (
    PooledEngine,
    PositionPooler,
    Request,
    pooling_arguments,
)
from logitbank.store.format.schema import Json, Query

_CLASS = "LogitbankPositions"


class VllmPositionsBackend(PooledEngine):
    """Any causal architecture that vLLM generates with; its own head, at any positions."""

    def __init__(self, folder: Path, settings: EngineSettings) -> None:
        arguments = common_arguments(folder, settings)
        head = {"head_dtype": "float32"}
        config = EngineArgs(**arguments, hf_overrides=head).create_model_config()
        known, _ = ModelRegistry.resolve_model_cls(config.architectures, config)
        inputs = HeadInputs()
        ModelRegistry.register_model(_CLASS, _pooled(known, config.architectures, inputs))
        arguments |= pooling_arguments(settings)
        if config.attn_type == "decoder":  # not recurrent
            arguments |= cache_arguments(settings)
        arguments["hf_overrides"] = head | {"architectures": [_CLASS]}
        super().__init__(settings, arguments, inputs)

    def _requests(self, queries: Sequence[Query]) -> list[Request]:
        """Contexts in order, so that the prefix that each shares with the one before is cached.

        A query belongs to the first context that it is a prefix of, so its position is only cached
        if an earlier call ran it.
        """
        return [Request(context, rows) for context, rows in leaf_contexts(queries)]

    def describe(self) -> dict[str, Json]:
        cache = self._llm.llm_engine.vllm_config.cache_config
        return super().describe() | {
            "head_dtype": str(self._model_config.head_dtype).removeprefix("torch."),
            **({"block_size": cache.block_size} if cache.enable_prefix_caching else {}),
        }


def _pooled(known: Any, architectures: list[str], inputs: HeadInputs) -> Any:
    """The model class with a pooler on its own head."""

    class Positions(known):  # type: ignore[misc]
        is_pooling_model = True

        def __init__(self, *, vllm_config: VllmConfig, prefix: str = "") -> None:
            # vLLM finds the names of a checkpoint's tensors by its architecture.
            vllm_config.model_config.hf_config.architectures = architectures
            super().__init__(vllm_config=vllm_config, prefix=prefix)
            self.pooler = PositionPooler(self._outputs)

        def _outputs(self, states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
            return self.compute_logits(states), inputs.take(len(states))

    return Positions
