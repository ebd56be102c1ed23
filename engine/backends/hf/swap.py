"""Replace the weights of one checkpoint by those of another, and prove what is in memory."""

from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Self

import torch

from logitbank.engine.backends.hf.model import ReadModel, adapter_weights, used_weights
from logitbank.engine.backends.precision import body_dtype
from logitbank.engine.backends.protocol import EngineSettings
from logitbank.engine.weights.digests import ContentDigest
from logitbank.engine.weights.proof import (
    Fingerprint,
    Ledger,
    add,
    fingerprint,
    parameter_names,
)
from logitbank.engine.weights.weights import stream_weights, tensor_shapes
from logitbank.errors import WeightsError
from logitbank.store.format.schema import Json

INSTEAD = "compute its logits with another tool and store them with Bank.deposit"


@torch.no_grad()
def copy_weights(source: torch.nn.Module, target: torch.nn.Module) -> None:
    """Replace the parameters in place, so that the device holds one model only."""
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


def loaded_fingerprint(
    model: torch.nn.Module, dtype: torch.dtype, *, once: bool, stored: Collection[str] = ()
) -> Fingerprint:
    """Fingerprint of every parameter. Shared ones count once per name, or only once if `once`.

    Buffers that are `stored` in the file under their own names also count, such as `beta` of
    Apertus, because logits depend on them.
    """
    buffers = ((n, b) for n, b in model.named_buffers(remove_duplicate=once) if n in stored)
    total = (0, 0)
    for _, tensor in chain(model.named_parameters(remove_duplicate=once), buffers):
        cast = tensor.to(dtype) if tensor.is_floating_point() else tensor
        total = add(total, fingerprint(cast))
    return total


@dataclass(frozen=True, slots=True)
class Account:
    """The expected parameters of a model, tensor by tensor, from a checkpoint's files."""

    settings: EngineSettings
    digest: ContentDigest
    ledger: Ledger
    borrowed: ContentDigest
    """Digest of language adapters from another checkpoint."""
    parameters: Mapping[str, torch.nn.Parameter] = field(default_factory=dict)
    """The model's parameters by the names of the file's tensors; empty until needed."""

    @classmethod
    def from_folder(
        cls,
        folder: Path,
        read: ReadModel,
        settings: EngineSettings,
        digests: Mapping[str, str] = {},
    ) -> Self:
        """Stream all tensors of a checkpoint that was read as a model.

        `digests` are those of tensors that are already known.
        """
        masked = settings.task == "masked"
        tied = bool(getattr(read.model.config, "tie_word_embeddings", False))
        digest, borrowed = ContentDigest(digests), ContentDigest()
        dtype: torch.dtype = getattr(torch, body_dtype(settings.compute_dtype))
        ledger = Ledger(dtype, tied and not masked, next(read.model.parameters()).device)
        stream = digest.watch(stream_weights(folder))
        others = borrowed.watch(adapter_weights(settings))
        used = chain(used_weights(stream, read), others) if masked else stream
        deque(ledger.record(used), maxlen=0)
        return cls(settings, digest, ledger, borrowed)

    @torch.no_grad()
    def replaced(
        self, folder: Path, model: torch.nn.Module, digests: Mapping[str, str] = {}
    ) -> Self | None:
        """Copy another checkpoint's tensors into the model while they are read.

        Returns None if that is not possible: the model splits, fuses or reshapes a tensor.
        """
        parameters = self.parameters or _match_parameters(self.ledger, model)
        shapes = tensor_shapes(folder)
        names = parameter_names(shapes)
        if names != parameters.keys():
            return None
        if any(
            name not in parameters or parameters[name].shape != shapes.get(name) for name in names
        ):
            return None
        digest, ledger = ContentDigest(digests), self.ledger.empty()
        stream = stream_weights(folder)
        for name, tensor in ledger.record(digest.watch(stream)):
            if name in parameters:  # a tied head is streamed twice, and the model has it once
                parameters[name].copy_(tensor)
        return replace(self, digest=digest, ledger=ledger, parameters=parameters)

    def check(self, model: torch.nn.Module, checkpoint: str) -> None:
        """Prove that the model holds exactly these tensors, or raise WeightsError."""
        once, ledger = self.settings.task == "masked", self.ledger
        loaded = loaded_fingerprint(model, ledger.dtype, once=once, stored=ledger.marks)
        ledger.check(loaded, checkpoint=checkpoint, instead=INSTEAD)

    def describe(self) -> dict[str, Json]:
        """Provenance of borrowed tensors."""
        languages = self.settings.adapter_languages
        borrowed: dict[str, Json] = {}
        if languages:
            borrowed = {
                "adapter_languages": [*languages],
                "adapter_weights": self.borrowed.hexdigest(),
            }
        return borrowed


def _match_parameters(ledger: Ledger, model: torch.nn.Module) -> dict[str, torch.nn.Parameter]:
    """The parameter of the model for each tensor of a ledger.

    It has the same name, or is the only other parameter with the same content: newer releases of
    transformers rename parameters. Empty if some parameter equals no tensor.
    """
    parameters = dict(model.named_parameters(remove_duplicate=False))
    by_tensor = {name: parameters[name] for name in ledger.marks if name in parameters}
    matched = {parameter.data_ptr() for parameter in by_tensor.values()}
    others = {p.data_ptr(): p for p in parameters.values() if p.data_ptr() not in matched}
    marks = {pointer: fingerprint(p.to(ledger.dtype)) for pointer, p in others.items()}
    for name in ledger.marks.keys() - by_tensor.keys():
        same = [pointer for pointer, mark in marks.items() if mark == ledger.marks[name]]
        if len(same) != 1:
            return {}
        by_tensor[name] = others.pop(same[0])
        del marks[same[0]]
    return {} if others else by_tensor
