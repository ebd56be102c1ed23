"""Prompts are checked when built, and become distinct queries and one long table."""

from dataclasses import replace

import polars as pl
import pytest

from logitbank.engine.prompts.check import prompts_check
from logitbank.engine.prompts.known.winobias import winobias
from logitbank.engine.prompts.prompt_set import PromptSet
from logitbank.engine.prompts.tokenize import tokenize
from logitbank.engine.prompts.values import Option, Prompt
from logitbank.engine.tokenizers.tokenizer import Tokenizer
from logitbank.errors import PromptError
from logitbank.store.format.schema import PROMPTS_SCHEMA, Query
from tests.support.paths import PUBLIC as DATA
from tests.support.tokenizers import real_tokenizer

HE_SHE = (Option("he", " he"), Option("she", " she"))


@pytest.fixture(scope="module")
def pythia(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return real_tokenizer("pythia", tmp_path_factory.mktemp("pythia"))


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return real_tokenizer("bert-base-uncased", tmp_path_factory.mktemp("bert"))


def one(text: str, *options: Option, answer: str | None = None) -> PromptSet:
    return PromptSet("one", (Prompt("p1", text, options, answer),))


# Values that cannot be built


@pytest.mark.parametrize("name", ["step", "_key", "score_kind"])
def test_columns_of_the_bank_are_reserved(name: str) -> None:
    with pytest.raises(PromptError, match=f"reserves: {name}. Rename"):
        Prompt("p1", "The nurse", columns={"group": "a", name: 3})


@pytest.mark.parametrize("seed", [-1, 2**31])
def test_order_seeds_fit_the_bank(seed: int) -> None:
    with pytest.raises(PromptError, match="0 to 2147483647"):
        Prompt("p1", "The nurse", order_seed=seed)


def test_a_prompt_set_needs_a_name_and_distinct_prompts() -> None:
    for name, prompts in (("mine", ()), ("", (Prompt("p1", "The nurse"),))):
        with pytest.raises(PromptError, match=f"prompt set '{name}'"):
            PromptSet(name, prompts)
    one, other = Prompt("p1", "a", order_seed=0), Prompt("p1", "b", order_seed=0)
    with pytest.raises(PromptError, match=r"prompt 'p1' \(order 0\)"):
        PromptSet("mine", (one, other))
    PromptSet("mine", (one, replace(other, order_seed=1)))


# Tokens


def test_the_table_is_long_and_points_at_distinct_queries(causal: Tokenizer) -> None:
    prompts = PromptSet(
        "mine",
        (
            Prompt("p1", " the nurse said", HE_SHE, "she", 0, {"group": "a"}),
            Prompt("p2", " the clerk said", HE_SHE, columns={"weight": 2, "group": "b"}),
            Prompt("p3", " the nurse said"),
        ),
    )
    made = tokenize(prompts, causal)
    the, nurse, clerk, said, he, she = (
        causal.encode(" " + word)[0] for word in ("the", "nurse", "clerk", "said", "he", "she")
    )
    assert made.name == "mine"
    assert made.queries == (Query((the, nurse, said), 2), Query((the, clerk, said), 2))
    nurse_text, clerk_text = " the nurse said", " the clerk said"
    assert made.table.rows() == [
        ("p1", 0, 0, nurse_text, "she", "he", " he", he, False, 0, "a", None),
        ("p1", 0, 0, nurse_text, "she", "she", " she", she, True, 0, "a", None),
        ("p2", None, 0, clerk_text, None, "he", " he", he, None, 1, "b", 2),
        ("p2", None, 0, clerk_text, None, "she", " she", she, None, 1, "b", 2),
        ("p3", None, 0, nurse_text, None, None, None, None, None, 0, None, None),
    ]
    expected = {n: t for n, t in PROMPTS_SCHEMA.items() if n not in ("query_set", "row")}
    expected |= {"query": pl.Int32(), "group": pl.String(), "weight": pl.Int64()}
    assert made.table.schema == pl.Schema(expected)


def test_texts_that_share_their_ids_share_a_query(bert: Tokenizer) -> None:
    prompts = PromptSet("mine", (Prompt("p1", "The Nurse"), Prompt("p2", "the nurse")))
    made = tokenize(prompts, bert)
    assert len(made.queries) == 1
    assert made.table["query"].to_list() == [0, 0]


def test_special_tokens_are_part_of_the_query_unless_turned_off(bert: Tokenizer) -> None:
    prompts = (Prompt("p1", "he"),)
    assert tokenize(PromptSet("a", prompts), bert).queries == (Query((101, 2002), 1),)
    plain = PromptSet("a", prompts, add_special_tokens=False)
    assert tokenize(plain, bert).queries == (Query((2002,), 0),)


def test_first_token_lets_a_long_option_stand_for_its_first_token(pythia: Tokenizer) -> None:
    prompt = Prompt("p1", "The gender is", (Option("not specified", " not specified"),))
    made = tokenize(PromptSet("mine", (prompt,), first_token=True), pythia)
    assert made.table["token"].to_list() == [417]
    assert made.table["continuation"].to_list() == [" not specified"]


@pytest.mark.parametrize(
    ("name", "first_token", "text", "options", "named"),
    [
        ("pythia", False, "She works as a", [" nurse practitioner"], '" nurse", " practitioner"'),
        ("bert", True, "The nurse", [" "], "option 'x'"),
        ("pythia", True, "It is", [" not known", " not specified"], 'not known.*" not"'),
        ("bert", False, "\u200b", [], "'p1': the text has no tokens"),
    ],
)
def test_unscorable_texts_and_options_are_named(
    request: pytest.FixtureRequest,
    name: str,
    first_token: bool,
    text: str,
    options: list[str],
    named: str,
) -> None:
    prompt = Prompt("p1", text, tuple(Option(option.strip() or "x", option) for option in options))
    prompts = PromptSet("mine", (prompt,), first_token=first_token, add_special_tokens=False)
    with pytest.raises(PromptError, match=named):
        tokenize(prompts, request.getfixturevalue(name))


def test_columns_of_two_kinds_are_an_error(causal: Tokenizer) -> None:
    rows = (Prompt("1", " he", columns={"x": 1}), Prompt("2", " she", columns={"x": "a"}))
    with pytest.raises(
        PromptError, match="'x' has a number in prompt '1' and a text in prompt '2'"
    ):
        tokenize(PromptSet("mine", rows), causal)


def test_whole_and_broken_numbers_share_a_column(causal: Tokenizer) -> None:
    rows = (Prompt("1", " he", columns={"x": 1}), Prompt("2", " she", columns={"x": 0.5}))
    assert tokenize(PromptSet("mine", rows), causal).table["x"].to_list() == [1.0, 0.5]


def test_an_empty_column_has_type_string(causal: Tokenizer) -> None:
    rows = (Prompt("1", " he", columns={"x": None}), Prompt("2", " she"))
    found = tokenize(PromptSet("mine", rows), causal).table["x"]
    assert (found.dtype, found.to_list()) == (pl.String(), [None, None])


# Findings


def warnings(prompts: PromptSet) -> list[str]:
    *found, _, _ = prompts_check(prompts).lines
    return [line.removeprefix("warning: ") for line in found]


def test_a_missing_space_is_reported_once_per_option() -> None:
    options = (Option("he", "he"), Option("she", " she"))
    prompts = PromptSet("mine", tuple(Prompt(f"p{i}", "The nurse said", options) for i in range(3)))
    [warning] = warnings(prompts)
    assert warning.startswith("prompt 'p0': ")
    assert warning.endswith("(and 2 other prompts)")


@pytest.mark.parametrize("text", ["The nurse (", 'The nurse said "', "The nurse:\n"])
def test_a_word_may_follow_a_bracket_a_quote_or_a_line_break(text: str) -> None:
    assert warnings(one(text, Option("he", "he"))) == []


def test_punctuation_needs_no_space() -> None:
    assert warnings(one("The nurse", Option("stop", "."))) == []


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([("he", "she"), ("he", "she")], []),
        ([("he",), ("she",)], []),
        (
            [("he, she",), ("he", "she")],
            ['it has one option, " he, she", and nothing to'],
        ),
        (
            [("he, she",), ("a, b",)],
            ['it has one option, " he, she", and nothing to'],
        ),
        ([("he", "she"), ("he",)], []),
        ([("he", "she"), ()], ["it has no options, but others have"]),
        ([(), ()], []),
    ],
)
def test_prompts_with_one_option_are_reported(
    options: list[tuple[str, ...]], expected: list[str]
) -> None:
    prompts = tuple(
        Prompt(f"p{at}", "The nurse said that", tuple(Option(o, f" {o}") for o in own))
        for at, own in enumerate(options)
    )
    told = warnings(PromptSet("x", prompts))
    assert len(told) == len(expected)
    assert all(start in line for line, start in zip(told, expected, strict=True))


