"""What one rank of a model holds of each parameter, so that all ranks together can be proved.

vLLM cuts the large layers and gives each rank a part; norms, some biases, and keys and values of
which there are fewer heads than ranks, several ranks hold alike. The parts that are cut add up to
the file's tensors; of what is held alike, one is counted, and whoever holds anything else adds it.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from vllm.distributed.parallel_state import get_tp_group
from vllm.model_executor.layers.linear import (
    ColumnParallelLinear,
    QKVParallelLinear,
    RowParallelLinear,
)
from vllm.model_executor.layers.vocab_parallel_embedding import VocabParallelEmbedding
from vllm.v1.executor.uniproc_executor import ExecutorWithExternalLauncher

from logitbank.engine.backends.rank import Rank
from logitbank.engine.weights.proof import Fingerprint, Piece, fingerprint, of_all_ranks


class Held:
    """What this rank's model holds after a swap, the parameters that were repacked included."""

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype
        self._packed: dict[str, tuple[Piece, ...]] = {}

    def forget(self) -> None:
        """Forget what was repacked before: another checkpoint is coming."""
        self._packed.clear()

    def watch_packing(self, model: torch.nn.Module) -> None:
        """Fingerprint parameters that the CPU build repacks, at the moment before it does.

        oneDNN's packed copy cannot be read back, and the parameter itself becomes empty.
        """
        for path, module in model.named_modules():
            method = getattr(module, "quant_method", None)
            process = getattr(method, "process_weights_after_loading", None)
            if process is None:
                continue

            def watched(
                layer: torch.nn.Module, *, _path: str = path, _process: Any = process
            ) -> None:
                before = {
                    name: tuple(_pieces(layer, f"{_path}.{name}", parameter))
                    for name, parameter in layer.named_parameters(recurse=False)
                }
                _process(layer)
                for name, parameter in layer.named_parameters(recurse=False):
                    if name in before and parameter.numel() == 0:
                        self._packed[f"{_path}.{name}"] = before[name]

            method.process_weights_after_loading = watched  # type: ignore[union-attr]

    def pieces(self, model: torch.nn.Module) -> list[Piece]:
        """What is held of every parameter, under each of its names.

        The CPU build holds the biases of low-precision layers in float32, rounded all the same.
        """
        held: list[Piece] = []
        for path, module in model.named_modules(remove_duplicate=False):
            for last, parameter in module.named_parameters(recurse=False, remove_duplicate=False):
                name = f"{path}.{last}"
                if parameter.numel():
                    held += _pieces(module, name, parameter.to(self._dtype))
                else:  # repacked; what nobody saw being so is no file's
                    held += self._packed.get(name, (Piece(name, "", (0, 1)),))
        return held


def held_by_all(held: Iterable[Piece]) -> Fingerprint:
    """Fingerprint of the whole model, of what this rank holds and what the others do.

    Every rank has to call it at the same time.
    """
    group = get_tp_group()
    ranks = [[*held]]
    if group.world_size > 1:
        mine, ranks = ranks[0], [[] for _ in range(group.world_size)]
        torch.distributed.all_gather_object(ranks, mine, group=group.cpu_group)
    return of_all_ranks(ranks)


def _pieces(module: torch.nn.Module, name: str, held: torch.Tensor) -> Iterator[Piece]:
    """What this rank holds of a module's parameter; `held` has it in the dtype to be compared."""
    rank = get_tp_group().rank_in_group
    if getattr(module, "tp_size", 1) == 1:
        yield Piece(name, "", fingerprint(held))
    elif isinstance(module, QKVParallelLinear):
        queries = module.num_heads * module.head_size
        yield Piece(name, f"queries {rank}", fingerprint(held[:queries]))
        heads = rank // module.num_kv_head_replicas
        yield Piece(name, f"keys and values {heads}", fingerprint(held[queries:]))
    else:
        cut = isinstance(module, ColumnParallelLinear | VocabParallelEmbedding)
        cut |= isinstance(module, RowParallelLinear) and name.endswith(".weight")
        yield Piece(name, str(rank) if cut else "", fingerprint(held))


class RankExecutor(ExecutorWithExternalLauncher):  # type: ignore[misc]
    """One rank's engine in its own process, as vLLM has it for launchers, but no port is open.

    Ranks meet in a file. Of another name for each, as then the CPU build does not make them spin
    over shared memory: that would outlive a kill, and a rank that waits for a dead one would never
    hear of it.
    """

    def _distributed_args(self) -> tuple[str, int, int]:
        rank = Rank.of()
        return f"file://{rank.place}", rank.index, rank.index
