"""Prompt files of users: three formats, one result, and errors that name the line."""

import json
from datetime import date
from pathlib import Path

import polars as pl
import pytest

from logitbank.engine.prompts.check import prompts_check
from logitbank.engine.prompts.files import load_prompts
from logitbank.engine.prompts.values import Option, Prompt, reserved_columns
from logitbank.errors import PromptError, UsageError
from tests.support.paths import ROOT
from tests.support.prompt_rows import write_rows

HE_SHE = (Option("he", " he"), Option("she", " she"))
EXPECTED = (
    Prompt("n1", "The nurse said", HE_SHE, "she", None, {"group": "care", "weight": 2}),
    Prompt("n2", "The clerk said", HE_SHE, None, None, {"group": "office", "weight": 3}),
)


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8", newline="")
    return path


# What is read


def test_json_lines(tmp_path: Path) -> None:
    lines = [
        {
            "id": "n1",
            "text": "The nurse said",
            "options": [" he", " she"],
            "answer": "she",
            "group": "care",
            "weight": 2,
        },
        {
            "id": "n2",
            "text": "The clerk said",
            "options": {"he": " he", "she": " she"},
            "group": "office",
            "weight": 3,
        },
    ]
    text = "\n\n".join(map(json.dumps, lines))
    made = load_prompts(written(tmp_path, "mine.jsonl", text))
    assert made.prompts == EXPECTED
    assert (made.name, made.first_token, made.add_special_tokens) == ("mine", False, None)


def test_csv(tmp_path: Path) -> None:
    text = (
        "\ufeffid,text,options,answer,group,weight\r\n"
        "n1,The nurse said, he| she,she,care,2\r\n"
        'n2,The clerk said,"[{""label"": ""he"", ""text"": "" he""}, "" she""]",,office,3\r\n'
    )
    assert load_prompts(written(tmp_path, "mine.csv", text)).prompts == EXPECTED


def test_parquet(tmp_path: Path) -> None:
    frame = pl.DataFrame(
        {
            "id": ["n1", "n2"],
            "text": ["The nurse said", "The clerk said"],
            "options": [[" he", " she"], [" he", " she"]],
            "answer": ["she", None],
            "group": ["care", "office"],
            "weight": [2, 3],
        }
    )
    frame.write_parquet(tmp_path / "mine.parquet")
    assert load_prompts(tmp_path / "mine.parquet").prompts == EXPECTED


def test_a_column_of_several_kinds_names_the_first_line_that_differs(tmp_path: Path) -> None:
    """As `prompts check` and `extract` both find it: they read the same file."""
    groups = ['"a"', "null", "1", '"b"', "2"]
    lines = [f'{{"text": "T", "group": {g}, "n": {i / 2}}}' for i, g in enumerate(groups)]
    path = written(tmp_path, "mine.jsonl", "\n".join([*lines, '{"text": "T", "n": 3}']))
    with pytest.raises(PromptError) as refused:
        prompts_check(path)
    assert str(refused.value).startswith(f"{path}:3: column 'group' ")
    assert "line 1" in str(refused.value)


def test_truth_is_no_number(tmp_path: Path) -> None:
    path = written(tmp_path, "m.jsonl", '{"text": "T", "x": 1}\n{"text": "U", "x": true}\n')
    with pytest.raises(PromptError, match=":2: column 'x'"):
        load_prompts(path)


def test_the_name_of_the_set_comes_from_the_call(tmp_path: Path) -> None:
    path = written(tmp_path, "mine.jsonl", '{"text": "The nurse"}')
    assert load_prompts(path, name="other").name == "other"


def test_ids_default_to_the_row_number(tmp_path: Path) -> None:
    path = written(tmp_path, "mine.csv", "text\nThe nurse\n\nThe clerk\n")
    assert [p.id for p in load_prompts(path).prompts] == ["1", "2"]


