"""The bank against a plain dictionary of arrays: any order of writes, kills, damage and repairs.

`make whole` takes more random steps than `make test`, and `make long` at least 10,000.
"""

import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from logitbank.errors import BankError, LogitbankError
from logitbank.store import Bank, Keep, OptionTokens, merge, repair, rescore, verify
from logitbank.store.deposits import writer as writing
from logitbank.store.format import commits
from tests.support.marks import long, whole
from tests.support.small_banks import OPTIONS, QUERIES, VOCAB, block_data, new_bank, spec

MANY = 250
"""So often that the machine goes another way each time."""
RUNS = [
    (4, 20),
    whole(8, 20),
    long(MANY, 50),
]
"""How often the machine starts on an empty bank, and how many steps it takes at most."""
STEPS = (0, 1, None)
LEVELS = (Keep("full"), Keep("topk", 1), Keep("options"))


class Killed(BaseException):
    """In place of a signal: nothing may catch it and go on."""


class Stored:
    """What the model knows of one deposit."""

    def __init__(self, keep: Keep, dtype: str, block_rows: int) -> None:
        self.keep, self.dtype, self.block_rows = keep, dtype, block_rows
        self.rows: dict[int, np.ndarray] = {}
        """Log-probabilities by committed row, as stored."""
        self.extra: dict[str, int] = {}
        """Tokens of row 0 that were rescored, by the name of their part."""


