"""docs/format.md against a real bank: its paths, fields, columns, digests and Python.

Digests and one shard are worked out here from the document, with the standard library alone.
"""

import hashlib
import json
import re
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from logitbank.store import (
    Bank,
    BlockData,
    CheckpointId,
    DepositSpec,
    Keep,
    Layout,
    OptionTokens,
    Query,
    QuerySet,
    rescore,
    verify,
)
from logitbank.store.format.schema import SCORES_SCHEMA, folder_name, json_digest
from logitbank.store.tables.query_tables import TOKENIZER_KEY
from logitbank.store.tables.table_files import content_digest
from tests.support.paths import ROOT
from tests.support.small_banks import (
    QUERY_SET,
    TOKENIZER,
    block_data,
    new_bank,
    prompt_table,
    rewrite,
    spec,
    token_table,
)

DOCUMENT = (ROOT / "docs" / "format.md").read_text()
SECTIONS = dict(re.findall(r"^#+ (.+)\n((?:(?!#+ ).*\n)*)", DOCUMENT, re.MULTILINE))
BLOCKS = re.findall(r"^```(\w+) ?([\w-]*)\n(.*?)\n```$", DOCUMENT, re.MULTILINE | re.DOTALL)
EXAMPLES = {name: text for _, name, text in BLOCKS if name}
PARTS = {
    "<deposit>": r"(?!heads/)[\w.%-]+/[\w.%-]+/(0|[1-9]\d*|release)/q-[0-9a-f]{16}",
    "<group>": r"(?!heads)[\w.%-]+(/[\w.%-]+){0,2}",
    "<table>": r"(queries|prompts|tokens)/[\w.%-]+",
    "<prompt set>": r"[A-Za-z0-9._%-]+",
    "<tokenizer>": r"[A-Za-z0-9._%-]+",
    "<query set>": r"q-[0-9a-f]{16}",
    "<block>": r"(0|[1-9]\d*)",
    "<hex12>": r"[0-9a-f]{12}",
    "<digest>": r"[0-9a-f]{64}",
    "<hex8>": r"[0-9a-f]{8}",
    "<time>": r"\d{8}T\d{6}Z",
}


def table(section: str, index: int = 0) -> dict[str, str]:
    """First and second column of a table of the document."""
    found = re.findall(r"(?:^\|.*\n)+", SECTIONS[section], re.MULTILINE)[index]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in found.splitlines()[2:]]
    return {row[0].strip("`"): row[1].strip("`") for row in rows}


