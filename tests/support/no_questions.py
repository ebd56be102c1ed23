"""What would stop a host that runs ahead of its GPU, found without one."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


@contextmanager
def no_questions() -> Iterator[None]:
    """Work on a meta device in here, where no one can ask what a tensor holds, as it holds nothing.
    What is made of the host's memory is refused, as its copy to a GPU would be waited for."""
    with FromTheHost(), FromLists():
        yield


class FromTheHost(TorchDispatchMode):
    """Refuses an operation on a tensor that is not on the device."""

    def __torch_dispatch__(self, func: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
        assert all(t.device.type == "meta" for t in given), f"{func} takes a tensor of the host's"
        return func(*args, **(kwargs or {}))


class FromLists(TorchFunctionMode):
    """Refuses tensors of what Python holds, also where they are but an index."""

    def __torch_function__(self, func: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert func not in (torch.tensor, torch.as_tensor), "what Python holds is copied"
        if func is torch.Tensor.__getitem__:
            index = args[1] if isinstance(args[1], tuple) else (args[1],)
            assert not any(isinstance(part, list) for part in index), "a list is copied"
        return func(*args, **(kwargs or {}))
