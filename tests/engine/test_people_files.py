"""Files as Excel, pandas, R and dataset hubs write them: read if certain, else one remedy."""

import json
from pathlib import Path

import polars as pl
import pytest

from logitbank.engine.prompts.check import prompts_check
from logitbank.engine.prompts.files import load_prompts
from logitbank.engine.prompts.known.pairs import pairs
from logitbank.engine.prompts.prompt_set import PromptSet
from logitbank.errors import PromptError

ROWS = [
    ("a", "The nurse said that", " he| she", " she"),
    ("b", "The clerk said that", " he| she", " he"),
]
CONTENT = [
    ("a", "The nurse said that", (" he", " she"), "she"),
    ("b", "The clerk said that", (" he", " she"), "he"),
]


def content(path: Path) -> list[tuple[str, str, tuple[str, ...], str | None]]:
    found = load_prompts(path)
    assert isinstance(found, PromptSet)
    return [(p.id, p.text, tuple(o.text for o in p.options), p.answer) for p in found.prompts]


def table(separator: str, end: str = "\n", before: str = "") -> str:
    return before + "".join(
        separator.join(row) + end for row in [("id", "text", "options", "answer"), *ROWS]
    )


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("comma.csv", table(",").encode()),
        ("windows.csv", table(",", "\r\n").encode("utf-8-sig")),
        ("semicolon.csv", table(";").encode()),
        ("sep.csv", table(";", "\r\n", "sep=;\r\n").encode()),
        ("tab.tsv", table("\t").encode()),
        ("tab.csv", table("\t").encode()),
        ("unicode.csv", table("\t").encode("utf-16")),
        ("empty.csv", table(",", "\n\n").encode()),
    ],
)
def test_tables_are_read_as_programs_write_them(tmp_path: Path, name: str, data: bytes) -> None:
    (tmp_path / name).write_bytes(data)
    assert content(tmp_path / name) == CONTENT


@pytest.mark.parametrize("first", ["", "Unnamed: 0"])
@pytest.mark.parametrize("base", [0, 1])
def test_row_numbers_of_pandas_and_r_are_no_column(tmp_path: Path, first: str, base: int) -> None:
    path = tmp_path / "index.csv"
    rows = [(first, "id", "text", "options", "answer")]
    rows += [(str(base + at), *row) for at, row in enumerate(ROWS)]
    path.write_text("\n".join(map(",".join, rows)))
    assert content(path) == CONTENT
    path.write_text(path.read_text().replace(f"\n{base},", "\n7,"))
    with pytest.raises(PromptError, match="index=False in pandas"):
        load_prompts(path)


def test_missing_values_among_numbers_are_missing_and_elsewhere_an_error(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    path.write_text("id,text,options,answer,age\na,Who,x|y,x,31\nb,Who,x|y,y,NA\n")
    assert [p.columns["age"] for p in load_prompts(path).prompts] == [31, None]
    path.write_text("id,text,options,answer\na,Who,x|y,x\nb,Who,x|y,NA\n")
    with pytest.raises(PromptError, match=r"r\.csv:3: answer is 'NA'.*na=\"\""):
        load_prompts(path)
    path.write_text("id,text,options,answer\na,Who,NA|y,NA\n")
    assert load_prompts(path).prompts[0].answer == "NA"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"id, text, options\na, Who, x|y\n", r":1: column ' ?text' has white space"),
        ("id,text\na,Caf\u00e9\n".encode("cp1252"), r":2: not UTF-8 text .*0xE9\)\. .*CSV UTF-8"),
        (b"id,text\na,Who,x\n", r":2: 3 cells, but the header has 2"),
    ],
)
def test_uncertain_tables_are_refused_with_a_remedy(
    tmp_path: Path, data: bytes, message: str
) -> None:
    path = tmp_path / "bad.csv"
    path.write_bytes(data)
    with pytest.raises(PromptError, match=message):
        load_prompts(path)


