"""Our pooler in the pooling runner of vLLM's newer model runner, which only GPUs take.

For a process of its own, because importing vLLM changes torch. No engine is started.
"""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from logitbank.store.format.schema import Query

QUERIES = [
    *(Query((1,) * 5, 4), Query((1,) * 5, 2)),
    *(Query((2,) * 7, 6), Query((2,) * 7, 1)),
    *(Query((3,) * 9, 2), Query((3,) * 9, 8)),
]


class Batches:
    """Three sequences in slots of the runner: A whole, B with a cached prefix, C in two chunks."""

    def __init__(self, *, one_size: bool) -> None:
        import vllm.v1.worker.gpu.pool.pooling_runner as module
        from vllm.config.pooler import PoolerConfig

        import logitbank.engine.backends.vllm.engine  # noqa: F401 (sets vLLM's variables)
        from logitbank.engine.backends.vllm.positions import TASK, PositionPooler, Request

        self.rows: dict[int, float] = {}
        self.head_sizes: list[int] = []
        pooler = PositionPooler(self._head)
        pooler.one_size = one_size
        pooler.sink = self._take
        module.is_pooling_model = lambda model: True
        config = SimpleNamespace(get_pooling_task=lambda tasks: TASK, pooler_config=PoolerConfig())
        self._runner = module.PoolingRunner(
            SimpleNamespace(pooler=pooler),
            SimpleNamespace(model_config=config, scheduler_config=SimpleNamespace(max_num_seqs=8)),
        )
        requests = {
            "A": Request((1,) * 5, [1, 0]),
            "B": Request((2,) * 7, [3, 2]),
            "C": Request((3,) * 9, [4, 5]),
        }
        self._slots = {"A": 2, "B": 0, "C": 5}
        self._lengths = np.zeros(8, np.int32)
        for name, request in requests.items():
            params = request.params(QUERIES, cached=True)
            params.task = TASK
            self._runner.add_request(name, self._slots[name], params, list(request.ids))
            self._lengths[self._slots[name]] = len(request.ids)

    def _head(self, hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.head_sizes.append(len(hidden))
        return hidden * 10, hidden

    def _take(self, rows: Sequence[int], logits: torch.Tensor, hidden: torch.Tensor) -> None:
        assert torch.equal(logits, hidden * 10)
        self.rows.update(zip(rows, logits[:, 0].tolist(), strict=True))

    def step(
        self, order: Sequence[str], counts: Sequence[int], ends: Sequence[int], states: list[float]
    ) -> list[bool]:
        """Run a batch of `counts` new tokens, padded by three; whether each sequence is done."""
        starts = torch.tensor([0, *np.cumsum(counts)], dtype=torch.int32)
        batch: Any = SimpleNamespace(
            num_tokens=sum(counts),
            num_reqs=len(order),
            idx_mapping_np=np.array([self._slots[name] for name in order]),
            req_ids=order,
            num_scheduled_tokens=np.array(counts, np.int32),
            query_start_loc=torch.cat([starts, starts[-1:].repeat(3)]),
            seq_lens_cpu_upper_bound=torch.tensor([*ends, 0, 0, 0], dtype=torch.int32),
        )
        hidden = torch.tensor([*states, -1.0, -1.0, -1.0])[:, None]
        done = self._runner.pool(hidden, batch, SimpleNamespace(prompt_len=self._prompt_lengths()))
        return [bool(each) for each in done[1]]

    def _prompt_lengths(self) -> Any:
        return SimpleNamespace(np=self._lengths)


def pooled(one_size: bool) -> tuple[list[list[bool]], dict[int, float], list[int]]:
    """Which sequences each of two batches ends, the logit of each row, and sizes of the head."""
    batches = Batches(one_size=one_size)
    first = [24.0, 25, 26, 30, 31, 32, 10, 11, 12, 13, 14]
    done = [
        batches.step(["B", "C", "A"], [3, 3, 5], [7, 3, 5], first),
        batches.step(["C"], [6], [9], [33.0, 34, 35, 36, 37, 38]),
    ]
    return done, batches.rows, batches.head_sizes
