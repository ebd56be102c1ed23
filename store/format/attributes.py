"""A deposit's attributes: `DepositSpec` as JSON and back. JSON of strangers may be hostile."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

from logitbank.errors import BankError, DamagedError, KeepLevelError, LogitbankError
from logitbank.store.files import objects, verified
from logitbank.store.format import zarrays
from logitbank.store.format.heads import HEAD_DIGEST
from logitbank.store.format.layout import DepositSpec, Layout
from logitbank.store.format.limits import MAX_OUTPUTS, MAX_SIZE, check_number
from logitbank.store.format.schema import (
    CODEC,
    CheckpointId,
    Dtype,
    Head,
    Json,
    Keep,
    KeepLevel,
)
from logitbank.version import __version__

QUERY_SET = re.compile(r"q-[0-9a-f]{16}")
DIGESTS = ("weights", "config", "tokenizer", "adapter_weights")
_DTYPES, _LEVELS, _HEADS = (get_args(t) for t in (Dtype, KeepLevel, Head))
_OUTPUTS = ("vocab", "vocab_entries", "width")
OF_CHECKPOINT = ("weights", "config")
"""Digests that all deposits of one checkpoint have in common, whatever it was asked."""
ARRAY = "array"
"""Digest of the logits themselves, where nobody named the weights that they are of."""


def to_attributes(spec: DepositSpec) -> dict[str, Any]:
    """JSON value of a spec; `from_attributes` is its inverse."""
    checkpoint, layout = spec.checkpoint, spec.layout
    return {
        "model": checkpoint.model,
        "run": checkpoint.run,
        "run_seed": checkpoint.run_seed,
        "step": checkpoint.step,
        "query_set": spec.query_set,
        "queries": layout.queries,
        "vocab": layout.vocab,
        "vocab_entries": spec.vocab_entries,
        "dtype": layout.dtype,
        "keep": layout.keep.level,
        "keep_k": layout.keep.k,
        "block_rows": layout.block_rows,
        "codec": CODEC,
        **({} if layout.width is None else {"width": layout.width, "heads": dict(spec.heads)}),
        "provenance": dict(spec.provenance),
    }


def from_attributes(attributes: Any, *, where: Path) -> DepositSpec:
    """The spec that `to_attributes` wrote, or DamagedError."""
    try:
        return _parse(attributes)
    except (KeyError, TypeError, ValueError, LogitbankError) as error:
        raise DamagedError(
            f"{where}/zarr.json does not describe a deposit ({error!r}); run `logitbank verify`"
        ) from error


def read_attributes(deposit: Path) -> dict[str, Any]:
    """The current attributes in a deposit's folder, verified.

    Raises FileNotFoundError, or DamagedError if they are damaged.
    """
    path = objects.plain_name(deposit, "zarr.json")  # text: a path for each took 6 µs of 70
    attributes: dict[str, Any] = verified.document(path, *zarrays.ATTRIBUTES)["attributes"][
        "logitbank"
    ]
    return attributes


def _parse(a: Any) -> DepositSpec:
    sizes = {name: a[name] for name in ("queries", "vocab", "vocab_entries", "block_rows")}
    sizes["keep_k"] = a["keep_k"]
    sizes |= {name: a[name] for name in ("width",) if name in a}
    for name, value in sizes.items():
        check_number(value, name, 1, MAX_OUTPUTS if name in _OUTPUTS else MAX_SIZE)
    if sizes["vocab_entries"] > sizes["vocab"]:
        raise ValueError(f"vocab_entries is {a['vocab_entries']}, of {a['vocab']} outputs")
    if not QUERY_SET.fullmatch(a["query_set"]):
        raise ValueError(f"query_set is {a['query_set']!r}")
    if a["dtype"] not in _DTYPES:
        raise ValueError(f"dtype is {a['dtype']!r}")
    if (codec := a.get("codec", "zstd")) != CODEC:  # the first banks had zstd and did not name it
        raise ValueError(f"codec is {codec!r}, and this version reads {CODEC!r} alone")
    if a["keep"] not in _LEVELS:
        raise ValueError(f"keep is {a['keep']!r}, a level that logitbank {__version__} knows not")
    if not isinstance(a["provenance"], dict):
        raise ValueError(f"provenance is {a['provenance']!r}")
    heads = dict(a.get("heads", {}))
    if len(heads) != ("width" in sizes) or not all(
        kind in _HEADS and re.fullmatch(HEAD_DIGEST, digest) for kind, digest in heads.items()
    ):
        raise ValueError(f"heads is {heads!r}")
    if a.get("layers"):
        raise ValueError(f"layers is {a['layers']!r}: states of layers are not read any more")
    return DepositSpec(
        CheckpointId(a["model"], a["run"], a["step"], a["run_seed"]),
        a["query_set"],
        Layout(
            *(a["queries"], a["vocab"], a["dtype"]),
            *(Keep(a["keep"], a["keep_k"]), a["block_rows"]),
            width=a.get("width"),
        ),
        a["vocab_entries"],
        a["provenance"],
        heads,
    )


def unlike(one: Mapping[str, Json], other: Mapping[str, Json]) -> tuple[str, Json, Json] | None:
    """The first digest in which two provenances of one checkpoint differ, and both values.

    None if all digests that both have are equal.
    """
    for name in OF_CHECKPOINT:
        first, second = one.get(name), other.get(name)
        if None not in (first, second) and first != second:
            return name, first, second
    return None


def compared(spec: DepositSpec) -> dict[str, Json]:
    """What must be equal when a deposit is continued or joined with another."""
    made, layout = spec.provenance, spec.layout
    return {
        **{name: made.get(name) for name in (*DIGESTS, ARRAY, "compute_dtype")},
        "dtype": layout.dtype,
        "vocab": layout.vocab,
        "vocab_entries": spec.vocab_entries,
        "queries": layout.queries,
        "run_seed": spec.checkpoint.run_seed,
    }


def check_same(stored: DepositSpec, requested: DepositSpec, *, where: Path) -> None:
    """Refuse to continue a deposit that is something else than requested.

    Raises BankError if weights, tokenizer, array, dtypes, vocabulary, number of queries or run seed
    differ, and KeepLevelError if it keeps less.
    """
    other = "use another bank, run name or checkpoint"
    wanted = compared(requested)
    for name, was in compared(stored).items():
        here = wanted[name]
        if was == here:
            continue
        if name == "config" and was is None:
            raise BankError(
                f"{where} was begun by a version that noted no digest of the config, so that nobody"
                f" can tell whether it is of the same model; {other}"
            )
        if name in DIGESTS:
            raise BankError(
                f"{where} was made with {name} digest {was}, not {here}:"
                f" not the same {name}; {other}"
            )
        if name == ARRAY:
            raise BankError(
                f"{where} holds other logits (array digest {was}, not {here}); deposit these"
                " as another step, run or model, or in another bank"
            )
        raise BankError(f"{where} has {name} {was}, not {here}; ask for {was}, or {other}")
    arrays = stored.layout.keep.array, requested.layout.keep.array
    if arrays[0] == arrays[1] == "hidden" and states_of(stored) != states_of(requested):
        raise BankError(
            f"{where} has states of {states_of(stored)}, and these are of {states_of(requested)}:"
            f" not the same weights; {other}"
        )
    # Which rows and which states a deposit has would be anyone's guess.
    mixed = None not in arrays and arrays[0] != arrays[1]
    if mixed or not stored.layout.keep.covers(requested.layout.keep):
        raise KeepLevelError(
            f"{where} keeps {stored.layout.keep}, which does not cover {requested.layout.keep};"
            f" ask for --keep {stored.layout.keep}, or use another bank"
        )


def states_of(spec: DepositSpec) -> str:
    """The states of a deposit and their head, for a message."""
    heads = ", ".join(f"{kind} head {digest[:12]}" for kind, digest in sorted(spec.heads.items()))
    return f"{spec.layout.width} entries, for {heads or 'no head'}"
