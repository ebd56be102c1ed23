"""Deposits that keep states of layers beside those of the head: written, read, carried along."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from logitbank.errors import BankError, DamagedError, EngineError, KeepLevelError, UsageError
from logitbank.store import Bank, Keep, Layout, OptionTokens, merge, repair, shrink, verify
from logitbank.store.deposits.lens import lens_at
from logitbank.store.deposits.reduce import BlockReducer
from logitbank.store.files.objects import digest
from logitbank.store.filter.filters import Filter
from logitbank.store.share.push import pull, push
from tests.support.file_server import FileServer
from tests.support.hidden_banks import (
    WIDTH,
    fill,
    head,
    hidden_bank,
    hidden_block,
    hidden_spec,
    layer_states,
    states,
    true_logits,
    true_logprobs,
)
from tests.support.small_banks import VOCAB, new_bank, rewrite

LAYERS = (0, 2, 5)


def layers_bank(path: Path, **options: object) -> Bank:
    return hidden_bank(path, layers=LAYERS, **options)  # type: ignore[arg-type]


def test_a_layer_is_seen_through_the_head(tmp_path: Path) -> None:
    (deposit,) = layers_bank(tmp_path / "b").deposits()
    assert deposit.layers == LAYERS
    for layer in LAYERS:
        expected = true_logprobs(head(), layer_states(layer))
        np.testing.assert_allclose(deposit.lens(layer), expected, atol=2e-6)
        few = deposit.lens(layer, rows=[7, 2, 2], tokens=[4, 0])
        np.testing.assert_allclose(few, expected[[7, 2, 2]][:, [4, 0]], atol=2e-6)
        assert few.dtype == np.float32
    np.testing.assert_array_equal(deposit.hidden(), states())
    np.testing.assert_allclose(deposit.logprobs(), true_logprobs(head(), states()), atol=2e-6)


def test_logits_of_listed_tokens_are_those_of_the_definition(tmp_path: Path) -> None:
    (deposit,) = layers_bank(tmp_path / "b").deposits()
    rows, tokens = np.array([9, 0, 4, 0]), np.array([1, 5, 1, 2])
    for true, normalised in ((true_logits, False), (true_logprobs, True)):
        found = lens_at(deposit.kept, (5, 2), rows, tokens, normalised=normalised)
        expected = [true(head(), layer_states(layer))[rows, tokens] for layer in (5, 2)]
        np.testing.assert_allclose(found, expected, atol=2e-6)
    assert lens_at(deposit.kept, (2,), rows[:0], tokens[:0], normalised=False).shape == (1, 0)


def test_float16_layers_are_kept_in_half(tmp_path: Path) -> None:
    (deposit,) = layers_bank(tmp_path / "b", dtype="float16").deposits()
    expected = true_logprobs(head(), layer_states(5))  # which float16 holds exactly
    np.testing.assert_allclose(deposit.lens(5), expected, atol=2e-6)


def test_what_cannot_be_read_is_refused_by_name(tmp_path: Path) -> None:
    bank = layers_bank(tmp_path / "b", blocks=range(1), seal=False)
    (deposit,) = bank.deposits()
    with pytest.raises(UsageError, match=r"keeps no layer 1; it has 0, 2, 5"):
        deposit.lens(1)
    with pytest.raises(BankError, match="1 of 1 rows asked for are not there yet"):
        deposit.lens(0, rows=[8])
    with pytest.raises(UsageError, match="token 99 is not in the deposit"):
        deposit.lens(0, rows=[0], tokens=[99])
    (plain,) = hidden_bank(tmp_path / "c").deposits()
    assert plain.layers == ()
    with pytest.raises(KeepLevelError, match="keeps no states of layers; extract again with"):
        plain.lens(0)
    (filtered,) = bank.filtered(Filter(np.eye(3) / 2, np.ones(3)), name="v").deposits()
    with pytest.raises(UsageError, match="what a layer says passes no filter"):
        filtered.lens(0)


def test_without_layers_a_bank_is_what_it_was(tmp_path: Path) -> None:
    (deposit,) = hidden_bank(tmp_path / "b").deposits()
    assert "layers" not in deposit.attributes
    assert not (deposit.path / "layers").exists()
    metadata = {name: digest(deposit.path / name).sha256 for name in GOLDEN}
    assert metadata == GOLDEN


GOLDEN = {
    "zarr.json": "bcea2b82c908ffba2a6a04ce0ee04eb152d3331d6dedf109f0660661235d8e4f",
    "hidden/zarr.json": "05a6f188c0da3ea2a6fbddb865614d243b9950dc3f4d2b84cd0f8c19e3385e6a",
}
"""Digests of such a deposit's objects before there were layers."""


