"""What a bank, a deposit and a study say of themselves at Python's prompt and in a notebook."""

import subprocess
from dataclasses import replace
from pathlib import Path

from logitbank.analysis.finding import Finding
from logitbank.store import Bank, CheckpointId, Keep
from logitbank.store.read.provenance import commits_digest
from tests.support.paths import ROOT
from tests.support.small_banks import QUERY_SET, block_data, logits, new_bank, spec
from tests.support.study_cases import study


def bank_of_two_runs(path: Path) -> Bank:
    bank = new_bank(path)
    for checkpoint in (CheckpointId("a<b", step=8), CheckpointId("a<b", step=1000),
                       CheckpointId("c", "seed1")):  # fmt: skip
        bank.deposit(logits(), checkpoint=checkpoint, query_set=QUERY_SET.name, keep="options")
    return bank


def test_a_bank_lists_its_names(tmp_path: Path) -> None:
    bank = bank_of_two_runs(tmp_path / "b")
    assert (bank.models, bank.runs) == (["a<b", "c"], ["main", "seed1"])
    assert bank.steps == [8, 1000, None]
    assert bank.prompt_sets == ["parity"]


def test_a_bank_in_a_line_and_as_a_table(tmp_path: Path) -> None:
    bank = bank_of_two_runs(tmp_path / "b")
    bank.begin(spec(16, keep=Keep("options")))
    assert repr(bank) == (
        f"<Bank {tmp_path / 'b'}: a<b, c, {spec(16).checkpoint.model}; 4 checkpoints,"
        " steps 8 to 1000, release; prompts parity>"
    )
    table = bank._repr_html_()
    assert "<td>a&lt;b</td><td>main</td><td>2</td><td>steps 8 to 1000</td>" in table
    assert "<td>1, 1 unfinished</td>" in table
    assert "a<b" not in table


def test_an_empty_bank_and_a_damaged_one_say_so(tmp_path: Path) -> None:
    assert "no model yet; 0 checkpoints; prompts none" in repr(Bank.create(tmp_path / "empty"))
    bank = bank_of_two_runs(tmp_path / "b")
    (bank.deposits()[0].path / "zarr.json").write_text("{}")
    assert "cannot be read (" in repr(bank)


def test_nothing_that_a_terminal_obeys_is_in_a_line(tmp_path: Path) -> None:
    bank = bank_of_two_runs(tmp_path / "b\x1b[2J")
    (file,) = (bank.path / "prompts").glob("*.parquet")
    file.rename(file.with_name(f"%1B[2J%0Aü-{file.name}"))
    made = study("toy")
    made = replace(made, findings=(Finding(text="\x1b]0;x\x07 é"),))
    for line in (repr(bank), repr(bank.deposits()[0]), repr(made)):
        assert line.isprintable()
    assert "b\\x1b[2J" in repr(bank)
    assert repr(made).endswith(": \\x1b]0;x\\x07 é>")


def test_the_recipe_for_a_banks_digest_gives_that_of_its_pages(tmp_path: Path) -> None:
    bank = bank_of_two_runs(tmp_path / "b")
    with bank.begin(spec(16)) as writer:  # is not sealed
        writer.write(0, block_data(writer.layout, 0))
    page = (ROOT / "docs" / "share.md").read_text()
    (recipe,) = [line for line in page.splitlines() if line.startswith("find * -path")]
    printed = subprocess.check_output(["bash", "-c", recipe], cwd=bank.path, text=True)
    assert printed.split()[0] == commits_digest(bank.path, bank.deposits())


def test_a_deposit_in_a_line_and_as_a_table(tmp_path: Path) -> None:
    deposit = bank_of_two_runs(tmp_path / "b").deposits()[0]
    assert repr(deposit) == (
        f"<Deposit a<b step 8, {QUERY_SET.name}: queries 10 of 10, keep options, dtype float32,"
        " outputs 6>"
    )
    assert "<td>queries</td><td>10 of 10</td>" in deposit._repr_html_()


def test_a_study_in_a_line_and_as_a_list() -> None:
    made = replace(study(), findings=(Finding(text="The gap is < 1."),), missing=(), notes=())
    assert repr(made) == "<Study of Made: The gap is < 1.>"
    items = "<li>The gap is &lt; 1.</li><li>It is made up.</li>"
    assert made._repr_html_() == f"<p>Made</p><ul>{items}</ul>"
