"""Prompts of many queries: which tokens are scored where, and what the bank then holds."""

import json
from pathlib import Path

import pytest

from logitbank.engine.prompts.known.lambada import lambada
from logitbank.engine.prompts.prompt_set import PromptSet
from logitbank.engine.prompts.registry import prompt_set
from logitbank.engine.prompts.tokenize import TokenizedPrompts, tokenize
from logitbank.engine.prompts.values import Prompt
from logitbank.engine.tokenizers.tokenizer import Tokenizer
from logitbank.errors import PromptError, UsageError
from tests.support.checkpoints import write_tokenizer
from tests.support.paths import PUBLIC as DATA
from tests.support.scored_prompts import blank_word, continuation, shared
from tests.support.tokenizers import real_tokenizer

pytestmark = pytest.mark.numerical


@pytest.fixture(scope="module")
def causal(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder = tmp_path_factory.mktemp("causal")
    write_tokenizer(folder)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config["bos_token"] = "<|endoftext|>"
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return Tokenizer.load(folder)


def made(tokenizer: Tokenizer, *prompts: Prompt) -> TokenizedPrompts:
    return tokenize(PromptSet("s", prompts), tokenizer)


def shown(tokenizer: Tokenizer, found: TokenizedPrompts) -> list[tuple[str, str, str]]:
    """For each row: what the model sees, up to the scored place; the token; how."""
    rows = []
    for query, token, kind in found.table.select("query", "token", "score_kind").iter_rows():
        q = found.queries[query]
        seen = q.ids if q.head == "mask" else q.ids[: q.position + 1]
        rows.append((tokenizer.decode(seen), tokenizer.decode_each([token])[0], kind))
    return rows


def test_target_words_are_scored_token_by_token(causal: Tokenizer) -> None:
    found = made(causal, continuation("a", " the nurse", " said zz"))
    assert shown(causal, found) == [
        (" the nurse", " said", "target"),
        (" the nurse said", " ", "target"),
        (" the nurse said ", "z", "target"),
        (" the nurse said z", "z", "target"),
    ]
    assert len({q.ids for q in found.queries}) == 1, "one sequence is one pass"
    assert found.table["piece"].to_list() == [0, 1, 2, 3]


WORD = blank_word("a", " the nurse said", "the BLANK said", "nurse")


def test_the_first_word_of_a_candidate_follows_the_begin_of_text_alone(causal: Tokenizer) -> None:
    found = made(causal, WORD)
    assert shown(causal, found) == [
        ("<|endoftext|>", " the", "sentence"),
        (" the", " nurse", "sentence"),
        (" the nurse", " said", "sentence"),
    ]


def test_a_sentence_of_two_follows_the_begin_of_text_as_a_whole(causal: Tokenizer) -> None:
    found = made(causal, shared("a", " the nurse said", " the clerk said"))
    assert shown(causal, found) == [
        ("<|endoftext|>", " the", "sentence"),
        ("<|endoftext|> the", " nurse", "sentence"),
        ("<|endoftext|> the nurse", " said", "sentence"),
    ]
    assert len({q.ids for q in found.queries}) == 1


def test_a_masked_word_has_its_earlier_pieces_in_place_and_no_later_ones(masked: Tokenizer) -> None:
    found = made(masked, blank_word("a", "the zzq said", "the BLANK said", "zzq"))
    assert shown(masked, found) == [
        ("[CLS] the [MASK] said [SEP]", "z", "masked"),
        ("[CLS] the z [MASK] said [SEP]", "##z", "masked"),
        ("[CLS] the zz [MASK] said [SEP]", "##q", "masked"),
    ]


def test_shared_tokens_are_masked_one_at_a_time(masked: Tokenizer) -> None:
    found = made(masked, shared("a", "the nurse said", other="the doctor said"))
    assert shown(masked, found) == [
        ("[CLS] [MASK] nurse said [SEP]", "the", "masked"),
        ("[CLS] the nurse [MASK] [SEP]", "said", "masked"),
    ]


def test_both_sides_of_a_pair_score_the_same_tokens(masked: Tokenizer) -> None:
    """The common blocks of these two differ by which of them is searched for the other's."""
    texts = ("a b a a a c", "c a b c a b")
    a, b = (
        made(masked, shared("p", text, other, first=text == texts[0]))
        for text, other in (texts, texts[::-1])
    )
    assert a.table["token"].to_list() == b.table["token"].to_list()
    asymmetric = made(masked, shared("p", texts[1], texts[0]))
    assert asymmetric.table["token"].to_list() != b.table["token"].to_list(), "a test that can fail"


def test_what_cannot_be_scored_is_named(
    causal: Tokenizer, masked: Tokenizer, tmp_path: Path
) -> None:
    with pytest.raises(PromptError, match="'a': context and target have 0 and 1 tokens"):
        made(causal, continuation("a", "", " said"))
    with pytest.raises(PromptError, match=r"'a': 'the nurse' has no \[MASK\]"):
        made(masked, blank_word("a", "the nurse", "the nurse", "nurse"))
    with pytest.raises(PromptError, match="prompt 'a' is repeated"):
        PromptSet("s", (WORD, WORD))
    write_tokenizer(tmp_path)
    with pytest.raises(PromptError, match="'a': the tokenizer has no begin-of-text token"):
        made(Tokenizer.load(tmp_path), WORD)


@pytest.mark.whole
def test_the_released_data_have_the_documented_numbers_of_tokens(
    tmp_path: Path,
) -> None:
    real_tokenizer("pythia", tmp_path)
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<|endoftext|>"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    found = prompt_set("stereoset-intra", data=DATA)
    table = tokenize(found, Tokenizer.load(tmp_path)).table
    assert len(table) == 64_864
    assert table["prompt_id"].n_unique() == 6_318
    assert table.unique("example")["domain"].value_counts().sort("domain").rows() == [
        ("gender", 255), ("profession", 810), ("race", 962), ("religion", 79),
    ]  # fmt: skip
    assert len(lambada(DATA).prompts) == 5_153


def test_missing_data_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOGITBANK_DATA", raising=False)
    for data in (None, tmp_path):
        with pytest.raises(
            UsageError,
            match=r"lambada/.*https:.*\(SHA-256 4aa8d02c.*--data",
        ):
            prompt_set("lambada", data=data)
