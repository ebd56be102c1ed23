"""Conditions in prompt files: which prompt is whose, and what is refused before anything runs."""

import json
from pathlib import Path

import polars as pl
import pytest

from logitbank.engine.prompts.files import load_prompts
from logitbank.errors import PromptError

QUESTION = {"id": "q", "text": "The nurse said that", "options": [" he", " she"], "condition": "c"}
CONDITION = {"id": "c", "text": "Answer:", "options": [" she", " he"]}


def written(folder: Path, *rows: object) -> Path:
    path = folder / "mine.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def test_a_condition_is_a_column_of_its_prompt(tmp_path: Path) -> None:
    listed = load_prompts(written(tmp_path, QUESTION, CONDITION)).prompts
    assert [p.columns for p in listed] == [{"condition": "c"}, {}]
    (tmp_path / "mine.csv").write_text(
        "id,text,options,condition\n1,The nurse, he| she,7\n7,Answer:, he| she,\n"
    )
    assert load_prompts(tmp_path / "mine.csv").prompts[0].columns == {"condition": "7"}
    pl.DataFrame(
        {"id": [1, 7], "text": ["The nurse", "Answer:"], "target": [" was"] * 2}
        | {"condition": [7, None]}
    ).write_parquet(tmp_path / "mine.parquet")
    assert load_prompts(tmp_path / "mine.parquet").prompts[0].columns == {"condition": "7"}


def test_orders_may_share_a_condition_or_have_their_own(tmp_path: Path) -> None:
    seeded = [{**QUESTION, "order_seed": seed} for seed in (0, 1)]
    own = [{**CONDITION, "order_seed": seed} for seed in (0, 1)]
    assert len(load_prompts(written(tmp_path, *seeded, CONDITION)).prompts) == 3
    assert len(load_prompts(written(tmp_path, *seeded, *own)).prompts) == 4
    with pytest.raises(PromptError, match=r"\(order 1\): condition 'c' has neither this order nor"):
        load_prompts(written(tmp_path, *seeded, own[0]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"condition": "x"}, r"mine\.jsonl: prompt 'q': condition 'x' is no prompt of this file"),
        ({"condition": "q"}, "prompt 'q': condition 'q' is the prompt itself; give the id of ano"),
        ({"condition": True}, r"mine\.jsonl:1: condition is True; it must be a text"),
        ({"options": [" he"]}, "condition 'c' has the options ' she', ' he', and the prompt the"),
        ({"options": {"x": " he", "she": " she"}}, "give both the same labels and continuations"),
        ({"options": None}, "has the options ' she', ' he', and the prompt no options; give both"),
    ],
)
def test_what_is_no_condition_is_named(
    tmp_path: Path, change: dict[str, object], message: str
) -> None:
    with pytest.raises(PromptError, match=message):
        load_prompts(written(tmp_path, QUESTION | change, CONDITION))


def test_examples_do_not_stand_before_a_condition(tmp_path: Path) -> None:
    (tmp_path / "shots.txt").write_text("One. ")
    path = written(tmp_path, QUESTION, CONDITION, {"id": "x", "text": "Other"})
    texts = [p.text for p in load_prompts(path, few_shot=tmp_path / "shots.txt").prompts]
    assert texts == ["One. The nurse said that", "Answer:", "One. Other"]


def test_beside_a_sentence_it_is_any_column(tmp_path: Path) -> None:
    row = {"sentence": "The nurse", "condition": "plain"}
    assert load_prompts(written(tmp_path, row)).prompts[0].columns == {"condition": "plain"}