def test_order_seed_is_the_prompt_s_own(tmp_path: Path) -> None:
    path = written(tmp_path, "mine.csv", "id,text,order_seed\n7,The nurse,0\n7,The clerk,1\n")
    made = load_prompts(path).prompts
    assert [(p.id, p.order_seed, p.columns) for p in made] == [("7", 0, {}), ("7", 1, {})]


@pytest.mark.parametrize(
    ("cells", "values"),
    [
        (
            ["1234567890123456789", "1234567890123456790", "-9223372036854775808"],
            [1234567890123456789, 1234567890123456790, -9223372036854775808],
        ),
        (["3.5", "3.9", "-2", "1e-07"], [3.5, 3.9, -2.0, 1e-07]),
        (["9223372036854775808", "1"], ["9223372036854775808", "1"]),
        (["0.1234567890123456789"], ["0.1234567890123456789"]),
        (["1e999"], ["1e999"]),
        (["\u0661", "\u0662"], ["\u0661", "\u0662"]),  # digits of another script
        (["9" * 5000, "1"], ["9" * 5000, "1"]),
        (["true", "False"], [True, False]),
    ],
)
def test_csv_cells_are_numbers_only_where_none_loses_a_digit(
    tmp_path: Path, cells: list[str], values: list[object]
) -> None:
    text = "text,mine\n" + "".join(f"a,{cell}\n" for cell in cells)
    found = [
        prompt.columns["mine"] for prompt in load_prompts(written(tmp_path, "m.csv", text)).prompts
    ]
    assert found == values
    assert [type(value) for value in found] == [type(value) for value in values]


def test_csv_columns_are_typed_as_a_whole(tmp_path: Path) -> None:
    text = "text,whole,broken,flag,code,mixed\na,1,1,true,007,1\nb,,2.5,False,010,x\n"
    first, second = load_prompts(written(tmp_path, "mine.csv", text)).prompts
    expected = {"whole": 1, "broken": 1.0, "flag": True, "code": "007", "mixed": "1"}
    assert first.columns == expected
    assert second.columns == {
        "whole": None,
        "broken": 2.5,
        "flag": False,
        "code": "010",
        "mixed": "x",
    }


def test_text_and_options_are_literal(tmp_path: Path) -> None:
    path = written(tmp_path, "mine.csv", 'text,options\n" 12 ","a | b "\n')
    [prompt] = load_prompts(path).prompts
    assert prompt.text == " 12 "
    assert prompt.options == (Option("a", "a"), Option("b", " b"))


