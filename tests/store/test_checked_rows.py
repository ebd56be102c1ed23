"""Every reader of full rows answers with what was committed, or refuses: flips, swaps, cuts."""

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from logitbank.analysis.comparison.compare import compare
from logitbank.errors import DamagedError
from logitbank.store import Bank, Filter, apply_filter, shrink, verify
from logitbank.store.change.rescore import rescore
from logitbank.store.format import shards
from logitbank.store.format.schema import Dtype, OptionTokens
from logitbank.store.read.mapping import map_rows
from tests.support.made_once import made_once
from tests.support.small_banks import QUERIES, QUERY_SET, block_data, fill, new_bank, spec

VOCAB = 5000
"""Two inner chunks of 2,500 outputs in each of the blocks, which have 4, 4 and 2 rows."""
SELECTIONS: dict[str, dict[str, Any]] = {
    "whole": {},
    "rows": {"rows": [9, 0]},
    "tokens": {"tokens": [4321, 3, 4321]},
    "both": {"rows": [5, 8, 4], "tokens": [2499]},
}
Read = Callable[[], np.ndarray]


def filled(path: Path, *, dtype: Dtype = "float32", seed: int = 0) -> Bank:
    return Bank.open(_filled(path, dtype=dtype, seed=seed))


@made_once
def _filled(path: Path, *, dtype: Dtype, seed: int) -> None:
    fill(new_bank(path), spec(0, vocab=VOCAB, dtype=dtype), seed=seed)


@cache
def truth(dtype: Dtype = "float32", seed: int = 0) -> np.ndarray:
    """What `filled` wrote, from before it was written."""
    layout = spec(0, vocab=VOCAB, dtype=dtype).layout
    blocks = [block_data(layout, block, seed=seed).rows for block in range(layout.blocks)]
    return np.concatenate(blocks).astype(np.float32)  # type: ignore[arg-type]


def selected(values: np.ndarray, rows: Any = None, tokens: Any = None) -> np.ndarray:
    values = values if rows is None else values[rows]
    return values if tokens is None else values[:, tokens]


def shard_of(bank: Bank, block: int) -> Path:
    return bank.deposits()[0].path / "logprobs" / "c" / str(block) / "0"


def flips(bank: Bank, *, every: int, in_index: int = 3) -> Iterator[tuple[int, int]]:
    """Flip a bit here and there in every shard and all along its index: block and place."""
    for block in range(3):
        path = shard_of(bank, block)
        sound = path.read_bytes()
        index = len(sound) - 16 * 2 - 4
        for at in [*range(0, index, every), *range(index, len(sound), in_index)]:
            path.write_bytes(sound[:at] + bytes([sound[at] ^ (1 << at % 8)]) + sound[at + 1 :])
            yield block, at
        path.write_bytes(sound)


def outcome(read: Read, expected: np.ndarray) -> str:
    try:
        values = read()
    except DamagedError:
        return "refused"
    np.testing.assert_array_equal(values, expected)
    return "right"


@pytest.fixture
def bank(tmp_path: Path) -> Bank:
    return filled(tmp_path / "bank")


