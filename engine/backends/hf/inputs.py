"""What a model of transformers is called with."""

from collections.abc import Sequence
from typing import Any

import torch
import transformers

from logitbank.engine.backends.hf.batches import Input
from logitbank.engine.weights.upload import to_device


def model_inputs(
    model: transformers.PreTrainedModel,
    plain: Sequence[Input],
    *,
    device: torch.device,
    causal: bool,
) -> dict[str, Any]:
    """Sequences of one length and one language, as the model takes them."""
    ids = torch.tensor([s.ids for s in plain])
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if any(s.segments for s in plain):
        none = (0,) * ids.shape[1]
        inputs["token_type_ids"] = torch.tensor([s.segments or none for s in plain])
    if language := plain[0].language:
        index = model.config.languages.index(language)
        inputs["lang_ids"] = torch.full(ids.shape[:1], index)
    on_device: dict[str, Any] = {k: to_device(v, device) for k, v in inputs.items()}
    return on_device | ({"use_cache": False} if causal else {})


def a_language(model: transformers.PreTrainedModel) -> str:
    """A language that the model can be asked in, if it has any."""
    return next(iter(getattr(model.config, "languages", None) or ()), "")