# What is refused


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("{", "broken JSON"),
        ("[" * 100_000, "broken JSON"),
        ('["a"]', r"\['a'\]"),
        ('{"prompt": "a"}', "'text' is missing; found 'prompt'"),
        ('{"text": 3}', "text is 3"),
        ('{"text": null}', "no text"),
        ('{"text": " "}', "'2' has no text"),
        ('{"id": "", "text": "a"}', "'a' has no id"),
        ('{"id": 1, "text": "a"}', "prompt '1' is also in line 1$"),
        ('{"text": "a", "options": 3}', "options are 3"),
        ('{"text": "a", "options": [3]}', "option 3"),
        ('{"text": "a", "options": {"b": 1}}', "the text of an option is 1"),
        ('{"text": "a", "options": {"b": "1", "b": "2"}}', "key 'b' is repeated"),
        ('{"text": "a", "options": [" b", "b"]}', "option 'b' is repeated"),
        ('{"text": "a", "options": ["b"], "answer": "c"}', "'c' is not an option"),
        ('{"text": "a", "order_seed": "x"}', "order_seed is 'x'"),
        ('{"text": "a", "tags": ["x"]}', r"column 'tags' has \['x'\]"),
        ('{"text": "\\ud800"}', "surrogate"),
        ('{"text": "a", "b": ' + "9" * 5000 + "}", "broken JSON"),
        ('{"text": "a", "b": ' + "9" * 4000 + "}", "'b' is a number of more than 3,999 digits"),
        ('{"text": "a", "b": 9223372036854775808}', "'b' is 9223372036854775808"),
        ('{"text": "a", "b\\u001b": 1}', r"'b\\x1b'"),
        ('{"text": "a", "' + "b" * 201 + '": 1}', "201 letters"),
        ('{"text": "a", "id": "b\\u0000"}', r"'b\\x00'"),
        ('{"text": "a", "id": "' + "b" * 1001 + '"}', "1,001 letters"),
    ],
)
def test_a_bad_json_line_is_named(tmp_path: Path, line: str, named: str) -> None:
    path = written(tmp_path, "mine.jsonl", '{"text": "fine"}\n' + line)
    with pytest.raises(PromptError, match=rf"mine\.jsonl:2: .*{named}"):
        load_prompts(path)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", ":1: .*nothing"),
        ("prompt,id\na,b\n", ":1: .*'prompt', 'id'"),
        ("id;prompt;options\n1;a;b|c\n", ":1: .*found 'id', 'prompt', 'options'$"),
        ("text,opts,answer\na,b|c,b\nd,b|c,c\n", ": column 'options' is missing; found 'text', 'o"),
        ("text,a,a\nx,1,2\n", ":1: "),
        ("text,\nx,1\n", ":1: "),
        ('text,a\n"x\ny",1\nz\n', ":4: 1 cells"),
        ('text\n"x', ":2: broken CSV"),
        ("text,options\nx,[1\n", ":2: .*broken JSON"),
        ("text,options\nx,a|\n", ":2: .*option ''"),
        ("text,id\nx,\n", ":2: no id"),
        ('text\n"a\nb"\n" "\n', ":4: prompt '2'"),
        ("text\n", " has no prompts"),
    ],
)
def test_a_bad_csv_is_named_with_its_line(tmp_path: Path, text: str, named: str) -> None:
    with pytest.raises(PromptError, match=rf"mine\.csv{named}"):
        load_prompts(written(tmp_path, "mine.csv", text))


def test_a_bad_parquet_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "mine.parquet"
    pl.DataFrame({"text": ["a", "b"], "day": [None, date(2020, 1, 1)]}).write_parquet(path)
    with pytest.raises(PromptError, match=r"row 2: column 'day' has datetime\.date\(2020, 1, 1"):
        load_prompts(path)
    pl.DataFrame({"prompt": ["a"]}).write_parquet(path)
    with pytest.raises(PromptError, match=r"mine\.parquet: .*'text' is missing"):
        load_prompts(path)
    path.write_text("not at all")
    with pytest.raises(PromptError, match=r"mine\.parquet cannot be read as Parquet: [^\n]+$"):
        load_prompts(path)


@pytest.mark.parametrize("name", ["mine.jsonl", "mine.csv"])
def test_another_encoding_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b'{"text": "caf\xe9"}\n')
    with pytest.raises(PromptError, match="UTF-8"):
        load_prompts(tmp_path / name)


@pytest.mark.parametrize("name", ["mine.txt", "mine.jsonl"])
def test_other_files_and_missing_files_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match=name):
        load_prompts(tmp_path / name)


@pytest.mark.parametrize(("name", "cell"), [("opts", "x"), ("choices", " he| she")])
def test_options_under_another_name_are_a_warning(tmp_path: Path, name: str, cell: str) -> None:
    text = f"id;text;{name};group\na;The nurse said;{cell};1\nb;The clerk said;{cell};2\n"
    expected = f"'a': no prompt has options; is column {name!r} meant to be 'options'?"
    first, *_ = prompts_check(load_prompts(written(tmp_path, "mine.csv", text))).lines
    assert first == f"warning: prompt {expected}"
    named = prompts_check(
        load_prompts(written(tmp_path, "mine.csv", text.replace(name, "options")))
    )
    assert not any("no prompt has options" in line for line in named.lines)


# Several errors in one file