@pytest.mark.parametrize("layers", [(2, 0), (1, 1), (-1, 2)])
def test_layers_of_a_layout_are_ascending(layers: tuple[int, ...]) -> None:
    with pytest.raises(UsageError, match="are not ascending numbers from 0 on"):
        Layout(4, VOCAB, "float32", Keep("hidden"), 4, width=WIDTH, layers=layers)


def test_layers_need_states() -> None:
    with pytest.raises(UsageError, match="keep level full has no states; leave out their layers"):
        Layout(4, VOCAB, "float32", Keep("full"), 4, layers=(0,))


def test_blocks_are_sized_by_states_and_layers_together() -> None:
    sizes = [
        Layout.plan(
            queries=10**6,
            vocab=50_304,
            dtype="float32",
            keep=Keep("hidden"),
            width=768,
            layers=some,
        )
        for some in ((), tuple(range(13)))
    ]
    assert [layout.block_rows for layout in sizes] == [4096, 1024]
    assert sizes[1].array_bytes == 14 * sizes[0].array_bytes == 14 * 768 * 4


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        (None, r"no states of layers, and this deposit keeps 3 of width 5"),
        (np.zeros((2, WIDTH), np.float32), r"states of shape \(2, 5\) of layers"),
        (np.full((3, WIDTH), np.inf, np.float32), "numbers that are not finite in float32"),
    ],
)
def test_a_reducer_takes_the_layers_of_its_layout(layers: np.ndarray | None, message: str) -> None:
    layout = Layout(4, VOCAB, "float32", Keep("hidden"), 4, width=WIDTH, layers=LAYERS)
    reducer = BlockReducer(layout, 0, options=OptionTokens.build([[]] * 4), vocab_entries=VOCAB)
    of_row = None if layers is None else layers[None]
    with pytest.raises(EngineError, match=message):
        reducer.put_states([0], np.zeros((1, WIDTH), np.float32), of_row)


def test_a_deposit_of_other_layers_is_not_continued(tmp_path: Path) -> None:
    bank = layers_bank(tmp_path / "b", blocks=range(1))
    for layers, asked in (((0, 2), "layers 0, 2"), ((), "no layers")):
        with pytest.raises(KeepLevelError, match=f"of layers 0, 2, 5, not of {asked}"):
            fill(bank, 0, layers=layers)
    fill(bank, 0, layers=LAYERS)
    (deposit,) = bank.deposits()
    assert deposit.complete
    expected = true_logprobs(head(), layer_states(5))
    np.testing.assert_allclose(deposit.lens(5), expected, atol=2e-6)


@pytest.mark.parametrize("layers", ["all", [2, 0], [0.5], [-1]])
def test_attributes_of_impossible_layers_are_damage(tmp_path: Path, layers: object) -> None:
    bank = layers_bank(tmp_path / "b")
    (deposit,) = bank.deposits()

    def other(attributes: dict[str, Any]) -> None:
        attributes["attributes"]["logitbank"]["layers"] = layers

    rewrite(deposit.path / "zarr.json", other)
    with pytest.raises(DamagedError, match="does not describe a deposit"):
        _ = Bank.open(bank.path).deposits()[0].layout