def test_a_trailing_space_is_reported() -> None:
    [warning] = warnings(one("The nurse ", Option("he", "he")))
    assert "ends in a space" in warning


def test_tokenize_returns_the_warnings(bert: Tokenizer) -> None:
    prompts = one("The nurse said", Option("he", "he"), Option("she", " she"))
    (warning,) = tokenize(PromptSet("one", prompts.prompts, whole_options=True), bert).warnings
    assert warning.startswith("prompt 'p1': option 'he' (\"he\") begins without a space")


# WinoBias, whole


@pytest.mark.skipif(not (DATA / "winobias").is_dir(), reason=f"{DATA / 'winobias'} is not there")
def test_winobias_in_pythia_tokens(pythia: Tokenizer) -> None:
    prompts = winobias(DATA, orders=1)
    made = tokenize(prompts, pythia)
    assert made.table.height == 3 * 3168
    tokens = made.table.select("option", "token").unique().sort("token").rows()
    assert tokens == [("not specified", 417), ("male", 5086), ("female", 5343)]
    lengths = [len(query.ids) for query in made.queries]
    assert (min(lengths), max(lengths)) == (32, 49)
    assert sum(lengths) / len(lengths) == pytest.approx(37.84, abs=0.05)
    assert all(query.position == len(query.ids) - 1 for query in made.queries)
    assert made.warnings == ()


def test_unscorable_options_are_listed_together_each_once(pythia: Tokenizer) -> None:
    bad = (Option("one", " he or she"), Option("two", " they all"), Option("he", " he"))
    prompts = tuple(Prompt(name, f"The nurse {name}", bad) for name in ("a", "b"))
    with pytest.raises(PromptError) as refused:
        tokenize(PromptSet("mine", prompts), pythia)
    first, *each = str(refused.value).splitlines()
    assert first == "prompt set 'mine' has 2 errors:"
    assert all(line.endswith("(and 1 other prompt)") for line in each)
    assert ["'a': option 'one'" in each[0], "'a': option 'two'" in each[1]] == [True, True]
