import json
import os
import shutil
from pathlib import Path

import polars as pl
import pytest

from logitbank.errors import DamagedError
from logitbank.store import Bank, Query, QuerySet, leftovers, repair, verify
from logitbank.store.files import documents
from logitbank.store.tables.query_tables import TOKENIZER_KEY
from tests.support.small_banks import (
    TOKENIZER,
    block_data,
    new_bank,
    prompt_table,
    recommit,
    rewrite,
    spec,
)


def bank_of_two(path: Path) -> Bank:
    """Step 0 is sealed; of step 1 block 1 is missing."""
    bank = new_bank(path)
    for step, blocks in ((0, (0, 1, 2)), (1, (0, 2))):
        with bank.begin(spec(step)) as writer:
            for block in blocks:
                writer.write(block, block_data(writer.layout, block, seed=step))
            writer.seal()
    return bank


def place(bank: Bank, step: int) -> Path:
    return next(bank.path.glob(f"org%2Fmodel/main/{step}/q-*"))


def problems(bank: Bank) -> list[tuple[str, str]]:
    return [(damage.path, damage.problem) for damage in verify(bank)]


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def test_sound_bank_has_no_damage_and_every_object_is_read(tmp_path: Path) -> None:
    bank = bank_of_two(tmp_path / "b")
    told: list[tuple[str, int, int]] = []
    assert verify(bank, progress=lambda *about: told.append(about)) == ()
    files = {str(p.relative_to(bank.path)) for p in bank.path.rglob("*") if p.is_file()}
    assert {path for path, _, _ in told} == files
    assert [done for _, done, _ in told] == sorted(done for _, done, _ in told)
    assert all(done <= total for _, done, total in told)


