"""A study at Python's prompt, and the documented digest of a bank."""

import subprocess
from dataclasses import replace
from pathlib import Path

from logitbank.analysis.finding import Finding
from logitbank.store import CheckpointId
from logitbank.store.read.provenance import bank_digest
from tests.support.paths import ROOT
from tests.support.small_banks import QUERY_SET, block_data, logits, new_bank, spec
from tests.support.study_cases import study


def test_the_documented_command_computes_the_digest_of_a_bank(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b")
    for step in (8, None):
        checkpoint = CheckpointId("a<b", step=step)
        bank.deposit(logits(), checkpoint=checkpoint, query_set=QUERY_SET.name, keep="options")
    with bank.begin(spec(16)) as writer:  # is not sealed
        writer.write(0, block_data(writer.layout, 0))
    page = (ROOT / "docs" / "share.md").read_text()
    (recipe,) = [line for line in page.splitlines() if line.startswith("find * -path")]
    printed = subprocess.check_output(["bash", "-c", recipe], cwd=bank.path, text=True)
    assert printed.split()[0] == bank_digest(bank.path)


def test_a_study_in_a_line_and_as_a_list() -> None:
    made = replace(study(), findings=(Finding(text="The gap is < 1."),), missing=(), notes=())
    assert repr(made) == "<Study of Made: The gap is < 1.>"
    items = "<li>The gap is &lt; 1.</li><li>It is made up.</li>"
    assert made._repr_html_() == f"<p>Made</p><ul>{items}</ul>"
    escapes = replace(made, findings=(Finding(text="\x1b]0;x\x07 é"),))
    assert repr(escapes).endswith(": \\x1b]0;x\\x07 é>")
