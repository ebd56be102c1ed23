"""Rows of packed contexts as a model's inputs, and whether a model does with them as it should."""

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from inspect import signature
from typing import Any, NamedTuple, Self

import numpy as np
import torch

from logitbank.engine.backends.hf.packs import Pack, widest_row
from logitbank.engine.backends.hf.shapes import Shape
from logitbank.engine.backends.torch_precision import products_dtype
from logitbank.store.format.schema import Query

LONGEST = 4096
"""Tokens of the longest context that is packed: what each position of a row sees takes 64 MB of
float32 then."""
ALLOWED = 3
"""How many times as far packed logits may be off as the last places of embeddings move them: 0.8 at
most in bfloat16 and float16, of tiny models of ten architectures and of SmolLM2-135M, and 1.3 in
float32; without depths 8.9 and more, without a mask 13."""
FLOAT32 = 1000
"""How many times its precision they may be off in float32 in any case: sums in another order move
logits by 7.5 times it at most on a CPU, in ways of a GPU perhaps further; a lost mask by 7e5."""


class PackedInputs(NamedTuple):
    """What a pass of packs is called with, int64, padded to its shape."""

    ids: torch.Tensor
    """(rows, width)."""
    depths: torch.Tensor
    """(rows, width)."""
    ends: torch.Tensor
    """(rows, width). Padding is seen by itself alone, and sees itself, so that no softmax is of
    nothing."""
    rows: torch.Tensor
    """(outputs,): the row of each output. Those beyond what is asked are of the first position."""
    positions: torch.Tensor
    """(outputs,)."""

    @classmethod
    def of(cls, sent: torch.Tensor, shape: Shape) -> Self:
        """Views of the numbers that `put_packs` has put one after the other."""
        places = 3 * shape.rows * shape.width
        ids, depths, ends = sent[:places].view(3, shape.rows, shape.width)
        rows, positions = sent[places:].view(2, shape.outputs)
        return cls(ids, depths, ends, rows, positions)


def put_packs(numbers: np.ndarray, packs: Sequence[Pack], shape: Shape) -> None:
    """Fill (shape.numbers,) int64 with the inputs of a pass."""
    inputs = PackedInputs.of(torch.from_numpy(numbers), shape)  # the same memory
    ids, depths, ends, rows, positions = (each.numpy() for each in inputs)
    ids[:], depths[:], ends[:] = 0, 0, range(1, shape.width + 1)
    rows[:], positions[:] = 0, 0
    asked = 0
    for row, pack in enumerate(packs):
        size, outputs = len(pack.ids), len(pack.asked)
        ids[row, :size], depths[row, :size], ends[row, :size] = pack.ids, pack.depths, pack.ends
        rows[asked : asked + outputs] = row
        positions[asked : asked + outputs] = [place for _, place in pack.asked]
        asked += outputs


def added_mask(ends: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """(rows, 1, width, width) what is added to attention scores: 0 where a position sees another,
    else the lowest value of `dtype`. Made where `ends` is: a mask that comes from the host takes
    3.6 µs of it for each position, and more bytes than all else that is sent."""
    place = torch.arange(ends.shape[1], device=ends.device)
    sees = (place[:, None] >= place) & (place[:, None] < ends[:, None])
    mask = torch.full(sees.shape, torch.finfo(dtype).min, dtype=dtype, device=ends.device)
    return mask.masked_fill_(sees, 0)[:, None]


class Trial(NamedTuple):
    """Contexts by which it is found out whether a model can be packed."""

    compared: list[Query]
    """Their logits are compared with those of each alone."""
    between: list[Query]
    """Make a row as wide as rows come: some models, such as GPT-Neo, have a window of their own,
    that counts places of the row, or memory for so many."""


def trial(vocab: int, longest: int, *, most: int | None = None) -> Trial:
    """Contexts that share beginnings in every way: one of `longest` tokens, others of 12.

    In order, so in a row, the longest is first, and what is `between` stands before all others:
    these are as far from the beginning that they share with it as can be. The last two compared end
    in the same tokens, and what stands before these is not the same.
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
def last_places_moved(model: Any, dtype: torch.dtype) -> Iterator[None]:
    """Meanwhile every number of an embedding is off by up to a unit in its last place, in what the
    model's products round to.

    How far that moves logits says what rounding in another order may do to them: a deep model moves
    them by 20 times its precision, and a tiny one by 2.
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
    """How far logits (trial contexts, outputs) are apart; "" where they are not.

    By rounding alone: as parts of a context's own spread, root mean squares are within `ALLOWED` of
    the largest of what `last_places_moved` does to logits of contexts that are run alone. In less
    than float32, where rounding may be as large as what a wrong mask does, they are also less than
    half of what other tokens before the same last ones do.
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


def refusal(model: Any, longest: int) -> str:
    """Why a model cannot be packed by what its config and its call say; "" where nothing is against
    it."""
    if "position_ids" not in signature(model.forward).parameters:
        # Places of a row would be looked up in a table for a context's: on a GPU that ends all.
        return "it cannot be told the positions of tokens"
    if longest > LONGEST:
        return f"a context has {longest:,} tokens, and what each sees takes memory by their square"
    text = model.config.get_text_config()
    scaling = getattr(text, "rope_parameters", None) or getattr(text, "rope_scaling", None) or {}
    if scaling.get("rope_type") in ("dynamic", "longrope"):
        return "its positions depend on the longest context that is run with them"
    for name in ("sliding_window", "attention_chunk_size"):
        window = getattr(text, name, None)
        if window is not None and window < longest:
            return f"its attention reaches back {window:,} tokens, a context has {longest:,}"
    return ""