def test_lines_of_json_end_with_a_line_feed_only(tmp_path: Path) -> None:
    path, texts = tmp_path / "lines.jsonl", ["a\u2028b", "c\x85d", "e"]
    lines = [json.dumps({"text": text}, ensure_ascii=False) for text in texts]
    path.write_text("\r\n\n".join(lines), newline="")
    assert [p.text for p in load_prompts(path).prompts] == texts  # type: ignore[union-attr]


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".tsv", ".parquet"])
def test_pairs_are_read_from_the_same_files(tmp_path: Path, suffix: str) -> None:
    rows = [
        {"sentence_good": "The nurse said\u2028she was tired", "sentence_bad": "She were"},
        {"sentence_good": "123", "sentence_bad": "12"},
    ]
    path, frame = tmp_path / f"own{suffix}", pl.DataFrame(rows)
    if suffix == ".jsonl":
        lines = [json.dumps(row, ensure_ascii=False) for row in rows]
        path.write_text("\n\n".join(lines) + "\n\n")
    elif suffix == ".parquet":
        frame.cast({"sentence_bad": pl.Categorical}).write_parquet(path)
    else:
        frame.write_csv(path, separator="\t" if suffix == ".tsv" else ",")
    texts = [prompt.text for prompt in pairs(file=str(path)).prompts]
    assert texts == [row[name] for row in rows for name in ("sentence_good", "sentence_bad")]


def test_a_parquet_file_of_categories_and_large_lists_is_read(tmp_path: Path) -> None:
    path = tmp_path / "hub.parquet"
    options = pl.Series([["x", "y"], ["x", "y"]])
    frame = pl.DataFrame({"text": ["Who?", "What?"], "options": options, "topic": ["s", "t"]})
    frame.with_columns(pl.col("text", "topic").cast(pl.Categorical)).write_parquet(path)
    found = load_prompts(path).prompts
    assert [(p.text, p.columns["topic"]) for p in found] == [("Who?", "s"), ("What?", "t")]  # type: ignore[union-attr]


@pytest.mark.parametrize("as_text", [False, True])
def test_an_index_as_answer_counts_from_zero_if_one_is_zero(tmp_path: Path, as_text: bool) -> None:
    path = tmp_path / "index.jsonl"

    def write(*answers: int) -> None:
        rows = [
            {"text": "Who", "options": ["x", "y"], "answer": str(a) if as_text else a}
            for a in answers
        ]
        path.write_text("\n".join(map(json.dumps, rows)))

    write(1, 0)
    assert [p.answer for p in load_prompts(path).prompts] == ["y", "x"]  # type: ignore[union-attr]
    write(1, 1)
    with pytest.raises(PromptError, match="may count from 0 or from 1; write the option's label"):
        load_prompts(path)
    write(0, 2)
    with pytest.raises(PromptError, match="answer is 2, but the prompt has 2 options"):
        load_prompts(path)


NUMBERS = [" 1", " 3", " 6", " 16"]


@pytest.mark.parametrize(
    ("options", "answers", "expected"),
    [
        (NUMBERS, [2, 1, 0, 3], ["6", "3", "1", "16"]),
        (NUMBERS, ["2", "1", "0"], ["6", "3", "1"]),
        (NUMBERS, [2.0, None, 0.0], ["6", None, "1"]),
        (NUMBERS, ["2.0", "0.0"], ["6", "1"]),
        (NUMBERS, [6, 1, 16], ["6", "1", "16"]),
        (NUMBERS, [" 3", "1"], ["3", "1"]),
        (["A", "B"], ["B", " A"], "answer ' A' is not an option"),
        (NUMBERS, ["1", "3", "2"], "answer '2' is not an option"),
        (NUMBERS, [" 3", 0], "answer '0' is not an option"),
        (NUMBERS, [2, 0, 6], "answer is 6, but the prompt has 4 options"),
        (NUMBERS, [1, 0.5], "answer is 0.5; it must be a text"),
        (NUMBERS, [-1, 0], "answer is -1; it must be a text"),
    ],
)
def test_all_answers_of_a_file_are_labels_or_all_are_indices(
    tmp_path: Path, options: list[str], answers: list[object], expected: object
) -> None:
    path = tmp_path / "mine.jsonl"
    rows = [{"text": "Who?", "options": options, "answer": answer} for answer in answers]
    path.write_text("\n".join(map(json.dumps, rows)))
    if isinstance(expected, str):
        with pytest.raises(PromptError, match=expected):
            load_prompts(path)
        return
    found = load_prompts(path)
    assert [p.answer for p in found.prompts] == expected
    assert found.warnings == ()


