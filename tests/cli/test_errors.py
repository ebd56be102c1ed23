"""Invalid calls and interrupted commands: one line on stderr and a documented exit code."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from logitbank.analysis.families import BUILT_IN, built_in
from logitbank.analysis.families.fairness import FAMILY as FAIRNESS
from logitbank.analysis.families.fluctuation import FAMILY as FLUCTUATION
from logitbank.analysis.frames.reader import read_scores
from logitbank.errors import AbsentError, UsageError
from logitbank.store import Bank, CheckpointId
from tests.support import small_banks
from tests.support.command import Call

PAIRED = {"sentence_id": "s", "paired": True}
SENTENCES = {"verb": "is", "occupation": "dean", "prior": False}


@pytest.fixture
def bank(tmp_path: Path) -> Path:
    bank = small_banks.new_bank(tmp_path / "small.zarr")
    bank.deposit(
        small_banks.logits(),
        checkpoint=CheckpointId("org/model", step=0),
        query_set=small_banks.QUERY_SET.name,
    )
    return bank.path


EXTRACT = ("extract", "b", "--suite", "s", "--prompts", "good.jsonl")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["inof"], "'info'"),
        (["analyze", "fairnes"], "'fairness'"),
        (["info", "--fromat", "csv"], "--format"),
        (["info"], "logitbank info --help"),
        (["info", "b", "--format", "xml"], "'table'"),
        (["prompts", "a_folder"], "a_folder"),
        (["analyze", "a_folder"], "a_folder"),
        (["analyze", "no/where"], "no/where"),
        (["analyze", "fairness", "b", "--colors", "a=b"], "--out"),
        (["analyze", "tradeoff", "b", "--pair", "8"], "--pair '8'"),
        # Before anything is read: there is no bank.
        (["analyze", "options", "nowhere", "--table", "x"], "answers, shares"),
        (["analyze", "options", "nowhere", "--format", "csv"], "--table"),
        (["analyze", "nowhere/b", "--format", "csv"], "one analysis"),
        (["compare", "nowhere", "--table", "x"], "logits, metrics"),
        (["analyze", "options", "nowhere", "--columns", "step"], "--table"),
        (["debias", "compare", "nowhere", "--table", "x"], "comparison, unqover"),
        (["extract", "b", "--prompts", "x"], "--suite"),
        (["info", "nowhere"], "nowhere"),
        (["info", "a_file"], "a_file"),
        (["prompts", "show", "nothing"], "'nothing'"),
        (["prompts", "show", "n.jsonl"], "n.jsonl"),
        (["prompts", "show", "winobias:orders=0"], "orders"),
        (["prompts", "check", "empty.jsonl"], "empty.jsonl"),
        (["prompts", "check", "odd.jsonl"], "'z'"),
        (["describe", "b", "--title", "Two", "words"], "words"),
        ([*EXTRACT, "--engine", "foo"], "'transformers'"),
        ([*EXTRACT, "--keep", "half"], "'half'"),
        ([*EXTRACT, "--suite", "./a_folder"], "a_folder"),
        ([*EXTRACT, "--workers", "many"], "'many'"),
    ],
)
def test_an_invalid_call_is_one_line_and_exit_code_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Call, arguments: list[str], named: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a_file").touch()
    (tmp_path / "a_folder" / "sub").mkdir(parents=True)
    (tmp_path / "empty.jsonl").touch()
    prompt = {"text": "t", "options": ["x", "y"]}
    (tmp_path / "good.jsonl").write_text(json.dumps(prompt))
    (tmp_path / "odd.jsonl").write_text(json.dumps(prompt | {"answer": "z"}))
    code, out, error = call(*arguments)
    assert (code, out) == (2, "")
    *progress, error = error.splitlines()
    assert error.startswith("logitbank: ")
    assert named in error
    assert not any(line.startswith("logitbank: ") for line in progress)


@pytest.mark.parametrize(
    ("raised", "exit_code", "message"),
    [
        (KeyboardInterrupt(), 3, "Interrupted"),
        (OSError(30, "Read-only file system", "/x/b"), 1, "/x/b: Read-only file system"),
        (NotADirectoryError(20, "Not a directory", "/x/.b.zarr.part"), 1, "/x/b.zarr is a file"),
    ],
)
def test_interrupts_and_system_errors_are_one_line(
    monkeypatch: pytest.MonkeyPatch,
    call: Call,
    raised: BaseException,
    exit_code: int,
    message: str,
) -> None:
    def stopped(*_: object, **__: object) -> None:
        raise raised

    monkeypatch.setattr(Bank, "open", stopped)
    code, _, error = call("info", "b")
    assert code == exit_code
    assert error.startswith(f"logitbank: {message}")
    assert error.count("\n") == 1


def test_an_interrupted_process_skips_the_cleanup_of_python() -> None:
    code = (
        "import atexit, sys; from logitbank.cli import main; atexit.register(print, 'cleanup');"
        "sys.stdout.write('printed'); main.app = lambda **_: {}; main.main()"
    )
    results = [
        subprocess.run([sys.executable, "-c", code.format(end)], capture_output=True, text=True)
        for end in (130, 3, 1)
    ]
    assert [done.returncode for done in results] == [3, 3, 1]
    assert [done.stdout for done in results] == ["printed", "printed", "printedcleanup\n"]


def test_a_reader_that_closes_the_pipe_causes_no_error(bank: Path) -> None:
    code = "from logitbank.cli.main import run; run()"
    words = [sys.executable, "-c", code, "query", str(bank), "SELECT * FROM prompts, options"]
    with subprocess.Popen(
        [*words, "--format", "json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""


def test_an_output_that_cannot_be_written_is_named(call: Call, bank: Path, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    code, _, error = call("analyze", "options", bank, "--out", file)
    assert code == 1
    assert str(file) in error
    code, _, error = call("query", bank, "SELECT 1 AS a FROM scores", "--out", "/proc/a.csv")
    assert code == 1
    assert "/proc/a.csv" in error
    assert ".part" not in error
    code, _, error = call(
        "query", bank, "SELECT 1 AS a FROM scores", "--out", tmp_path / "no/a.csv"
    )
    assert code == 2
    assert f"{tmp_path}/no" in error


def test_a_bank_of_another_format_version_is_refused(call: Call, bank: Path) -> None:
    metadata = json.loads((bank / "zarr.json").read_text())
    metadata["attributes"]["logitbank"]["format"] = 9
    (bank / "zarr.json").write_text(json.dumps(metadata))
    code, _, error = call("info", bank)
    assert code == 2
    assert "format 9" in error


def test_the_prompt_set_with_the_columns_of_the_family_is_chosen(tmp_path: Path) -> None:
    bank = Bank.create(tmp_path / "b.zarr")
    bank.add_query_set(small_banks.QUERY_SET)
    with pytest.raises(UsageError, match="winobias"):
        read_scores([bank], None, family=FAIRNESS)
    bank.add_prompts("mine", small_banks.prompt_table(**PAIRED))
    bank.add_prompts("yours", small_banks.prompt_table(**SENTENCES))
    assert read_scores([bank], None, family=FAIRNESS).prompts == "mine"
    assert read_scores([bank], None, family=FLUCTUATION).prompts == "yours"
    assert read_scores([bank], "yours", family=FAIRNESS).prompts == "yours"
    bank.add_prompts("another", small_banks.prompt_table(**PAIRED))
    with pytest.raises(UsageError, match=r"another, mine.*--prompts"):
        read_scores([bank], None, family=FAIRNESS)
    bank.add_prompts("winobias", small_banks.prompt_table())
    assert read_scores([bank], None, family=FAIRNESS).prompts == "winobias"
    assert read_scores([bank], "yours").sets == ("yours",), "without a family"
    other = small_banks.new_bank(tmp_path / "other")
    with pytest.raises(UsageError, match=r"'x'.*b.zarr.*other"):
        read_scores([bank, other], "x", family=FAIRNESS)


@pytest.mark.parametrize(
    "family",
    ["fairness", "fluctuation", "gest", "stereoset", "lambada", "stereotype", "pairs", "tradeoff",
     "unqover"],
)  # fmt: skip
def test_a_family_names_the_prompt_sets_that_exist(call: Call, bank: Path, family: str) -> None:
    prompts = [] if family in ("stereotype", "tradeoff") else ["--prompts", "nothing"]
    code, out, error = call("analyze", family, bank, *prompts)
    assert (code, out) == (2, "")
    assert str(bank) in error
    assert "parity" in error
    assert error.count("\n") == 1


def test_an_absent_model_is_both_a_usage_error_and_a_bank_error(bank: Path) -> None:
    with pytest.raises(AbsentError, match="org/model") as raised:
        Bank.open(bank).scan("parity", models="x")
    assert isinstance(raised.value, UsageError)
    assert raised.value.exit_code == 2


@pytest.mark.parametrize("suite", ["./missing/", "pythia-160"])
def test_an_unknown_suite_fails_before_prompts_are_downloaded(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suite: str
) -> None:
    def downloaded(*_: object, **__: object) -> None:
        raise AssertionError("the prompts were made")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("logitbank.engine.extract.prompt_sets", downloaded)
    code, out, error = call("extract", "b.zarr", "--suite", suite, "--prompts", "winobias")
    assert (code, out) == (2, "")
    assert suite.strip("./") in error
    assert not (tmp_path / "b.zarr").exists()


def test_a_cache_that_cannot_be_written_is_named(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.delenv("LOGITBANK_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    code, _, error = call("info", "https://127.0.0.1:9/bank")
    assert code == 2
    assert f"{tmp_path}/file/logitbank/banks/" in error
    assert "LOGITBANK_CACHE" in error


@pytest.mark.parametrize(
    "arguments",
    [
        ["info", "b\udcff"],
        ["query", "b", "SELECT \udcff"],
        ["describe", "b", "--title", "\udcff"],
        ["push", "b", "s3://b/\udcff"],
        ["info", "https://host/\udcff"],
        ["extract", "b", "--prompts", "\udcff"],
        ["\udcff"],
    ],
)
def test_arguments_that_are_not_utf_8_are_one_line(call: Call, arguments: list[str]) -> None:
    code, out, err = call(*arguments)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert "\\udcff" in err
    assert "is not UTF-8" in err


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_table_of_the_screen_can_be_chosen(call: Call, name: str) -> None:
    """`--table` is checked before the bank, which is absent here, is looked for."""
    for table in built_in(name).screen or ("measures",):
        code, _, error = call("analyze", name.replace("_", "-"), "nowhere.zarr", "--table", table)
        assert code == 2
        assert "nowhere.zarr" in error, error


def test_a_number_is_the_name_of_its_table_and_columns_are_chosen(bank: Path, call: Call) -> None:
    arguments = ("analyze", "options", bank, "--format", "csv", "--table", "accuracy")
    code, out, _ = call(*arguments, "--columns", "step, accuracy")
    assert (code, out.splitlines()[0]) == (0, "step,accuracy")
    code, _, error = call(*arguments, "--columns", "step,x")
    assert code == 2
    assert "unknown column 'x'. Columns: model, run, step" in error
