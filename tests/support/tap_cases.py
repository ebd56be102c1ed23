"""Recorded steps of vLLM's two model runners, fed to the taps; both return what reached the sink.

For a process of its own, because importing vLLM changes torch.
"""

from types import SimpleNamespace

import numpy as np
import torch

from logitbank.engine.backends.vllm.engine import SamplingParams
from logitbank.engine.backends.vllm.tap import ROW, BatchTap, SlotTap, set_sink


def params(row: int | None) -> SamplingParams:
    return SamplingParams(max_tokens=1, extra_args=None if row is None else {ROW: row})


def older_runner() -> list[list[float]]:
    """Three requests join, one leaves, the last one moves into its place, two swap."""
    from vllm.v1.sample.logits_processor import BatchUpdate, MoveDirectionality

    tap, seen = BatchTap(SimpleNamespace(), torch.device("cpu"), False), []
    set_sink(lambda rows, logits: seen.append([*rows, *logits[:, 0].tolist()]))
    added = [(i, params(10 + i), [1], []) for i in range(3)]
    tap.update_state(BatchUpdate(3, removed=[], added=added, moved=[]))
    tap.apply(torch.tensor([[0.0], [1.0], [2.0]]))
    one_way = (2, 0, MoveDirectionality.UNIDIRECTIONAL)
    tap.update_state(BatchUpdate(2, removed=[0], added=[], moved=[one_way]))
    tap.apply(torch.tensor([[3.0], [4.0]]))
    swap = (0, 1, MoveDirectionality.SWAP)
    tap.update_state(BatchUpdate(2, removed=[], added=[], moved=[swap]))
    tap.apply(torch.tensor([[5.0], [6.0]]))
    tap.update_state(None)
    replaced = [(1, params(None), [1], [])]
    tap.update_state(BatchUpdate(2, removed=[], added=replaced, moved=[]))
    tap.apply(torch.tensor([[7.0], [8.0]]))
    set_sink(None)
    tap.apply(torch.tensor([[9.0], [9.0]]))
    return seen


def newer_runner() -> list[list[float]]:
    """Slots 5 and 2 in a batch; slot 5's prefill of 8 tokens takes two steps; 2 is not ours."""
    states = SimpleNamespace(prompt_len=SimpleNamespace(np=np.array([0, 0, 3, 0, 0, 8])))
    tap, seen = SlotTap(SimpleNamespace(), states), []
    set_sink(lambda rows, logits: seen.append([*rows, *logits[:, 0].tolist()]))
    tap.add_request(5, params(40))
    tap.add_request(2, params(41))

    def step(slots: list[int], positions: list[int], values: list[float]) -> None:
        context = SimpleNamespace(
            expanded_idx_mapping=torch.tensor(slots), pos=torch.tensor(positions)
        )
        tap.apply(torch.tensor(values)[:, None], context)

    step([5, 2], [3, 2], [0.0, 1.0])  # slot 5 stands at token 4 of 8: no result yet
    tap.add_request(2, params(None))  # the slot is used again by a request without a row
    step([2, 5], [2, 7], [2.0, 3.0])
    set_sink(None)
    return seen