def test_rows_of_a_csv_that_are_too_short_are_told_with_the_others(tmp_path: Path) -> None:
    text = "id,text,options,answer\n1,a,,\n2\n3,c,,x\n4,d,,e,f\n5,e,,\n"
    with pytest.raises(PromptError) as refused:
        load_prompts(written(tmp_path, "mine.csv", text))
    _, *each = str(refused.value).splitlines()
    assert [line.partition("mine.csv")[2] for line in each] == [
        ":3: 1 cells, but the header has 4 (also in line 5)",
        ":4: prompt '3': answer 'x' is not an option; options: none",
    ]


def test_a_kind_of_error_is_listed_once_with_its_lines(tmp_path: Path) -> None:
    lines = ['{"text": "fine"}', "{", '{"text": 3}', '{"a": 1}', '{"text": [4]}', '{"b": "c"}']
    path = written(tmp_path, "mine.jsonl", "\n".join([*lines, *["["] * 12, '{"text": 56}']))
    with pytest.raises(PromptError) as refused:
        load_prompts(path)
    first, *each = [line.replace(str(path), "") for line in str(refused.value).splitlines()]
    assert first == " has 5 errors:"
    assert [line.split(":")[1] for line in each] == ["2", "3", "4", "5", "7"]
    assert [line.partition(" (also in ")[2] for line in each] == [
        *("", "line 19)", "line 6)", ""),
        "lines 8, 9, 10, 11, 12, 13, 14, 15, 16, 17 and 1 more)",
    ]


def test_of_many_kinds_of_errors_twenty_are_listed_and_all_are_counted(tmp_path: Path) -> None:
    rows = "".join(json.dumps({"text": "a", "b" * n: [n]}) + "\n" for n in range(1, 24))
    with pytest.raises(PromptError) as refused:
        load_prompts(written(tmp_path, "mine.jsonl", rows))
    first, *each = str(refused.value).splitlines()
    assert first.endswith("mine.jsonl has 23 errors, the first 20:")
    assert len(each) == 20


def test_reserved_columns_are_one_error_that_lists_their_names(tmp_path: Path) -> None:
    path = written(tmp_path, "many.jsonl", '{"text": "a", "kind": 1, "step": 2}\n' * 1500 + "{")
    with pytest.raises(PromptError) as refused:
        load_prompts(path)
    _, reserved, broken = (line.strip() for line in str(refused.value).splitlines())
    message = f"{path}:1: prompt '1': column names that the bank reserves: kind, step. Rename them."
    assert reserved.startswith(message)
    names, _, lines = reserved.partition("All reserved names: ")[2].partition(" (")
    assert {"rank", "model", "step", "score_kind"} < {*names.split(", ")}
    assert lines.endswith("and 1,489 more)")
    assert broken.startswith(f"{path}:1501: line")


def test_the_docs_list_every_reserved_column() -> None:
    page = (ROOT / "docs" / "prompts.md").read_text()
    assert [name for name in reserved_columns() if f"`{name}`" not in page] == []


@pytest.mark.parametrize(
    ("column", "field"),
    [
        ("otpions", "options"),
        ("anwser", "answer"),
        ("sentence_id", ""),
    ],
)
def test_a_misspelt_field_is_a_warning_and_a_column(
    tmp_path: Path, column: str, field: str
) -> None:
    row = {"text": "The nurse", "options": ["x", "y"], "answer": "x"}
    path = write_rows(tmp_path / "mine.jsonl", row, row | {column: "z"})
    assert load_prompts(path).prompts[1].columns == {column: "z"}
    warnings = [line for line in prompts_check(str(path)).lines if repr(column) in line]
    assert [f"did you mean {field!r}?" in line for line in warnings] == [True] * bool(field)


def test_a_cell_may_be_longer_than_csv_readers_take_by_default(tmp_path: Path) -> None:
    long = "word " * 30_000 + "end"
    path = written(tmp_path, "mine.csv", f'text,options\n"{long}"," he| she"\n')
    assert load_prompts(path).prompts[0].text == long
