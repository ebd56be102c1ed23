"""Texts and options are joined or refused; `test_harness_requests` compares with the harness."""

from pathlib import Path
from typing import get_args

import pytest

from logitbank.engine.prompts.known.winobias import OPTIONS
from logitbank.engine.prompts.prompt_set import PromptSet
from logitbank.engine.prompts.registry import prompt_set
from logitbank.engine.prompts.scoring import sentence_tokens, target_tokens
from logitbank.engine.prompts.tokenize import tokenize
from logitbank.engine.prompts.values import Encoder, Option, Prompt
from logitbank.engine.tokenizers.tokenizer import Tokenizer
from logitbank.errors import PromptError, SuiteError
from tests.support.scored_prompts import continuation, sentence
from tests.support.tokenizers import Kind, tiny_tokenizer


@pytest.fixture(scope="module", params=get_args(Kind))
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_tokenizer(request.param, tmp_path_factory.mktemp("t") / request.param)


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Tokenizer:
    return Tokenizer.load(folder)


def test_winobias_s_options_are_one_token_each(folder: Path, tokenizer: Tokenizer) -> None:
    """Also where the tokenizer puts a word mark before every text."""
    encoder = Encoder(tokenizer)
    (context,) = encoder.contexts(["Answer:"])
    pairs = [("Answer:", option.text) for option in OPTIONS]
    found = encoder.continuations(pairs, [context] * 3)
    assert [len(ids or ()) for ids in found] == [1, 1, 1]
    assert len({*found}) == 3
    made = tokenize(PromptSet("mine", (Prompt("p", "Answer:", OPTIONS),)), tokenizer)
    assert [(token,) for token in made.table["token"]] == found


def test_only_special_tokens_that_begin_a_text_stand_before_an_option(
    folder: Path, tokenizer: Tokenizer
) -> None:
    from transformers import AutoTokenizer

    begin = {"bert": ["[CLS]"], "gpt2": [], "neox": []}.get(folder.name, ["<s>"])
    other = AutoTokenizer.from_pretrained(folder)
    assert other.convert_ids_to_tokens(tokenizer.opening) == begin
    plain = other("The nurse", add_special_tokens=False)["input_ids"]
    prompts = (Prompt("p", "The nurse", (Option("he", " he"), Option("she", " she"))),)
    (query,) = tokenize(PromptSet("mine", prompts), tokenizer).queries
    assert list(query.ids) == [*tokenizer.opening, *plain]
    assert query.position == len(query.ids) - 1
    (bare,) = tokenize(PromptSet("mine", prompts, add_special_tokens=False), tokenizer).queries
    assert list(bare.ids) == plain
    if begin == ["<s>"]:  # as the harness, which adds none to a text that begins with it
        begun = (Prompt("p", "<s>The nurse"),)
        (query,) = tokenize(PromptSet("mine", begun), tokenizer).queries
        assert query.ids[:2].count(tokenizer.opening[0]) == 1


LETTERS = (Option("A", "A"), Option("B", "B"))


@pytest.mark.parametrize("text", ["Question? Answer: (", "Answer:\n"])
@pytest.mark.parametrize("kind", ["llama", "llama-slow"])
def test_a_letter_after_a_bracket_or_a_line_break_has_no_word_mark(
    kind: Kind, text: str, tmp_path: Path
) -> None:
    tokenizer = Tokenizer.load(tiny_tokenizer(kind, tmp_path / kind))
    prompts = PromptSet("mine", (Prompt("p", text, LETTERS),), whole_options=True)
    made = tokenize(prompts, tokenizer)
    vocabulary = tokenizer.vocabulary()
    letters = [vocabulary.filter(text=letter)["token"].item() for letter in "AB"]
    assert made.table["token"].to_list() == letters
    assert (made.notes, made.warnings) == ((), ())


