"""Logits at chosen positions of a sequence, in one pass, by vLLM's pooling runner.

A request carries rows and positions in its `PoolingParams`; a pooler of ours gathers the batch's
hidden states there, runs the model's own head on them, and hands the logits to the sink. To be
imported after `vllm_backend`, which sets what vLLM reads from the environment.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any

import torch
from vllm import PoolingParams
from vllm.model_executor.layers.pooler import Pooler
from vllm.v1.pool.metadata import PoolingMetadata

from logitbank.engine.backends.protocol import EngineSettings, Sink, Tokens
from logitbank.engine.backends.vllm.engine import VllmEngine
from logitbank.errors import EngineError
from logitbank.store.format.schema import Head, Query

_HEAD = "logitbank_head"
_ROWS = "logitbank_rows"
_POSITIONS = "logitbank_positions"
_SEGMENTS = "compressed_token_type_ids"  # vLLM's own: where segment 1 begins
_TASK = "token_classify"
_HEAD_ROWS = 128  # of 50,304 float32 logits: 26 MB
_sinks: list[Sink] = []  # the engine builds the model itself, so the sink is handed over here


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

    def score(self, queries: Sequence[Query], sink: Sink) -> Tokens:
        prompts, params = [], []
        run = 0
        order = sorted(range(len(queries)), key=lambda i: _sequence(queries[i]))
        for (head, ids, segments), group in groupby(order, key=lambda i: _sequence(queries[i])):
            rows = list(group)
            extra: dict[str, Any] = {
                _HEAD: head,
                _ROWS: rows,
                _POSITIONS: [queries[i].position for i in rows],
            }
            if any(segments):
                extra[_SEGMENTS] = _second_segment(segments)
            prompts.append({"prompt_token_ids": list(ids)})
            run += len(ids)
            params.append(PoolingParams(use_activation=False, extra_kwargs=extra))
        _sinks[:] = [sink]
        try:
            self._llm.encode(prompts, params, pooling_task=_TASK, use_tqdm=False)
        finally:
            _sinks.clear()
        tokens = sum(len(query.ids) for query in queries)
        return Tokens(tokens, tokens - run)


def _sequence(query: Query) -> tuple[Head, tuple[int, ...], tuple[int, ...]]:
    return query.head, query.ids, query.segments


def _second_segment(segments: Sequence[int]) -> int:
    """Where segment 1 begins; vLLM knows no other order than 0 … 0 1 … 1."""
    first = segments.index(1) if 1 in segments else 0
    if any(s != int(i >= first) for i, s in enumerate(segments)):
        raise EngineError("segment ids other than 0 … 0 1 … 1; use --engine transformers")
    return first


class PositionPooler(Pooler):  # type: ignore[misc]
    """Gathers the asked positions of a batch and runs a head on them, a few rows at a time."""

    def __init__(self, heads: Mapping[Head, Callable[[torch.Tensor], torch.Tensor]]) -> None:
        super().__init__()
        self._heads = heads  # modules in a mapping get no second name

    def get_supported_tasks(self) -> set[Any]:
        return {_TASK}

    def forward(self, hidden_states: torch.Tensor, pooling_metadata: PoolingMetadata) -> Any:
        starts = pooling_metadata.get_pooling_cursor().first_token_indices_gpu.tolist()
        for name, head in self._heads.items():
            rows: list[int] = []
            places: list[int] = []
            for start, params in zip(starts, pooling_metadata.pooling_params, strict=True):
                extra = params.extra_kwargs or {}
                if extra.get(_HEAD) == name:
                    rows += extra[_ROWS]
                    places += [start + position for position in extra[_POSITIONS]]
            for sink in _sinks:
                for first in range(0, len(rows), _HEAD_ROWS):
                    some = slice(first, first + _HEAD_ROWS)
                    chosen = torch.tensor(places[some], device=hidden_states.device)
                    sink(rows[some], head(hidden_states[chosen]).float())
        nothing = torch.zeros(1, 1)
        return [nothing] * len(starts)