@pytest.mark.parametrize("step", [0, 1])
@pytest.mark.parametrize("kind", ["logprobs/c/2/0", "scores", "logprobs/zarr.json"])
def test_flipped_byte_is_named(tmp_path: Path, step: int, kind: str) -> None:
    bank = bank_of_two(tmp_path / "b")
    folder = place(bank, step)
    file = min((folder / kind).glob("*")) if kind == "scores" else folder / kind
    flip(file, file.stat().st_size // 2)
    assert problems(bank) == [(str(file.relative_to(bank.path)), "changed")]


def test_every_object_of_a_sealed_deposit_is_covered(tmp_path: Path) -> None:
    bank = bank_of_two(tmp_path / "b")
    for file in [p for p in place(bank, 0).rglob("*") if p.is_file()]:
        flip(file, 4)
        assert str(file.relative_to(bank.path)) in {damage.path for damage in verify(bank)}
        flip(file, 4)
    assert verify(bank) == ()


def test_missing_truncated_swapped_and_foreign_objects_are_named(tmp_path: Path) -> None:
    bank = bank_of_two(tmp_path / "b")
    folder = place(bank, 0)
    chunks = folder / "logprobs" / "c"
    (chunks / "2" / "0").unlink()
    scores = folder / "scores" / "all.parquet"
    os.truncate(scores, scores.stat().st_size - 1)
    first, second = (chunks / "0" / "0").read_bytes(), (chunks / "1" / "0").read_bytes()
    (chunks / "0" / "0").write_bytes(second)
    (chunks / "1" / "0").write_bytes(first)
    (folder / "scores" / "model.pkl").write_bytes(b"x")
    inside = folder.relative_to(bank.path)
    assert sorted(problems(bank)) == [
        (f"{inside}/logprobs/c/0/0", "swapped"),
        (f"{inside}/logprobs/c/1/0", "swapped"),
        (f"{inside}/logprobs/c/2/0", "missing"),
        (f"{inside}/scores/all.parquet", "truncated"),
        (f"{inside}/scores/model.pkl", "foreign"),
    ]
    assert "it holds the bytes of logprobs/c/1/0" in str(
        next(d for d in verify(bank) if d.path.endswith("c/0/0"))
    )


def test_damaged_commit_is_named(tmp_path: Path) -> None:
    bank = bank_of_two(tmp_path / "b")
    commit = place(bank, 1) / "commits" / "2.json"
    inside = str(commit.relative_to(bank.path))
    commit.write_text("{")
    assert (inside, "unreadable") in problems(bank)
    commit.write_text(json.dumps({"objects": {"scores/2.parquet": {}}}))
    assert (inside, "unreadable") in problems(bank)


def test_commit_that_points_outside_is_refused(tmp_path: Path) -> None:
    bank = bank_of_two(tmp_path / "b")
    commit = place(bank, 1) / "commits" / "2.json"
    entry = {"sha256": "0", "bytes": 1}
    rewrite(commit, lambda told: told.update(objects={"../../../../../zarr.json": entry}))
    (damage,) = verify(bank)
    assert damage.problem == "foreign"
    assert "is no path inside a bank; do not trust it" in damage.detail


@pytest.mark.parametrize(("step", "files"), [(0, 8), (1, 8)])
def test_deposit_that_lost_its_attributes_is_named(tmp_path: Path, step: int, files: int) -> None:
    bank = bank_of_two(tmp_path / "b")
    folder = place(bank, step)
    (folder / "zarr.json").unlink()
    (damage,) = verify(bank)
    assert damage.path == f"{folder.relative_to(bank.path)}/zarr.json"
    assert (damage.problem, damage.detail) == (
        "missing",
        f"nothing says what {files} files there are of",
    )
    if step == 1:  # other weights would take over its blocks
        with pytest.raises(DamagedError, match=r"has commits and no zarr\.json, which says what"):
            bank.begin(spec(step))


def test_missing_query_set_is_named(tmp_path: Path) -> None:
    bank = bank_of_two(tmp_path / "b")
    (queries,) = bank.path.glob("queries/*.parquet")
    queries.unlink()
    assert problems(bank) == [(f"queries/{queries.name}", "missing")]
    shutil.rmtree(bank.path / "org%2Fmodel")  # prompts point there too
    assert problems(bank) == [(f"queries/{queries.name}", "missing")]


def test_commit_in_the_place_of_another_is_named_and_dropped_alone(tmp_path: Path) -> None:
    bank = bank_of_two(tmp_path / "b")
    commits = place(bank, 1) / "commits"
    (commits / "1.json").write_bytes((commits / "2.json").read_bytes())
    inside = place(bank, 1).relative_to(bank.path)
    damage = verify(bank)
    assert [(d.path, d.block) for d in damage] == [(f"{inside}/commits/1.json", 1)]
    assert repair(bank, damage).dropped == {str(inside): (1,)}
    assert verify(bank) == ()
    assert {d.checkpoint.step: d.committed() for d in bank.deposits()} == {0: {0, 1, 2}, 1: {0, 2}}


def test_seal_that_leaves_out_a_block_is_named(tmp_path: Path) -> None:
    bank = bank_of_two(tmp_path / "b")
    seal = place(bank, 0) / "commits" / "seal.json"
    document = json.loads(seal.read_text())
    del document["objects"]["logprobs/c/1/0"]
    seal.write_bytes(documents.signed(document, document))
    (damage,) = verify(bank)
    assert damage.path.endswith("commits/seal.json")
    assert "seal.json names other objects or rows" in damage.detail


def test_what_no_bank_has_above_deposits_is_named(tmp_path: Path) -> None:
    bank = bank_of_two(tmp_path / "b")
    (bank.path / "README.md").write_text("of the Hub")
    strange = ("run.sh", "org%2Fmodel/run.sh", "other/file", "org%2Fmodel/main/0/run.sh")
    for name in strange:
        (bank.path / name).parent.mkdir(exist_ok=True)
        (bank.path / name).write_text("x")
    (bank.path / "org%2Fmodel" / "main" / "0" / "q-other").mkdir()
    assert sorted(problems(bank)) == sorted(
        (name, "foreign") for name in (*strange, "org%2Fmodel/main/0/q-other")
    )


def test_damaged_attributes_and_moved_deposits_are_named(tmp_path: Path) -> None:
    bank = bank_of_two(tmp_path / "b")
    rewrite(place(bank, 0) / "zarr.json", lambda told: told["attributes"]["logitbank"].pop("model"))
    place(bank, 1).parent.rename(bank.path / "org%2Fmodel" / "main" / "9")
    found = verify(bank)
    assert [damage.problem for damage in found] == ["unreadable", "unreadable"]
    assert "does not describe a deposit" in found[0].detail
    assert "it was moved or swapped" in found[1].detail


def test_tables_of_other_types_are_named(tmp_path: Path) -> None:
    bank = bank_of_two(tmp_path / "b")
    (prompts,), (queries,) = (
        bank.path.glob(f"{kind}/*.parquet") for kind in ("prompts", "queries")
    )
    pl.read_parquet(prompts).cast({"text": pl.Binary}).write_parquet(prompts)
    tokenizer = pl.read_parquet_metadata(queries)
    nulls = pl.read_parquet(queries).with_columns(ids=pl.lit(None, pl.List(pl.Int32)))
    nulls.write_parquet(queries, metadata={TOKENIZER_KEY: tokenizer[TOKENIZER_KEY]})
    assert sorted(problems(bank)) == [
        (f"prompts/{prompts.name}", "changed"),
        (f"queries/{queries.name}", "changed"),
    ]


def test_damaged_tables_are_named(tmp_path: Path) -> None:
    bank = bank_of_two(tmp_path / "b")
    other = QuerySet(TOKENIZER, (Query((9,), 0),))
    bank.add_query_set(other)
    bank.add_prompts("more", prompt_table(other))
    queries = sorted(bank.path.glob("queries/*.parquet"))
    queries[0].write_bytes(queries[1].read_bytes())
    prompts = sorted(bank.path.glob("prompts/*.parquet"))
    prompts[0].write_bytes(prompts[1].read_bytes())
    os.truncate(prompts[1], 10)
    (bank.path / "prompts" / "run_me.py").write_text("x")
    assert sorted(problems(bank)) == [
        (f"prompts/{prompts[0].name}", "changed"),
        (f"prompts/{prompts[1].name}", "changed"),
        ("prompts/run_me.py", "foreign"),
        (f"queries/{queries[0].name}", "changed"),
    ]


def test_what_nothing_vouches_for_is_told_and_is_no_damage(tmp_path: Path) -> None:
    bank = bank_of_two(tmp_path / "b")
    sealed, begun = (place(bank, step) for step in (0, 1))
    assert leftovers(bank) == {}
    (sealed / "scores" / "0.parquet").write_bytes(b"what an interrupted seal leaves")
    assert leftovers(bank) == {}
    (sealed / "commits" / "seal.json").unlink()
    (begun / "commits" / "2.json").unlink()
    unneeded = "queries/q-0123456789abcdef.parquet.sha256"
    (bank.path / unneeded).write_text("of a table that is not there")
    assert verify(bank) == ()
    assert leftovers(bank) == {
        "queries": (Path(unneeded).name,),
        str(sealed.relative_to(bank.path)): (
            *(f"logprobs/c/{block}/0" for block in range(3)),
            "logsumexp/c/0",
            "scores/0.parquet",
            "scores/all.parquet",
        ),
        str(begun.relative_to(bank.path)): ("logprobs/c/2/0", "scores/2.parquet"),
    }
    (bank.path / unneeded).unlink()
    for step in (0, 1):
        with bank.begin(spec(step)) as writer:
            for block in writer.missing():
                writer.write(block, block_data(writer.layout, block, seed=step))
            writer.seal()
    assert leftovers(bank) == {}
    assert verify(bank) == ()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"dtype": "float16"}, "does not describe the arrays"),
        ({"vocab": 64}, "does not describe the arrays"),
        ({"codec": "zstd"}, "codec is 'zstd'"),
        ({"layers": [1]}, "layers is [1]"),
        ({"queries": 3, "block_rows": 3}, "seal.json names other objects or rows"),
    ],
)
def test_attributes_and_arrays_that_disagree_are_named_though_signed_again(
    tmp_path: Path, change: dict[str, object], told: str
) -> None:
    bank = bank_of_two(tmp_path / "b")
    folder = place(bank, 0)
    rewrite(folder / "zarr.json", lambda about: about["attributes"]["logitbank"].update(change))
    recommit(folder, "zarr.json")
    assert any(told in str(damage) for damage in verify(bank))


def test_scores_of_another_step_are_named_though_signed_again(tmp_path: Path) -> None:
    bank = bank_of_two(tmp_path / "b")
    part = place(bank, 0) / "scores" / "all.parquet"
    pl.read_parquet(part).with_columns(step=pl.lit(77, pl.Int64)).write_parquet(part)
    recommit(place(bank, 0), "scores/all.parquet")
    (damage,) = verify(bank)
    assert damage.path.endswith("scores/all.parquet")
    assert "its step is 77" in damage.detail
