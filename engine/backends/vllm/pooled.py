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
from vllm.model_executor.layers.pooler import Pooler
from vllm.v1.pool.metadata import PoolingMetadata

from logitbank.engine.backends.protocol import EngineSettings, Sink, Tokens
from logitbank.engine.backends.vllm.engine import VllmEngine
from logitbank.engine.backends.vllm.head_inputs import HeadInputs
from logitbank.store.format.schema import Query

_ROWS = "logitbank_rows"
_POSITIONS = "logitbank_positions"
_TASK = "token_classify"
_HEAD_ROWS = 128  # of 50,304 float32 logits: 26 MB
OutputLayer = Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor | None]]


class Request(NamedTuple):
    """A sequence, and the queries that are answered from one pass of it."""

    ids: tuple[int, ...]
    rows: list[int]


def pooling_arguments(settings: EngineSettings) -> dict[str, Any]:
    """Arguments of `vllm.LLM` with which every sequence is run once and whole."""
    return {
        "runner": "pooling",
        "max_model_len": settings.max_length,
        "max_num_batched_tokens": max(settings.max_batch_tokens, settings.max_length),
        "max_num_seqs": 4 * settings.max_sequences,
        "enable_prefix_caching": False,
        "enable_chunked_prefill": False,
    }


class PooledEngine(VllmEngine):
    """Scores any positions; every sequence is run once."""

    def __init__(
        self,
        settings: EngineSettings,
        arguments: dict[str, Any],
        head_inputs: HeadInputs | None = None,
    ) -> None:
        super().__init__(settings, arguments, head_inputs)
        self._pooler: PositionPooler = self._llm.apply_model(lambda model: model.pooler)[0]

    def score(self, queries: Sequence[Query], sink: Sink) -> Tokens:
        missing = set(range(len(queries)))

        def take(
            indices: Sequence[int],
            logits: torch.Tensor,
            hidden: torch.Tensor | None = None,
        ) -> None:
            missing.difference_update(indices)
            sink(indices, logits, hidden)

        requests = self._requests(queries)
        run = self._run(requests, queries, take)
        if missing:  # the prefix cache contains these positions from an earlier call, but no output
            again = [r for r in requests if not missing.isdisjoint(r.rows)]
            run += self._run(again, queries, take, cached=False)
        tokens = sum(len(query.ids) for query in queries)
        return Tokens(tokens, tokens - run)

    def _requests(self, queries: Sequence[Query]) -> list[Request]:
        rows: dict[tuple[int, ...], list[int]] = {}
        for i, query in enumerate(queries):
            rows.setdefault(query.ids, []).append(i)
        return [Request(*item) for item in sorted(rows.items())]

    def _run(
        self, requests: Sequence[Request], queries: Sequence[Query], sink: Sink, cached: bool = True
    ) -> int:
        """Number of tokens that were run; `cached` allows reading the prefix cache."""
        params = []
        for request in requests:
            positions = [queries[i].position for i in request.rows]
            params.append(
                _UnsharedParams(
                    use_activation=False,
                    extra_kwargs={_ROWS: request.rows, _POSITIONS: positions},
                    skip_reading_prefix_cache=not cached,
                )
            )
        prompts = [{"prompt_token_ids": list(request.ids)} for request in requests]
        self._pooler.sink = sink
        try:
            outputs = self._llm.encode(prompts, params, pooling_task=_TASK, use_tqdm=False)
        finally:
            self._pooler.sink = None
        return sum(
            len(request.ids) - output.num_cached_tokens
            for request, output in zip(requests, outputs, strict=True)
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

    def get_supported_tasks(self) -> set[Any]:
        return {_TASK}

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
            assert self.sink is not None, "only `PooledEngine` sends requests with rows"
            part = slice(first, first + _HEAD_ROWS)
            index = torch.tensor(places[part], device=hidden_states.device)
            logits, inputs = self._head[0](hidden_states[index])
            self.sink(rows[part], logits.float(), inputs)
        return [torch.zeros(1, 1)] * len(starts)
