"""Weights of one checkpoint put in the place of another's, and what is then in memory."""

from collections import deque
from dataclasses import dataclass, replace
from itertools import chain
from typing import Self

import torch

from logitbank.engine.backends.hf.model import ReadModel, adapter_weights, used_weights
from logitbank.engine.backends.precision import body_dtype
from logitbank.engine.backends.protocol import EngineSettings
from logitbank.engine.weights.digests import ContentDigest
from logitbank.engine.weights.proof import Fingerprint, Ledger, add, fingerprint
from logitbank.engine.weights.variants.whole import CheckpointWeights
from logitbank.errors import WeightsError
from logitbank.store.format.schema import Json


@torch.no_grad()
def copy_weights(source: torch.nn.Module, target: torch.nn.Module) -> None:
    """Swap in place: the device holds one model however many checkpoints there are."""
    new, old = dict(source.named_parameters()), dict(target.named_parameters())
    if {n: p.shape for n, p in new.items()} != {n: p.shape for n, p in old.items()}:
        different = sorted(set(new) ^ set(old)) or [n for n in new if new[n].shape != old[n].shape]
        raise WeightsError(
            "its parameters differ from the suite's first checkpoint "
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


@dataclass(frozen=True, slots=True)
class Account:
    """What a model's parameters ought to be, tensor by tensor, by a checkpoint's files."""

    settings: EngineSettings
    weights: CheckpointWeights
    digest: ContentDigest
    ledger: Ledger
    borrowed: ContentDigest
    """Of language adapters that are another checkpoint's."""

    @classmethod
    def of(cls, weights: CheckpointWeights, read: ReadModel, settings: EngineSettings) -> Self:
        """By streaming all tensors once."""
        masked = settings.task == "masked"
        tied = bool(getattr(read.model.config, "tie_word_embeddings", False))
        digest, borrowed = ContentDigest(), ContentDigest()
        ledger = Ledger(getattr(torch, body_dtype(settings.compute_dtype)), tied and not masked)
        stream = digest.watch(weights.stream())
        others = borrowed.watch(adapter_weights(settings))
        used = chain(used_weights(stream, read), others) if masked else stream
        deque(ledger.record(used), maxlen=0)
        return cls(settings, weights, digest, ledger, borrowed)

    @torch.no_grad()
    def sent_changes(self, weights: CheckpointWeights, model: torch.nn.Module) -> Self | None:
        """Put into the model of this account only the tensors in which another checkpoint differs.

        None where all must be sent, as the two have no base in common or the model holds a tensor
        under another name.
        """
        names, shapes = self.weights.changed | weights.changed, weights.shapes()
        parameters = dict(model.named_parameters(remove_duplicate=False))
        if self.weights.body != weights.body or any(
            name not in parameters or parameters[name].shape != shapes.get(name) for name in names
        ):
            return None
        digest, ledger = self.digest.without(names), self.ledger.without(names)
        for name, tensor in ledger.record(digest.watch(weights.stream(only=names))):
            parameters[name].copy_(tensor)
        return replace(self, weights=weights, digest=digest, ledger=ledger)

    def check(self, model: torch.nn.Module, checkpoint: str) -> None:
        """Show that the model holds this and nothing else, or raise WeightsError."""
        once = self.settings.task == "masked"
        self.ledger.check(
            loaded_fingerprint(model, self.ledger.dtype, once=once), checkpoint=checkpoint
        )

    def describe(self) -> dict[str, Json]:
        """What provenance says of how the tensors came about."""
        languages = self.settings.adapter_languages
        borrowed: dict[str, Json] = {}
        if languages:
            borrowed = {
                "adapter_languages": [*languages],
                "adapter_weights": self.borrowed.hexdigest(),
            }
        return self.weights.describe() | borrowed
