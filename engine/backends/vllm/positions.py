"""Causal models on vLLM, scored at many positions of a sequence: its own model class, pooled.

To be imported after `vllm_backend`, which sets what vLLM reads from the environment.
"""

from pathlib import Path
from typing import Any

from vllm import ModelRegistry
from vllm.config import VllmConfig
from vllm.engine.arg_utils import EngineArgs

from logitbank.engine.backends.protocol import EngineSettings
from logitbank.engine.backends.vllm.engine import common_arguments, cpu_cache_arguments
from logitbank.engine.backends.vllm.pooled import PooledEngine, PositionPooler, pooling_arguments
from logitbank.store.format.schema import Json

_CLASS = "LogitbankPositions"


class VllmPositionsBackend(PooledEngine):
    """Any causal architecture that vLLM generates with; its own head, at any positions."""

    def __init__(self, folder: Path, settings: EngineSettings) -> None:
        arguments = common_arguments(folder, settings)
        head = {"head_dtype": "float32"}
        config = EngineArgs(**arguments, hf_overrides=head).create_model_config()
        known, _ = ModelRegistry.resolve_model_cls(config.architectures, config)
        ModelRegistry.register_model(_CLASS, _pooled(known, config.architectures))
        arguments |= pooling_arguments(settings) | cpu_cache_arguments(folder, settings)
        arguments["hf_overrides"] = head | {"architectures": [_CLASS]}
        super().__init__(settings, arguments)

    def describe(self) -> dict[str, Json]:
        return super().describe() | {
            "head_dtype": str(self._model_config.head_dtype).removeprefix("torch.")
        }


def _pooled(known: Any, architectures: list[str]) -> Any:
    """The model class with a pooler on its own head."""

    class Positions(known):  # type: ignore[misc]
        is_pooling_model = True

        def __init__(self, *, vllm_config: VllmConfig, prefix: str = "") -> None:
            # vLLM finds the names of a checkpoint's tensors by its architecture.
            vllm_config.model_config.hf_config.architectures = architectures
            super().__init__(vllm_config=vllm_config, prefix=prefix)
            self.pooler = PositionPooler({"next_token": self.compute_logits})

    return Positions
