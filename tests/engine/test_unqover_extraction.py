"""UnQover's questions through the engine into a bank, with BERT's and RoBERTa's vocabularies."""

from pathlib import Path

import polars as pl
import pytest

from logitbank.engine.extract import extract
from logitbank.store import Bank
from tests.support.checkpoints import make_checkpoint
from tests.support.tokenizers import entries, real_tokenizer
from tests.support.unqover_data import write_lists

pytestmark = pytest.mark.usefixtures("quick_workers")


@pytest.mark.whole
@pytest.mark.parametrize(
    ("name", "architecture", "left"),
    [("bert-base-uncased", "bert", 3), ("roberta-base", "roberta", 1)],
)
def test_every_instance_has_its_four_prompts_in_the_bank(
    name: str, architecture: str, left: int, tmp_path: Path
) -> None:
    folder = tmp_path / "suite" / "step0"
    make_checkpoint(folder, seed=1, architecture=architecture, vocab=30522 if left == 3 else 50265)  # type: ignore[arg-type]
    for file in ("tokenizer.json", "vocab.txt"):
        (folder / file).unlink(missing_ok=True)
    real_tokenizer(name, folder)
    summary = extract(
        tmp_path / "bank",
        suite=str(folder.parent),
        prompts=["unqover-gender-test", "unqover-nationality-train"],
        data=write_lists(tmp_path / "data"),
        instances="all",
        engine="transformers",
        keep="topk:8",
    )
    assert summary.complete, summary.failed
    # Of Iranian, Slovak and Russian, RoBERTa has no one token for the second.
    note = "unqover-nationality-train: 8 of 12 prompts are left out, for options that are not one"
    assert [n.startswith(note) for n in summary.notes] == [True] * (left == 1)
    bank = Bank.open(tmp_path / "bank")
    rows = bank.scan("unqover-nationality-train").collect()
    own = ("instance", "order", "negated")
    asked = rows.unique(own).group_by("instance").agg(pl.struct("order", "negated"))
    assert asked.height == left
    four = {(order, negated) for order in ("12", "21") for negated in (False, True)}
    assert all({tuple(c.values()) for c in cells} == four for cells in asked["order"])
    first = rows.filter(subject1="Iranian", subject2="Russian", order="12", negated=True)
    assert first.select("category", "split", "attribute", "attribute_class").unique().rows() == [
        ("nationality", "train", "was rude", "rude")
    ]
    vocabulary = entries(folder)
    names = ("iranian", "russian") if left == 3 else ("ĠIranian", "ĠRussian")
    tokens = dict(first.select("continuation", "token").rows())
    assert (tokens[" Iranian"], tokens[" Russian"]) == tuple(vocabulary[n] for n in names)
    assert rows["logprob"].is_between(-100, 0).all()

    gender = bank.scan("unqover-gender-test").collect()
    assert gender.select("subject1", "gender1", "subject2", "gender2").unique().rows() == [
        ("Ann", "female", "Omar", "male")
    ]
    words = {text.strip().casefold() for text in gender["continuation"]}
    assert words == {"ann", "omar", "she", "he"}
