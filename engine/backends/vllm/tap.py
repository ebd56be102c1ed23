"""The logits tap: vLLM's own extension point, for both of its model runners.

A request carries its row in `extra_args["logitbank_row"]`; the tap hands every row's logits to the
sink and changes none of them. Rows of a prefill that is not finished are overwritten by the last
one (older runner) or skipped (newer runner).
"""

from collections.abc import Sequence

import torch
from vllm.config import VllmConfig
from vllm.sampling_params import SamplingParams
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor, MoveDirectionality
from vllm.v1.worker.gpu.sample.logits_processor import (
    LogitsContext,
    LogitsProcRequestState,
)
from vllm.v1.worker.gpu.sample.logits_processor import (
    LogitsProcessor as SlotLogitsProcessor,
)

from logitbank.engine.backends.protocol import Sink
from logitbank.engine.backends.vllm.multiplied import last_multiplied

ROW = "logitbank_row"
_sinks: list[Sink] = []  # the engine builds the tap itself, so the sink is handed over here


def set_sink(sink: Sink | None) -> None:
    """Where logits go from now on; None switches the tap off."""
    _sinks[:] = [] if sink is None else [sink]


def _hand_over(rows: Sequence[int], places: Sequence[int], logits: torch.Tensor) -> None:
    """Some of a step's logits, with what was multiplied to make them.

    On a GPU always a copy: what the runner does to its own afterwards does not wait for the sink.
    """
    hidden = last_multiplied(len(logits))
    if logits.device.type != "cpu" or [*places] != [*range(len(logits))]:
        index = torch.tensor(places, device=logits.device)
        logits, hidden = logits[index], None if hidden is None else hidden[index]
    _sinks[0](rows, logits, hidden)


def _row(params: SamplingParams) -> int | None:
    return None if params.extra_args is None else params.extra_args.get(ROW)


class BatchTap(LogitsProcessor):  # type: ignore[misc]
    """A tap for the model runner whose batch rows are announced by updates (the CPU build's)."""

    def __init__(self, vllm_config: VllmConfig, device: torch.device, is_pin_memory: bool) -> None:
        self._rows: dict[int, int] = {}

    def is_argmax_invariant(self) -> bool:
        return False  # invariant processors are skipped for greedy requests

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        if batch_update is None:
            return
        for index in batch_update.removed:
            self._rows.pop(index, None)
        for index, params, _, _ in batch_update.added:
            self._rows.pop(index, None)
            if (row := _row(params)) is not None:
                self._rows[index] = row
        for source, target, direction in batch_update.moved:
            moved, replaced = self._rows.pop(source, None), self._rows.pop(target, None)
            if moved is not None:
                self._rows[target] = moved
            if direction is MoveDirectionality.SWAP and replaced is not None:
                self._rows[source] = replaced

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        if _sinks and self._rows:
            positions, rows = zip(*sorted(self._rows.items()), strict=True)
            _hand_over(rows, positions, logits)
            if len(rows) == len(logits):
                # The engine would look for the highest logit of each row: 13 µs for a token that
                # nobody reads.
                return logits[:, :1].contiguous()
        return logits


class SlotTap(SlotLogitsProcessor):  # type: ignore[misc]
    """A tap for the model runner whose rows map to request slots (the default where Triton
    exists)."""

    def __init__(self, vllm_config: VllmConfig, req_states: LogitsProcRequestState) -> None:
        self._states = req_states
        self._rows: dict[int, int] = {}

    def add_request(self, req_idx: int, sampling_params: SamplingParams) -> bool:
        self._rows.pop(req_idx, None)
        if (row := _row(sampling_params)) is not None:
            self._rows[req_idx] = row
        return req_idx in self._rows

    def apply(self, logits: torch.Tensor, ctx: LogitsContext) -> torch.Tensor:
        if _sinks and self._rows:
            # Of what the runner has on the host, so that nothing waits for the device. Lengths are
            # exact and each request has one row, as nothing is drafted.
            lengths = self._states.prompt_len.np
            slots = ctx.idx_mapping_np.tolist()
            seen = ctx.seq_lens_upper_bound_np[: len(slots)].tolist()  # the runner may pad it
            keep = [
                (i, self._rows[slot])
                for i, (slot, length) in enumerate(zip(slots, seen, strict=True))
                if slot in self._rows and length == lengths[slot]
            ]
            if keep:
                positions, rows = zip(*keep, strict=True)
                _hand_over(rows, positions, logits)
        return logits
