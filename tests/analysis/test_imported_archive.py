"""Packed logs of inspect_ai: read as the JSON is, and refused where they are damaged."""

import json
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numcodecs.zstd
import pytest

import logitbank
from logitbank.analysis.imported.inspect_ai import read_log
from logitbank.errors import UsageError
from logitbank.store import Bank
from tests.support.inspect_logs import inspect_log, pack, packed_members


@pytest.fixture
def members(tmp_path: Path) -> dict[str, Any]:
    return packed_members(inspect_log(tmp_path / "log.json"))


def zstandard(data: bytes, frames: int = 2) -> bytes:
    """Frames that do not tell their size, as what writes them bit by bit makes them."""
    cut = -(-len(data) // frames)
    made = b""
    for start in range(0, len(data), cut):
        frame = numcodecs.zstd.compress(data[start : start + cut])
        assert frame[4] & 0x20, (
            "a frame of a single segment, whose size stands after its descriptor"
        )
        size = (1, 2, 4, 8)[frame[4] >> 6]
        made += frame[:4] + b"\x00\x70" + frame[5 + size :]  # a window of 16 MiB in its place
    return made


def pack_zstandard(path: Path, members: dict[str, Any]) -> Path:
    """As `pack`, by method 93, which zipfile does not write before Python 3.14."""
    body, listed = b"", b""
    for name, content in members.items():
        data = json.dumps(content).encode()
        packed, at = zstandard(data), len(body)
        about = struct.pack("<5H3IHH", 63, 0, 93, 0, 0, zlib.crc32(data), len(packed), len(data),
                            len(name), 0)  # fmt: skip
        body += b"PK\x03\x04" + about + name.encode() + packed
        listed += (
            b"PK\x01\x02\x3f\x03" + about + struct.pack("<HHHII", 0, 0, 0, 0, at) + name.encode()
        )
    end = struct.pack("<4H2IH", 0, 0, len(members), len(members), len(listed), len(body), 0)
    path.write_bytes(body + listed + b"PK\x05\x06" + end)
    return path


def scores(bank: Path) -> list[tuple[Any, ...]]:
    rows = Bank.open(bank).scan("toy").collect()
    return (
        rows.select("prompt_id", "row", "option", "logprob", "answer")
        .sort("prompt_id", "option")
        .rows()
    )


@pytest.mark.parametrize("packer", [pack, pack_zstandard])
def test_a_packed_log_gives_what_its_json_gives(
    tmp_path: Path, members: dict[str, Any], packer: Any
) -> None:
    logitbank.deposit(tmp_path / "json", tmp_path / "log.json")
    (done,) = logitbank.deposit(tmp_path / "eval", packer(tmp_path / "log.eval", members))
    assert done.left_out == 1
    assert str(done.deposit.checkpoint) == "org/chat release"
    assert scores(tmp_path / "eval") == scores(tmp_path / "json")
    assert len(scores(tmp_path / "eval")) == 5
    imported: Any = done.deposit.spec.provenance["imported"]
    assert [file["name"] for file in imported["files"]] == ["log.eval"]


def test_numbers_are_in_order_whenever_they_ended(tmp_path: Path, members: dict[str, Any]) -> None:
    sample = members["samples/q1_epoch_1.json"]
    ended = [("10", 10, 1), ("2", 2, 2), ("9", 9, 1)]
    samples = {f"samples/{n}_epoch_{e}.json": {**sample, "id": i, "epoch": e} for n, i, e in ended}
    log = pack(tmp_path / "x.eval", {"header.json": members["header.json"], **samples})
    logitbank.deposit(tmp_path / "b", log)
    queries = Bank.open(tmp_path / "b").scan("toy").collect().sort("row")
    assert queries["prompt_id"].unique(maintain_order=True).to_list() == ["9", "10", "2-epoch2"]


def test_what_is_no_sound_log_is_named_and_nothing_is_written(
    tmp_path: Path, members: dict[str, Any]
) -> None:
    q0 = "samples/q0_epoch_1.json"
    less = {name: content for name, content in members.items() if name != "header.json"}
    for change, message in (
        (None, r"has no header\.json, which inspect_ai writes when an evaluation ends"),
        ({"samples/../../x.json": {}}, r"'samples/\.\./\.\./x\.json', which is outside of it"),
        ({"/x.json": {}}, "'/x.json', which is outside of it"),
        ({q0: b"{"}, rf"member {q0}, is no JSON, as"),
        ({q0: []}, rf"member {q0}, is no JSON object"),
        ({q0: b'"' + b"[" * 100_000}, f"member {q0}, is no JSON, as"),
        ({q0: b"[" * 100_000}, f"member {q0}, is no JSON, as"),
        ({"samples/z.json": members[q0]}, r"member samples/z\.json has the id 'q0' again"),
        ({"header.json": {"eval": 1}}, "is no log of inspect_ai: it has no `eval`"),
    ):
        log = pack(tmp_path / "x.eval", less if change is None else {**members, **change})
        with pytest.raises(UsageError, match=message):
            logitbank.deposit(tmp_path / "b", log)
        assert not (tmp_path / "b").exists()


def test_a_member_that_is_there_twice_is_refused(tmp_path: Path, members: dict[str, Any]) -> None:
    log = pack(tmp_path / "x.eval", members)
    with zipfile.ZipFile(log, "a") as file, pytest.warns(UserWarning, match="Duplicate name"):
        file.writestr("header.json", "{}")
    with pytest.raises(UsageError, match=r"'header\.json' twice; write it again with `inspect log"):
        logitbank.deposit(tmp_path / "b", log)


def told_size(log: Path, name: str, size: int) -> None:
    """Write another size of a member's content into the file's list."""
    data = bytearray(log.read_bytes())
    at = data.rindex(name.encode()) - 46 + 24
    data[at : at + 4] = struct.pack("<I", size)
    log.write_bytes(data)


def test_what_would_fill_memory_is_refused(tmp_path: Path, members: dict[str, Any]) -> None:
    names = [f"samples/{i}_epoch_1.json" for i in range(5)]
    log = pack(tmp_path / "x.eval", {**{name: {} for name in names}, **members})
    for name in names:
        told_size(log, name, 2**26)
    with pytest.raises(UsageError, match=r"would unpack to 335,.*, 67,108,864 of them one member"):
        logitbank.deposit(tmp_path / "b", log)
    told_size(log, "header.json", 2**28 + 1)
    with pytest.raises(UsageError, match=r"268,435,457 of them one member, which is more than a"):
        logitbank.deposit(tmp_path / "b", log)


@pytest.mark.parametrize("size", [10, 2**27])
def test_a_member_that_lies_about_its_size_is_refused(
    tmp_path: Path, members: dict[str, Any], size: int
) -> None:
    log = pack_zstandard(tmp_path / "x.eval", members)
    told_size(log, "header.json", size)
    with pytest.raises(UsageError, match=r"member header\.json, cannot be unpacked"):
        logitbank.deposit(tmp_path / "b", log)


@pytest.mark.parametrize("packer", [pack, pack_zstandard])
def test_damage_is_one_error_or_is_not_read(
    tmp_path: Path, members: dict[str, Any], packer: Any
) -> None:
    """A file that is cut short, and one with a changed byte, at every seventh place."""
    log = packer(tmp_path / "x.eval", members)
    whole, sound = log.read_bytes(), read_log(log).items
    assert len(sound) == 2
    for at in range(0, len(whole), 7):
        log.write_bytes(whole[:at])
        with pytest.raises(UsageError):
            read_log(log)
        log.write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
        try:
            found = read_log(log)
        except UsageError:
            continue
        assert all(item in sound for item in found.items)
