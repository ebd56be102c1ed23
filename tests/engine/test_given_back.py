"""The tokens of what is scored give it back, whatever the kind of the vocabulary."""

import json
import shutil
from pathlib import Path

import pytest

from logitbank.engine.prompts.prompt_set import PromptSet
from logitbank.engine.prompts.tokenize import tokenize
from logitbank.engine.prompts.values import Encoder, Option, Prompt
from logitbank.engine.tokenizers.tokenizer import Tokenizer
from logitbank.errors import PromptError, SuiteError
from tests.support.checkpoints import write_masked_tokenizer
from tests.support.paths import PUBLIC
from tests.support.scored_prompts import continuation, next_sentence, sentence
from tests.support.tokenizers import real_tokenizer, tiny_tokenizer

HE_SHE = (Option("he", " he"), Option("she", " she"))


@pytest.fixture(scope="module")
def dropping(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """A vocabulary that drops what it does not have, since it has no unknown token."""
    from tokenizers import Tokenizer as Backend
    from tokenizers import decoders, models, pre_tokenizers, trainers

    folder = tmp_path_factory.mktemp("dropping")
    backend = Backend(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    backend.decoder = decoders.Metaspace()
    trainer = trainers.BpeTrainer(special_tokens=["<s>", "</s>"], show_progress=False)
    backend.train_from_iterator(["The nurse said that he or she was tired"] * 9, trainer)
    backend.save(str(folder / "tokenizer.json"))
    names = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(names))
    return Tokenizer.load(folder)


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return Tokenizer.load(tiny_tokenizer("bert", tmp_path_factory.mktemp("bert")))


@pytest.fixture(scope="module")
def pythia(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return real_tokenizer("pythia", tmp_path_factory.mktemp("pythia"))


def made(tokenizer: Tokenizer, *prompts: Prompt):
    has_options = prompts[0].scored is None
    return tokenize(PromptSet("mine", prompts, whole_options=has_options), tokenizer)


def test_scored_texts_with_dropped_characters_are_refused(dropping: Tokenizer) -> None:
    for text, lost in (
        (" 😀", "😀"),
        (" he😀", "😀"),
        (" 他", "他"),
        (" hé", "é"),
        (" he\nshe", r"\\n"),
    ):
        options = (Option("odd", text), Option("he", " he"))
        named = f"option 'odd' .* is not in this vocabulary: .* without \"{lost}\""
        with pytest.raises(PromptError, match=named):
            made(dropping, Prompt("p", "The nurse said", options))
        with pytest.raises(PromptError, match=f'not in the vocabulary .* "{lost}" is missing'):
            made(dropping, continuation("p", "The nurse said", text))
        with pytest.raises(PromptError, match=f"'p': its sentence has \"{lost}\""):
            made(dropping, sentence("p", "The nurse said" + text))
    assert made(dropping, Prompt("p", "The nurse  said", HE_SHE)).warnings == ()


def test_an_optional_option_with_a_dropped_character_is_skipped(dropping: Tokenizer) -> None:
    options = (*HE_SHE, Option("odd", " 😀", optional=True))
    made = tokenize(PromptSet("mine", (Prompt("p", "The nurse said", options),)), dropping)
    assert made.table["option"].to_list() == ["he", "she"]


@pytest.mark.parametrize("name", ["dropping", "bert"])
def test_a_context_with_lost_characters_is_counted(
    name: str, request: pytest.FixtureRequest
) -> None:
    tokenizer = request.getfixturevalue(name)
    text = "The {} said" + ("" if tokenizer.mask_id is None else " that [MASK]")
    options = HE_SHE if tokenizer.mask_id is None else (Option("he", "he"), Option("she", "she"))
    prompts = [Prompt(p, text.format(p), options) for p in ("👩", "👨", "nurse")]
    lost, same = made(tokenizer, *prompts).warnings
    assert lost == (
        "prompt '👩': its text has \"👩\", which is not in this vocabulary; the model does not see "
        "it (and 1 other prompt)"
    )
    assert same.endswith("it has the same tokens as the text of prompt '👩'")


def test_an_unknown_word_does_not_win_its_pair(bert: Tokenizer) -> None:
    good, bad = sentence("good", "the nurse was tired"), sentence("bad", "the 👩 was tired")
    with pytest.raises(PromptError, match="'bad': its sentence has \"👩\", which is not in"):
        made(bert, good, bad)


def test_special_tokens_that_a_text_is_written_with_are_not_doubled(bert: Tokenizer) -> None:
    plain, around = "the nurse said that [MASK] was tired", "[CLS] {} [SEP]"
    options = (Option("he", "he"), Option("she", "she"))
    for text in (plain, "the nurse was tired"):
        sets = [
            [Prompt("p", t, options) if "[MASK]" in t else sentence("p", t)]
            for t in (text, around.format(text))
        ]
        one, other = (made(bert, *prompts) for prompts in sets)
        assert one.queries == other.queries
        assert one.table["token"].to_list() == other.table["token"].to_list()
        assert other.warnings == ()
    two = "the nurse was tired", "he said it"
    (one, *_), (other, *_) = (
        made(bert, next_sentence("p", *pair)).queries
        for pair in (two, [around.format(text) for text in two])
    )
    assert one == other
    inner = made(bert, Prompt("p", "the nurse [SEP] [MASK] was tired", options)).queries[0].ids
    assert bert.decode_each(inner).count("[SEP]") == 2


@pytest.mark.parametrize("kind", ["llama", "neox"])
def test_a_written_beginning_of_a_sentence_is_not_scored(kind: str, tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(tiny_tokenizer(kind, tmp_path))  # type: ignore[arg-type]
    begin = tokenizer.decode([tokenizer.before_id or 0])
    one, other = (
        made(tokenizer, sentence("p", text)) for text in (" the nurse", begin + " the nurse")
    )
    assert one.queries == other.queries
    assert one.table.drop("text").equals(other.table.drop("text"))
    assert "".join(other.table["continuation"]) == " the nurse"


def test_an_option_under_a_mask_has_its_tokens_in_the_text(tmp_path: Path) -> None:
    source = PUBLIC / "tokenizers" / "sentencepiece" / "kyoto_ja_unigram_8000.model"
    if not source.is_file():
        pytest.skip(f"{source} is not there")
    shutil.copy(source, tmp_path / "sentencepiece.bpe.model")
    config = '{"tokenizer_class": "XLMRobertaTokenizer"}'
    (tmp_path / "tokenizer_config.json").write_text(config)
    tokenizer = Tokenizer.load(tmp_path)
    he, she = (tokenizer.encode(f"は{word}は")[-3] for word in ("彼", "彼女"))
    options = (Option("he", "彼"), Option("she", "彼女"))
    texts = ("看護師は[MASK]に会った。", "[MASK]は医者です。", "[MASK]は[MASK]に会った。")
    prompts = [Prompt(text, text, options, mask=text.count("[MASK]") - 1) for text in texts]
    for first_token in (False, True):
        found = tokenize(PromptSet("mine", tuple(prompts), first_token=first_token), tokenizer)
        assert found.table["token"].to_list() == [he, she] * 3
        assert found.warnings == ()
    spaced = Prompt("p", "医者 [MASK] です。", options)
    with pytest.raises(PromptError, match="has 2 tokens"):
        tokenize(PromptSet("mine", (spaced,)), tokenizer)


def test_the_remedy_for_line_ends_before_an_option_works(pythia: Tokenizer) -> None:
    options = (Option("He", "He"), Option("She", "She"))
    with pytest.raises(PromptError) as refused:
        made(pythia, Prompt("p", "The nurse was tired.\n\n", options))
    line = str(refused.value).splitlines()[1]
    assert r'"\n\n" becomes "\n", "\n". Move "\n" from the end of the text to its start' in line
    moved = (Option("He", "\nHe"), Option("She", "\nShe"))
    assert made(pythia, Prompt("p", "The nurse was tired.\n", moved)).table.height == 4


def test_many_overlapping_options_are_counted(pythia: Tokenizer) -> None:
    prompts = [Prompt(str(i), "The nu", (Option(f"o{i}", f"rse {i} is"),)) for i in range(30)]
    with pytest.raises(PromptError, match="has 30 errors, the first 20:") as refused:
        made(pythia, *prompts)
    assert all('Move " nu"' in line for line in str(refused.value).splitlines()[1:])


def test_a_cased_vocabulary_that_is_lower_cased_is_a_warning(tmp_path: Path) -> None:
    write_masked_tokenizer(tmp_path)
    entries = (tmp_path / "vocab.txt").read_text()
    (tmp_path / "vocab.txt").write_text(entries + "He\nShe\n")
    prompts = PromptSet("mine", (Prompt("p", "[MASK] was", (Option("he", "He"),)),))
    for is_lower, count in ((True, 1), (False, 0)):
        config = {"tokenizer_class": "BertTokenizer", "do_lower_case": is_lower}
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
        warnings = tokenize(prompts, Tokenizer.load(tmp_path)).warnings
        assert sum('capital letters ("He", "She", …)' in line for line in warnings) == count


def test_a_tokenizer_that_draws_its_tokens_is_refused(tmp_path: Path) -> None:
    path = tiny_tokenizer("gpt2", tmp_path) / "tokenizer.json"
    content = json.loads(path.read_text())
    for dropout in (0.0, 0.1):
        content["model"]["dropout"] = dropout
        path.write_text(json.dumps(content))
        if dropout == 0:
            Tokenizer.load(tmp_path)
    with pytest.raises(SuiteError, match=r"has a dropout of 0\.1.*\"dropout\" to null"):
        Tokenizer.load(tmp_path)


def test_written_special_tokens_with_spaces_are_a_warning(tmp_path: Path) -> None:
    tokenizer = real_tokenizer("roberta-base", tmp_path)
    options = (Option("he", " he"), Option("she", " she"))
    text = "<s> The nurse said that [MASK] was tired. </s>"
    (warning,) = tokenize(PromptSet("mine", (Prompt("p", text, options),)), tokenizer).warnings
    assert "spaces beside special tokens" in warning
    assert Encoder(tokenizer).tokenizer.encode(text.replace("[MASK]", "he")).count(0) == 1
