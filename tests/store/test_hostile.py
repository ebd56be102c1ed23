"""Banks made to harm: sizes that lie, bombs, other codecs. Refused, in bounded memory.

Each is read in a process of bounded memory; what the bank claims would take more.
"""

import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import polars as pl
import pytest

from logitbank.errors import DamagedError, UsageError
from logitbank.store import Bank, Deposit, Keep, Layout, merge, verify
from logitbank.store.deposits.writer import write_scores
from logitbank.store.files import documents, objects
from logitbank.store.files.objects import compute_digest
from logitbank.store.format import commits, parquet
from logitbank.store.format.codecs import ROWS
from logitbank.store.format.grid import Grid
from logitbank.store.format.parquet import MAX_TEXT
from logitbank.store.format.shards import encode_index, shard
from logitbank.store.tables.table_files import content_digest, write_table
from tests.support.bounded_reader import BoundedReader
from tests.support.small_banks import (
    block_data,
    fill,
    new_bank,
    prompt_table,
    recommit,
    resign_table,
    rewrite,
    spec,
)

HUGE = 2**31 - 1
Look = Callable[[Deposit], dict[str, Any]]


@pytest.fixture(scope="module")
def look() -> Iterator[Look]:
    """What every way of reading makes of the bank of a deposit."""
    with BoundedReader() as reader:
        yield lambda deposit: reader.look(deposit.path.parents[3])


@pytest.fixture
def victim(tmp_path: Path) -> Deposit:
    """A sealed deposit in a sound bank, to be turned into something else."""
    return fill(new_bank(tmp_path / "b"), spec(0))


def claim(deposit: Deposit, **sizes: int) -> None:
    path = deposit.path / "zarr.json"
    document = json.loads(path.read_text())
    own = document["attributes"]["logitbank"]
    own |= sizes
    path.write_bytes(documents.signed(document, own))


@pytest.mark.parametrize(
    "sizes",
    [
        {"queries": HUGE, "block_rows": HUGE},
        {"vocab": HUGE},
        {"queries": HUGE, "vocab": HUGE, "block_rows": HUGE},
        {"queries": HUGE, "block_rows": 65536},  # 32,768 blocks
        {"vocab": 2**24},
        {"keep_k": HUGE},
    ],
)
def test_sizes_that_lie_allocate_nothing(
    victim: Deposit, look: Look, sizes: dict[str, int]
) -> None:
    claim(victim, **sizes)
    found = look(victim)
    assert found["verify"], "the attributes are not those of the seal"
    if "keep_k" in sizes:
        return
    for _ in range(2):
        for read in ("rows", "normalised"):
            assert found[read].startswith("DamagedError") or "not in the bank" in found[read]
        recommit(victim.path, "zarr.json")  # as who signs the seal again does
        found = look(victim)
        assert found["verify"], "the attributes are not those of the arrays"


def crc32c(data: bytes) -> bytes:
    return google_crc32c.value(data).to_bytes(4, "little")


def shard_of(frame: bytes) -> bytes:
    """A shard of one inner chunk, with checksums that are right."""
    chunk = frame + crc32c(frame)
    index = (0).to_bytes(8, "little") + len(chunk).to_bytes(8, "little")
    return chunk + index + crc32c(index)


