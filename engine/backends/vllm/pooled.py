"""Logits at chosen positions of a sequence, in one pass, by vLLM's pooling runner.

A request carries rows and positions in its `PoolingParams`. Our pooler gathers the hidden states at
these positions, applies the model's head and passes the logits to the sink.
"""

from collections.abc import Callable, Mapping, Sequence
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
from logitbank.errors import EngineError
from logitbank.store.format.schema import Head, Query

_HEAD = "logitbank_head"
_ROWS = "logitbank_rows"
_POSITIONS = "logitbank_positions"
_SEGMENTS = "compressed_token_type_ids"  # vLLM's own: where segment 1 begins
_TASK = "token_classify"
_HEAD_ROWS = 128  # of 50,304 float32 logits: 26 MB
OutputLayer = Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor | None]]


class Request(NamedTuple):
    """A sequence, and the queries that are answered from one pass of it."""

    ids: tuple[int, ...]
    rows: list[int]
    head: Head = "next_token"
    segments: tuple[int, ...] = ()


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
            *_: object,
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
        by_input: dict[tuple[Head, tuple[int, ...], tuple[int, ...]], list[int]] = {}
        for i, query in enumerate(queries):
            by_input.setdefault((query.head, query.ids, query.segments), []).append(i)
        return [Request(key[1], rows, key[0], key[2]) for key, rows in sorted(by_input.items())]

    def _run(
        self, requests: Sequence[Request], queries: Sequence[Query], sink: Sink, cached: bool = True
    ) -> int:
        """Number of tokens that were run; `cached` allows reading the prefix cache."""
        params = []
        for request in requests:
            extra: dict[str, Any] = {
                _HEAD: request.head,
                _ROWS: request.rows,
                _POSITIONS: [queries[i].position for i in request.rows],
            }
            if any(request.segments):
                extra[_SEGMENTS] = _second_segment(request.segments)
            params.append(
                _OwnParams(
                    use_activation=False, extra_kwargs=extra, skip_reading_prefix_cache=not cached
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


def _second_segment(segments: Sequence[int]) -> int:
    """Where segment 1 begins; vLLM knows no other order than 0 … 0 1 … 1."""
    first = segments.index(1) if 1 in segments else 0
    if any(s != int(i >= first) for i, s in enumerate(segments)):
        raise EngineError("segment ids other than 0 … 0 1 … 1; use --engine transformers")
    return first


class _OwnParams(PoolingParams):  # type: ignore[misc]
    """Parameters of a single request: vLLM would deep-copy them twice, in case they are shared."""

    def clone(self) -> PoolingParams:
        return copy(self)


class PositionPooler(Pooler):  # type: ignore[misc]
    """Applies a head to the requested positions of a batch, a few rows at a time."""

    def __init__(self, heads: Mapping[Head, OutputLayer]) -> None:
        """Each head maps hidden states to logits and, if it knows them, its own inputs."""
        super().__init__()
        self._heads = heads  # modules in a mapping get no second name
        self.sink: Sink | None = None

    def get_supported_tasks(self) -> set[Any]:
        return {_TASK}

    def forward(self, hidden_states: torch.Tensor, pooling_metadata: PoolingMetadata) -> Any:
        cursor = pooling_metadata.get_pooling_cursor()
        # Tokens of the sequences follow each other.
        ends = cursor.seq_lens_cpu.tolist()
        counts = cursor.num_scheduled_tokens_cpu.tolist()
        starts = [*accumulate(counts[:-1], initial=0)]
        for name, head in self._heads.items():
            rows: list[int] = []
            places: list[int] = []
            each = zip(starts, ends, counts, pooling_metadata.pooling_params, strict=True)
            for start, end, count, params in each:
                extra = params.extra_kwargs or {}
                if extra.get(_HEAD) != name:
                    continue
                # The batch contains a part of the sequence; the rest is cached or comes later.
                for row, position in zip(extra[_ROWS], extra[_POSITIONS], strict=True):
                    if end - count <= position < end:
                        rows.append(row)
                        places.append(start + position - (end - count))
            for first in range(0, len(rows), _HEAD_ROWS):
                assert self.sink is not None, "only `PooledEngine` sends requests with rows"
                some = slice(first, first + _HEAD_ROWS)
                chosen = torch.tensor(places[some], device=hidden_states.device)
                logits, multiplied = head(hidden_states[chosen])
                self.sink(rows[some], logits.float(), multiplied)
        nothing = torch.zeros(1, 1)
        return [nothing] * len(starts)
