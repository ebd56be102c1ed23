"""Conversations, written out by the model's own template, and examples before every prompt."""

import json
from pathlib import Path

import pytest

from logitbank.engine.prompts.check import check_prompts, prompts_show
from logitbank.engine.prompts.files import load_prompts
from logitbank.engine.prompts.registry import prompt_set
from logitbank.engine.tokenizers.tokenizer import Tokenizer
from logitbank.errors import PromptError, UsageError
from tests.support.checkpoints import write_tokenizer
from tests.support.prompt_rows import write_rows

TEMPLATE = (
    "{{ bos_token }}{% for turn in messages %}"
    "{% if turn.role == 'system' %}{{ raise_exception('no system here') }}{% endif %}"
    "{{ turn.role }}: {{ turn.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)
TALKED = {
    "id": "a",
    "messages": [
        {"role": "user", "content": "Who is tired?"},
        {"role": "assistant", "content": "She is."},
        {"role": "user", "content": "And busy?"},
    ],
    "options": [" he", " she is"],
}


def tokenizer(folder: Path, template: str | None = TEMPLATE) -> Tokenizer:
    write_tokenizer(folder)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    extra = {} if template is None else {"chat_template": template}
    extra |= {"bos_token": "<|endoftext|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config | extra))
    return Tokenizer.load(folder)


def test_the_template_makes_the_text_and_its_special_tokens(tmp_path: Path) -> None:
    tok = tokenizer(tmp_path / "tokenizer")
    prompts = load_prompts(write_rows(tmp_path / "talk.jsonl", TALKED))
    found = prompts.tokenize(tok)
    text = "<|endoftext|>user: Who is tired?\nassistant: She is.\nuser: And busy?\nassistant:"
    assert found.table["text"].unique().to_list() == [text]
    assert found.table.filter(option="he")["token"].to_list() == tok.encode(" he")
    ids = found.queries[0].ids
    assert ids == tuple(tok.encode(text, add_special_tokens=False))
    assert ids.count(tok.begin_id) == 1, "no second begin-of-text"
    digest = found.table["chat_template"].unique().to_list()
    other = prompts.tokenize(tokenizer(tmp_path / "other", TEMPLATE + " ")).table["chat_template"]
    assert other.unique().to_list() != digest


def test_what_is_shown_and_checked_without_a_tokenizer_are_the_messages(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "talk.jsonl", TALKED)
    assert "user: And busy?" in prompts_show(str(path))
    assert check_prompts(load_prompts(path), None) == []


@pytest.mark.parametrize(
    ("template", "rows", "message"),
    [
        (None, [TALKED], "has no chat template"),
        (TEMPLATE + "{{ strftime_now('%d') }}", [TALKED], "strftime_now"),
        (TEMPLATE + "{{ range(99999) | random }}", [TALKED], "chance"),
        (TEMPLATE + "{{ lipsum() }}", [TALKED], "prompt 'a': the chat template depends on chance"),
        (
            TEMPLATE,
            [TALKED | {"messages": [{"role": "system", "content": "x"}]}],
            "prompt 'a': the chat template of",
        ),
        ("{{ 'x' * 1000001 }}", [TALKED], "1,000,001"),
        (TEMPLATE, [TALKED, {"id": "b", "text": "He"}], "two files"),
        (TEMPLATE, [TALKED | {"chat_template": "x"}], "chat_template' is reserved"),
    ],
)
def test_conversations_that_cannot_be_written_out_are_named(
    template: str | None, rows: list[object], message: str, tmp_path: Path
) -> None:
    prompts = load_prompts(write_rows(tmp_path / "talk.jsonl", *rows))
    with pytest.raises(PromptError) as caught:
        prompts.tokenize(tokenizer(tmp_path / "tokenizer", template))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"text": "a", "messages": TALKED["messages"]}, "text and messages"),
        ({"messages": []}, "messages are []"),
        ({"messages": [{"role": "user"}]}, "messages are [{'role'"),
        ({"messages": [{"role": "user", "content": 3}]}, "content is 3"),
        ({"options": [" he"]}, "found 'options'"),
    ],
)
def test_rows_that_are_no_conversations_are_named(
    row: dict[str, object], message: str, tmp_path: Path
) -> None:
    with pytest.raises(PromptError) as caught:
        load_prompts(write_rows(tmp_path / "talk.jsonl", row))
    assert "talk.jsonl:1: " in str(caught.value)
    assert message in str(caught.value)


def test_conversations_come_in_csv_too(tmp_path: Path) -> None:
    cell = json.dumps(TALKED["messages"]).replace('"', '""')
    (tmp_path / "talk.csv").write_text(f'id,messages,options\na,"{cell}"," he| she"\n')
    (prompt,) = load_prompts(tmp_path / "talk.csv").prompts
    assert [turn.content for turn in prompt.messages] == ["Who is tired?", "She is.", "And busy?"]


def test_examples_stand_before_every_text_as_they_are(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "mine.jsonl", {"text": "The nurse"}, {"text": "The clerk"})
    shots = tmp_path / "two.txt"
    shots.write_text("The doctor: he\r\n\nThe maid: she\n\n", newline="")
    made = prompt_set(f"{path}:few_shot={shots}")
    assert made.name == "mine+two"
    texts = [prompt.text for prompt in made.prompts]  # type: ignore[union-attr]
    assert texts == [
        f"The doctor: he\r\n\nThe maid: she\n\nThe {who}" for who in ("nurse", "clerk")
    ]


def test_examples_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "mine.jsonl", {"text": "The nurse"})
    with pytest.raises(UsageError, match="gone.txt"):
        load_prompts(path, few_shot=tmp_path / "gone.txt")
    with pytest.raises(UsageError, match="few_shot"):
        prompt_set(f"{path}:few_shot=")
    for text in ("\n", "a [MASK] b"):
        (tmp_path / "shots.txt").write_text(text)
        with pytest.raises(PromptError, match="shots.txt"):
            load_prompts(path, few_shot=tmp_path / "shots.txt")
    (tmp_path / "shots.txt").write_text("He\n")
    talked = write_rows(tmp_path / "talk.jsonl", TALKED)
    with pytest.raises(PromptError, match="prompt 'a' has messages"):
        load_prompts(talked, few_shot=tmp_path / "shots.txt")
