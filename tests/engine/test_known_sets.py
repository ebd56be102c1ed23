"""Prompt sets are found in their folder, and have options of their own."""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from logitbank.engine.prompts import known, registry
from logitbank.engine.prompts.known.winobias import winobias
from logitbank.engine.prompts.prompt_set import PromptSet
from logitbank.engine.prompts.registry import near, prompt_names, prompt_set
from logitbank.errors import UsageError
from tests.support.command import Call, every_command
from tests.support.paths import PUBLIC

GREETINGS = """
from logitbank.engine.prompts.known_set import KnownSet, SetOption, count_or_all
from logitbank.engine.prompts.prompt_set import PromptSet
from logitbank.engine.prompts.values import Prompt


def greetings(tone, formal, data=None, *, times=2):
    name = f"greetings-{tone}{formal or ''}"
    return PromptSet(name, tuple(Prompt(str(i), f"{tone} {i}") for i in range(times)))


KNOWN = KnownSet(
    pattern="greetings-(warm|cool)(-formal)?",
    about="hello",
    make=greetings,
    options=(SetOption("times", "2", "a number", count_or_all),),
)
"""


@pytest.fixture
def greetings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A prompt set of one file more."""
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "greetings.py").write_text(GREETINGS)
    monkeypatch.setattr(known, "__path__", [*known.__path__, str(tmp_path / "more")])
    registry.known_sets.cache_clear()
    registry._by_name.cache_clear()
    yield
    registry.known_sets.cache_clear()
    registry._by_name.cache_clear()
    sys.modules.pop(f"{known.__name__}.greetings")
    del known.greetings


@pytest.mark.usefixtures("greetings")
def test_one_file_is_a_prompt_set() -> None:
    assert "greetings-cool-formal" in prompt_names()
    assert prompt_set("greetings-cool-formal").name == "greetings-cool-formal"
    assert [p.text for p in prompt_set("greetings-warm:times=1").prompts] == ["warm 0"]
    with pytest.raises(UsageError, match=r"greetings-\(warm\|cool\)\(-formal\)\?"):
        prompt_set("greetings-rude")


def test_every_file_of_the_folder_is_found_and_no_name_is_there_twice() -> None:
    files = [p for p in Path(str(known.__file__)).parent.iterdir() if not p.name.startswith("__")]
    assert len(registry.known_sets()) == len(files) > 5
    assert len(prompt_names()) == sum(len(each.names()) for each in registry.known_sets())
    assert {"winobias", "crows-pairs", "stereoset-inter-causal-de-prefix"} < set(prompt_names())
    assert "unqover-religion-test-causal" in prompt_names()


def test_a_misspelt_name_gets_a_suggestion() -> None:
    assert near("winobais")[0] == "winobias"
    with pytest.raises(UsageError, match=r"'lambda' is neither a known .* \(did you mean lambada"):
        prompt_set("lambda:orders=1")


def test_looking_for_names_imports_nothing_slow() -> None:
    slow = "('torch', 'transformers', 'polars', 'zarr', 'numpy', 'pooch', 'requests')"
    code = (
        "import sys; from logitbank.engine.prompts.registry import prompt_names; "
        f"assert prompt_names(); print([m for m in {slow} if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout.strip() == "[]", result.stderr


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder with a WinoBias of one sentence a file."""
    folder = tmp_path / "winobias"
    folder.mkdir()
    (folder / "male_occupations.txt").write_text("cook")
    (folder / "female_occupations.txt").write_text("clerk")
    for name in ("pro", "anti"):
        for split in ("dev", "test"):
            line = "1 The clerk met [the cook] and greeted [him].\n"
            (folder / f"{name}_stereotyped_type2.txt.{split}").write_text(line)
    return tmp_path


def test_options_are_written_with_a_set(data: Path) -> None:
    expected = winobias(data, orders=2, splits=["dev"])
    assert prompt_set("winobias:orders=2,splits=dev", data=data) == expected
    both = prompt_set("winobias:splits=dev,test,orders=2", data=data)
    assert both == winobias(data, orders=2)
    assert prompt_set("winobias", data=data) == winobias(data)


def test_an_option_sets_the_special_tokens_of_each_known_set(data: Path) -> None:
    plain = winobias(data, orders=1)
    assert plain.add_special_tokens is None
    written = "winobias:orders=1,add_special_tokens={}"
    assert prompt_set(written.format("true"), data=data) == plain
    without = replace(plain, add_special_tokens=False)
    assert prompt_set(written.format("false"), data=data) == without
    (data / "lambada").mkdir()
    (data / "lambada/lambada_test_openai.jsonl").write_text('{"text": "The cook met the clerk"}\n')
    made = prompt_set("lambada:add_special_tokens=false", data=data)
    assert made.add_special_tokens is False


def test_first_tokens_are_for_sets_with_options(data: Path) -> None:
    made = prompt_set("winobias:orders=1,first_token=true", data=data)
    assert made == replace(winobias(data, orders=1), first_token=True)
    (data / "lambada").mkdir()
    (data / "lambada/lambada_test_openai.jsonl").write_text('{"text": "The cook met the clerk"}\n')
    with pytest.raises(UsageError, match="first_token"):
        prompt_set("lambada:first_token=true", data=data)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            "winobias:order=5",
            r"option 'order' \(did you mean orders\?\).*orders=5 .*splits=",
        ),
        ("lambada:orders=5", "lambada has no option 'orders'.*add_special_tokens=true"),
        (
            "winobias:orders=0",
            "winobias:orders=0 is invalid",
        ),
        ("winobias:orders=", "orders= is invalid"),
        ("winobias:splits=dev,train", "splits=dev,train is invalid: use some of dev, test"),
        ("unqover-gender:instances=-1", "instances=-1 is invalid"),
        ("winobias:orders=1,orders=2", "option 'orders' is repeated"),
        ("mine.jsonl:first_token=yes", "first_token=yes is invalid: use true or false"),
        ("mine.jsonl:orders=2", "mine.jsonl has no option 'orders'.*first_token=false"),
    ],
)
def test_options_that_a_set_cannot_have_are_errors_that_list_its_own(
    spec: str, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        prompt_set(spec)


def test_a_prompt_file_has_these_options_too(tmp_path: Path) -> None:
    path = tmp_path / "mine:a=b.jsonl"
    path.write_text('{"text": "The nurse said that", "options": [" he", " not specified"]}\n')
    plain = prompt_set(str(path))
    assert isinstance(plain, PromptSet)
    assert plain.name == "mine:a=b"
    made = prompt_set(f"{path}:first_token=true,add_special_tokens=false")
    assert made == replace(plain, first_token=True, add_special_tokens=False)


def test_known_sets_state_their_size_license_and_analysis(call: Call) -> None:
    code, printed, _ = call("prompts", "--format", "json")
    listed = {row["name"]: row for row in json.loads(printed)}
    assert code == 0
    assert [*listed] == [known.pattern for known in registry.known_sets()]
    analyses = {words[-1] for words, _ in every_command() if words[1:2] == ("analyze",)}
    assert {row["analysis"] for row in listed.values()} <= analyses
    assert all(row["prompts"] and row["license"] and row["content"] for row in listed.values())
    if not (PUBLIC / "winobias").is_dir():
        pytest.skip(f"{PUBLIC} is not there")
    for name in ("crows-pairs", "lambada", "professions", "stereotype-accuracy", "winobias"):
        found = len(registry.prompt_set(name, data=PUBLIC).prompts)
        pattern = "winobias(-not)?" if name == "winobias" else name
        assert listed[pattern]["prompts"].split(";")[0] == f"{found:,}"
