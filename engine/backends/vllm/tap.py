"""The logits tap: a logits processor for each of vLLM's two model runners.

A request carries its row in `extra_args["logitbank_row"]`. The tap passes the logits of every row
to the sink and does not change them. Rows of an unfinished prefill are overwritten by the last one
(older runner) or skipped (newer runner).
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
from logitbank.engine.backends.vllm.head_inputs import HeadInputs

ROW = "logitbank_row"


class TapTarget:
    """The sink of an engine's tap; None switches the tap off."""

    def __init__(self, head_inputs: HeadInputs) -> None:
        self.sink: Sink | None = None
        self._head_inputs = head_inputs

    def put(self, rows: Sequence[int], places: Sequence[int], logits: torch.Tensor) -> None:
        """Pass some of a step's logits on, with the inputs of the head."""
        assert self.sink is not None
        hidden = self._head_inputs.take(len(logits))
        if [*places] != [*range(len(logits))]:
            index = torch.tensor(places, device=logits.device)
            logits, hidden = logits[index], None if hidden is None else hidden[index]
        self.sink(rows, logits, hidden)


def tap_class(runner: "type[BatchTap | SlotTap]", target: TapTarget) -> type:
    """The class of a tap for this target; vLLM makes the instance itself."""
    return type(runner.__name__, (runner,), {"target": target})


def _row(params: SamplingParams) -> int | None:
    return None if params.extra_args is None else params.extra_args.get(ROW)


class BatchTap(LogitsProcessor):  # type: ignore[misc]
    """A tap for the older model runner, which reports changes of its batch (the CPU build's)."""

    target: TapTarget

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
        if self.target.sink is not None and self._rows:
            positions, rows = zip(*sorted(self._rows.items()), strict=True)
            self.target.put(rows, positions, logits)
            if len(rows) == len(logits):
                # vLLM would search the highest logit of each row: 13 µs for an unused token.
                return logits[:, :1].contiguous()
        return logits


class SlotTap(SlotLogitsProcessor):  # type: ignore[misc]
    """A tap for the newer model runner, whose rows map to request slots (the default with
    Triton)."""

    target: TapTarget

    def __init__(self, vllm_config: VllmConfig, req_states: LogitsProcRequestState) -> None:
        self._states = req_states
        self._rows: dict[int, int] = {}

    def add_request(self, req_idx: int, sampling_params: SamplingParams) -> bool:
        self._rows.pop(req_idx, None)
        if (row := _row(sampling_params)) is not None:
            self._rows[req_idx] = row
        return req_idx in self._rows

    def apply(self, logits: torch.Tensor, ctx: LogitsContext) -> torch.Tensor:
        if self.target.sink is not None and self._rows:
            # Lengths are exact and each request has one row, because nothing is drafted.
            lengths = self._states.prompt_len.np
            slots = ctx.idx_mapping_np.tolist()
            seen = ctx.seq_lens_upper_bound_np[: len(slots)].tolist()  # it may be padded
            keep = [
                (i, self._rows[slot])
                for i, (slot, length) in enumerate(zip(slots, seen, strict=True))
                if slot in self._rows and length == lengths[slot]
            ]
            if keep:
                positions, rows = zip(*keep, strict=True)
                self.target.put(rows, positions, logits)
        return logits
