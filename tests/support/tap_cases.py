"""Recorded steps of vLLM's two model runners, fed to the taps; both return what reached the sink.

For a process of its own, because importing vLLM changes torch.
"""

from types import SimpleNamespace

import numpy as np
import torch

from logitbank.engine.backends.vllm.engine import SamplingParams
from logitbank.engine.backends.vllm.head_inputs import HeadInputs
from logitbank.engine.backends.vllm.tap import ROW, BatchTap, SlotTap, TapTarget, tap_class

# After the engine, which sets what vLLM reads when it is imported.
from vllm.v1.worker.gpu.sample.logits_processor import (  # isort: skip
    build_custom_logits_processors,
    build_custom_logits_processors_params_validator,
)
from vllm.v1.worker.gpu.sample.sampler import Sampler  # isort: skip


def params(row: int | None) -> SamplingParams:
    return SamplingParams(max_tokens=1, extra_args=None if row is None else {ROW: row})


def older_runner() -> list[list[float]]:
    """Three requests join, one leaves, the last one moves into its place, two swap."""
    from vllm.v1.sample.logits_processor import BatchUpdate, MoveDirectionality

    target, seen = TapTarget(HeadInputs()), []
    tap = tap_class(BatchTap, target)(SimpleNamespace(), torch.device("cpu"), False)
    target.sink = lambda rows, logits, *_: seen.append([*rows, *logits[:, 0].tolist()])
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
    target.sink = None
    tap.apply(torch.tensor([[9.0], [9.0]]))
    return seen


def left_to_sample() -> list[list[int]]:
    """Shapes of what the engine goes on with: where all requests are ours, where one is not, and
    where nobody asks."""
    from vllm.v1.sample.logits_processor import BatchUpdate

    target, shapes = TapTarget(HeadInputs()), []
    tap = tap_class(BatchTap, target)(SimpleNamespace(), torch.device("cpu"), False)
    for rows, sink in (((5, 6), True), ((5, None), True), ((5, 6), False)):
        target.sink = (lambda *_: None) if sink else None
        added = [(i, params(row), [1], []) for i, row in enumerate(rows)]
        tap.update_state(BatchUpdate(2, removed=[], added=added, moved=[]))
        shapes.append([*tap.apply(torch.zeros(2, 7)).shape])
    target.sink = None
    return shapes


def newer_runner() -> list[list[float]]:
    """Through vLLM's own loader and sampler: slot 0's prefill of 8 tokens takes two steps, slot 2
    is not ours, and slot 1 is used again; then one token more than was asked for is sampled.
    What the runner says of lengths is padded, as it is for graphs of CUDA."""
    lengths = SimpleNamespace(np=np.array([8, 3, 2, 0], np.int32))
    states = SimpleNamespace(
        device=torch.device("cpu"), max_num_reqs=4, vocab_size=5, all_token_ids=None,
        prompt_len=lengths, prefill_len=lengths, total_len=None,
    )  # fmt: skip
    target = TapTarget(HeadInputs())
    slots = tap_class(SlotTap, target)
    (tap,) = build_custom_logits_processors(SimpleNamespace(), states, False, [slots])
    build_custom_logits_processors_params_validator([slots])(params(0))
    nothing = SimpleNamespace(
        apply=lambda *_: None, apply_temperature=lambda *_: None, apply_min_p=lambda *_: None
    )
    sampler = SimpleNamespace(
        needs_logits_processing=np.zeros(4, bool), logits_processors=[tap],
        thinking_budget_state=nothing, sampling_states=nothing,
    )  # fmt: skip
    seen: list[list[float]] = []
    target.sink = lambda rows, logits, *_: seen.append([*rows, *logits[:, 0].tolist()])

    def ask(slot: int, row: int | None) -> None:
        sampler.needs_logits_processing[slot] = tap.add_request(slot, params(row))

    def step(slots: list[int], lengths: list[int]) -> None:
        of_rows = torch.tensor(slots)
        logits = torch.arange(5.0 * len(slots)).view(-1, 5)
        Sampler.apply_sampling_params(
            sampler, logits, of_rows, of_rows, np.array(slots), torch.tensor(lengths) - 1,
            of_rows, torch.zeros_like(of_rows), np.array([*lengths, 0], np.int32),
            skip_top_k_top_p=True,
        )  # fmt: skip

    ask(0, 40)
    ask(1, 41)
    ask(2, None)
    step([1, 0, 2], [3, 4, 2])
    ask(1, 42)
    step([0, 1], [8, 3])
    step([0, 1], [9, 4])
    target.sink = None
    return seen
