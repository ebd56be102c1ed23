"""Reduce a batch of logits on the GPU that made them."""

from typing import NamedTuple

import torch

from logitbank.store.deposits.reduce import FLOAT16_MIN
from logitbank.store.format.layout import Layout


class Listed(NamedTuple):
    """Some vocabulary entries of each row of a batch."""

    token: torch.Tensor
    """(n, k) int64."""
    logit: torch.Tensor
    """(n, k) float32."""
    counts: torch.Tensor
    """(4, n, k) int32: rank, ties, padding above, padding ties."""


class ReducedBatch(NamedTuple):
    """A batch after reduction."""

    logsumexp: torch.Tensor
    """(n,) float64."""
    finite: torch.Tensor
    """(n,) bool: all logits of the row are."""
    fits: torch.Tensor
    """(n,) bool: all log-probabilities are in the range of the layout's dtype."""
    options: Listed
    top: Listed
    logprobs: torch.Tensor | None
    """(n, v) in the layout's dtype, where it keeps them."""


def reduce_rows(
    logits: torch.Tensor,
    tokens: torch.Tensor,
    layout: Layout,
    vocab_entries: int,
    *,
    batch_invariant: bool = False,
) -> ReducedBatch:
    """Reduce `logits` (n, v) float32; `tokens` (n, w) are those that prompts name.

    `batch_invariant` sums the exponentials of one row at a time: CUDA's order of summation depends
    on the number of rows, and only this sum depends on the order.
    """
    lowest, highest = logits.amin(dim=1), logits.amax(dim=1)  # NaN where there is one
    # Of logits less their maximum, so that float32 loses a few 1e-7 of it whatever their size.
    shifted = logits - highest[:, None]
    parts = torch.split(shifted, 1) if batch_invariant else [shifted]
    log_sums = torch.cat([torch.logsumexp(part, dim=1) for part in parts])
    full = layout.keep.array == "logprobs"
    fits = (lowest - highest - log_sums >= FLOAT16_MIN) | (not full or layout.dtype != "float16")
    return ReducedBatch(
        highest.double() + log_sums.double(),
        torch.isfinite(lowest) & torch.isfinite(highest),
        fits,
        listed_entries(logits, tokens, vocab_entries),
        highest_entries(logits, min(layout.keep.k, logits.shape[1]), vocab_entries),
        shifted.sub_(log_sums[:, None]).to(getattr(torch, layout.dtype)) if full else None,
    )


def listed_entries(logits: torch.Tensor, tokens: torch.Tensor, vocab_entries: int) -> Listed:
    """Logit, rank and ties of `tokens` (n, k) in `logits` (n, v)."""
    values = logits.gather(1, tokens)
    padding = logits[:, vocab_entries:]
    counts = torch.zeros((4, *tokens.shape), dtype=torch.int32, device=logits.device)
    for j in range(tokens.shape[1]):  # one at a time, so that no (n, k, v) array is made
        z = values[:, j : j + 1]
        counts[0, :, j] = (logits > z).sum(dim=1) + 1
        counts[1, :, j] = (logits == z).sum(dim=1) - 1
        counts[2, :, j] = (padding > z).sum(dim=1)
        counts[3, :, j] = (padding == z).sum(dim=1) - (tokens[:, j] >= vocab_entries).int()
    return Listed(tokens, values, counts)


def highest_entries(logits: torch.Tensor, k: int, vocab_entries: int) -> Listed:
    """The k entries of highest logit in each row, best first; of equal ones the lowest token first.

    Ranks and ties follow from the places in the list. Only ties of the last entry may lie outside
    the list, so these are counted in the whole row.
    """
    tokens = top_tokens(logits, k)
    values = logits.gather(1, tokens)
    place = torch.arange(k, device=logits.device).expand_as(values)
    other = values[:, 1:] != values[:, :-1]
    true = torch.ones_like(other[:, :1]) if k > 1 else torch.ones_like(values, dtype=torch.bool)
    # First and last place of those that are equal, by the nearest border on either side.
    first = torch.where(torch.cat([true, other], 1), place, 0).cummax(1).values
    ends = torch.where(torch.cat([other, true], 1), place, k)
    last = ends.flip(1).cummin(1).values.flip(1)
    padded = tokens >= vocab_entries
    before = torch.nn.functional.pad(padded.cumsum(1), (1, 0))
    above = before.gather(1, first)
    equal, of_padding = last - first + 1, before.gather(1, last + 1) - above
    lowest = values[:, -1:]
    of_last = values == lowest
    in_row = (logits == lowest).sum(1, keepdim=True)
    in_padding = (logits[:, vocab_entries:] == lowest).sum(1, keepdim=True)
    ties = torch.where(of_last, in_row, equal) - 1
    padding_ties = torch.where(of_last, in_padding, of_padding) - padded.int()
    return Listed(tokens, values, torch.stack([first + 1, ties, above, padding_ties]).int())


def top_tokens(logits: torch.Tensor, k: int) -> torch.Tensor:
    """The k tokens (n, k) of highest logit in each row; the lower id of equal ones.

    `topk` guarantees neither the order nor the choice among equal logits. So only its last value
    is used: all higher logits are listed, and as many equal ones as fit.
    """
    if k == 1:
        return logits.argmax(dim=1, keepdim=True)  # the first of several
    last = torch.topk(logits, k, dim=1).values[:, -1:]
    higher, equal = logits > last, logits == last
    room = k - higher.sum(dim=1, keepdim=True)
    chosen = higher | (equal & (equal.cumsum(1, dtype=torch.int32) <= room))
    # The lowest k numbers of those: a scatter of all places would take 8 bytes for each logit, and
    # far more under PyTorch's deterministic algorithms. Of a row with NaN there may be fewer.
    outputs = logits.shape[1]
    numbers = torch.arange(outputs, dtype=torch.int32, device=logits.device)
    lowest = torch.where(chosen, numbers, outputs).topk(k, dim=1, largest=False).values
    tokens = lowest.clamp(max=outputs - 1).long()  # ascending
    order = logits.gather(1, tokens).sort(dim=1, descending=True, stable=True).indices
    return tokens.gather(1, order)
