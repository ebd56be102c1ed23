"""Read a checkpoint as a plain transformers model, with language adapters of another if asked."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM

from logitbank.engine.backend import EngineSettings
from logitbank.engine.weights import stream_weights
from logitbank.errors import WeightsError

_CLASSES: dict[str, Any] = {"causal": AutoModelForCausalLM, "masked": AutoModelForMaskedLM}


def read_model(folder: Path, settings: EngineSettings) -> transformers.PreTrainedModel:
    """The model of a checkpoint folder, on the CPU, in the settings' dtype.

    Raises
    ------
    WeightsError
        It cannot be loaded, or the other checkpoint's adapters do not fit.
    """
    extra: dict[str, Any] = {}
    try:
        if settings.adapter_languages:
            config = AutoConfig.from_pretrained(folder)
            config.languages = [*config.languages, *settings.adapter_languages]
            extra["config"] = config
        model: transformers.PreTrainedModel = _CLASSES[settings.task].from_pretrained(
            folder,
            dtype=getattr(torch, settings.compute_dtype),
            use_safetensors=not settings.legacy_weights,
            trust_remote_code=settings.trust_remote_code,
            **extra,
        )
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise WeightsError(f"{folder} cannot be loaded: {error}") from error
    _put_adapters(model, settings)
    return model


def stream_model(folder: Path, settings: EngineSettings) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors that `read_model` puts into a model, as the files hold them."""
    yield from stream_weights(folder, legacy_weights=settings.legacy_weights)
    yield from _adapters(settings)


def _adapters(settings: EngineSettings) -> Iterator[tuple[str, torch.Tensor]]:
    """Tensors of the languages that are taken from another checkpoint."""
    if settings.adapter_from is None or not settings.adapter_languages:
        return
    parts = [f".adapter_modules.{language}." for language in settings.adapter_languages]
    for name, tensor in stream_weights(
        Path(settings.adapter_from), legacy_weights=settings.legacy_weights
    ):
        if any(part in name for part in parts):
            yield name, tensor


@torch.no_grad()
def _put_adapters(model: torch.nn.Module, settings: EngineSettings) -> None:
    lacking = {
        name
        for name, _ in model.named_parameters()
        if any(f".adapter_modules.{language}." in name for language in settings.adapter_languages)
    }
    parameters = dict(model.named_parameters())
    for name, tensor in _adapters(settings):
        if name not in parameters or parameters[name].shape != tensor.shape:
            raise WeightsError(
                f"{settings.adapter_from}: its adapter tensor {name} does not fit this model; take "
                "the adapters of a model of the same architecture and size"
            )
        parameters[name].copy_(tensor)
        lacking.discard(name)
    if lacking:
        raise WeightsError(
            f"{settings.adapter_from} lacks {len(lacking)} adapter tensors of "
            f"{', '.join(settings.adapter_languages)}, such as {min(lacking)}"
        )