def test_answers_that_are_labels_and_indices_are_labels_with_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text("text,options,answer\nWho?,0|1|2,1\nHow many?,2|1|0,0\n")
    found = load_prompts(path)
    assert [p.answer for p in found.prompts] == ["1", "0"]
    (warning,) = prompts_check(found).lines[:1]
    assert "may also be an index from 0. It is read as a label" in warning
    path.write_text("text,options,answer\nWho?,0|1|2,1\nHow many?,0|1,0\n")
    assert load_prompts(path).warnings == (), "both readings are the same"


def test_numbers_of_a_column_with_gaps_are_whole(tmp_path: Path) -> None:
    path = tmp_path / "mine.parquet"
    frame = pl.DataFrame({"text": ["[MASK] or [MASK]", "b"], "options": [["x", "y"]] * 2})
    gaps = {"answer": [1.0, 0.0], "mask": [1.0, None], "order_seed": [3.0, float("nan")]}
    frame.with_columns(
        **{k: pl.Series(v, dtype=pl.Float64) for k, v in gaps.items()}
    ).write_parquet(path)
    found = [(p.answer, p.mask, p.order_seed) for p in load_prompts(path).prompts]
    assert found == [("y", 1, 3), ("x", None, None)]


@pytest.mark.parametrize(
    "options",
    [
        [{"male": " he", "other": None}, {"male": " he", "other": " they"}],
        [[{"label": "male", "text": None}], [{"label": "male", "text": " he"}]],
    ],
)
def test_a_member_without_a_text_is_named(tmp_path: Path, options: list[object]) -> None:
    path = tmp_path / "mine.parquet"
    pl.DataFrame({"text": ["a", "b"], "options": options}).write_parquet(path)
    with pytest.raises(PromptError, match=r"row 1: option.*('other' without a|has no) text"):
        load_prompts(path)


def test_a_tsv_has_no_quoting(tmp_path: Path) -> None:
    path = tmp_path / "mine.tsv"
    texts = ['"I am tired', 'The nurse said that"', '"The clerk"', 'a "b" c']
    path.write_text("text\toptions\r\n" + "".join(f"{text}\the|she\r\n" for text in texts))
    found = load_prompts(path)
    assert [p.text for p in found.prompts] == texts
    assert [o.text for o in found.prompts[-1].options] == ["he", "she"]
    assert found.warnings == ()
    pairs_path = tmp_path / "pairs.tsv"
    rows = [(texts[0], texts[1]), (texts[2], texts[3])]
    pairs_path.write_text(
        "sentence_good\tsentence_bad\n" + "".join("\t".join(r) + "\n" for r in rows)
    )
    assert [p.text for p in pairs(file=str(pairs_path)).prompts] == texts
    path.write_text('text\toptions\na\the|she\n"He said ""no"""\the|she\n')
    (warning,) = load_prompts(path).warnings
    assert f"{path}:3: a cell is quoted as in CSV, but TSV has no quoting" in warning
    path.write_text('"text"\t"options"\n"a"\t"he|she"\n')
    with pytest.raises(PromptError, match=r":1: the header has quotation marks.*quote=FALSE in R"):
        load_prompts(path)


def test_a_cell_of_several_lines_is_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text('id,text,options\na,"One\nline",x|y\nb,Who,x|y\nc,"Q\n\nA",x|y\n')
    found = load_prompts(path)
    assert [p.text for p in found.prompts] == ["One\nline", "Who", "Q\n\nA"]
    (warning,) = found.warnings
    assert f"{path}:2: lines 2 to 3 are one row" in warning
    assert warning.endswith("(also in line 5)")
