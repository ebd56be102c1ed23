"""Logits at chosen positions of a sequence, in one pass, by vLLM's pooling runner.

A request carries rows and positions in its `PoolingParams`. Our pooler gathers the hidden states at
these positions, applies the model's head and passes the logits to the sink.
"""

from collections.abc import Callable, Sequence
from copy import copy
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from vllm import PoolingParams
from vllm.config import VllmConfig
from vllm.model_executor.layers.pooler import Pooler
from vllm.v1.pool.metadata import PoolingMetadata

from logitbank.engine.backends.protocol import Sink
from logitbank.engine.backends.vllm.head_inputs import HeadInputs
from logitbank.store.format.schema import Query

TASK = "token_classify"
_ROWS = "logitbank_rows"
_POSITIONS = "logitbank_positions"
_HEAD_ROWS = 128  # of 50,304 float32 logits: 26 MB
OutputLayer = Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor | None]]


class Request(NamedTuple):
    """A sequence, and the queries that are answered from one pass of it."""

    ids: tuple[int, ...]
    rows: list[int]

    def params(self, queries: Sequence[Query], *, cached: bool) -> PoolingParams:
        """vLLM's parameters; `cached` allows reading the prefix cache."""
        positions = [queries[i].position for i in self.rows]
        return _UnsharedParams(
            use_activation=False,
            extra_kwargs={_ROWS: self.rows, _POSITIONS: positions},
            skip_reading_prefix_cache=not cached,
        )


class _UnsharedParams(PoolingParams):  # type: ignore[misc]
    """Parameters of a single request: vLLM would deep-copy them twice, in case they are shared."""

    def clone(self) -> PoolingParams:
        return copy(self)


class PositionPooler(Pooler):  # type: ignore[misc]
    """Applies a head to the requested positions of a batch, a few rows at a time."""

    def __init__(self, head: OutputLayer) -> None:
        """`head` maps hidden states to logits and, if it knows them, its own inputs."""
        super().__init__()
        self._head = [head]  # a module in a list gets no second name
        self.sink: Sink | None = None
        self.one_size = False
        """Whether every product with the head has as many rows, so that a result does not depend
        on their number: vLLM's batch-invariant kernels do not replace every product of a head."""

    def get_supported_tasks(self) -> set[Any]:
        return {TASK}

    def forward(self, hidden_states: torch.Tensor, pooling_metadata: PoolingMetadata) -> Any:
        cursor = pooling_metadata.get_pooling_cursor()
        # Tokens of the sequences follow each other.
        ends = cursor.seq_lens_cpu.tolist()
        counts = cursor.num_scheduled_tokens_cpu.tolist()
        starts = [*accumulate(counts[:-1], initial=0)]
        rows: list[int] = []
        places: list[int] = []
        sequences = zip(starts, ends, counts, pooling_metadata.pooling_params, strict=True)
        for start, end, count, params in sequences:
            extra = params.extra_kwargs or {_ROWS: (), _POSITIONS: ()}
            # The batch contains a part of the sequence; the rest is cached or comes later.
            for row, position in zip(extra[_ROWS], extra[_POSITIONS], strict=True):
                if end - count <= position < end:
                    rows.append(row)
                    places.append(start + position - (end - count))
        for first in range(0, len(rows), _HEAD_ROWS):
            assert self.sink is not None, "only `VllmBackend` sends requests with rows"
            part = slice(first, first + _HEAD_ROWS)
            index = places[part]
            count = len(index)
            if self.one_size:
                index = index + index[:1] * (_HEAD_ROWS - count)
            states = hidden_states[torch.tensor(index, device=hidden_states.device)]
            logits, inputs = self._head[0](states)
            inputs = None if inputs is None else inputs[:count]
            self.sink(rows[part], logits[:count].float(), inputs)
        return [torch.zeros(1, 1)] * len(starts)


def class_with_pooler(known: Any, architectures: list[str], inputs: HeadInputs) -> Any:
    """vLLM's class of a model with a pooler on its own head."""

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