@pytest.mark.parametrize("first_token", [False, True])
@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_an_option_that_merges_is_an_error(kind: Kind, first_token: bool, tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(tiny_tokenizer(kind, tmp_path / kind))
    prompts = PromptSet("mine", (Prompt("p", "Answer: ", LETTERS),), first_token=first_token)
    with pytest.raises(PromptError, match=r"option 'A' .*Move \" \" from the end of the text"):
        tokenize(prompts, tokenizer)


def test_an_option_that_the_vocabulary_lacks_is_named(tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(tiny_tokenizer("bert", tmp_path))
    for text, space in (("[MASK] is a nurse.", ""), ("The nurse said", " ")):
        lacking = (Option("he", space + "he"), Option("sign", space + "♀"))
        prompts = PromptSet("mine", (Prompt("p", text, lacking),), whole_options=True)
        with pytest.raises(PromptError, match=r"option 'sign' \(\" ?♀\"\) is not in this vocab"):
            tokenize(prompts, tokenizer)
    named = (Option("he", "he"), Option("unknown", "[UNK]"))  # who writes the token means it
    made = tokenize(PromptSet("mine", (Prompt("p", "[MASK] is a nurse.", named),)), tokenizer)
    assert made.table["token"].to_list()[1] == tokenizer.unknown.id  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", ["llama", "gemma", "gpt2"])
def test_lambada_begins_as_the_tokenizer_begins_a_text(kind: Kind, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    (tmp_path / "data" / "lambada").mkdir(parents=True)
    file = tmp_path / "data" / "lambada" / "lambada_test_openai.jsonl"
    file.write_text('{"text": "The nurse said that she was tired"}\n')
    folder = tiny_tokenizer(kind, tmp_path / kind)
    tokenizer, other = Tokenizer.load(folder), AutoTokenizer.from_pretrained(folder)
    for spec, flag in (("lambada", True), ("lambada:add_special_tokens=false", False)):
        made = tokenize(prompt_set(spec, data=tmp_path / "data"), tokenizer)
        whole = other("The nurse said that she was tired", add_special_tokens=flag)["input_ids"]
        context = other("The nurse said that she was", add_special_tokens=flag)["input_ids"]
        assert made.table["token"].to_list() == whole[len(context) :]
        assert list(made.queries[-1].ids) == whole[:-1]
    lambada = tokenize(prompt_set("lambada", data=tmp_path / "data"), tokenizer)
    begun = tokenizer.opening_text(lambada.queries[0].ids)
    assert begun == ("" if kind == "gpt2" else "<s>")


def test_a_target_that_cannot_be_split_off_or_is_unknown_is_named(tmp_path: Path) -> None:
    gpt2 = Tokenizer.load(tiny_tokenizer("gpt2", tmp_path / "gpt2"))
    expected = r"'rse' changes .*\" n\", \"u\" becomes \" nurse\"\. Move"
    with pytest.raises(PromptError, match=expected):
        [*target_tokens(continuation("a", "The nu", "rse"), Encoder(gpt2))]
    bert = Tokenizer.load(tiny_tokenizer("bert", tmp_path / "bert"))
    with pytest.raises(PromptError, match="target ' ♀' is not in the vocabulary"):
        [*target_tokens(continuation("a", "The nurse", " ♀"), Encoder(bert))]


def test_sentences_are_scored_as_the_model_s_task_says(tmp_path: Path) -> None:
    """A causal model may have a tokenizer with a mask token."""
    tokenizer = Tokenizer.load(tiny_tokenizer("bert", tmp_path))
    nurse = sentence("a", "The nurse")
    assert {p.kind for p in sentence_tokens(nurse, Encoder(tokenizer))} == {"masked"}
    assert {p.kind for p in sentence_tokens(nurse, Encoder(tokenizer.for_task("masked")))} == {
        "masked"
    }
    causal = [*sentence_tokens(nurse, Encoder(tokenizer.for_task("causal")))]
    assert [(p.kind, p.query.head, p.query.position) for p in causal] == [
        ("sentence", "next_token", 0),
        ("sentence", "next_token", 1),
    ]
    ids = tokenizer.encode("The nurse")  # [CLS] the nurse [SEP]
    assert [p.token for p in causal] == ids[1:3]
    assert {p.query.ids for p in causal} == {tuple(ids[:2])}
    gpt2 = Tokenizer.load(tiny_tokenizer("gpt2", tmp_path / "gpt2"))
    with pytest.raises(SuiteError, match="names no mask_token"):
        gpt2.for_task("masked")