class BankMachine(RuleBasedStateMachine):
    """Rules act on a bank and on `self.model`; invariants compare the two."""

    @initialize()
    def start(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="logitbank-model-"))
        self.bank = new_bank(self.folder / "bank")
        self.model: dict[int | None, Stored] = {}

    def teardown(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    @rule(
        step=st.sampled_from(STEPS),
        keep=st.sampled_from(LEVELS),
        dtype=st.sampled_from(["float16", "float32"]),
        block_rows=st.sampled_from([1, 4, 16]),
        blocks=st.sets(st.integers(0, QUERIES - 1), max_size=4),
        seal=st.booleans(),
    )
    def write(self, step, keep, dtype, block_rows, blocks, seal):  # type: ignore[no-untyped-def]
        asked = spec(step, keep=keep, dtype=dtype, block_rows=block_rows)
        known = self.model.get(step)
        refused = (
            known is not None
            and bool(known.rows)
            and (known.dtype != dtype or not known.keep.covers(keep))
        )
        try:
            writer = self.bank.begin(asked)
        except LogitbankError:
            assert refused, "a deposit that fits is continued"
            return
        assert not refused, "a deposit that differs is refused"
        with writer:
            layout = writer.layout
            if known is None or not known.rows:
                known = self.model[step] = Stored(layout.keep, layout.dtype, layout.block_rows)
            assert (layout.keep, layout.block_rows) == (known.keep, known.block_rows)
            for block in sorted(b for b in blocks if b < layout.blocks):
                data = block_data(layout, block, seed=STEPS.index(step))
                assert writer.write(block, data) is (layout.rows(block)[0] not in known.rows)
                self._committed(known, layout.rows(block), data.rows)
            if seal:
                writer.seal()
                assert writer.deposit.sealed is (len(known.rows) == QUERIES)

    def _committed(self, known: Stored, rows: range, logprobs: np.ndarray | None) -> None:
        for i, row in enumerate(rows):
            known.rows.setdefault(row, np.empty(0) if logprobs is None else logprobs[i])

    @precondition(lambda self: any(len(s.rows) < QUERIES for s in self.model.values()))
    @rule(change=st.integers(0, 7), data=st.data())
    def die_while_writing(self, change: int, data: st.DataObject) -> None:
        """Killed before its n-th step, a writer may have committed its block, or not."""
        open_ = [s for s, known in self.model.items() if len(known.rows) < QUERIES]
        step = data.draw(st.sampled_from(open_))
        known, count = self.model[step], 0

        def dying(original):  # type: ignore[no-untyped-def]
            def stopped(*arguments, **named):  # type: ignore[no-untyped-def]
                nonlocal count
                count += 1
                if count > change:
                    raise Killed
                return original(*arguments, **named)

            return stopped

        own = spec(step, keep=known.keep, dtype=known.dtype, block_rows=known.block_rows)  # type: ignore[arg-type]
        writer = self.bank.begin(own)
        (block, *_) = writer.missing()
        data_ = block_data(writer.layout, block, seed=STEPS.index(step))
        with pytest.MonkeyPatch.context() as patch:
            for name in ("sync", "write_durable", "write_new", "digest"):
                patch.setattr(writing.objects, name, dying(getattr(writing.objects, name)))
            with suppress(Killed):
                writer.write(block, data_)
        if block in self._deposit(step).committed():
            self._committed(known, writer.layout.rows(block), data_.rows)
        writer.close()

    @precondition(lambda self: any(s.rows for s in self.model.values()))
    @rule(data=st.data())
    def damage_and_repair(self, data: st.DataObject) -> None:
        files = [
            own.path / path
            for own in self.bank.deposits()
            for commit in own.state().names
            for path in (f"commits/{commit}.json", *commits.digests(own.path, commit), "zarr.json")
        ]
        file = data.draw(st.sampled_from(sorted(set(files))))
        at = data.draw(st.integers(0, max(0, file.stat().st_size - 1)))
        content = bytearray(file.read_bytes())
        content[at] ^= 1 << data.draw(st.integers(0, 7))
        file.write_bytes(content)
        damage = verify(self.bank)
        name = str(file.relative_to(self.bank.path))
        assert name in {d.path for d in damage}, name
        repair(self.bank, damage)
        assert verify(self.bank) == ()
        there = {d.checkpoint.step: d for d in self.bank.deposits()}
        for step, known in [*self.model.items()]:
            held = there[step].committed() if step in there else frozenset()
            rows = {r for block in held for r in there[step].layout.rows(block)}
            if f"/{'release' if step is None else step}/q-" in name:
                assert step not in there
                del self.model[step]
            else:
                assert rows == set(known.rows)

    @precondition(
        lambda self: any(s.keep.level == "full" and 0 in s.rows for s in self.model.values())
    )
    @rule(token=st.integers(0, VOCAB - 1), data=st.data())
    def ask_for_another_token(self, token: int, data: st.DataObject) -> None:
        known = self.model.items()
        full = [s for s, own in known if own.keep.level == "full" and 0 in own.rows]
        step = data.draw(st.sampled_from(full))
        options = OptionTokens.build([[token]] + [[]] * (QUERIES - 1))
        own = self._deposit(step)
        before = set(own.state().options)
        rescore(own, options)
        for part in set(own.state().options) - before:
            self.model[step].extra[part] = token

    @precondition(lambda self: any(s.rows for s in self.model.values()))  # of something
    @rule()
    def merge_into_a_new_bank(self) -> None:
        sealed = {d.checkpoint.step for d in self.bank.deposits() if d.sealed}
        moved = self.folder / f"bank{len(list(self.folder.iterdir()))}"
        merge(moved, self.bank.path)
        self.bank = Bank.open(moved)
        self.model = {s: known for s, known in self.model.items() if s in sealed}

    def _deposit(self, step: int | None):  # type: ignore[no-untyped-def]
        return next(d for d in self.bank.deposits() if d.checkpoint.step == step)

    @invariant()
    def holds_what_the_model_holds(self) -> None:
        if not hasattr(self, "bank"):
            return
        there = {d.checkpoint.step: d for d in self.bank.deposits()}
        assert {s for s, k in self.model.items() if k.rows} <= set(there)
        for step, own in there.items():
            known = self.model.get(step)
            rows = sorted(known.rows) if known else []
            layout = own.layout
            assert sorted(r for b in own.committed() for r in layout.rows(b)) == rows
            scores = own.scores().collect()
            assert set(scores["query"]) == set(rows)
            if known is None or known.keep.level != "full":
                continue
            expected = np.array([known.rows[r] for r in rows]).reshape(len(rows), VOCAB)
            np.testing.assert_array_equal(own.stored_logprobs(rows), expected)
            tokens = [VOCAB - 1, 0]
            picked = own.stored_logprobs(rows[::-1], tokens)
            np.testing.assert_array_equal(picked, expected[::-1][:, tokens])
            for absent in set(range(QUERIES)) - set(rows):
                with pytest.raises(BankError, match="not in the bank"):
                    own.logprobs([absent])
            listed = scores.filter((pl.col("query") == 0) & (pl.col("kind") == "option"))["token"]
            wanted = {*OPTIONS.values(), *known.extra.values()} if rows[:1] == [0] else set()
            assert set(listed) == wanted

    @invariant()
    def is_sound(self) -> None:
        if hasattr(self, "bank"):
            self.bank = Bank.open(self.bank.path)
            assert verify(self.bank) == ()


@pytest.mark.parametrize(("runs", "steps"), RUNS)
def test_any_order_of_actions_agrees_with_a_dictionary(
    runs: int, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "os.fsync", lambda _: None
    )  # no power is cut here; it took most of the time
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        BankMachine,
        settings=settings(
            max_examples=runs,
            stateful_step_count=steps,
            deadline=None,
            derandomize=runs < MANY,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_the_model_would_notice_a_lost_row() -> None:
    """The comparison itself can fail."""
    machine = BankMachine()
    machine.start()
    machine.model[0] = Stored(Keep("full"), "float32", 4)
    machine.model[0].rows[0] = np.zeros(VOCAB)
    with pytest.raises(AssertionError):
        machine.holds_what_the_model_holds()
    machine.teardown()
