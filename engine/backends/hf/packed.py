"""Packed contexts as inputs of a model, and the trial that shows whether a model can be packed."""

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from inspect import signature
from typing import Any, NamedTuple

import numpy as np
import torch

from logitbank.engine.backends.hf.packs import Pack, widest_row
from logitbank.engine.backends.torch_precision import products_dtype
from logitbank.store.format.schema import Query

LONGEST = 4096
"""Tokens of the longest context that is packed. Its attention mask takes 64 MB in float32."""
ALLOWED = 3
"""Largest difference of packed logits, as a multiple of the effect of `last_bits_changed`. Measured
on tiny models of ten architectures and SmolLM2-135M: at most 0.8 in bfloat16 and float16 and 1.3 in
float32, but at least 8.9 without depths and 13 without a mask."""
FLOAT32 = 1000
"""Difference that is always allowed in float32, as a multiple of its precision. On a CPU, sums in
another order differ by at most 7.5 times the precision, a missing mask by 7e5 times."""


def packed_inputs(packs: Sequence[Pack]) -> torch.Tensor:
    """(3, rows, width) int64 on the CPU: ids, depths and ends of the packs, one a row, padded.

    Padding is seen only by itself, so that no softmax is over nothing.
    """
    width = max(len(pack.ids) for pack in packs)
    inputs = np.zeros((3, len(packs), width), np.int64)
    inputs[2] = range(1, width + 1)
    for row, pack in enumerate(packs):
        inputs[:, row, : len(pack.ids)] = pack.ids, pack.depths, pack.ends
    return torch.from_numpy(inputs)


def added_mask(ends: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """(rows, 1, width, width) what is added to attention scores: 0 where a position sees another,
    else the lowest value of `dtype`."""
    place = torch.arange(ends.shape[1], device=ends.device)
    sees = (place[:, None] >= place) & (place[:, None] < ends[:, None])
    mask = torch.full(sees.shape, torch.finfo(dtype).min, dtype=dtype, device=ends.device)
    return mask.masked_fill_(sees, 0)[:, None]


class Trial(NamedTuple):
    """Contexts that show whether a model can be packed."""

    compared: list[Query]
    """Their packed logits are compared with those of each context alone."""
    between: list[Query]
    """Make a row as wide as the widest one: some models, such as GPT-Neo, have an attention window
    that counts places in the row."""


def trial(vocab: int, longest: int, *, most: int | None = None) -> Trial:
    """Contexts that share prefixes in every way: one of `longest` tokens, others of 12.

    In a row the longest comes first and `between` next, so the others are as far as possible from
    the prefix that they share with it. The last two compared contexts have the same suffix after
    different prefixes.
    """
    draw = random.Random(0)

    def drawn(count: int) -> tuple[int, ...]:
        return tuple(draw.randrange(vocab) for _ in range(count))

    length = min(12, longest)
    half = length // 2
    short = length - half
    positions = longest + half + 11 * short  # of what is compared
    spare = max(0, widest_row(longest, most=most) - positions)
    sizes = [longest - half] * (spare // (longest - half)) + [spare % (longest - half)]
    begin, other = sorted(drawn(half) for _ in range(2))
    first, *tails = sorted(drawn(longest - half) for _ in range(len(sizes) + 10))
    fill, ends = tails[: len(sizes)], [tail[:short] for tail in tails[len(sizes) :]]
    alike = [begin + end for end in (first[:short], *ends[:-1])]
    contexts = [begin + first, *alike, other + first[:short], other + ends[-1], begin + ends[-1]]
    between = [begin + tail[:size] for tail, size in zip(fill, sizes, strict=True) if size]
    return Trial(*([Query(ids, len(ids) - 1) for ids in each] for each in (contexts, between)))


@contextmanager
def last_bits_changed(model: Any, dtype: torch.dtype) -> Iterator[None]:
    """Change every number of the embeddings by up to one unit in its last place, meanwhile.

    The effect on logits shows what rounding in another order may do: 20 times the precision in a
    deep model, and twice in a tiny one.
    """
    eps = torch.finfo(products_dtype(dtype)).eps

    def moved(_module: object, _inputs: object, output: torch.Tensor) -> torch.Tensor:
        generator = torch.Generator(output.device).manual_seed(0)
        drawn = torch.rand(output.shape, generator=generator, device=output.device)
        return (output * (1 + eps * (2 * drawn - 1))).to(output.dtype)

    hook = model.get_input_embeddings().register_forward_hook(moved)
    try:
        yield
    finally:
        hook.remove()


def difference(
    packed: torch.Tensor, alone: torch.Tensor, moved: torch.Tensor, dtype: torch.dtype
) -> str:
    """Describe how far logits (trial contexts, outputs) differ; "" if rounding explains it.

    The root mean square of a context's difference, relative to the spread of its logits, may be
    `ALLOWED` times the largest effect of `last_bits_changed` on contexts that are run alone. Below
    float32, rounding may be as large as the effect of a wrong mask. There, the difference must also
    be less than half of the effect of another prefix before the same suffix.
    """
    dtype = products_dtype(dtype)
    error = _root_mean_square(packed - alone)
    if not error.any():
        return ""
    scale = _root_mean_square(alone - alone.mean(dim=1, keepdim=True))
    allowed = scale * ALLOWED * (_root_mean_square(moved - alone) / scale).max()
    if dtype == torch.float32:
        allowed = torch.maximum(allowed, scale * FLOAT32 * torch.finfo(dtype).eps)
    else:
        allowed = torch.minimum(allowed, _root_mean_square(alone[-1] - alone[-2]) / 2)
    if (error <= allowed).all():  # nothing compares with NaN
        return ""
    worst = (error / allowed).argmax()
    return f"logits differ by {error[worst]:.2g} of {scale[worst]:.2g}"


def _root_mean_square(logits: torch.Tensor) -> torch.Tensor:
    return logits.square().mean(dim=-1).sqrt()


def depends_on_length(config: Any) -> bool:
    """Whether a model's positions depend on the length of the whole sequence.

    Examples
    --------
    >>> from transformers import Gemma3TextConfig, LlamaConfig
    >>> depends_on_length(LlamaConfig(rope_parameters={"rope_type": "dynamic", "factor": 2.0}))
    True
    >>> depends_on_length(Gemma3TextConfig())
    False
    """
    text = config.get_text_config()
    scaling = getattr(text, "rope_parameters", None) or getattr(text, "rope_scaling", None) or {}
    of_layers = [each for each in scaling.values() if isinstance(each, dict)]
    kinds = {each.get("rope_type", each.get("type")) for each in (scaling, *of_layers)}
    return not kinds.isdisjoint(("dynamic", "longrope", "su"))


def refusal(model: Any, longest: int) -> str:
    """Why a model's config or call excludes packing; "" if neither does."""
    if "position_ids" not in signature(model.forward).parameters:
        return "its forward has no position_ids"
    if longest > LONGEST:
        return f"a context has {longest:,} tokens, and what each sees takes memory by their square"
    text = model.config.get_text_config()
    if depends_on_length(model.config):
        return "its positions depend on the longest context that is run with them"
    for name in ("sliding_window", "attention_chunk_size"):
        window = getattr(text, name, None)
        if window is not None and window < longest:
            return f"its attention reaches back {window:,} tokens, a context has {longest:,}"
    return ""