@pytest.fixture(params=["by SHA-256", "by CRC-32C"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Shards as small as these are compared whole; larger ones by their checksums."""
    if request.param == "by CRC-32C":
        monkeypatch.setattr(shards, "WHOLE", 0)
    return str(request.param)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_rows_and_tokens_in_any_order_are_what_was_written(
    tmp_path: Path, dtype: Dtype, way: str
) -> None:
    (deposit,) = filled(tmp_path / "b", dtype=dtype).deposits()
    rng, expected = np.random.default_rng(0), truth(dtype)
    for selection in SELECTIONS.values():
        values = deposit.logprobs(**selection)
        np.testing.assert_array_equal(values, selected(expected, **selection))
        assert values.dtype == np.float32
        assert deposit.stored_logprobs(**selection).dtype == dtype
    for _ in range(30):
        rows = rng.integers(0, QUERIES, rng.integers(1, 12))
        tokens = rng.integers(0, VOCAB, rng.integers(1, 40))
        values = deposit.logprobs(rows, tokens)
        np.testing.assert_array_equal(values, expected[np.ix_(rows, tokens)])


def test_a_flipped_bit_anywhere_is_refused_or_not_read(bank: Bank, way: str) -> None:
    (deposit,) = bank.deposits()
    counts = {"refused": 0, "right": 0}
    for block, at in flips(bank, every=1500):
        for name, selection in SELECTIONS.items():
            expected = selected(truth(), **selection)
            result = outcome(lambda s=selection: deposit.logprobs(**s), expected)  # type: ignore[misc]
            counts[result] += 1
            if name == "whole":
                assert result == "refused", (block, at)
    assert counts["refused"] > 200
    assert counts["right"] > 100, "what is not read is not looked at"
    assert outcome(deposit.logprobs, truth()) == "right"


@pytest.mark.whole
def test_every_other_reader_refuses_a_flipped_bit(bank: Bank, tmp_path: Path, way: str) -> None:
    (deposit,) = bank.deposits()
    rows = truth()
    side = bank.to_xarray(QUERY_SET.name).logprobs
    readers: dict[str, Read] = {
        "map_rows": lambda: next(map_rows(bank, lambda values: values[:, :3]))[1],
        "to_xarray": lambda: side[0, :, :3].values,
        "zarr": lambda: deposit.group["logprobs"][:, :3],
    }
    options = OptionTokens.build([[7]] * QUERIES)
    commits = sorted((deposit.path / "commits").iterdir())
    for _ in flips(bank, every=9000, in_index=8):  # one in each of its numbers, and its checksum
        for name, read in readers.items():
            result = outcome(read, rows[:, :3])
            assert result == "refused" or name not in ("map_rows", "zarr")
        with pytest.raises(DamagedError):
            compare(bank.path, bank.path)
        with pytest.raises(DamagedError):
            rescore(deposit, options)
        with pytest.raises(DamagedError):
            shrink(bank.path, tmp_path / "small", dtype="float16")
        with pytest.raises(DamagedError):
            apply_filter(bank, Filter.identity(2), tmp_path / "filtered")
        assert sorted((deposit.path / "commits").iterdir()) == commits
    rescore(deposit, options)
    assert verify(bank) == ()


def test_damage_names_the_shard_its_rows_and_the_next_step(bank: Bank) -> None:
    for _, at in flips(bank, every=20_000):
        if at:
            break
    with pytest.raises(DamagedError, match=r"logprobs/c/0/0 \(block 0, rows 0–3\).* verify`"):
        bank.deposits()[0].logprobs()
    np.testing.assert_array_equal(bank.deposits()[0].logprobs([9]), truth()[[9]])


@pytest.mark.parametrize("change", [lambda d: d[:-1], lambda d: d + b"\0", lambda d: b""])
def test_a_shard_of_another_size_is_refused(
    bank: Bank, way: str, change: Callable[[bytes], bytes]
) -> None:
    path = shard_of(bank, 1)
    size, data = path.stat().st_size, change(path.read_bytes())
    path.write_bytes(data)
    with pytest.raises(DamagedError, match=f"{len(data):,} bytes, committed were {size:,}"):
        bank.deposits()[0].logprobs([5], [3])
    with pytest.raises(DamagedError, match=f"{len(data):,} bytes, committed were {size:,}"):
        bank.to_xarray(QUERY_SET.name).logprobs.load()


def test_a_shard_of_another_checkpoint_is_refused_though_it_is_sound(
    bank: Bank, tmp_path: Path
) -> None:
    other = filled(tmp_path / "other", seed=1)
    shard_of(bank, 0).write_bytes(shard_of(other, 0).read_bytes())
    with pytest.raises(DamagedError, match=r"logprobs/c/0/0 .*(SHA-256|committed were)"):
        bank.deposits()[0].logprobs([0], [3])
    with pytest.raises(DamagedError, match=r"logprobs/c/0/0 differs from its commit"):
        bank.group[bank.deposits()[0].path.relative_to(bank.path).as_posix()]["logprobs"][0]


def test_a_changed_commit_is_seen_by_a_process_that_has_read_it(bank: Bank) -> None:
    (deposit,) = bank.deposits()
    deposit.logprobs([0])
    seal = deposit.path / "commits" / "seal.json"
    seal.write_text(seal.read_text().replace("logprobs/c/0/0", "logprobs/c/0/9"))
    with pytest.raises(DamagedError, match=r"seal\.json was changed.*verify"):
        deposit.logprobs([0])
