"""Batches whose sequences are all of one length: what a model is called with, and its masks.

transformers makes a model's mask of one that says where padding is, and asks first whether any is:
a GPU's host waits for the answer, or, with a model's own attention, for a number's copy. Here is no
padding, so a mask is made of the length alone. What comes of it is what transformers makes.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
import transformers
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, eager_mask, sdpa_mask

from logitbank.engine.backends.hf.batches import Input


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
    on_device: dict[str, Any] = {k: v.to(device) for k, v in inputs.items()}
    return on_device | ({"use_cache": False} if causal else {})


def a_language(model: transformers.PreTrainedModel) -> str:
    """A language that the model can be asked in, if it has any."""
    return next(iter(getattr(model.config, "languages", None) or ()), "")


@contextmanager
def no_padding(length: int) -> Iterator[None]:
    """In here, models take each of `length` tokens as one of its sequence; not for two threads.

    What has another length was padded by the model itself, as Longformer does to whole windows: its
    mask is the library's.
    """
    masks = {"sdpa": (_for_pytorch, sdpa_mask), "eager": (_for_own_attention, eager_mask)}
    for name, (ours, theirs) in masks.items():
        ALL_MASK_ATTENTION_FUNCTIONS[name] = partial(_mask, length=length, ours=ours, theirs=theirs)
    try:
        yield
    finally:
        for name in masks:  # what is left is the library's own
            del ALL_MASK_ATTENTION_FUNCTIONS[name]


def _mask(*, length: int, ours: Any, theirs: Any, **asked: Any) -> torch.Tensor | None:
    given = asked.get("attention_mask")
    padded = given is not None and given.shape[-1] != length
    made: torch.Tensor | None = (theirs if padded else ours)(**asked)
    return made


def _for_pytorch(**asked: Any) -> torch.Tensor | None:
    """Which positions each sees; None where PyTorch's attention knows it without a mask."""
    seen: torch.Tensor | None = sdpa_mask(**asked | {"attention_mask": None})
    return seen


def _for_own_attention(*, dtype: torch.dtype = torch.float32, **asked: Any) -> torch.Tensor | None:
    """What a model's own attention adds to its scores: 0, or the lowest number of `dtype`."""
    seen = _for_pytorch(**asked | {"allow_is_causal_skip": False})
    if seen is None:
        return None
    lowest = torch.full(seen.shape, torch.finfo(dtype).min, dtype=dtype, device=seen.device)
    return lowest.masked_fill_(seen, 0)
