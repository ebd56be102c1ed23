"""Attributes of a deposit: `DepositSpec` as JSON and back. The JSON of others may be hostile."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, get_args

from logitbank.errors import BankError, DamagedError, KeepLevelError, LogitbankError
from logitbank.store.files import objects, verified
from logitbank.store.format import zarrays
from logitbank.store.format.codecs import ROWS
from logitbank.store.format.heads import HEAD_DIGEST
from logitbank.store.format.layout import DepositSpec, Layout
from logitbank.store.format.limits import MAX_OUTPUTS, MAX_SIZE, check_number
from logitbank.store.format.schema import (
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
OF_CHECKPOINT = ("weights", "config")
"""Digests that are the same in all deposits of one checkpoint."""
ARRAY = "array"
"""Digest of the logits themselves, if the digest of the weights is unknown."""
_SIZES = {
    "queries": MAX_SIZE,
    "block_rows": MAX_SIZE,
    "keep_k": MAX_SIZE,
    "vocab": MAX_OUTPUTS,
    "vocab_entries": MAX_OUTPUTS,
    "width": MAX_OUTPUTS,
}
"""Whole numbers from 1, and the largest value of each; `width` is optional."""
_CHOICES = {"dtype": get_args(Dtype), "keep": get_args(KeepLevel), "codec": (ROWS.name,)}
"""Values of attributes with few values."""
_KINDS = get_args(Head)
_VALUES: dict[str, Callable[[Any], object]] = {
    "query_set": QUERY_SET.fullmatch,
    "provenance": lambda value: isinstance(value, dict),
    "heads": lambda value: all(
        kind in _KINDS and HEAD_DIGEST.fullmatch(digest) for kind, digest in value.items()
    ),
}
"""Checks of the other attributes."""


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
        "codec": ROWS.name,
        **({} if layout.width is None else {"width": layout.width, "heads": dict(spec.heads)}),
        "provenance": dict(spec.provenance),
    }


def from_attributes(attributes: Any, *, where: Path | str) -> DepositSpec:
    """The spec that `to_attributes` wrote, or DamagedError."""
    try:
        return _parse(attributes)
    except (AttributeError, KeyError, TypeError, ValueError, LogitbankError) as error:
        raise DamagedError(
            f"{where}/zarr.json does not describe a deposit ({error!r}); run `logitbank verify`"
        ) from error


def read_attributes(deposit: Path) -> dict[str, Any]:
    """The current attributes in a deposit's folder, verified.

    Raises FileNotFoundError, or DamagedError if they are damaged.
    """
    path = objects.plain_name(deposit, "zarr.json")  # text: a path took 6 µs of 70
    attributes: dict[str, Any] = verified.document(path, *zarrays.ATTRIBUTES)["attributes"][
        "logitbank"
    ]
    return attributes


def _parse(a: Any) -> DepositSpec:
    a = {"heads": {}, **a}  # only deposits of states have one
    for name, largest in _SIZES.items():
        if name != "width" or name in a:
            check_number(a[name], name, 1, largest)
    for name, choices in _CHOICES.items():
        if a[name] not in choices:
            raise ValueError(f"{name} {a[name]!r} is unknown to logitbank {__version__}")
    for name, is_valid in _VALUES.items():
        if not is_valid(a[name]):
            raise ValueError(f"{name} is {a[name]!r}")
    if a["vocab_entries"] > a["vocab"]:
        raise ValueError(f"vocab_entries is {a['vocab_entries']}, of {a['vocab']} outputs")
    width, keep = a.get("width"), Keep(a["keep"], a["keep_k"])
    if len(a["heads"]) != (width is not None):
        raise ValueError(f"heads is {a['heads']!r}")
    return DepositSpec(
        CheckpointId(a["model"], a["run"], a["step"], a["run_seed"]),
        a["query_set"],
        Layout(a["queries"], a["vocab"], a["dtype"], keep, a["block_rows"], width=width),
        a["vocab_entries"],
        a["provenance"],
        a["heads"],
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
    """Values that must be equal when a deposit is continued or merged."""
    layout = spec.layout
    return {
        **{
            name: spec.provenance.get(name) for name in (*DIGESTS, ARRAY, "compute_dtype", "engine")
        },
        "dtype": layout.dtype,
        "vocab": layout.vocab,
        "vocab_entries": spec.vocab_entries,
        "queries": layout.queries,
        "run_seed": spec.checkpoint.run_seed,
    }


def check_same(stored: DepositSpec, requested: DepositSpec, *, where: Path) -> None:
    """Refuse to continue a deposit that is something else than requested.

    Raises BankError if weights, tokenizer, array, dtypes, engine, vocabulary, number of queries or
    run seed differ, and KeepLevelError if it keeps less.
    """
    advice = "Use another bank, run name or checkpoint."
    new = compared(requested)
    for name, value in compared(stored).items():
        if value == new[name]:
            continue
        if name in (*DIGESTS, ARRAY):
            kind = "logits" if name == ARRAY else name
            raise BankError(f"{where} was made with other {kind}. {advice}")
        raise BankError(f"{where} has {name} {value}, not {new[name]}. {advice}")
    kept, level = stored.layout.keep, requested.layout.keep
    arrays = kept.array, level.array
    if arrays[0] == arrays[1] == "hidden" and describe_states(stored) != describe_states(requested):
        raise BankError(
            f"{where} has states of {describe_states(stored)},"
            f" not of {describe_states(requested)}. {advice}"
        )
    # A deposit has either rows or states.
    mixed = None not in arrays and arrays[0] != arrays[1]
    if mixed or not kept.covers(level):
        raise KeepLevelError(
            f"{where} keeps {kept}, which does not cover {level}. Use --keep {kept}, or another"
            " bank."
        )


def describe_states(spec: DepositSpec) -> str:
    """The states of a deposit and their head, for a message."""
    heads = ", ".join(f"{kind} head {digest[:12]}" for kind, digest in sorted(spec.heads.items()))
    return f"{spec.layout.width} entries, for {heads or 'no head'}"
