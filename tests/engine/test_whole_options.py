"""Options of several tokens: each token after those before it, and nothing lost of the text."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

from logitbank.engine.prompts.files import load_prompts
from logitbank.engine.prompts.options import token_texts
from logitbank.engine.prompts.prompt_set import PromptSet
from logitbank.engine.prompts.tokenize import check_tokens, tokenize
from logitbank.engine.prompts.values import Option, Prompt
from logitbank.engine.tokenizers.tokenizer import Tokenizer
from logitbank.errors import PromptError

ROWS = [
    {
        "id": "a", "text": "The nurse said that", "answer": " she was tired",
        "options": [" he", " she was tired", " he was busy"], "order_seed": 3, "topic": "health",
    },
    {"id": "b", "text": "The clerk", "options": [" helped naïve 😀 people", " argued"]},
]  # fmt: skip


@pytest.fixture
def custom_prompts(tmp_path: Path) -> PromptSet:
    path = tmp_path / "mine.jsonl"
    path.write_text("\n".join(map(json.dumps, ROWS)))
    return load_prompts(path)


def one(*options: str, text: str = "The nurse said that") -> PromptSet:
    listed = tuple(Option(o.strip(), o) for o in options)
    return PromptSet("mine", (Prompt("p1", text, listed),), whole_options=True)


def test_every_token_is_asked_after_the_text_and_those_before_it(
    custom_prompts: PromptSet, causal: Tokenizer
) -> None:
    found = tokenize(custom_prompts, causal)
    contexts = pl.Series("context", [found.queries[q].ids for q in found.table["query"]])
    table = found.table.with_columns(contexts)
    for row in ROWS:
        text = causal.encode(str(row["text"]))
        for option in row["options"]:  # type: ignore[attr-defined]
            own = table.filter(prompt_id=row["id"], option=option.strip()).sort("piece")
            assert "".join(own["continuation"]) == option
            assert [*text, *own["token"]] == causal.encode(row["text"] + option)
            before = [[*text, *own["token"][:n]] for n in range(len(own))]
            assert own["context"].to_list() == before
    first = table.filter(prompt_id="a")
    assert first.filter(piece=0)["query"].n_unique() == 1, "the first tokens share a query"
    assert first["order_seed"].unique().to_list() == [3]
    assert first.filter("is_answer")["option"].unique().to_list() == ["she was tired"]
    assert first["topic"].unique().to_list() == ["health"]
    assert first.select("option", "piece").is_unique().all()
    (note,) = found.notes
    assert note.startswith("mine: 3 of 5 options have several tokens")


@pytest.mark.parametrize(
    ("options", "text", "named"),
    [
        ((Option("rse", "rse is"), Option("he", " he")), "The nu", "'p1': option 'rse'"),
        ((Option("a", " zzz"), Option("b", " zzz")), "The", "'p1': options 'a' and 'b'"),
    ],
)
def test_options_that_cannot_be_scored_are_named(
    options: tuple[Option, ...], text: str, named: str, causal: Tokenizer
) -> None:
    prompts = PromptSet("mine", (Prompt("p1", text, options),), whole_options=True)
    with pytest.raises(PromptError, match=named):
        tokenize(prompts, causal)


def test_the_longest_option_counts_where_a_model_s_length_is_checked(
    causal: Tokenizer,
) -> None:
    length = len(causal.encode("The nurse said that she was tired")) - 1
    made = tokenize(one(" he", " she was tired"), causal)
    config: Any = SimpleNamespace(max_length=length, vocab=causal.entries)
    check_tokens(made, config)
    config.max_length = length - 1
    with pytest.raises(PromptError, match=rf"'p1' of 'mine' has {length} tokens.* at most"):
        check_tokens(made, config)


@pytest.mark.parametrize("text", [" 😀", " naïve", "a", " she was 日本"])
def test_pieces_put_together_are_the_text(text: str, causal: Tokenizer) -> None:
    tokens = causal.encode(text)
    found = token_texts(causal, tokens, text)
    assert "".join(found) == text
    assert len(found) == len(tokens)
