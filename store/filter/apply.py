"""Apply a filter to a bank: a new bank with the filtered distributions.

Ranks are counted in the filtered distribution. The source lists the highest entries of each query,
and the rank of each option, so the entries above a moved token are known. If a filter moves a token
below all listed ones, its rank is an interval, and `exact` is false.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from logitbank.errors import DamagedError, UsageError
from logitbank.store.bank import Bank, open_bank
from logitbank.store.care.lost import require_tables
from logitbank.store.change.rewrite import changed_model, new_bank, rewrite, stored_scores
from logitbank.store.deposits.deposit import Deposit
from logitbank.store.deposits.entries import Entries, option_entries, top_entries
from logitbank.store.files import objects, verified
from logitbank.store.files.staging import remove_dead
from logitbank.store.filter.filters import Filter
from logitbank.store.filter.top import AT_ONCE, Listed, top
from logitbank.store.format.layout import BlockData, DepositSpec, Layout
from logitbank.store.format.schema import (
    COUNTS,
    NEXT_SENTENCE_CLASSES,
    SCORES_SCHEMA,
    CheckpointId,
    Json,
    Keep,
)
from logitbank.store.progress import Advance, Progress, counting
from logitbank.store.share.copying import open_folder, require_other
from logitbank.store.tables import query_tables

FROM_ROWS = 64
"""Entries that are listed of rows of which the bank has every entry."""


_COMPARED = 2**21
"""Pairs of entries that are compared at once."""


class Applied(NamedTuple):
    """Result of `apply_filter`."""

    model: str
    """Name of the filtered model."""
    deposits: int
    options: int
    """Scores of options."""
    bounds: int
    """Scores of options whose rank is an interval."""


def apply_filter(
    bank: str | Path | Bank,
    by: Filter | str | Path,
    out: str | Path,
    *,
    name: str | None = None,
    progress: Progress | None = None,
) -> Applied:
    """Write a bank with the distributions of a model after a debiasing filter.

    The new bank has the prompts of the bank, and the filter's model under a new name: scores of all
    options and the highest entries, with ranks in the filtered distribution. The probabilities of a
    next-sentence head, which has two outputs, do not change. To finish an interrupted call, make
    the same call again.

    Parameters
    ----------
    bank
        Bank to read: a folder or a URL.
    by
        Filter, or its file.
    out
        Folder of the bank to write: new, or of an interrupted call.
    name
        Name of the filtered model; by default the model's name and a description of the filter.
    progress
        Called with the number of rows that are done, and the total.

    Raises
    ------
    UsageError
        The filter is for another model or tokenizer, `name` is a model of the bank, or `out` is
        the bank itself or a URL.
    KeepLevelError
        A deposit lists fewer entries than the filter needs.
    BankError
        `out` has other results of this name.
    DamagedError
        The bank is damaged.
    """
    folder, source = open_folder(out), open_bank(bank, rows=True)
    require_other(out, source.path)
    by, name = fitted(by if isinstance(by, Filter) else Filter.load(by), source, name)
    deposits = filterable(source.deposits(), by)
    for deposit in deposits:
        _require_entries(deposit, by)
    require_tables(source.path, deposits)
    target = new_bank(source, folder, {deposit.checkpoint.model for deposit in deposits})
    advance = counting(sum(deposit.rows_committed for deposit in deposits), progress)
    counts = [0, 0]
    with verified.copying_to(target.path):
        for deposit in deposits:
            written = write_filtered(deposit, target, by, name, advance)
            exact = written.option_scores().select("exact").collect()["exact"]
            counts[0] += len(exact)
            counts[1] += int((~exact).sum())
    remove_dead(target.path)
    return Applied(name, len(deposits), *counts)


def fitted(by: Filter, bank: Bank, name: str | None) -> tuple[Filter, str]:
    """A filter with its model, and the name of that model after the filter.

    Raises UsageError if the filter is for another model or tokenizer, or `name` is a model of the
    bank.
    """
    model, models = by.about.get("model"), set(bank.models)
    if model is None and len(models) == 1:
        (model,) = models  # an untrained filter fits any model
    if model not in models:
        available = ", ".join(sorted(models)) or "no deposit"
        raise UsageError(
            f"The filter is for {model or 'no particular model'}, and {bank.address} has"
            f" {available}. Train a filter for a model of this bank."
        )
    if name is None:
        trained = "trained" if by.about.get("trained") else "untrained"
        name = f"{model} + {trained} filter k={by.k} ({by.mode})"
    if name in models:
        raise UsageError(f"{name!r} is a model of the bank. Use another name for the filtered one.")
    CheckpointId(name)  # refuses an invalid name
    by = replace(by, about={**by.about, "model": model})
    if not filterable(bank.deposits(), by):
        raise UsageError(
            f"The filter is for {model} with another tokenizer than in {bank.address}. Train a"
            " filter with a bank of this tokenizer."
        )
    return by, name


def filterable(deposits: Iterable[Deposit], by: Filter) -> list[Deposit]:
    """The deposits that a filter is for: those of its model and tokenizer."""
    tokenizer = by.about.get("tokenizer")
    return [
        deposit
        for deposit in deposits
        if deposit.checkpoint.model == by.about["model"]
        and tokenizer in (None, query_tables.query_set_tokenizer(deposit.bank, deposit.query_set))
    ]


def write_filtered(
    deposit: Deposit, target: Bank, by: Filter, name: str, advance: Advance = lambda _: None
) -> Deposit:
    """Write the committed blocks of a deposit after a filter, as a deposit of another bank."""
    stored, keep = stored_scores(deposit), deposit.layout.keep
    at_once = AT_ONCE if keep.has_full_rows else max(1, _COMPARED // (by.k * keep.k))

    def filtered(rows: range, to: Layout) -> BlockData:
        parts = list[pl.DataFrame]()
        for start in range(rows.start, rows.stop, at_once):
            some = range(start, min(start + at_once, rows.stop))
            scores = stored(some)
            if not _passes(deposit.layout):
                scores = _filtered(deposit, scores, by, some, to.keep.k)
            parts.append(scores)
        return BlockData(None, pl.concat(parts))

    return rewrite(deposit, target, _spec(deposit, by, name), filtered, advance)


def _spec(deposit: Deposit, by: Filter, name: str) -> DepositSpec:
    """Spec of the filtered deposit."""
    filtered_from: dict[str, Json] = {
        "model": deposit.checkpoint.model,
        "weights": deposit.spec.provenance.get("weights"),
        "zarr.json": objects.digest(deposit.path / "zarr.json").sha256,
    }
    about: dict[str, Json] = {
        "filtered_from": filtered_from,
        "filter": {"digest": by.digest, "k": by.k, "mode": by.mode, **by.about},
    }
    return changed_model(deposit, name, _keep(deposit.layout, by), by.digest, about)


def _keep(layout: Layout, by: Filter) -> Keep:
    """The entries that can be listed after a filter.

    A filter may move its k tokens below all listed ones. The others stay in their order, so those
    that were listed beyond the first k are the highest of the rest.
    """
    if _passes(layout):
        listed = layout.keep.k
    elif by.mode == "truncate":
        listed = by.k
    elif layout.keep.has_full_rows:
        listed = FROM_ROWS
    else:
        listed = layout.keep.k if layout.keep.k >= layout.vocab else layout.keep.k - by.k
    return Keep("topk", max(1, listed))


def _passes(layout: Layout) -> bool:
    """Whether filters do not change the outputs of this head."""
    return layout.vocab == NEXT_SENTENCE_CLASSES


def _require_entries(deposit: Deposit, by: Filter) -> None:
    """Refuse a deposit that lists too few entries, before anything is written."""
    if not _passes(deposit.layout):
        top(deposit, by.k, pl.DataFrame(schema=SCORES_SCHEMA))


def _filtered(
    deposit: Deposit, scores: pl.DataFrame, by: Filter, rows: range, keep_k: int
) -> pl.DataFrame:
    """Scores of some queries after a filter, with the `keep_k` highest entries of each."""
    best = top(deposit, by.k, scores)
    if best.rows.tolist() != list(rows):
        raise DamagedError(
            f"{deposit}: a query does not list its highest tokens. Run `logitbank verify`."
        )
    moved = _moved(best, by, deposit.spec.vocab_entries)
    options = scores.filter(pl.col("kind") == "option")
    if by.mode == "keep_tail" and deposit.layout.keep.has_full_rows:
        return _ranked_in_rows(deposit, moved, options, keep_k)
    listed = _listed(deposit, scores, rows)
    if by.mode == "keep_tail":
        return _ranked_in_list(deposit, moved, options, listed, keep_k)
    return _truncated(deposit, moved, options, listed)


class _Moved(NamedTuple):
    """The k highest entries of n queries before and after a filter."""

    rows: np.ndarray
    """(n,) rows of the query set, ascending and without gaps."""
    tokens: np.ndarray
    """(n, k)."""
    padding: np.ndarray
    """(n, k): whether the token is padding."""
    before: np.ndarray
    """(n, k) logits."""
    after: np.ndarray
    """(n, k) float32 logits."""
    logsumexp: np.ndarray
    """(n,) of the filtered row."""

    def places(self, query: np.ndarray, token: np.ndarray) -> tuple[np.ndarray, ...]:
        """Row (m,) of each query, whether its token is among the k, and at which place."""
        row = query - self.rows[0]
        match = self.tokens[row] == token[:, None]
        return row, match.any(axis=1), match.argmax(axis=1)


def _moved(best: Listed, by: Filter, vocab_entries: int) -> _Moved:
    """The highest entries after a filter, in float32 as other logits, before ranks are counted."""
    before = np.ascontiguousarray(best.logits.T)
    after, logsumexp = by.log_shares(before), np.zeros(len(best.rows))
    if by.mode == "keep_tail":  # the mass of the k tokens stays theirs
        after += before[0] + np.log(np.exp(before - before[0]).sum(axis=0))
        logsumexp = best.logsumexp
    padding = best.tokens >= vocab_entries
    new = np.ascontiguousarray(after.T, np.float32)
    return _Moved(best.rows, best.tokens, padding, best.logits, new, logsumexp)


class _List(NamedTuple):
    """The listed entries of n queries, best first."""

    tokens: np.ndarray
    """(n, w)."""
    padding: np.ndarray
    """(n, w): whether the token is padding."""
    logits: np.ndarray
    """(n, w)."""
    counts: np.ndarray
    """(4, n, w), as of `_counts`, in the whole row."""
    exact: np.ndarray
    """(n,): whether all counts are exact. Those of a bank that was shrunk may be bounds."""


def _listed(deposit: Deposit, scores: pl.DataFrame, rows: range) -> _List:
    listed = scores.filter(pl.col("kind") == "top")
    width = min(deposit.layout.keep.k, deposit.layout.vocab)
    if not np.array_equal(listed["query"], np.repeat(rows, width)):
        raise DamagedError(
            f"{deposit}: a query does not list {width} highest tokens. Run `logitbank verify`."
        )
    shape = (len(rows), width)
    tokens, logits, exact = (
        listed[name].to_numpy().reshape(shape) for name in ("token", "logit", "exact")
    )
    counts = _stored_counts(listed).reshape(4, *shape)
    padding, whole = tokens >= deposit.spec.vocab_entries, np.asarray(exact.all(axis=1))
    return _List(tokens, padding, logits, counts, whole)


def _stored_counts(scores: pl.DataFrame) -> np.ndarray:
    """(4, m) as of `_counts`, in the whole row without the entry itself."""
    counts = scores.select(COUNTS).to_numpy().T.astype(np.int64)
    counts[0] -= 1
    return counts


def _counts(values: np.ndarray, padding: np.ndarray, logits: np.ndarray) -> np.ndarray:
    """(4, m, …): values (m, w) above logits (m, …) and equal to them, then the padding of both."""
    shape = (len(values), *[1] * (logits.ndim - 1), values.shape[1])
    values, padding, logits = values.reshape(shape), padding.reshape(shape), logits[..., None]
    above, equal = values > logits, values == logits
    return np.stack([each.sum(-1) for each in (above, equal, above & padding, equal & padding)])


def _among_moved(moved: _Moved) -> np.ndarray:
    """Counts (4, n, k) of moved entries among themselves."""
    counts = _counts(moved.after, moved.padding, moved.after)
    counts[1] -= 1
    counts[3] -= moved.padding
    return counts


def _truncated(
    deposit: Deposit, moved: _Moved, options: pl.DataFrame, listed: _List
) -> pl.DataFrame:
    """Scores after a filter that truncates: entries beyond the k are equal, with logit −∞."""
    layout, entries = deposit.layout, deposit.spec.vocab_entries
    k, inside = moved.tokens.shape[1], moved.padding.sum(axis=1)
    exact = listed.exact & (k <= listed.tokens.shape[1])
    own = _among_moved(moved)
    row, is_moved, place = moved.places(options["query"].to_numpy(), options["token"].to_numpy())
    padding = layout.vocab - entries - inside[row] - (options["token"].to_numpy() >= entries)
    rest = np.broadcast_arrays(k, layout.vocab - k - 1, inside[row], padding)
    return pl.concat(
        [
            _frame(
                "option", moved, row, options["token"].to_numpy(),
                np.where(is_moved, moved.after[row, place], -np.inf),
                np.where(is_moved, own[:, row, place], np.stack(rest)), exact[row],
            ),
            _top_frame(moved, moved.tokens, moved.after, own, exact[:, None], k),
        ]
    )  # fmt: skip


def _ranked_in_list(
    deposit: Deposit, moved: _Moved, options: pl.DataFrame, listed: _List, keep_k: int
) -> pl.DataFrame:
    """Scores after a filter that keeps the tail, of a bank that lists the highest entries.

    An entry beyond the k keeps its place among the others, and the k entries are counted anew. What
    is above a moved entry is listed, unless it fell below the lowest listed one.
    """
    layout, k = deposit.layout, moved.tokens.shape[1]

    def beyond(counts: np.ndarray, row: np.ndarray | slice, logits: np.ndarray) -> np.ndarray:
        """Counts of entries beyond the k, from those before the filter."""
        before = _counts(moved.before[row], moved.padding[row], logits)
        after = _counts(moved.after[row], moved.padding[row], logits)
        return np.asarray(np.maximum(counts - before, 0) + after)

    own = _counts(listed.logits[:, k:], listed.padding[:, k:], moved.after)
    last, lowest = listed.counts[:, :, -1], listed.logits[:, -1:]
    padding_inside = moved.padding.sum(axis=1)
    padding_entries = layout.vocab - deposit.spec.vocab_entries
    # Of all entries beyond the k: those at least as high as the lowest listed one, and lower ones.
    high = last[0] + last[1] + 1 - k
    high_padding = last[2] + last[3] + listed.padding[:, -1] - padding_inside
    low, low_padding = layout.vocab - k - high, padding_entries - padding_inside - high_padding
    is_last, is_below = moved.after == lowest, moved.after < lowest
    for at, of_high, of_low in ((0, high, low), (2, high_padding, low_padding)):
        above, equal, of_high = own[at], own[at + 1], of_high[:, None]
        equal = np.where(is_last, of_high - above, np.where(is_below, of_low[:, None], equal))
        own[at], own[at + 1] = np.where(is_below, of_high, above), equal
    own_exact = listed.exact[:, None] & ~(is_below & (own[1] > 0))
    own += _among_moved(moved)

    rest = beyond(listed.counts[:, :, k:], slice(None), listed.logits[:, k:])
    rest_exact = np.broadcast_to(listed.exact[:, None], rest.shape[1:])
    row, is_moved, place = moved.places(options["query"].to_numpy(), options["token"].to_numpy())
    logits = options["logit"].to_numpy()
    return pl.concat(
        [
            _frame(
                "option", moved, row, options["token"].to_numpy(),
                np.where(is_moved, moved.after[row, place], logits),
                np.where(
                    is_moved, own[:, row, place], beyond(_stored_counts(options), row, logits)
                ),
                np.where(
                    is_moved, own_exact[row, place], listed.exact[row] & options["exact"].to_numpy()
                ),
            ),
            _top_frame(
                moved,
                np.concatenate([moved.tokens, listed.tokens[:, k:]], axis=1),
                np.concatenate([moved.after, listed.logits[:, k:]], axis=1),
                np.concatenate([own, rest], axis=2),
                np.concatenate([own_exact, rest_exact], axis=1),
                min(keep_k, layout.vocab),
            ),
        ]
    )  # fmt: skip


def _ranked_in_rows(
    deposit: Deposit, moved: _Moved, options: pl.DataFrame, keep_k: int
) -> pl.DataFrame:
    """Scores after a filter that keeps the tail, of a bank with full rows: bounds, as these are
    rounded."""
    options, padded = options.sort("query", "token"), deposit.spec.vocab_entries
    values = deposit.stored_logprobs(moved.rows)
    with np.errstate(over="ignore"):
        shifted = (moved.after - moved.logsumexp[:, None]).astype(values.dtype)
    np.put_along_axis(values, moved.tokens, shifted, axis=1)
    tokens = options["token"].to_numpy()
    row, is_moved, place = moved.places(options["query"].to_numpy(), tokens)
    spans = np.searchsorted(row, np.arange(len(values) + 1))
    named, best = list[Entries](), list[Entries]()
    for number, stored in enumerate(values):
        ordered = stored.astype(np.float32)
        own = tokens[spans[number] : spans[number + 1]]
        named.append(option_entries(ordered, own, padded))
        best.append(top_entries(ordered, keep_k, padded))
    top_tokens = np.stack([each.token for each in best])
    top_row = np.repeat(np.arange(len(values)), top_tokens.shape[1])
    _, top_moved, top_place = moved.places(moved.rows[top_row], top_tokens.ravel())
    unmoved = np.stack([each.logit for each in best]) + moved.logsumexp[:, None]
    inexact = np.zeros(1, bool)
    return pl.concat(
        [
            _frame(
                "option", moved, row, tokens,
                np.where(is_moved, moved.after[row, place], options["logit"].to_numpy()),
                _entry_counts(named), inexact,
            ),
            _frame(
                "top", moved, top_row, top_tokens.ravel(),
                np.where(top_moved, moved.after[top_row, top_place], unmoved.ravel()),
                _entry_counts(best), inexact,
            ),
        ]
    )  # fmt: skip


def _entry_counts(entries: Sequence[Entries]) -> np.ndarray:
    """(4, m) as of `_counts`."""
    counts = np.stack(
        [np.concatenate([getattr(each, name) for each in entries]) for name in COUNTS]
    ).astype(np.int64)
    counts[0] -= 1
    return counts


def _top_frame(
    moved: _Moved,
    tokens: np.ndarray,
    logits: np.ndarray,
    counts: np.ndarray,
    exact: np.ndarray,
    keep_k: int,
) -> pl.DataFrame:
    """The `keep_k` highest of entries (n, w); equal logits by ascending token."""
    exact = np.broadcast_to(exact, tokens.shape)
    order = np.lexsort((tokens, -logits), axis=-1)[:, :keep_k]
    tokens, logits, exact = (
        np.take_along_axis(each, order, axis=1).ravel() for each in (tokens, logits, exact)
    )
    counts = np.stack([np.take_along_axis(each, order, axis=1).ravel() for each in counts])
    row = np.repeat(np.arange(len(order)), order.shape[1])
    return _frame("top", moved, row, tokens, logits, counts, exact)


def _frame(
    kind: str,
    moved: _Moved,
    row: np.ndarray,
    token: np.ndarray,
    logit: np.ndarray,
    counts: np.ndarray,
    exact: np.ndarray,
) -> pl.DataFrame:
    """Rows (m,) of `SCORES_SCHEMA`."""
    rank, ties, padding_above, padding_ties = counts
    columns = {
        "query": moved.rows[row],
        "token": token,
        "logit": logit.astype(np.float32),
        "logsumexp": moved.logsumexp[row],
        "rank": rank + 1,
        "ties": ties,
        "padding_above": padding_above,
        "padding_ties": padding_ties,
        "exact": np.broadcast_to(exact, len(row)),
    }
    frame = pl.DataFrame(columns).with_columns(kind=pl.lit(kind))
    return frame.select(pl.col(name).cast(dtype) for name, dtype in SCORES_SCHEMA.items())
