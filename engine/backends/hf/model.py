"""Checkpoints as plain transformers models, with language adapters of another on request."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
import transformers
from safetensors import SafetensorError
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForPreTraining,
)

from logitbank.engine.backends.protocol import EngineSettings
from logitbank.engine.weights.proof import Fingerprint, fingerprint, parameter_names
from logitbank.engine.weights.supported import check_prefix
from logitbank.engine.weights.weights import stream_weights, tensor_shapes, weight_files
from logitbank.errors import WeightsError
from logitbank.store.format.heads import Operation
from logitbank.store.format.schema import Head

_CLASSES: dict[str, Any] = {"causal": AutoModelForCausalLM, "masked": AutoModelForMaskedLM}
_OTHER_HEADS = re.compile(
    r"(^|\.)(pooler|seq_relationship|sop_classifier|mask_predictions|lm_predictions|contact_head"
    r"|discriminator_predictions|entity_predictions|classifier|score|qa_outputs)\."
)
"""Tensors of heads that masked checkpoints contain and that are not used."""
_FACTORS = ("logit_scale", "lm_head_multiplier", "output_multiplier")
"""Cohere's, Falcon-H1's and Muse Glimmer's."""
_DIVISOR = "logits_scaling"
"""Granite's, by which HyperCLOVA X multiplies."""
_CAP = "final_logit_softcapping"


class ReadModel(NamedTuple):
    """A model, and the tensors of its file that it does not use."""

    model: transformers.PreTrainedModel
    unexpected: frozenset[str]


def read_model(folder: Path, settings: EngineSettings, dtype: torch.dtype) -> ReadModel:
    """The model of a checkpoint folder, on the CPU, in `dtype`.

    Raises
    ------
    WeightsError
        It cannot be loaded, misses a parameter, has a tensor that the model does not use, or the
        other checkpoint's adapters do not fit.
    """
    extra: dict[str, Any] = {}
    try:
        if settings.adapter_languages:
            config = AutoConfig.from_pretrained(folder)
            config.languages = [*config.languages, *settings.adapter_languages]
            extra["config"] = config
        kind = AutoModelForPreTraining if settings.next_sentence else _CLASSES[settings.task]
        files = weight_files(folder)
        model, report = kind.from_pretrained(
            folder,
            dtype=dtype,
            use_safetensors=files[0].suffix == ".safetensors",
            trust_remote_code=settings.trust_remote_code,
            output_loading_info=True,
            **extra,
        )
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise WeightsError(f"{folder} cannot be loaded: {error}") from error
    _check_missing(report["missing_keys"], folder, settings)
    _check_unused(report["unexpected_keys"], folder, model, settings)
    if getattr(model.config.get_text_config(), "attn_logit_softcapping", None) is not None:
        # transformers' default attention ignores the soft cap without an error.
        model.set_attn_implementation("eager")
    _put_adapters(model, settings)
    return ReadModel(model, frozenset(report["unexpected_keys"]))


def output_logits(output: Any, head: Head) -> torch.Tensor:
    """The logits of one head in a model's output."""
    if head == "next_sentence":
        logits: torch.Tensor = output.seq_relationship_logits
    else:
        logits = output.prediction_logits if "prediction_logits" in output else output.logits
    return logits


def operations(config: Any) -> list[tuple[Operation, ...]]:
    """Possible operations, the most likely first; the last is none.

    Fields are read by name, although the model's class may not use them. A few trial queries show
    which operations are right.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> operations(SimpleNamespace(get_text_config=lambda: SimpleNamespace(logits_scaling=8.0)))
    [(Operation(name='scale', number=0.125),), (Operation(name='scale', number=8.0),), ()]
    """
    text = config.get_text_config()
    factors = [value for name in _FACTORS if (value := getattr(text, name, None))]
    if divisor := getattr(text, _DIVISOR, None):
        factors += [1 / divisor, divisor]
    scales = [(Operation("scale", float(f)),) for f in factors if f != 1]
    cap = getattr(text, _CAP, None)
    caps = [(Operation("soft_cap", float(cap)),)] if cap else []
    return [scale + cap for scale in (*scales, ()) for cap in (*caps, ())]


def _check_missing(names: Iterable[str], folder: Path, settings: EngineSettings) -> None:
    """Refuse a file without a parameter: transformers would initialise it at random."""
    borrowed = [f".adapter_modules.{language}." for language in settings.adapter_languages]
    missing = sorted(n for n in names if not any(part in n for part in borrowed))
    if missing:
        check_prefix(folder, tensor_shapes(folder))
        raise WeightsError(
            f"{folder} misses {len(missing)} parameters of its model, such as {missing[0]}; fetch "
            "the checkpoint again, or correct its config.json"
        )


def _check_unused(names: Iterable[str], folder: Path, model: Any, settings: EngineSettings) -> None:
    """Refuse tensors that the model does not use: they were trained in another model."""
    unused = sorted(parameter_names(names))
    if settings.task == "masked":
        unused = [name for name in unused if not _OTHER_HEADS.search(name)]
    if unused:
        raise WeightsError(
            f"{folder} has {len(unused)} tensors that {type(model).__name__} does not use, such as"
            f" {unused[0]}. Its logits would be those of another model. Use a checkpoint of this"
            " architecture, or save it again without the tensors if they change no logit"
        )


def used_weights(
    weights: Iterable[tuple[str, torch.Tensor]], read: ReadModel
) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors of a file that the model holds, each shared one once.

    Raises
    ------
    WeightsError
        Two names of one parameter have two values.
    """
    model = read.model
    parameters = model.state_dict().keys()
    ignored = [re.compile(p) for p in model._keys_to_ignore_on_load_unexpected or ()]
    tied: dict[str, str] = getattr(model, "all_tied_weights_keys", None) or {}
    seen: dict[str, Fingerprint] = {}
    for name, tensor in weights:
        unused = name in read.unexpected or any(pattern.search(name) for pattern in ignored)
        if name not in parameters and unused:
            continue
        shared = tied.get(name, name)
        if shared in tied.values():
            value, first = fingerprint(tensor), shared not in seen
            if seen.setdefault(shared, value) != value:
                raise WeightsError(
                    f"{name} and {shared} are one parameter of the model and differ in the file; "
                    "correct tie_word_embeddings in config.json, or do not use this checkpoint"
                )
            if not first:
                continue
        yield name, tensor


def adapter_weights(settings: EngineSettings) -> Iterator[tuple[str, torch.Tensor]]:
    """Tensors of the languages whose adapters come from another checkpoint."""
    if settings.adapter_from is None or not settings.adapter_languages:
        return
    parts = [f".adapter_modules.{language}." for language in settings.adapter_languages]
    for name, tensor in stream_weights(Path(settings.adapter_from)):
        if any(part in name for part in parts):
            yield name, tensor


@torch.no_grad()
def _put_adapters(model: torch.nn.Module, settings: EngineSettings) -> None:
    missing = {
        name
        for name, _ in model.named_parameters()
        if any(f".adapter_modules.{language}." in name for language in settings.adapter_languages)
    }
    parameters = dict(model.named_parameters())
    for name, tensor in adapter_weights(settings):
        if name not in parameters or parameters[name].shape != tensor.shape:
            raise WeightsError(
                f"{settings.adapter_from}: its adapter tensor {name} does not fit this model; take "
                "the adapters of a model of the same architecture and size"
            )
        parameters[name].copy_(tensor)
        missing.discard(name)
    if missing:
        raise WeightsError(
            f"{settings.adapter_from} misses {len(missing)} adapter tensors of "
            f"{', '.join(settings.adapter_languages)}, such as {min(missing)}"
        )
