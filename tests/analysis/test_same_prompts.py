"""Several banks are analysed, or compared, only where a prompt is the same prompt in each."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from logitbank.analysis.comparison.compare import compare
from logitbank.analysis.families.fairness import fairness
from logitbank.analysis.families.fluctuation import fluctuation
from logitbank.analysis.families.stereoset import stereoset
from logitbank.analysis.families.unqover import unqover
from logitbank.analysis.frames.reader import Scores
from logitbank.errors import UsageError
from logitbank.store import Bank, CheckpointId, Query, QuerySet
from tests.support import small_banks, unqover_cases
from tests.support.command import Call
from tests.support.evaluation_banks import add_lambada, add_winobias
from tests.support.fluctuation_cases import professions_bank
from tests.support.stereoset_cases import EXAMPLES, prompt_rows

Reworded = dict[str, pl.Expr]
OTHER_TEXT: Reworded = {"text": pl.col("text") + " Please."}


def reworded(bank: Path, to: Path, name: str, **changed: pl.Expr) -> Bank:
    """A bank with the same deposits as another one, of changed prompts."""
    old, new = Bank.open(bank), Bank.create(to)
    for query_set in old.query_sets().values():
        new.add_query_set(query_set)
    new.add_prompts(name, old.prompts(name).with_columns(**changed).collect())
    for deposit in old.deposits():
        new.deposit(
            deposit.stored_logprobs(range(deposit.layout.queries)),
            checkpoint=replace(deposit.checkpoint, model="other"),
            query_set=deposit.query_set,
        )
    return new


def test_another_text_of_one_id_is_refused_in_a_line(tmp_path: Path, call: Call) -> None:
    bank = Bank.create(tmp_path / "a.zarr")
    add_winobias(bank, steps=(0, 8), skew_from=8)
    second = pl.when(pl.col("prompt_id") == "p7").then(pl.lit("Who?")).otherwise("text")
    other = reworded(bank.path, tmp_path / "b.zarr", "winobias", text=second)
    message = (
        f"Prompt 'p7' (order 0) of 'winobias' differs in column 'text' between {bank.path} and "
        f"{other.path}. Analyse the banks one at a time, or change the ids of changed prompts."
    )
    code, out, error = call("analyze", "fairness", bank.path, other.path, "--bootstrap", 0)
    assert (code, out, error) == (2, "", f"logitbank: {message}\n")
    for alone in (bank, other):
        assert len(fairness([alone], bootstrap=0).result.gap) == 2
    only = fairness([bank, other], models=["toy"], bootstrap=0)
    assert only.result.gap["model"].to_list() == ["toy"] * 2, "nothing is set side by side"


def test_the_same_prompts_of_two_banks_are_set_side_by_side(tmp_path: Path) -> None:
    bank = Bank.create(tmp_path / "a.zarr")
    add_lambada(bank, {0: 3})
    other = reworded(bank.path, tmp_path / "b.zarr", "lambada")
    more = bank.prompts("lambada").filter(pl.col("prompt_id") < "l03").collect()
    bank.add_prompts("lambada", more.with_columns(prompt_id="more-" + pl.col("prompt_id")))
    assert Scores([bank, other], ("lambada",)).frames()


def test_every_family_and_compare_refuse_it(tmp_path: Path) -> None:
    professions = professions_bank(tmp_path / "p")
    both = [professions, reworded(professions, tmp_path / "p2", "professions", **OTHER_TEXT)]
    with pytest.raises(UsageError, match="of 'professions' differs in column 'text'"):
        fluctuation(both)
    questions = unqover_cases.make_bank(tmp_path / "u", steps=[0], nurses={0: 1.0})
    name = "unqover-gender"
    both = [questions, reworded(questions, tmp_path / "u2", name, **OTHER_TEXT)]
    with pytest.raises(UsageError, match="of 'unqover-gender' differs"):
        unqover(both)
    stories = Bank.create(tmp_path / "s")
    queries = QuerySet("ab" * 32, tuple(Query((1, i), 1) for i in range(len(EXAMPLES) * 6)))
    stories.add_query_set(queries)
    stories.add_prompts("stereoset-intra", prompt_rows(queries, kind="masked", task="i"))
    stories.deposit(
        np.zeros((24, 8), np.float32), checkpoint=CheckpointId("m", step=0), query_set=queries.name
    )
    both = [stories, reworded(stories.path, tmp_path / "s2", "stereoset-intra", **OTHER_TEXT)]
    with pytest.raises(UsageError, match="of 'stereoset-intra' differs"):
        stereoset(both)
    parity = small_banks.new_bank(tmp_path / "c")
    other = reworded(parity.path, tmp_path / "c2", "parity", answer=pl.lit("no"))
    for bank in (parity, other):
        bank.deposit(
            small_banks.logits(), checkpoint=CheckpointId("m", step=0),
            query_set=small_banks.QUERY_SET.name,
        )  # fmt: skip
    with pytest.raises(UsageError, match="'parity' differs in column 'answer'"):
        compare(parity.path, other.path)


def test_a_bank_or_a_checkpoint_that_is_named_twice_is_refused_in_a_line(
    tmp_path: Path, call: Call
) -> None:
    bank = Bank.create(tmp_path / "a.zarr")
    add_winobias(bank, steps=(0, 8), skew_from=8)
    again = tmp_path / "link.zarr"
    again.symlink_to(bank.path)
    for twice in (bank.path, again):
        code, out, error = call("analyze", "fairness", bank.path, twice, "--bootstrap", 0)
        assert (code, out) == (2, "")
        assert error == f"logitbank: {twice} is given twice. Name each bank once.\n"
    other = Bank.create(tmp_path / "b.zarr")
    add_winobias(other, steps=(8, 16), skew_from=8)
    with pytest.raises(UsageError) as refused:
        fairness([bank, other], bootstrap=0)
    assert f"toy step 8 has scores of 'winobias' in both {bank.path} and" in str(refused.value)
