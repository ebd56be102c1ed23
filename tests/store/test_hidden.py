"""Deposits that keep what the head multiplies: written, and read through their head."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from logitbank.errors import (
    BankError,
    BankFormatError,
    DamagedError,
    EngineError,
    KeepLevelError,
    UsageError,
)
from logitbank.store import (
    Bank,
    DepositSpec,
    Keep,
    Layout,
    Operation,
    OptionTokens,
    OutputHead,
    verify,
)
from logitbank.store.deposits.reduce import BlockReducer
from logitbank.store.heads.stored import StoredHead
from tests.support.hidden_banks import (
    WIDTH,
    head,
    hidden_bank,
    hidden_block,
    hidden_spec,
    states,
    true_logprobs,
)
from tests.support.small_banks import QUERIES, VOCAB, new_bank, rewrite, spec


def test_log_probabilities_follow_from_states_and_head(tmp_path: Path) -> None:
    (deposit,) = hidden_bank(tmp_path / "b").deposits()
    expected = true_logprobs(head(), states())
    np.testing.assert_allclose(deposit.logprobs(), expected, atol=2e-6)
    assert deposit.logprobs().dtype == np.float32
    few = deposit.logprobs(rows=[7, 2, 2], tokens=[4, 0])
    np.testing.assert_allclose(few, expected[[7, 2, 2]][:, [4, 0]], atol=2e-6)
    np.testing.assert_array_equal(deposit.hidden(), states())
    np.testing.assert_array_equal(deposit.hidden([9, 1]), states()[[9, 1]])
    sums = np.exp(deposit.logprobs(normalised=True).astype(np.float64)).sum(axis=1)
    np.testing.assert_allclose(sums, 1.0, atol=1e-6)


def test_float16_states_are_kept_in_half(tmp_path: Path) -> None:
    (deposit,) = hidden_bank(tmp_path / "b", dtype="float16").deposits()
    assert deposit.hidden().dtype == np.float32
    np.testing.assert_array_equal(deposit.hidden(), states())  # which float16 holds exactly
    np.testing.assert_allclose(deposit.logprobs(), true_logprobs(head(), states()), atol=2e-6)


def test_only_rows_that_are_committed_are_read(tmp_path: Path) -> None:
    bank = hidden_bank(tmp_path / "b", blocks=range(1), seal=False)
    (deposit,) = bank.deposits()
    expected = true_logprobs(head(), states())
    np.testing.assert_allclose(deposit.logprobs([3]), expected[[3]], atol=2e-6)
    with pytest.raises(BankError, match="1 of 1"):
        deposit.hidden([4])
    assert bank.info()["keep"].to_list() == ["hidden"]


def test_deposits_without_states_say_so(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b")
    with bank.begin(spec()) as writer:
        deposit = writer.deposit
    with pytest.raises(KeepLevelError, match="keeps full"):
        deposit.hidden()


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_a_head_comes_back_bit_for_bit(tmp_path: Path, dtype: str) -> None:
    bank = new_bank(tmp_path / "b")
    weight = np.random.default_rng(0).normal(size=(300, 7))
    bits = (weight.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    stored = bits if dtype == "bfloat16" else weight.astype(dtype)
    bias = None if dtype == "float16" else np.arange(300, dtype=np.float32)
    made = OutputHead(stored, dtype, bias, (Operation("scale", 0.5), Operation("soft_cap", 30.0)))  # type: ignore[arg-type]
    digest = bank.put_head(made)
    assert bank.put_head(made) == digest
    again = StoredHead.open(bank.path, digest).read()
    np.testing.assert_array_equal(again.weight, stored)
    assert again.weight.dtype == stored.dtype
    assert (again.dtype, again.after) == (dtype, made.after)
    assert (again.bias is None) == (bias is None)
    assert again.digest == digest
    row = np.linspace(-1, 1, 7, dtype=np.float32)
    rounded = (bits.astype(np.uint32) << 16).view(np.float32) if dtype == "bfloat16" else stored
    product = rounded.astype(np.float64) @ row + (0 if bias is None else bias)
    expected = 30 * np.tanh(product / 2 / 30)
    np.testing.assert_allclose(again.logits(row[None])[0], expected, rtol=1e-5, atol=1e-5)
    tokens = np.array([299, 0, 131])
    few = again.logits(row[None], tokens)[0]
    np.testing.assert_allclose(few, expected[tokens], rtol=1e-5, atol=1e-5)


def test_heads_differ_by_everything_that_they_are() -> None:
    made = head()
    assert made.bias is not None
    others = [
        replace(made, bias=None),
        replace(made, after=()),
        replace(made, after=(Operation("soft_cap", 6.0),)),
        replace(made, bias=made.bias + 1),
        replace(made, weight=made.weight.view(np.uint16), dtype="bfloat16"),
    ]
    assert len({made.digest, *(other.digest for other in others)}) == 6


def test_a_head_that_can_be_none_is_refused() -> None:
    weight = np.zeros((3, 2), np.float32)
    with pytest.raises(UsageError, match="float32 .*uint16"):
        OutputHead(weight, "bfloat16")
    with pytest.raises(UsageError, match="bias"):
        OutputHead(weight, "float32", np.zeros(2, np.float32))
    with pytest.raises(UsageError, match="weights that are not finite"):
        OutputHead(weight / np.float32(np.inf) * np.float32(np.nan), "float32")
    with pytest.raises(UsageError, match="weights that are not finite"):
        OutputHead(np.full((1, 1), 0x7F80, np.uint16), "bfloat16")  # bits of infinity
    with pytest.raises(UsageError, match=r"\(1, 3\).* 2"):
        OutputHead(weight, "float32").logits(np.zeros((1, 3), np.float32))


def test_an_unknown_operation_is_refused_by_name(tmp_path: Path) -> None:
    bank = hidden_bank(tmp_path / "b")
    (deposit,) = bank.deposits()
    (about,) = bank.path.glob("heads/*/zarr.json")
    for numbers in ([1.0], [], [1.0, 2.0]):
        after = [["sparsemax", *numbers]]
        rewrite(about, lambda d, after=after: d["attributes"]["logitbank"].update(after=after))  # type: ignore[misc]
        for read in (deposit.logprobs, lambda: verify(bank)):  # which a repair begins with
            with pytest.raises(BankFormatError, match="'sparsemax'.* Upgrade"):
                read()
    rewrite(about, lambda d: d["attributes"]["logitbank"].update(after=[["soft_cap", 0.0]]))
    with pytest.raises(DamagedError, match=r"soft_cap \[0\.0\]"):
        deposit.logprobs()


def test_an_operation_that_was_changed_is_refused_for_few_tokens_too(tmp_path: Path) -> None:
    bank = hidden_bank(tmp_path / "b")
    (about,) = bank.path.glob("heads/*/zarr.json")
    rewrite(about, lambda d: d["attributes"]["logitbank"].update(after=[["soft_cap", 4.0]]))
    with pytest.raises(DamagedError, match="another head"):
        bank.deposits()[0].logprobs([0], [2])
    assert {d.problem for d in verify(bank)} == {"changed"}


def test_states_need_the_head_that_multiplies_them(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b")
    digest = bank.put_head(head())
    for unfit, message in (
        (hidden_spec(digest=digest, width=WIDTH + 1), "6 outputs .* 5 entries.* 6 and 6"),
        (hidden_spec(digest="0" * 64), "org/model step 0"),
    ):
        with pytest.raises(DamagedError, match=message):
            bank.begin(unfit)
    with pytest.raises(UsageError, match="1 heads, not 0"):
        bank.begin(replace(hidden_spec(digest=digest), heads={}))
    with pytest.raises(UsageError, match="0 heads, not 1"):
        bank.begin(replace(spec(), heads={"next_token": digest}))
    with pytest.raises(UsageError, match="hidden"):
        bank.deposit(
            np.zeros((QUERIES, VOCAB)),
            checkpoint=spec().checkpoint,
            query_set=spec().query_set,
            keep="hidden",
        )
    with pytest.raises(UsageError, match="Width 3 .*topk:2"):
        Layout(QUERIES, VOCAB, "float32", Keep("topk", 2), 4, width=3)


def _begun(tmp_path: Path) -> tuple[Bank, DepositSpec]:
    bank = hidden_bank(tmp_path / "b", blocks=range(1), seal=False)
    return bank, bank.deposits()[0].spec


def test_a_deposit_goes_on_with_the_same_states_only(tmp_path: Path) -> None:
    bank, begun = _begun(tmp_path)
    assert bank.begin(begun).layout == begun.layout
    other = bank.put_head(head(7))
    with pytest.raises(BankError, match="next_token head .*next_token head"):
        bank.begin(replace(begun, heads={"next_token": other}))
    with pytest.raises(KeepLevelError, match="hidden.* full"):
        bank.begin(spec())
    assert bank.begin(spec(keep=Keep("options"))).layout == begun.layout


def test_a_block_holds_the_states_that_its_layout_says(tmp_path: Path) -> None:
    bank, begun = _begun(tmp_path)
    data = hidden_block(begun.layout, 1, head())
    assert data.rows is not None
    wrong = [
        (replace(data, rows=None), r"None.* \(4, 5\)"),
        (replace(data, rows=data.rows[:, 1:]), r"\(4, 4\).* \(4, 5\)"),
        (replace(data, rows=data.rows.astype(np.float16)), "float16 .*float32"),
        (replace(data, rows=data.rows * np.inf), "not finite"),
    ]
    with bank.begin(begun) as writer:
        for block, message in wrong:
            with pytest.raises(UsageError, match=message), np.errstate(invalid="ignore"):
                writer.write(1, block)
        assert writer.write(1, data)


def test_a_reducer_takes_states_beside_logits() -> None:
    layout = Layout(2, VOCAB, "float16", Keep("hidden"), 2, width=3)
    options = OptionTokens.build([[1], [2]])
    reducer = BlockReducer(layout, 0, options=options, vocab_entries=VOCAB)
    logits = np.arange(VOCAB, dtype=np.float32)
    for i in range(2):
        reducer.put(i, logits)
    reducer.put_states([1], np.array([[1, 2, 3]], np.float32))
    with pytest.raises(EngineError, match="no states for 1 of 2 queries, the first query 0"):
        reducer.finish()
    with pytest.raises(EngineError, match=r"\(2,\).* \(3,\)"):
        reducer.put_states([0], np.zeros((1, 2), np.float32))
    with pytest.raises(EngineError, match="not finite in float16.* float32"):
        reducer.put_states([0], np.full((1, 3), 1e6, np.float32))
    reducer.put_states([0], np.array([[4, 5, 6]], np.float32))
    data = reducer.finish()
    assert data.rows is not None
    np.testing.assert_array_equal(data.rows, np.array([[4, 5, 6], [1, 2, 3]], np.float16))
    assert data.scores["rank"].to_list() == [5, 4, 1, 1]
