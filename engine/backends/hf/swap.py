"""Weights of one checkpoint put in the place of another's, and what is then in memory."""

import torch

from logitbank.engine.weights.proof import Fingerprint, add, fingerprint
from logitbank.errors import WeightsError


@torch.no_grad()
def copy_weights(source: torch.nn.Module, target: torch.nn.Module, checkpoint: str) -> None:
    """Swap in place: the device holds one model however many checkpoints there are."""
    new, old = dict(source.named_parameters()), dict(target.named_parameters())
    if {n: p.shape for n, p in new.items()} != {n: p.shape for n, p in old.items()}:
        different = sorted(set(new) ^ set(old)) or [n for n in new if new[n].shape != old[n].shape]
        raise WeightsError(
            f"{checkpoint}: its parameters differ from the suite's first checkpoint "
            f"({different[0]}{', …' if len(different) > 1 else ''}); a suite has one architecture"
            " and size"
        )
    for name, parameter in old.items():
        parameter.copy_(new[name])
    for name, buffer in target.named_buffers():
        buffer.copy_(source.get_buffer(name))


def loaded_fingerprint(model: torch.nn.Module, dtype: torch.dtype, *, once: bool) -> Fingerprint:
    """Fingerprint of every parameter, counted under each of its names, or once."""
    total = (0, 0)
    for _, parameter in model.named_parameters(remove_duplicate=once):
        total = add(total, fingerprint(parameter.to(dtype)))
    return total
