"""Threads of process groups, in a process that has none yet."""

import os
import sys
from pathlib import Path

import torch
from torch import distributed

from logitbank.engine.backends.protocol import EngineSettings
from logitbank.engine.backends.vllm.engine import VllmBackend
from logitbank.engine.backends.vllm.groups import one_thread_for_groups


def listening() -> int:
    names = [task.joinpath("comm").read_text() for task in Path("/proc/self/task").iterdir()]
    return sum(name == "gloo_tcp_loop\n" for name in names)


def addresses() -> set[str]:
    """Where this process listens for connections, in the kernel's hexadecimal."""
    own = {os.readlink(handle) for handle in Path("/proc/self/fd").iterdir() if handle.is_symlink()}
    lines = [
        line.split()
        for table in ("tcp", "tcp6")
        for line in Path(f"/proc/self/net/{table}").read_text().splitlines()[1:]
    ]
    listens = "0A"
    return {
        line[1].partition(":")[0]
        for line in lines
        if line[3] == listens and f"socket:[{line[9]}]" in own
    }


def of_groups(folder: Path) -> list[float]:
    """How many listen to four groups, and once there is a fifth; then what one of the four sums."""
    with one_thread_for_groups():
        store = f"file://{folder}/store"
        distributed.init_process_group("gloo", init_method=store, rank=0, world_size=1)
        groups = [distributed.new_group([0], backend="gloo") for _ in range(3)]
    shared = listening()
    assert addresses() == {"0100007F"}, "127.0.0.1"
    distributed.new_group([0], backend="gloo")
    ones = torch.ones(3)
    distributed.all_reduce(ones, group=groups[1])
    return [shared, listening(), *ones.tolist()]


def beside_a_package(checkpoint: Path, installed: Path) -> str:
    """Why an engine is not opened where a package is installed in a folder."""
    sys.path.insert(0, str(installed))
    try:
        VllmBackend(checkpoint, EngineSettings("vllm", max_length=16))
    except RuntimeError as error:
        return str(error)
    return "opened"