def digest(text: str | bytes) -> str:
    return hashlib.sha256(text.encode() if isinstance(text, str) else text).hexdigest()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four deposits: sealed, with a block missing, with further options, and without full rows."""
    bank = new_bank(tmp_path_factory.mktemp("format") / "b")
    for step, sealed in ((0, True), (1, False), (2, True), (None, True)):
        keep = Keep("topk", 2) if step is None else Keep("full")
        with bank.begin(spec(step, keep=keep)) as writer:
            for block in writer.missing()[: None if sealed else 2]:
                writer.write(block, block_data(writer.layout, block))
            writer.seal()
        if step == 2:
            rescore(writer.deposit, OptionTokens.build([[2, 5]] + [[]] * 9))
    bank.add_tokens(TOKENIZER, token_table())
    log = bank.path / "runs" / "20261122T020154Z-0badcafe.jsonl"
    log.parent.mkdir()
    log.write_bytes((EXAMPLES["run-log"] + "\n").encode())
    assert verify(bank) == ()
    return bank.path


@pytest.fixture
def bank(made: Path, tmp_path: Path) -> Bank:
    return Bank.open(shutil.copytree(made, tmp_path / "b"))


def deposit_folder(bank: Bank, step: int) -> Path:
    return bank.path / f"org%2Fmodel/main/{step}" / QUERY_SET.name


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def files(bank: Bank) -> list[str]:
    return [str(p.relative_to(bank.path)) for p in bank.path.rglob("*") if p.is_file()]


def test_every_path_is_in_the_document_and_every_documented_path_exists(bank: Bank) -> None:
    patterns = {}
    for path in table("2. Folders and files"):
        pieces = re.split(r"(<[^>]+>)", path)
        patterns[path] = re.compile("".join(PARTS.get(p) or re.escape(p) for p in pieces))
    found = files(bank) + files(Bank.open(ROOT / "tests/data/format-1/states"))
    matches = {file: [p for p, r in patterns.items() if r.fullmatch(file)] for file in found}
    assert {file: m for file, m in matches.items() if len(m) != 1} == {}
    # The index is made where a bank is published; test_index_is_as_documented.
    assert set(patterns) - {"index.json.gz"} == {m[0] for m in matches.values()}


def test_names_become_path_parts_as_documented() -> None:
    examples = table("Names")
    assert len(examples) == 5
    for name, part in examples.items():
        encoded = "".join(
            chr(b) if chr(b).isascii() and re.match(r"[\w.-]", chr(b), re.ASCII) else f"%{b:02X}"
            for b in name.encode()
        )
        encoded = "%2E" + encoded[1:] if encoded.startswith(".") else encoded
        encoded = "%5F%5F" + encoded[2:] if encoded.startswith("__") else encoded
        assert encoded == part
        assert folder_name(name) == part


def test_a_sealed_deposit_has_as_many_files_as_documented(bank: Bank) -> None:
    shards = [f for f in files(bank) if re.search(r"/0/q-.*/logprobs/c/", f)]
    assert len([f for f in files(bank) if "/0/q-" in f]) - len(shards) == 6
    assert len([f for f in files(bank) if "/release/q-" in f]) == 5
    assert "six files, five at" in " ".join(SECTIONS["8. Writing"].split())


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("block", "1/commits/1.json"),
        ("seal", "0/commits/seal.json"),
        ("options", "2/commits/options-*.json"),
    ],
)
def test_commits_have_the_documented_fields_in_order(bank: Bank, kind: str, path: str) -> None:
    step, name = path.split("/", 1)
    (file,) = deposit_folder(bank, int(step)).glob(name)
    content = read(file)
    assert list(content) == [f for f, kinds in table("Commits").items() if kind in kinds]
    assert list(content["objects"]) == sorted(content["objects"])
    for relative, value in content["objects"].items():
        data = (deposit_folder(bank, int(step)) / relative).read_bytes()
        assert list(value) == ["sha256", "bytes"]
        assert value == {"sha256": digest(data), "bytes": len(data)}


def test_commits_vouch_for_the_documented_objects(bank: Bank) -> None:
    block = read(deposit_folder(bank, 1) / "commits/1.json")
    assert list(block["objects"]) == ["logprobs/c/1/0", "scores/1.parquet"]
    assert (block["block"], block["rows"]) == (1, [4, 8])
    seal = read(deposit_folder(bank, 0) / "commits/seal.json")
    plain = {"zarr.json", "logsumexp/zarr.json", "logsumexp/c/0", "scores/all.parquet"}
    full = {"logprobs/zarr.json", *(f"logprobs/c/{b}/0" for b in range(3))}
    assert set(seal["objects"]) == plain | full
    assert (seal["blocks"], seal["rows"]) == (3, [0, 10])


def test_groups_have_the_documented_fields_in_order(bank: Bank) -> None:
    root = read(bank.path / "zarr.json")
    assert list(root) == ["zarr_format", "node_type", "attributes"]
    assert list(root["attributes"]) == ["logitbank"]
    assert list(root["attributes"]["logitbank"]) == list(table("Bank: `zarr.json`"))
    deposit = read(deposit_folder(bank, 0) / "zarr.json")
    assert list(deposit) == ["zarr_format", "node_type", "attributes", "consolidated_metadata"]
    attributes = deposit["attributes"]["logitbank"]
    assert list(attributes) == list(table("Deposit: `zarr.json`"))
    consolidated = deposit["consolidated_metadata"]
    assert list(consolidated) == ["kind", "must_understand", "metadata"]
    assert list(consolidated["metadata"]) == ["logsumexp", "logprobs"]
    for name, metadata in consolidated["metadata"].items():
        assert metadata == read(deposit_folder(bank, 0) / name / "zarr.json")
    plain = {"zarr_format": 3, "node_type": "group", "attributes": {}}
    assert read(bank.path / "org%2Fmodel/main/0/zarr.json") == plain


def test_every_member_of_every_document_is_named(bank: Bank) -> None:
    named = set(re.findall(r"`([\w.]+)`", DOCUMENT)) | set(re.findall(r'"(\w+)":', DOCUMENT))
    for file in files(bank):
        if file.endswith(".json"):
            assert set(_members(read(bank.path / file))) - named == set(), file


def _members(value: Any) -> Iterator[str]:
    """Names of members, at any depth; those of `objects` are paths."""
    for name, inner in value.items() if isinstance(value, dict) else ():
        yield name
        for one in inner.values() if name == "objects" else [inner]:
            yield from _members(one)
    for inner in value if isinstance(value, list) else ():
        yield from _members(inner)


def test_documents_are_the_documented_bytes(bank: Bank) -> None:
    for file in files(bank):
        if file.endswith(".json"):
            text = (bank.path / file).read_bytes()
            assert text == (json.dumps(json.loads(text), indent=2) + "\n").encode()


def test_provenance_fields_are_those_that_extraction_writes(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    from logitbank.engine.backends.hf.backend import TransformersBackend
    from logitbank.engine.backends.protocol import EngineSettings
    from logitbank.engine.suites.suites import Checkpoint, LocalSource
    from logitbank.engine.workers.runner import _provenance

    class FakeTokenizer:
        digest = "00"

    class FakePrepared:
        settings = EngineSettings("transformers", adapter_languages=("en_XX",))
        adapter_source = LocalSource(Path("other"))
        tokenizer = FakeTokenizer()
        special_tokens: ClassVar[dict[str, str]] = {"mine": "<s>"}

    checkpoint = Checkpoint(CheckpointId("m", step=0), LocalSource(Path("step0")))
    made = _provenance(checkpoint, FakePrepared())  # type: ignore[arg-type]
    (tmp_path / "config.json").write_text('{"model_type": "gpt2", "vocab_size": 9}')
    made |= TransformersBackend(tmp_path, FakePrepared.settings).describe()
    adapters = {"adapter_languages", "adapter_weights"}
    elsewhere = {"weights", "canary_difference", "block_size", "deterministic"}
    elsewhere |= {
        "float32_products",
        "canary_rounding",
        "packed",
        "config",
    }
    named = set(re.findall(r"`(\w+)`", SECTIONS["Provenance"]))
    other = {"array", "matrices", "shrunk_from", "filter", "filtered_from"}
    assert named == set(made) | elsewhere | adapters | other


def test_array_metadata_are_the_documented_ones(tmp_path: Path) -> None:
    deposit = _wide_deposit(tmp_path)
    for name in ("logprobs", "logsumexp"):
        text = (deposit / name / "zarr.json").read_text()
        assert text == json.dumps(json.loads(EXAMPLES[name]), indent=2) + "\n"


def _wide_deposit(tmp_path: Path) -> Path:
    """300 queries, 5,000 outputs, float16, blocks of 256: the layout in the document."""
    bank = Bank.create(tmp_path / "b")
    name = bank.add_query_set(QuerySet("toy", tuple(Query((i,), 0) for i in range(300))))
    layout = Layout(300, 5000, "float16", Keep("full"), 256)
    with bank.begin(DepositSpec(CheckpointId("m", step=1), name, layout, 5000, {})) as writer:
        for block in range(2):
            rows = layout.rows(block)
            writer.write(block, BlockData(_distinct(rows), _top(rows)))
        writer.seal()
    return writer.deposit.path


def _distinct(rows: range) -> np.ndarray:
    return -(np.array(rows)[:, None] + np.arange(5000) / 8).astype(np.float16)


def _top(rows: range) -> pl.DataFrame:
    values = [(row, 0, "top", 0.0, 1.0, 1, 0, 0, 0, True) for row in rows]
    return pl.DataFrame(values, schema=SCORES_SCHEMA, orient="row")


def test_a_shard_is_the_documented_bytes(tmp_path: Path) -> None:
    blosc = pytest.importorskip("numcodecs.blosc").Blosc()
    shard = (_wide_deposit(tmp_path) / "logprobs" / "c" / "1" / "0").read_bytes()
    chunks = 256 // 128 * 2  # 2 by 2 inner chunks of 128 × 2,500
    index = shard[-16 * chunks - 4 : -4]
    assert struct.unpack("<I", shard[-4:])[0] == _crc32c(index)
    places = struct.unpack(f"<{2 * chunks}Q", index)
    offset, length = places[2:4]  # inner chunk (0, 1): rows 256 to 383, outputs 2500 to 4999
    frame = shard[offset : offset + length - 4]
    assert struct.unpack("<I", shard[offset + length - 4 : offset + length])[0] == _crc32c(frame)
    values = blosc.decode(frame)
    assert len(values) == 128 * 2500 * 2
    row, token = 299, 4999
    (value,) = struct.unpack_from("<e", values, 2 * ((row - 256) * 2500 + token - 2500))
    assert value == np.float16(-(299 + 4999 / 8))
    absent = 2**64 - 1
    assert all(place == absent for place in places[4:]) or absent not in places


def _crc32c(data: bytes) -> int:
    """CRC-32C (Castagnoli), bit by bit through a table of 256 entries."""
    entries = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
        entries.append(value)
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ entries[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def test_crc32c_check_value() -> None:
    assert _crc32c(b"123456789") == 0xE3069283


@pytest.mark.parametrize(
    ("section", "path"),
    [
        ("`queries/<query set>.parquet`", "queries/q-*.parquet"),
        ("`prompts/<prompt set>-<hex12>.parquet`", "prompts/parity-*.parquet"),
        ("`tokens/<tokenizer>-<hex12>.parquet`", "tokens/*.parquet"),
        ("`scores/<part>.parquet`", "org%2Fmodel/main/0/q-*/scores/all.parquet"),
        ("`scores/<part>.parquet`", "org%2Fmodel/main/1/q-*/scores/1.parquet"),
        ("`scores/<part>.parquet`", "org%2Fmodel/main/2/q-*/scores/options-*.parquet"),
    ],
)
def test_tables_have_the_documented_columns(bank: Bank, section: str, path: str) -> None:
    (file,) = bank.path.glob(path)
    frame = pl.read_parquet(file)
    kinds = {
        n: str(t).split("(")[0].removeprefix("List") or "List" for n, t in frame.schema.items()
    }
    columns = dict(table(section))
    if file.stem == "all" or file.stem.startswith("options"):
        columns |= {"model": "String", "run": "String", "step": "Int64 or null"}
        columns["query_set"] = "String"
    documented = {n: t.removesuffix(" or null") for n, t in columns.items()}
    assert list(documented) == frame.columns
    for name, kind in documented.items():
        assert kind.startswith(kinds[name]), name
        nullable = columns[name].endswith(" or null")
        assert nullable or frame[name].null_count() == 0, name


def test_scores_are_in_the_documented_order(bank: Bank) -> None:
    for file in deposit_folder(bank, 2).glob("scores/*.parquet"):
        place = pl.when(pl.col("kind") == "top").then("rank").otherwise(0)
        rows = pl.read_parquet(file).select("query", "kind", place, "token").rows()
        assert rows == sorted(rows)  # "option" < "top" in the alphabet too


def test_query_set_carries_its_tokenizer(bank: Bank) -> None:
    assert f"`{TOKENIZER_KEY}`" in SECTIONS["`queries/<query set>.parquet`"]
    (file,) = bank.path.glob("queries/*.parquet")
    assert pl.read_parquet_metadata(file)[TOKENIZER_KEY] == QUERY_SET.tokenizer


def test_query_set_example() -> None:
    first = '[[5,7,9],[],2,"next_token",""]'
    second = '[[5,7,9],[],1,"next_token",""]'
    third = '[[4,3],[0,0],1,"mask","de_CH"]'
    text = f'["toy",[{first},{second},{third}]]'
    assert EXAMPLES["query-set"] == text
    whole, name = EXAMPLES["query-set-digest"].split()
    assert digest(text) == whole
    assert name == "q-" + whole[:16]
    queries = (
        Query((5, 7, 9), 2),
        Query((5, 7, 9), 1),
        Query((4, 3), 1, "mask", (0, 0), "de_CH"),
    )
    assert QuerySet("toy", queries).name == name


def test_contexts_are_rows_in_the_documented_order() -> None:
    contexts = [Query((5, 7, 9), 2), Query((5, 7), 1), Query((5, 8), 1), Query((4, 1), 0)]
    query_set, rows = QuerySet.from_contexts("toy", contexts)
    documented = ((4,), 0), ((5, 7, 9), 1), ((5, 7, 9), 2), ((5, 8), 1)
    assert query_set.queries == tuple(Query(*each) for each in documented)
    assert rows.tolist() == [2, 1, 3, 0]


def test_prompts_example() -> None:
    text = EXAMPLES["prompts"]
    whole, name = EXAMPLES["prompts-digest"].split()
    assert digest(text) == whole
    assert name == whole[:12]
    columns = json.loads(text)
    assert [c[0] for c in columns] == [*table("`prompts/<prompt set>-<hex12>.parquet`"), "weight"]
    frame = pl.DataFrame([pl.Series(n, v, getattr(pl, kind)) for n, kind, v in columns])
    assert content_digest(frame) == name


def test_prompts_are_named_by_the_documented_digest(tmp_path: Path) -> None:
    prompts = prompt_table(split="dev", share=0.1, tiny=1e-05)
    columns = [
        [c, str(prompts[c].dtype), prompts[c].to_list()]  # Polars' names are the documented ones
        for c in prompts.columns
    ]
    text = json.dumps(columns, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert '["share","Float64",[0.1,' in text
    assert '["tiny","Float64",[1e-05,' in text
    assert '["order_seed","Int32",[null,' in text
    assert new_bank(tmp_path / "b").add_prompts("x", prompts) == digest(text)[:12]


def test_options_example(bank: Bank) -> None:
    whole, name = EXAMPLES["options-digest"].split()
    assert digest(EXAMPLES["options"]) == whole
    assert name == whole[:12]
    options = OptionTokens.build([[8, 4], [], [2]])
    assert json_digest([options.offsets.tolist(), options.tokens.tolist()]) == whole
    offsets = ",".join(map(str, [0] + [2] * 10))
    part = "options-" + digest(f"[[{offsets}],[2,5]]")[:12]
    assert (deposit_folder(bank, 2) / "scores" / f"{part}.parquet").is_file()


def test_weights_example() -> None:
    tensor = b"float32 [2, 1]\n" + struct.pack("<2f", 1.0, -2.0)
    assert EXAMPLES["weights-digest"] == digest(f'[["a","{digest(tensor)}"]]')
    torch = pytest.importorskip("torch")
    from logitbank.engine.weights.digests import ContentDigest

    content = ContentDigest()
    content.update("a", torch.tensor([[1.0], [-2.0]]))
    assert content.hexdigest() == EXAMPLES["weights-digest"]


def test_the_reader_of_the_document_needs_no_logitbank(bank: Bank, tmp_path: Path) -> None:
    """It gives the scores of sealed and unfinished deposits, and refuses one flipped bit."""
    code = """import sys
