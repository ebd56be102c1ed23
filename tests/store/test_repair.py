"""Damage of every kind: found, named, taken out, and filled again by the same writes."""

import random
import shutil
from pathlib import Path

import numpy as np
import pytest

from logitbank.store import Bank, Deposit, OptionTokens, repair, rescore, verify
from tests.support import small_banks
from tests.support.marks import long, whole
from tests.support.small_banks import block_data, flip, new_bank, spec

PLACES = [
    slice(0, None, 401),
    whole(slice(200, None, 401)),
    long(slice(None)),
]
"""Bytes that are flipped: of a stride that is prime, so that it is another place in each object."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Step 0 is sealed and has further options; of step 1 blocks 0 and 2 are there."""
    bank = new_bank(tmp_path_factory.mktemp("repair") / "b")
    for step, blocks in ((0, (0, 1, 2)), (1, (0, 2))):
        fill(bank, step, blocks)
    (sealed, _) = bank.deposits()
    rescore(sealed, OptionTokens.build([[2, 5]] + [[]] * 9))
    assert verify(bank) == ()
    return bank.path


@pytest.fixture
def bank(made: Path, tmp_path: Path) -> Bank:
    return Bank.open(shutil.copytree(made, tmp_path / "b"))


def fill(bank: Bank, step: int, blocks: tuple[int, ...] | None = None) -> None:
    small_banks.fill(bank, spec(step), blocks=blocks, seed=step)


def deposit(bank: Bank, step: int) -> Deposit:
    return next(d for d in bank.deposits() if d.checkpoint.step == step)


@pytest.mark.parametrize("chosen", PLACES)
def test_every_flipped_byte_is_found_and_its_object_named(bank: Bank, chosen: slice) -> None:
    files = sorted(p for p in bank.path.rglob("*") if p.is_file())
    places = [(file, at) for file in files for at in range(file.stat().st_size)]
    bits = random.Random(0)
    for file, at in places[chosen]:
        sound = file.read_bytes()
        flipped = bytearray(sound)
        flipped[at] ^= 1 << bits.randrange(8)
        file.write_bytes(flipped)
        try:
            named = {damage.path for damage in verify(Bank.open(bank.path))}
        except Exception as error:  # the bank's own zarr.json: nobody opens it
            assert file == bank.path / "zarr.json", (file, at, error)  # noqa: PT017
            named = {"zarr.json"}
        name = str(file.relative_to(bank.path))
        assert named & {name, name.removesuffix(".sha256")}, (name, at, named)
        file.write_bytes(sound)
    assert verify(bank) == ()
    assert len(places[chosen]) > 80


@pytest.mark.parametrize("step", [0, 1])
@pytest.mark.parametrize(
    "names",  # objects of the sealed deposit, and of the other
    [
        ("logprobs/c/2/0", "logprobs/c/2/0"),
        ("scores/all.parquet", "scores/2.parquet"),
        ("commits/seal.json", "commits/2.json"),
        ("zarr.json", "zarr.json"),
    ],
)
def test_a_damaged_deposit_is_removed_and_made_again_bit_for_bit(
    bank: Bank, step: int, names: tuple[str, str]
) -> None:
    own, other = deposit(bank, step), deposit(bank, 1 - step)
    before = {p: p.read_bytes() for p in other.path.rglob("*") if p.is_file()}
    file = own.path / names[step]
    flip(file)
    damage = verify(bank)
    assert damage
    assert repair(bank, damage).removed == (str(own.path.relative_to(bank.path)),)
    assert verify(bank) == ()
    assert [d.checkpoint.step for d in bank.deposits()] == [1 - step]
    assert {p: p.read_bytes() for p in other.path.rglob("*") if p.is_file()} == before
    for again in (0, 1):
        fill(bank, again)
        expected = np.concatenate(
            [block_data(deposit(bank, again).layout, b, seed=again).rows for b in range(3)]
        )
        np.testing.assert_array_equal(deposit(bank, again).logprobs(), expected)
    assert verify(bank) == ()


def test_a_repair_names_the_commands_that_make_the_deposits_again(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b")
    for step in (8, 0):
        small_banks.fill(bank, spec(step, source={"repo": "lab/model", "revision": "x"}))
    small_banks.fill(bank, spec(None))
    for own in bank.deposits():
        (own.path / "logprobs/c/2/0").unlink()
    assert repair(bank, verify(bank)).commands == (
        f"logitbank extract {bank.path} --suite lab/model --prompts parity --steps 0,8",
        f"logitbank extract {bank.path} --suite … --prompts parity --steps release",
    )
    assert repair(bank, verify(bank)).commands == ()