@cache
def bomb(size: int) -> bytes:
    from numcodecs import Blosc

    # Not shuffled, which takes a fifth of the time; a frame says itself how it is to be read.
    return bytes(Blosc("lz4", 5, Blosc.NOSHUFFLE).encode(np.zeros(size // 4, np.float32)))


def lying(frame: bytes) -> bytes:
    """The same frame, telling that it holds 96 bytes."""
    return frame[:4] + (96).to_bytes(4, "little") + frame[8:]


@pytest.mark.parametrize("frame", [bomb, lambda size: lying(bomb(size))])
def test_a_decompression_bomb_is_not_decompressed(
    victim: Deposit, look: Look, frame: Callable[[int], bytes]
) -> None:
    (victim.path / "logprobs/c/0/0").write_bytes(shard_of(frame(2_000_000_000)))
    found = look(victim)
    assert found["row"].startswith("DamagedError"), found["row"]
    assert found["group"].startswith("DamagedError"), found["group"]
    assert found["rows"].startswith("DamagedError")
    assert found["side"] != "fine"
    assert "logprobs/c/0/0: changed" in found["verify"][0]


def large(bank: Bank) -> Deposit:
    """A deposit of ten rows of 2^24 entries, 640 MB, of which no row has been written."""
    layout = Layout(10, 2**24, "float32", Keep("full"), 10)
    return bank.begin(replace(spec(1), layout=layout, vocab_entries=2**24)).deposit


def index_alone(grid: Grid) -> bytes:
    """A shard without any inner chunk."""
    rows, columns = (n // m for n, m in zip(grid.shard_shape, grid.chunk_shape, strict=True))
    return encode_index([0] * rows * columns)


def test_a_small_shard_that_claims_a_large_block_is_refused(tmp_path: Path, look: Look) -> None:
    bank = new_bank(tmp_path / "b")
    deposit = large(bank)
    grid = deposit.layout.grid
    assert grid is not None
    shard = deposit.path / "logprobs/c/0/0"
    shard.parent.mkdir(parents=True)
    shard.write_bytes(index_alone(grid))
    assert shard.stat().st_size < 1_000_000
    scores = deposit.path / "scores/0.parquet"
    write_scores(scores, block_data(replace(spec().layout, block_rows=10), 0).scores)
    listed = {f"{p.relative_to(deposit.path)}": objects.digest(p) for p in (shard, scores)}
    commits.commit(deposit.path, "0", objects_=listed, block=0, rows=[0, 10])
    found = look(deposit)
    for read in ("rows", "row", "group"):
        assert found[read].startswith("DamagedError"), found
    assert "logprobs/c/0/0: changed" in found["verify"][0]


def test_a_small_log_sum_exp_that_claims_much_is_refused(victim: Deposit, look: Look) -> None:
    from numcodecs import zstd

    frame = zstd.compress(np.zeros(2**30, np.int8), 1, True)
    (victim.path / "logsumexp/c/0").write_bytes(frame + crc32c(frame))
    recommit(victim.path, "logsumexp/c/0")
    found = look(victim)
    assert found["group"].startswith("DamagedError")
    assert "names 1,073,741,824 bytes; all have 40" in found["verify"][0]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("shape", [HUGE, HUGE]),
        ("data_type", "object"),
        ("codecs", [{"name": "numcodecs.pickle"}]),
        ("codecs", [{"name": "https://example.org/codec"}]),
        ("storage_transformers", [{"name": "run", "configuration": {"command": "touch x"}}]),
    ],
)
def test_array_metadata_of_strangers_are_not_obeyed(
    victim: Deposit, look: Look, key: str, value: object
) -> None:
    path = victim.path / "logprobs" / "zarr.json"
    path.write_bytes(documents.json_bytes(json.loads(path.read_text()) | {key: value}))
    found = look(victim)
    assert "is not the metadata of this array" in found["rows"]
    assert found["scan"] == "fine"
    assert "logprobs/zarr.json" in found["verify"][0]


@pytest.mark.whole
def test_a_parquet_file_of_many_equal_rows_is_not_spread_out(victim: Deposit, look: Look) -> None:
    """Few bytes that claim 30 million rows, 1.2 GB in memory."""
    part = victim.path / "scores" / "all.parquet"
    one = pl.read_parquet(part).head(1)
    rows = pl.select(pl.repeat(0, 3_000_000, dtype=pl.Int32).alias("query"))
    wide = rows.with_columns(
        pl.lit(one[name][0], one.schema[name]).alias(name) for name in one.columns[1:]
    )
    pl.concat([wide] * 10).lazy().sink_parquet(part, compression="zstd", row_group_size=3_000_000)
    assert part.stat().st_size < 1_000_000
    for why in ("differs from its commit", "claims 30,000,000 rows in"):
        found = look(victim)
        for read in ("scan", "logsumexp"):
            assert found[read].startswith("DamagedError"), found
            assert why in found[read]
        recommit(victim.path, "scores/all.parquet")


def text_bomb(table: Path, column: str, rows: int) -> None:
    """Repeat the first row, with one text of 15 MiB in a column, which a dictionary has once."""
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    wide = parquet.read_table(table).slice(0, 1).take([0] * rows)
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), ["x" * (15 << 20)])
    wide = wide.set_column(wide.column_names.index(column), column, texts)
    metadata = {**pl.read_parquet_metadata(table)}
    wide = wide.replace_schema_metadata({k: v for k, v in metadata.items() if k != "ARROW:schema"})
    parquet.write_table(
        wide, table, compression="zstd", dictionary_pagesize_limit=1 << 30, store_schema=False
    )
    resign_table(table)


