"""What a model of transformers is called with."""

from collections.abc import Sequence
from typing import Any, cast

import torch
import transformers

from logitbank.engine.backends.hf.batches import Input
from logitbank.engine.backends.hf.packed import added_mask, packed_inputs
from logitbank.engine.backends.hf.packs import Pack
from logitbank.engine.weights.upload import to_device


def model_inputs(
    model: transformers.PreTrainedModel,
    sequences: Sequence[Input] | Sequence[Pack],
    *,
    device: torch.device,
    dtype: torch.dtype,
    causal: bool,
) -> dict[str, Any]:
    """Packs, or sequences of one length and one language, as the model takes them."""
    if isinstance(sequences[0], Pack):
        ids, depths, ends = (
            to_device(each, device) for each in packed_inputs(cast(Sequence[Pack], sequences))
        )
        mask = added_mask(ends, dtype)
        shown = {"input_ids": ids, "position_ids": depths, "attention_mask": mask}
        return shown | {"use_cache": False}
    plain = cast(Sequence[Input], sequences)
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
