"""`logitbank show` as people and programs see it."""

import csv
import json
import shlex
from collections.abc import Iterator
from io import BytesIO, StringIO, TextIOWrapper
from math import log, nan
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from rich.cells import cell_len
from rich.console import Console

from logitbank.cli import output as screen
from logitbank.cli.plain import encode_anything
from logitbank.cli.screen import prompt as prompt_lines
from logitbank.cli.screen.prompt import number, one_line, shortened, sparkline
from logitbank.store import Bank, CheckpointId, Query, QuerySet
from logitbank.store.format.schema import PROMPTS_SCHEMA
from tests.support.command import Call
from tests.support.small_banks import QUERIES, QUERY_SET, TOKENIZER, logits, new_bank, token_table


def put(bank: Bank, step: int | None, *pairs: tuple[float, float], model: str = "toy") -> None:
    """Weights of yes and no for the first queries; the four other tokens weigh 1 each."""
    values = np.zeros((QUERIES, 6), np.float32)
    for row, (yes, no) in enumerate(pairs):
        values[row, 1], values[row, 4] = log(yes), log(no)
    bank.deposit(
        values, checkpoint=CheckpointId(model, step=step), query_set=QUERY_SET.name, keep="topk:6"
    )


@pytest.fixture
def parity(tmp_path: Path) -> Path:
    """p0 goes to yes and back to half, p1 to no, p2 nearly as far as p0; the others stay."""
    bank = new_bank(tmp_path / "b")
    put(bank, 0, (1, 1), (1, 1), (1, 1))
    put(bank, 8, (9, 1), (1, 3), (4, 1))
    put(bank, None, (1, 1), (1, 3), (4, 1))
    return tmp_path / "b"


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A terminal of 60 columns without colour."""
    monkeypatch.setattr(screen, "out", Console(highlight=False, emoji=False, width=60))
    return


def columns(text: str) -> int:
    return max(map(cell_len, text.splitlines()))


def test_the_prompts_that_move_most_are_listed(call: Call, parity: Path) -> None:
    code, out, error = call("show", parity, "--top", 3)
    assert (code, error) == (0, "")
    assert out == (
        "parity: the prompts that move most\n"
        "\n"
        "toy main, share\n"
        " 1. p0\n"
        "    yes 0.500 → 0.900 (0 → 8)\n"
        "    Is 0 even?\n"
        " 2. p2\n"
        "    yes 0.500 → 0.800 (0 → 8)\n"
        "    Is 2 even?\n"
        " 3. p1\n"
        "    yes 0.500 → 0.250 (0 → 8)\n"
        "    Is 1 even?\n"
        "\n"
        f"logitbank show {parity} --prompts parity --prompt p0\n"
    )
    assert call("show", parity)[1].count("even?") == 10
    assert call(*shlex.split(out.splitlines()[-1])[1:])[0] == 0


def test_the_prompts_that_differ_most_are_listed(call: Call, parity: Path) -> None:
    code, out, _ = call("show", parity, "--between", "8", "release", "--top", 2)
    assert code == 0
    assert out.splitlines()[:8] == [
        "parity: the prompts that differ most, step 8 → release",
        "",
        "toy main, share",
        " 1. p0",
        "    yes 0.900 → 0.500 (−0.400)",
        "    Is 0 even?",
        " 2. p1",
        "    yes 0.250 → 0.250 (+0.000)",
    ]


def test_prompts_that_do_not_move_are_not_said_to(call: Call, tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b")
    for step in (0, 8):
        put(bank, step, (3, 1))
    for options, said in (([], "moves"), (["--between", 0, 8], "differs")):
        out = call("show", tmp_path / "b", *options)[1].splitlines()
        assert out[2:5] == ["toy main, share", f"no prompt {said}; the first:", " 1. p0"]


def test_a_prompt_is_shown_with_its_probabilities_through_training(
    call: Call, parity: Path
) -> None:
    code, out, error = call("show", parity, "--prompt", "p0")
    assert (code, error) == (0, "")
    assert out == (
        "p0, in parity\n"
        "│ Is 0 even?\n"
        "answer: yes\n"
        "options:\n"
        '  yes  " yes", the answer\n'
        '  no  " no"\n'
        "\n"
        "toy main, share\n"
        "3 checkpoints, step 0 to release; bars from 0 to 1.000\n"
        "▅█▅  yes\n"
        "▅▁▅  no\n"
        "     first   last  lowest  at  highest  at\n"
        "yes  0.500  0.500   0.500   0    0.900   8\n"
        "no   0.500  0.500   0.100   8    0.500   0\n"
        "probability of all options: 0.333 first, 0.333 last\n"
    )


def test_every_model_has_bars_of_its_own(call: Call, parity: Path) -> None:
    put(Bank.open(parity), 4, (1, 3), model="single")
    _, out, _ = call("show", parity, "--prompt", "p0")
    assert out.index("single main, share") < out.index("toy main, share")
    single = out[out.index("single main") : out.index("toy main")]
    assert "bars" not in single  # of one checkpoint
    assert "yes  0.250  0.250   0.250   4    0.250   4\n" in single
    assert single.endswith("probability of all options: 0.500 first, 0.500 last\n\n")
    _, out, _ = call("show", parity, "--prompt", "p0", "--model", "single", "--run", "main")
    assert "toy" not in out
    assert call("show", parity, "--model", "single", "--top", 1)[1].count("even?") == 1


def orders(path: Path) -> Path:
    """One prompt in three orders, with columns of its own."""
    bank = Bank.create(path)
    queries = QuerySet(TOKENIZER, tuple(Query((i, 1), 1) for i in range(3)))
    bank.add_query_set(queries)
    rows = [
        ("q", seed, 0, f"order {seed}", None, option, f" {option}", token, None, queries.name, row)
        for row, seed in enumerate((2, 0, 1))
        for option, token in (("a", 0), ("b", 1))
    ]
    table = pl.DataFrame(rows, schema=PROMPTS_SCHEMA, orient="row")
    bank.add_prompts("own", table.with_columns(topic=pl.lit("health"), size=pl.lit(3)))
    for step in (0, 8):
        bank.deposit(
            logits(step, queries=3, vocab=4),
            checkpoint=CheckpointId("m", step=step),
            query_set=queries.name,
            keep="options",
        )
    return path


def test_one_order_is_shown_and_the_others_are_named(call: Call, tmp_path: Path) -> None:
    path = orders(tmp_path / "b")
    _, out, _ = call("show", path, "--prompt", "q")
    assert out.startswith(
        "q, in own\norder 2; 2 more: --order 0, 1\n│ order 2\ntopic: health, size: 3\noptions:\n"
    )
    assert "answer" not in out
    _, other, _ = call("show", path, "--prompt", "q", "--order", 0)
    assert other.startswith("q, in own\norder 0; 2 more: --order 2, 1\n│ order 0\n")
    _, listed, _ = call("show", path, "--top", 2)
    assert listed.count("q, order ") == 2
    assert listed.splitlines()[-1].startswith(f"logitbank show {path} --prompts own --prompt q --o")


def test_data_are_tidy_and_whole(call: Call, parity: Path, tmp_path: Path) -> None:
    _, out, _ = call("show", parity, "--prompt", "p0", "--format", "csv")
    rows = list(csv.DictReader(StringIO(out)))
    assert list(rows[0]) == [
        "model", "run", "step", "prompt_id", "order_seed", "option", "is_answer", "logprob",
        "probability", "share", "rank",
    ]  # fmt: skip
    assert [(r["step"], r["option"], r["rank"]) for r in rows] == [
        ("0", "yes", "1"), ("0", "no", "1"), ("8", "yes", "1"), ("8", "no", "2"),
        ("", "yes", "1"), ("", "no", "1"),
    ]  # fmt: skip
    assert float(rows[2]["share"]) == pytest.approx(0.9)
    assert float(rows[2]["probability"]) == pytest.approx(9 / 14, rel=1e-6)
    moved = json.loads(call("show", parity, "--top", 1, "--format", "json")[1])
    assert len(moved) == 10
    assert moved[0]["movement"] == pytest.approx(0.4)
    _, out, _ = call("show", parity, "--between", 0, 8, "--format", "csv")
    assert out.splitlines()[0].endswith("option,before,after,difference")
    several = call("show", orders(tmp_path / "o"), "--prompt", "q", "--format", "csv")[1]
    assert [row["order_seed"] for row in csv.DictReader(StringIO(several))] == list("220011" * 2)
    one = call("show", tmp_path / "o", "--prompt", "q", "--order", 1, "--format", "csv")[1]
    assert {row["order_seed"] for row in csv.DictReader(StringIO(one))} == {"1"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--prompt", "p99"], "No prompt 'p99' in parity. Similar: 'p9'"),
        (["--prompt", "p0", "--order", 3], "Prompt 'p0' has no order 3."),
        (["--order", 3], "--order is for a single prompt."),
        (["--prompt", "p0", "--between", 0, 8], "--between lists prompts."),
        (["--between", 0, "x"], "--between 'x' is invalid."),
        (["--between", 0, 7], "toy main has no step 7 (nearest: 8)."),
        (["--top", 0], "Invalid value for '--top': "),
    ],
)
def test_a_call_that_cannot_be_right_is_one_line(
    call: Call, parity: Path, arguments: list[object], said: str
) -> None:
    code, out, error = call("show", parity, *arguments)
    assert (code, out) == (2, "")
    assert error.startswith(f"logitbank: {said}")
    assert error.count("\n") == 1


def test_sets_and_models_that_are_not_there_are_named_with_those_that_are(
    call: Call, parity: Path
) -> None:
    code, _, error = call("show", parity, "--prompts", "no")
    assert (code, error.endswith("it has parity\n")) == (2, True)
    code, _, error = call("show", parity, "--model", "no")
    assert (code, error) == (2, "logitbank: no deposit has model no; the bank has toy\n")
    bank = Bank.open(parity)
    bank.add_prompts("twin", bank.prompts("parity").filter(pl.col("row") < 2).collect())
    code, _, error = call("show", parity)
    assert (code, "several prompt sets: parity, twin" in error) == (2, True)
    code, _, error = call("show", parity, "--prompt", "p1")
    assert (code, "parity, twin" in error) == (2, True)
    assert call("show", parity, "--prompt", "p1", "--prompts", "twin")[0] == 0


HOSTILE = "\x1b[31mred\x9b2J [bold]x[/bold] :cat: \u202e\n│ forged\ttab"


def test_a_stranger_s_text_controls_nothing(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A stranger's writer looks at no id.
    monkeypatch.setattr("logitbank.store.tables.prompt_checks.check_text", lambda *_, **__: None)
    bank = Bank.create(tmp_path / "b")
    queries = QuerySet(TOKENIZER, (Query((1, 1), 1),))
    bank.add_query_set(queries)
    rows = [
        ("p [red]", None, 0, HOSTILE, None, HOSTILE + option, HOSTILE, i, None, queries.name, 0)
        for i, option in enumerate("ab")
    ]
    table = pl.DataFrame(rows, schema=PROMPTS_SCHEMA, orient="row")
    bank.add_prompts("own", table.with_columns(pl.lit(HOSTILE).alias("col[red]umn")))
    for step in (0, 8):
        bank.deposit(
            logits(step, queries=1, vocab=4),
            checkpoint=CheckpointId("m [red]", step=step),
            query_set=queries.name,
            keep="options",
        )
    for arguments in ([], ["--prompt", "p [red]"], ["--between", 0, 8]):
        code, out, error = call("show", tmp_path / "b", *arguments)
        assert (code, error) == (0, "")
        assert not {"\x1b", "\x9b", "\u202e"} & set(out)
        assert "\\x1b[31mred\\x9b2J [bold]x[/bold] :cat:" in out
        assert "m [red] main, share" in out
        forged = [line for line in out.splitlines() if line.startswith("│ forged")]
        assert not forged
    _, shown, _ = call("show", tmp_path / "b", "--prompt", "p [red]")
    assert "│ │ forged" in shown
    assert "col[red]umn: \\x1b" in shown


def long_bank(path: Path) -> Path:
    """Ten options with long labels, 300 checkpoints, a long text, and a large step."""
    bank = Bank.create(path)
    queries = QuerySet(TOKENIZER, (Query((1, 1), 1),))
    bank.add_query_set(queries)
    text = "The 🐈 developer argued with the designer " * 9
    rows = [
        ("q", None, 0, text, None, f"an option with a long label {i}", f" {i}", i, None,
         queries.name, 0)
        for i in range(10)
    ]  # fmt: skip
    table = pl.DataFrame(rows, schema=PROMPTS_SCHEMA, orient="row")
    own = {f"column_{i}": pl.lit(f"value {i}") for i in range(9)}
    bank.add_prompts("own", table.with_columns(**own))
    for step in [*range(0, 2900, 100), 143000]:
        bank.deposit(
            logits(step, queries=1, vocab=12),
            checkpoint=CheckpointId("pythia", step=step),
            query_set=queries.name,
            keep="options",
        )
    return path


@pytest.mark.usefixtures("narrow")
def test_it_reads_well_in_60_columns(call: Call, tmp_path: Path) -> None:
    path = long_bank(tmp_path / "b")
    _, out, _ = call("show", path)
    assert columns("\n".join(out.splitlines()[:-1])) <= 60  # the last one is a command to copy
    assert "…" in out
    _, out, _ = call("show", path, "--prompt", "q")
    lines = [line for line in out.splitlines() if not line.startswith("│")]
    assert columns("\n".join(lines)) <= 60
    assert sum(line.startswith("an option") for line in lines) == 10  # in the table
    assert sum(" an option" in line and line[0] in "▁▂▃▄▅▆▇█" for line in lines) == 10
    assert any("to step 143000; bars" in line for line in lines)


def test_without_unicode_everything_is_plain(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encode_anything()
    path, file = long_bank(tmp_path / "b"), TextIOWrapper(BytesIO(), "ascii", "logitbank.ascii")
    monkeypatch.setattr(screen, "out", Console(file=file, width=60))
    for arguments in ([], ["--prompt", "q"], ["--between", 0, 100]):
        assert call("show", path, *arguments)[0] == 0
    file.flush()
    said = file.buffer.getvalue().decode("ascii")  # type: ignore[attr-defined]
    assert "bars" not in said
    assert "| The \\U0001f408 developer" in said
    assert " -> " in said


def test_headings_are_bold_on_terminals_alone(
    call: Call, parity: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "\x1b" not in call("show", parity, "--prompt", "p0")[1]
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    terminal = Console(force_terminal=True, color_system="standard", width=60)
    monkeypatch.setattr(screen, "out", terminal)
    assert "\x1b[1mtoy main" in call("show", parity, "--prompt", "p0")[1]


def test_what_is_not_scored_yet_is_said(call: Call, tmp_path: Path) -> None:
    from tests.support.small_banks import block_data, spec

    bank = new_bank(tmp_path / "b")
    with bank.begin(spec(4)) as writer:
        writer.write(1, block_data(writer.layout, 1))
    assert "not scored yet" in call("show", tmp_path / "b", "--prompt", "p0")[1]
    assert "yes  " in call("show", tmp_path / "b", "--prompt", "p5")[1]
    with bank.begin(spec(8)) as writer:
        writer.write(0, block_data(writer.layout, 0))
    code, out, _ = call("show", tmp_path / "b", "--prompt", "p0")
    assert code == 0
    (row,) = [line for line in out.splitlines() if line.startswith("yes")]
    assert row.split()[1] == "–"
    code, out, _ = call("show", tmp_path / "b", "--between", 4, 8)
    assert (code, out.splitlines()[-1]) == (0, "not scored yet")


def test_probabilities_have_an_axis_of_their_own(call: Call, tmp_path: Path) -> None:
    from tests.support.evaluation_banks import add_lambada

    add_lambada(Bank.create(tmp_path / "b"), {0: 0, 8: 2}, words=3)
    _, out, _ = call("show", tmp_path / "b", "--prompt", "l00")
    assert "toy main, probability" in out
    assert '  target  "12", 2 tokens' in out
    assert "all options" not in out
    assert "bars from 0 to 1.000" not in out


def test_bars_are_eighths_of_the_height_and_blanks_are_missing() -> None:
    assert sparkline(np.array([0, 0.124, 0.126, 0.5, nan, 0.99, 1])) == "▁▁▂▅ ██"
    many = sparkline(np.linspace(0, 1, 154))
    assert (len(many), many[0], many[-1]) == (32, "▁", "█")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0.000"),
        (0.5, "0.500"),
        (0.001, "0.001"),
        (0.00012, "1.2e-04"),
        (1, "1.000"),
        (nan, "–"),
    ],
)
def test_small_numbers_keep_their_digits(value: float, text: str) -> None:
    assert number(value) == text


def test_long_text_is_cut_by_columns_and_not_by_characters() -> None:
    assert shortened("a\n  b", 20) == "a b"
    assert shortened("漢字漢字漢字漢字", 9) == "漢字漢字…"
    assert one_line("a\nb\tc\x00") == "a\\nb\\tc\\x00"


def test_a_path_with_spaces_can_be_copied() -> None:
    row = {"prompt_id": "it's", "order_seed": 3}
    words = shlex.split(prompt_lines.command("my banks/b.zarr", "own", row))
    assert words == [
        "logitbank", "show", "my banks/b.zarr", "--prompts", "own", "--prompt", "it's",
        "--order", "3",
    ]  # fmt: skip


def test_the_most_probable_tokens_after_a_prompt_are_shown(call: Call, parity: Path) -> None:
    bank = Bank.open(parity)
    numbers = call("show", parity, "--prompt", "p1", "--top-tokens", 2)[1].splitlines()
    assert numbers[-6:] == [
        "again adds them, and runs no model",
        "",
        "toy main, most probable tokens",
        " step 0  #0 0.167, #1 0.167",
        " step 8  #4 0.375, #0 0.125",
        "release  #4 0.375, #0 0.125",
    ]
    bank.add_tokens(TOKENIZER, token_table())
    code, out, error = call("show", parity, "--prompt", "p1", "--top-tokens", 2)
    assert (code, error) == (0, "")
    assert out.splitlines()[:2] == ["p1, in parity", "│ Is 1 even?"]
    assert out.splitlines()[-4:] == [
        "toy main, most probable tokens",
        ' step 0  "<end>" 0.167, " yes" 0.167',
        ' step 8  " no" 0.375, "<end>" 0.125',
        'release  " no" 0.375, "<end>" 0.125',
    ]
    table = csv.DictReader(
        StringIO(call("show", parity, "--prompt", "p1", "--top-tokens", 1, "--format", "csv")[1])
    )
    assert [(row["step"], row["token_text"]) for row in table] == [
        ("0", "<end>"), ("8", " no"), ("", " no"),
    ]  # fmt: skip
    assert "name that with --prompt" in call("show", parity, "--top-tokens", 2)[2]


@pytest.mark.whole
def test_long_lists_of_tokens_are_cut_and_wrapped(call: Call, tmp_path: Path, narrow: None) -> None:
    bank = new_bank(tmp_path / "b")
    bank.add_tokens(TOKENIZER, token_table())
    for step in range(30):
        put(bank, step, (step + 2, 1))
    out = call("show", bank.path, "--prompt", "p0", "--top-tokens", 9)[1]
    lines = out.splitlines()
    assert "toy main, most probable tokens, 12 of 30 checkpoints, the bank keeps 6" in lines
    assert [line[:7].strip() for line in lines if line.startswith(("step", " step"))][::11] == [
        "step 0", "step 29",
    ]  # fmt: skip
    assert columns("\n".join(lines[lines.index("options:") :])) <= 72