@pytest.mark.parametrize(
    ("folder", "column"), [("queries", "language"), ("queries", "head"), ("prompts", "query_set")]
)
def test_one_long_text_in_a_dictionary_is_not_repeated(
    victim: Deposit, look: Look, folder: str, column: str
) -> None:
    """A few kB that Python would repeat for each row."""
    (table,) = victim.bank.glob(f"{folder}/*.parquet")
    text_bomb(table, column, 2_000)
    assert table.stat().st_size < 50_000
    found = look(victim)
    assert any(table.name in damage for damage in found["verify"]), found


def test_lists_of_equal_tokens_are_not_spread_out(
    victim: Deposit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """358 bytes of them took 2.5 GB."""
    (table,) = victim.bank.glob("queries/*.parquet")
    count = 100_000
    ids = pl.select(pl.repeat(0, count, dtype=pl.Int32).implode().alias("ids"))
    ids.write_parquet(table, row_group_size=1)
    assert table.stat().st_size < 2_000
    resign_table(table)
    monkeypatch.setattr(parquet, "MAX_VALUES", count - 1)
    claim = f"claims {count:,} values of ids.list.element"
    assert any(claim in damage.detail for damage in verify(Bank.open(victim.bank)))


def test_blosc_frames_tell_their_size_and_their_length() -> None:
    for size in (4, 96, 1_000_000):
        frame = bomb(size)
        assert ROWS.claimed_size(frame[:16], len(frame)) == size
        assert ROWS.claimed_size(frame[:16], len(frame) - 1) is None
    assert ROWS.claimed_size(frame[:15], len(frame)) is None


def test_attributes_at_random_are_refused_or_read(victim: Deposit) -> None:
    """A fuzzer's first five hundred: JSON values in place of others, at any depth."""
    rng = np.random.default_rng(0)
    path = victim.path / "zarr.json"
    sound = path.read_bytes()
    values: list[Any] = [None, True, -1, 0, HUGE, 2**63, 2**70, 1.5, 1e308, "", "x" * 9, "../..",
                         "a\0b", [], {}, [[]], {"a": None}]  # fmt: skip
    refused = 0
    for _ in range(500):
        document = json.loads(sound)
        node: Any = document
        while True:
            keys = list(node) if isinstance(node, dict) else list(range(len(node)))
            key = keys[rng.integers(len(keys))]
            if isinstance(node[key], dict | list) and node[key] and rng.random() < 0.8:
                node = node[key]
                continue
            node[key] = values[rng.integers(len(values))]
            break
        own = document.get("attributes")
        own = own.get("logitbank") if isinstance(own, dict) else None
        with suppress(ValueError, TypeError):  # infinities; those are no JSON
            path.write_bytes(documents.signed(document, own if isinstance(own, dict) else {}))
        refused += _refused(victim)
    assert 0 < refused < 500


def _refused(victim: Deposit) -> bool:
    from logitbank.errors import LogitbankError

    try:
        bank = Bank.open(victim.path.parents[3])
        bank.info()
        bank.scan("parity").collect()
        for deposit in bank.deposits():
            deposit.logprobs([0])
            str(deposit.spec.provenance)
    except LogitbankError:
        return True
    return False


def test_half_a_character_is_refused(victim: Deposit) -> None:
    """JSON can escape what no UTF-8 can hold, and tables and other documents could not repeat."""
    path = victim.path / "zarr.json"
    path.write_text(path.read_text().replace('"engine": "test"', '"engine": "\\ud800"'))
    with pytest.raises(DamagedError, match=r"zarr\.json is not JSON \(.*surrogates not allowed"):
        Bank.open(victim.path.parents[3]).info()
    rewrite(path, lambda told: told["attributes"]["logitbank"]["provenance"].update(engine="😀"))
    recommit(victim.path, "zarr.json")
    assert Bank.open(victim.path.parents[3]).info()["engine"].to_list() == ["😀"]


@pytest.mark.parametrize("size", ["-10", "1e999", "true", '"5"', str(10**30)])
def test_impossible_sizes_in_commits_are_refused(
    victim: Deposit, tmp_path: Path, size: str
) -> None:
    seal, bank = victim.path / "commits" / "seal.json", victim.path.parents[3]
    there = f'"bytes": {(victim.path / "logsumexp/c/0").stat().st_size}\n'
    text = seal.read_text().replace(there, f'"bytes": {size}\n')
    unsigned = re.sub(r',\n  "sha256": "\w+"\n}\n$', "", text)
    told = hashlib.sha256(f"{unsigned}\n}}\n".encode()).hexdigest()
    seal.write_text(f'{unsigned},\n  "sha256": "{told}"\n}}\n')
    for read in (lambda: Bank.open(bank).info(), lambda: merge(tmp_path / "m", bank)):
        with pytest.raises(DamagedError, match=r"seal\.json"):
            read()
    assert [damage.problem for damage in verify(Bank.open(bank))] == ["changed"]


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
@pytest.mark.parametrize(
    "name", ["zarr.json", "commits/seal.json", "scores/all.parquet", "logprobs/c/1/0"]
)
def test_what_is_no_file_is_named(
    victim: Deposit, tmp_path: Path, name: str, make: Callable[[Path], None]
) -> None:
    """A reader of a pipe would wait for ever."""
    bank = Bank.open(victim.path.parents[3])
    (victim.path / name).unlink()
    make(victim.path / name)
    assert verify(bank)
    with pytest.raises(DamagedError, match=rf"{name} is not a file\. Move it away"):
        merge(tmp_path / "m", bank.path)
    with pytest.raises(DamagedError, match=rf"{name} is not a file\. Move it away"):
        _read(bank)


def _read(bank: Bank) -> None:
    bank.scan("parity").collect()
    bank.deposits()[0].logprobs()
    bank.info()


def test_inner_chunks_of_one_shard_do_not_share_bytes() -> None:
    """One frame for all inner chunks: few bytes that claim as many rows as their maker likes."""
    grid = Grid(512, 8, "float32", 512)
    height, width = grid.chunk_shape
    count = (grid.shard_shape[0] // height) * (grid.shard_shape[1] // width)
    assert count > 1
    frame = bomb(height * width * 4)
    chunk = frame + crc32c(frame)

    def made(places: list[tuple[int, int]]) -> bytes:
        index = b"".join(n.to_bytes(8, "little") for place in places for n in place)
        return chunk * count + index + crc32c(index)

    def opened(data: bytes) -> object:
        return shard(lambda at, n: data[at : at + n], len(data), compute_digest(data), grid)

    size = len(chunk)
    sound = [(i * size, size) for i in range(count)]
    assert opened(made(sound))
    assert opened(made(sound[::-1])), "in any order"
    for places in ([(0, size)] * count, [(0, size + 1), *sound[1:]], [*sound[:-1], sound[0]]):
        with pytest.raises(ValueError, match="have the same bytes"):
            opened(made(places))


LOOK_AT_TABLE = """
import sys
from logitbank.store import verify
def peak():
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) // 1024
before = peak()
found = verify(sys.argv[1])
print(peak() - before, *found, sep="\\n")
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc")
def test_many_equal_texts_are_not_laid_out_at_once(tmp_path: Path) -> None:
    """A thousand texts of 0.4 MB in a table of a few kB took 1.2 GB."""
    bank = new_bank(tmp_path / "b")
    one = prompt_table().head(1)
    many = one.select(pl.all().repeat_by(1000).explode())
    many = many.with_columns(
        text=pl.lit("x" * 400_000), prompt_id=pl.format("p{}", pl.int_range(pl.len()))
    )
    bank.add_prompts("many", many)
    command = [sys.executable, "-c", LOOK_AT_TABLE, str(bank.path)]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    peak, *found = result.stdout.split()
    assert not found
    assert int(peak) < 400


def test_texts_of_a_table_are_bounded(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b")
    large = prompt_table().head(1).with_columns(text=pl.lit("x" * (MAX_TEXT + 1)))
    with pytest.raises(UsageError, match="has a text of more than 16,777,216 bytes"):
        bank.add_prompts("large", large)
    path = bank.path / "prompts" / f"large-{content_digest(large)}.parquet"
    write_table(bank.path, path, large, {})
    (damage,) = verify(bank)
    assert "has a text of 16,777,217 bytes. The maximum is 16,777,216." in damage.detail


def test_all_texts_of_a_table_together_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bank = new_bank(tmp_path / "b")
    monkeypatch.setattr(parquet, "MAX_TEXTS", 2**24)
    one = prompt_table().head(1).with_columns(text=pl.lit("x" * 100_000))
    path = bank.path / "prompts" / f"all-{'0' * 12}.parquet"
    write_table(bank.path, path, one.select(pl.all().repeat_by(300).explode()), {})
    (damage,) = verify(bank)
    assert "has texts of 30,0" in damage.detail
