"""Threads of process groups, in a process that has none yet."""

from pathlib import Path

import torch
from torch import distributed

from logitbank.engine.backends.protocol import EngineSettings
from logitbank.engine.backends.vllm.engine import VllmBackend
from logitbank.engine.backends.vllm.groups import one_thread_for_groups


def listening() -> int:
    names = [task.joinpath("comm").read_text() for task in Path("/proc/self/task").iterdir()]
    return sum(name == "gloo_tcp_loop\n" for name in names)


def of_groups(folder: Path) -> list[float]:
    """How many listen to four groups, and once there is a fifth; then what one of the four sums."""
    with one_thread_for_groups():
        store = f"file://{folder}/store"
        distributed.init_process_group("gloo", init_method=store, rank=0, world_size=1)
        groups = [distributed.new_group([0], backend="gloo") for _ in range(3)]
    shared = listening()
    distributed.new_group([0], backend="gloo")
    ones = torch.ones(3)
    distributed.all_reduce(ones, group=groups[1])
    return [shared, listening(), *ones.tolist()]


def of_engine(checkpoint: Path) -> int:
    backend = VllmBackend(checkpoint, EngineSettings("vllm", max_length=16))
    threads = listening()
    backend.close()
    return threads