def test_damaged_layers_are_named_and_repaired(tmp_path: Path) -> None:
    bank = layers_bank(tmp_path / "b")
    (deposit,) = bank.deposits()
    shard = deposit.path / "layers" / "c" / "1" / "0"
    data = bytearray(shard.read_bytes())
    data[10] ^= 1
    shard.write_bytes(data)
    with pytest.raises(DamagedError, match="is not as it was committed"):
        deposit.lens(0)
    np.testing.assert_array_equal(deposit.hidden(), states())
    (damage,) = verify(bank)
    assert (damage.problem, damage.block) == ("changed", 1)
    assert damage.path.endswith("layers/c/1/0")
    repair(bank, [damage])
    assert verify(bank) == ()
    (deposit,) = bank.deposits()
    assert deposit.committed() == {0, 2}
    fill(bank, 0, layers=LAYERS)
    expected = true_logprobs(head(), layer_states(0))
    np.testing.assert_allclose(bank.deposits()[0].lens(0), expected, atol=2e-6)


def test_a_merge_carries_layers_and_refuses_others(tmp_path: Path) -> None:
    first = layers_bank(tmp_path / "a", blocks=range(2), seal=False)
    second = layers_bank(tmp_path / "b")
    merge(tmp_path / "c", first.path, second.path)
    merged = Bank.open(tmp_path / "c")
    assert verify(merged) == ()
    expected = true_logprobs(head(), layer_states(2))
    np.testing.assert_allclose(merged.deposits()[0].lens(2), expected, atol=2e-6)
    hidden_bank(tmp_path / "plain")
    with pytest.raises(BankError, match="keeps layers 0, 2, 5 and the former no layers"):
        merge(tmp_path / "d", second.path, tmp_path / "plain")


def test_a_merge_compares_layers(tmp_path: Path) -> None:
    bank, of = layers_bank(tmp_path / "a"), head(1)
    other = new_bank(tmp_path / "b")
    with other.begin(hidden_spec(digest=other.put_head(of), layers=LAYERS)) as writer:
        data = hidden_block(writer.layout, 0, of)
        assert data.layers is not None
        writer.write(0, replace(data, layers=data.layers + 1))
    with pytest.raises(BankError, match="other layers in rows 0–3"):
        merge(tmp_path / "c", bank.path, other.path)


def test_shrinking_drops_layers(tmp_path: Path) -> None:
    bank = layers_bank(tmp_path / "b")
    for n, options in enumerate(({"dtype": "float16"}, {"keep": "hidden"}, {"keep": "options"})):
        shrink(bank.path, tmp_path / str(n), **options)  # type: ignore[arg-type]
        (deposit,) = Bank.open(tmp_path / str(n)).deposits()
        assert deposit.layers == ()
        assert not (deposit.path / "layers").exists()
        assert verify(tmp_path / str(n)) == ()
    (states_alone,) = Bank.open(tmp_path / "1").deposits()
    np.testing.assert_array_equal(states_alone.hidden(), states())
    with pytest.raises(UsageError, match="is not smaller"):
        shrink(tmp_path / "1", tmp_path / "again", keep="hidden")


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FileServer]:
    pytest.importorskip("obstore")
    monkeypatch.setenv("LOGITBANK_CACHE", str(tmp_path / "cache"))
    (tmp_path / "www").mkdir()
    with FileServer(tmp_path / "www") as server:
        yield server


def test_layers_are_sent_and_fetched(tmp_path: Path, served: FileServer) -> None:
    bank = layers_bank(tmp_path / "b")
    push(bank.path, tmp_path / "www" / "bank")
    expected = true_logprobs(head(), layer_states(2))
    (there,) = Bank.open(f"{served.url}/bank", rows=True).deposits()
    np.testing.assert_allclose(there.lens(2, rows=[3]), expected[[3]], atol=2e-6)
    pull(f"{served.url}/bank", tmp_path / "here")
    assert verify(tmp_path / "here") == ()
    (here,) = Bank.open(tmp_path / "here").deposits()
    np.testing.assert_allclose(here.lens(2), expected, atol=2e-6)