from importlib.abc import MetaPathFinder
class Absent(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] == "logitbank": raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent())
from reader import Path, rows, scores
scores(Path(sys.argv[1]), "parity").write_parquet(sys.argv[2])
print(*map(float, rows(Path(sys.argv[3]), 1)[2]))
"""
    assert len([line for line in EXAMPLES["reader"].splitlines() if line.strip()]) <= 40
    (tmp_path / "reader.py").write_text(EXAMPLES["reader"])
    (tmp_path / "read.py").write_text(code)
    command = [sys.executable, "read.py", bank.path, "out.parquet", deposit_folder(bank, 1)]
    read = partial(subprocess.run, command, cwd=tmp_path, capture_output=True, text=True)
    done = read()
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    key = ["model", "run", "step", "prompt_id", "order_seed", "option", "token"]
    columns = [*key, "row", "logit", "logsumexp", "rank", "ties", "exact", "is_answer"]
    found = pl.read_parquet(tmp_path / "out.parquet").select(columns).sort(key)
    expected = bank.scan("parity").select(columns).collect().sort(key)
    assert_frame_equal(found, expected, check_dtypes=False)
    unfinished = next(d for d in bank.deposits() if d.checkpoint.step == 1)
    assert [float(x) for x in done.stdout.split()] == unfinished.logprobs([6])[0].tolist()
    shard = deposit_folder(bank, 1) / "logprobs/c/1/0"
    shard.write_bytes(bytes([shard.read_bytes()[0] ^ 1]) + shard.read_bytes()[1:])
    assert "logprobs/c/1/0 differs from its commit" in read().stderr


def test_what_may_be_deleted_may_be_deleted(bank: Bank) -> None:
    expected = bank.scan("parity").sort("step", "row", "token").collect()
    (bank.path / "org%2Fmodel" / "zarr.json").unlink()
    folder = deposit_folder(bank, 2)
    for file in [*folder.glob("commits/options-*"), *folder.glob("scores/options-*")]:
        file.unlink()
    assert verify(bank) == ()
    kept = bank.scan("parity").sort("step", "row", "token").collect()
    assert kept.equals(expected)


def test_a_deposit_that_another_tool_writes_as_documented_is_whole(
    bank: Bank, tmp_path: Path
) -> None:
    """It is written to a hidden folder, and renamed: tables first, then the deposit."""
    other = new_bank(tmp_path / "other")
    shutil.copytree(bank.path / "tokens", other.path / "tokens")
    place = deposit_folder(other, 0)
    place.parent.mkdir(parents=True)
    for group in list(place.relative_to(other.path).parents)[:-1]:
        shutil.copy(bank.path / group / "zarr.json", other.path / group)
    hidden = shutil.copytree(deposit_folder(bank, 0), other.path / ".written-elsewhere")
    assert other.deposits() == []
    assert verify(other) == ()
    hidden.rename(place)
    assert verify(other) == ()
    key = ["row", "token"]
    expected = bank.scan("parity", steps=0).sort(key).collect()
    assert other.scan("parity").sort(key).collect().equals(expected)


def test_members_that_a_reader_does_not_know_are_ignored(bank: Bank) -> None:
    rewrite(
        bank.path / "zarr.json",
        lambda document: document["attributes"]["logitbank"].update(colour=1),
    )
    assert len(Bank.open(bank.path).deposits()) == 4
