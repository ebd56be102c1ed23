"""A checkpoint with weights of another one of its series is found, and correct series are not."""

import re
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest

pytest.importorskip("torch")

from safetensors.torch import load_file, save_file

import logitbank
from logitbank.engine.extract import extract
from logitbank.engine.prompts.prompt_set import PromptSet
from logitbank.engine.prompts.values import Option, Prompt
from logitbank.store.format.schema import CheckpointId
from logitbank.store.read.copied_weights import copied_weights
from tests.support.checkpoints import make_checkpoint, make_series


class Stored(NamedTuple):
    """What is read of a deposit."""

    checkpoint: CheckpointId
    provenance: dict[str, str]

    @property
    def stored(self) -> "Stored":
        return self

    @property
    def spec(self) -> "Stored":
        return self


def found(rows: dict[int | None, str]) -> list[tuple[int | None, int | None, int, int]]:
    deposits = [Stored(CheckpointId("m", "main", s), {"matrices": t}) for s, t in rows.items()]
    copies = copied_weights(cast(Any, deposits))
    return [(c.checkpoint.step, c.other.step, c.equal, c.matrices) for c in copies]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        # One shard of a step in the middle, and of the last one before the release.
        ({0: "a b", 1: "c y", 2: "e f", None: "x y"}, [(1, None, 1, 2)]),
        ({0: "a b", 1: "c d", 2: "e y", None: "x y"}, [(2, None, 1, 2)]),
        # A whole step.
        ({0: "x y", 1: "c d", 2: "e f", None: "x y"}, [(0, None, 2, 2)]),
        ({0: "a b", 1: "c d", 2: "c d", 3: "e f"}, [(1, 2, 2, 2)]),
    ],
)
def test_weights_that_come_back_are_found(
    rows: dict[int | None, str], expected: list[tuple[int | None, int | None, int, int]]
) -> None:
    assert found(rows) == expected


@pytest.mark.parametrize(
    "rows",
    [
        {0: "a b", 1: "c d", 2: "x y", None: "x y"},  # the release is the last step
        {0: "a b", 1: "a c", 2: "a d", None: "a e"},  # frozen
        {0: "a a", 1: "b b", 2: "c c"},  # tied
        {0: "- b", 1: "c d", 2: "- e", 3: "x f"},  # constant
        {0: "a b", 1: "a c", 2: "d e", 3: "f g"},  # frozen at first
        {0: "a b", 1: "c d", 2: "c e", 3: "c f"},  # frozen later
        {0: "a b", 1: "a b", 2: "d e"},  # a first step without learning rate
        {100: "a b", None: "a c"},  # too few to know
    ],
)
def test_correct_series_are_not(rows: dict[int | None, str]) -> None:
    assert found(rows) == []


@pytest.mark.usefixtures("quick_workers")
def test_a_wrong_shard_is_named_by_findings_and_the_run(tmp_path: Path) -> None:
    series = make_series(tmp_path / "tiny", steps=(0, 100, 200))
    make_checkpoint(series, seed=9)
    files = [folder / "model.safetensors" for folder in (series, series / "step0")]
    release, own = map(load_file, files)
    wrong = {name: release[name] for name in own if ".layers.1." in name or "embed_out" in name}
    save_file(own | wrong, files[1], metadata={"format": "pt"})
    options = (Option("he", " he"), Option("she", " she"))
    prompts = PromptSet("mine", (Prompt("a", " the nurse said", options, answer="she"),))
    bank = tmp_path / "b.zarr"
    summary = extract(bank, suites=str(series), steps="0,100,200,release", prompts=prompts,
                      engine="transformers", canary_every=0)  # fmt: skip
    sentence = "tiny step 0: 5 of 10 weight matrices are those of the release."
    assert any(note.startswith(sentence) for note in summary.notes)
    study = logitbank.options(bank)
    assert any(str(finding).startswith(sentence) for finding in study.findings)
    beside = "step 0 has weights of the release"
    marked = [f for f in study.findings if f.note == beside]
    assert marked
    for finding in study.findings:
        assert finding.note in ("", beside)
        named = re.search(r"\bstep 0\b", f"{finding.text} {finding.baseline}") is not None
        assert (beside in str(finding)) == (named and not str(finding).startswith(sentence))
    page = study.save(tmp_path / "page").read_text()
    assert page.count(beside) > len(marked), "beside each number and in the table of checkpoints"


def test_a_frozen_matrix_costs_as_little_as_others() -> None:
    """154 checkpoints, of which all but the last have a matrix, have 11,628 pairs with it."""
    rows = {step: f"a {step}" for step in range(153)} | {153: "b 153"}
    assert found(cast(Any, rows)) == []
    assert found(cast(Any, rows | {100: "c 153"})) == [(step, 152, 1, 2) for step in range(100)] + [
        (100, 153, 1, 2)
    ]
