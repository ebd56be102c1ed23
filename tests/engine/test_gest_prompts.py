"""GEST's prompts, and the scores of a causal and a masked model against plain transformers."""

import hashlib
from pathlib import Path

import polars as pl
import pytest
import torch

from logitbank.analysis.families.gest import gest
from logitbank.engine.extract import extract
from logitbank.engine.prompts.known.gest import DATASET
from logitbank.engine.prompts.registry import prompt_set
from logitbank.engine.prompts.tokenize import tokenize
from logitbank.engine.prompts.values import Encoder
from logitbank.engine.tokenizers.tokenizer import Tokenizer
from logitbank.errors import PromptError
from logitbank.store import Bank
from tests.support.checkpoints import (
    MASK_ID,
    make_checkpoint,
    write_masked_tokenizer,
    write_tokenizer,
)
from tests.support.gest_cases import write_data
from tests.support.paths import PUBLIC
from tests.support.tokenizers import real_tokenizer

pytestmark = [pytest.mark.numerical, pytest.mark.usefixtures("quick_workers")]

SENTENCES = [("She was tired, and he argued.", 1), ("the doctor helped", 16), ('busy "nurse"', 4)]
FILE = [(sentence.replace('"', '""'), stereotype) for sentence, stereotype in SENTENCES]
CAUSAL = [('"{}",', " he", " she"), ('"{}", the', " man", " woman")]
MASKED = [
    ('{word} said: "{sentence}"', "He", "She"),
    ('The {word} said: "{sentence}"', "man", "woman"),
    ('"{sentence}", {word} said.', "he", "she"),
    ('"{sentence}", the {word} said.', "man", "woman"),
]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_data(tmp_path / "data", *FILE)


def scores(bank: Path) -> list[tuple[int, int, float]]:
    """Template, sentence and score, of each template."""
    table = gest(bank).result.sentences.select("template", "sentence_id", "score")
    each = [row for row in table.rows() if row[0] != "all"]
    for _, i, mean in table.filter(template="all").rows():
        values = [score for _, other, score in each if other == i]
        assert mean == pytest.approx(sum(values) / len(values))
    return [(int(template), i, score) for template, i, score in each]


def test_a_causal_model_scores_the_words_after_the_text(tmp_path: Path, data: Path) -> None:
    """`man` is three tokens of this vocabulary: a word's probability is that of all its tokens."""
    from transformers import AutoModelForCausalLM

    checkpoint = make_checkpoint(tmp_path / "series" / "step1", seed=1)
    bank = tmp_path / "b.zarr"
    extract(bank, suites=str(checkpoint.parent), prompts="gest", data=data, engine="transformers")
    tokenizer = Tokenizer.load(checkpoint)
    model = AutoModelForCausalLM.from_pretrained(checkpoint).eval()

    def logprob(text: str, word: str) -> float:
        before, ids = tokenizer.encode(text), tokenizer.encode(text + word)
        assert ids[: len(before)] == before
        with torch.inference_mode():
            rows = model(torch.tensor([ids])).logits[0].double().log_softmax(dim=1)
        return sum(rows[at - 1, ids[at]].item() for at in range(len(before), len(ids)))

    assert len(tokenizer.encode(" man")) > 1
    expected = [
        (number, i, logprob(text.format(sentence), male) - logprob(text.format(sentence), female))
        for number, (text, male, female) in enumerate(CAUSAL, 1)
        for i, (sentence, _) in enumerate(SENTENCES)
    ]
    assert scores(bank) == [(t, i, pytest.approx(value, abs=1e-4)) for t, i, value in expected]


def test_a_masked_model_scores_the_word_that_differs(tmp_path: Path, data: Path) -> None:
    """`woman` is five pieces: all are masked at once, and the score is the mean over them."""
    from transformers import AutoModelForMaskedLM

    checkpoint = make_checkpoint(tmp_path / "series" / "step1", seed=1, architecture="bert")
    bank = tmp_path / "b.zarr"
    extract(bank, suites=str(checkpoint.parent), prompts="gest", data=data, engine="transformers")
    tokenizer = Tokenizer.load(checkpoint)
    model = AutoModelForMaskedLM.from_pretrained(checkpoint).eval()

    def mean_logprob(template: str, word: str, sentence: str) -> float:
        pieces = tokenizer.encode(word, add_special_tokens=False)
        masks = " ".join(["[MASK]"] * len(pieces))
        ids = tokenizer.encode(template.format(word=masks, sentence=sentence))
        where = [at for at, token in enumerate(ids) if token == tokenizer.mask_id]
        with torch.inference_mode():
            rows = model(torch.tensor([ids])).logits[0].double().log_softmax(dim=1)
        each = [rows[at, piece].item() for at, piece in zip(where, pieces, strict=True)]
        return sum(each) / len(each)

    assert len(tokenizer.encode("woman", add_special_tokens=False)) == 5
    expected = [
        (number, i, mean_logprob(text, male, sentence) - mean_logprob(text, female, sentence))
        for number, (text, male, female) in enumerate(MASKED, 1)
        for i, (sentence, _) in enumerate(SENTENCES)
    ]
    assert scores(bank) == [(t, i, pytest.approx(value, abs=1e-4)) for t, i, value in expected]
    (query_set,) = Bank.open(bank).query_sets()
    queries = Bank.open(bank).query_set(query_set).queries
    assert {query.ids.count(MASK_ID) for query in queries} == {1, 3, 5}


def test_prompts_are_of_one_kind_of_model(tmp_path: Path, data: Path) -> None:
    write_tokenizer(tmp_path / "causal")
    write_masked_tokenizer(tmp_path / "masked")
    prompts = prompt_set("gest", data=data)
    assert len(prompts.prompts) == len(SENTENCES) * 2 * (2 + 4)
    for kind in ("causal", "masked"):
        encoder = Encoder(Tokenizer.load(tmp_path / kind))
        scored = [p.id for p in prompts.prompts if p.scored and [*p.scored(p, encoder)]]
        assert scored == [p.id for p in prompts.prompts if kind in p.id]
    assert dict(prompts.prompts[-1].columns) == {
        "sentence_id": 2, "stereotype_id": 4, "template": 4, "version": "female",
    }  # fmt: skip
    assert prompts.prompts[-1].text == '"busy "nurse"", the woman said.'


def test_a_word_outside_the_vocabulary_is_refused(tmp_path: Path, data: Path) -> None:
    write_masked_tokenizer(tmp_path)
    vocabulary = (tmp_path / "vocab.txt").read_text()
    (tmp_path / "vocab.txt").write_text(vocabulary.replace("##w\n", "").replace("\nw\n", "\n"))
    with pytest.raises(PromptError, match=r"'woman' is not in the vocabulary .* 5 other prompts"):
        tokenize(prompt_set("gest", data=data), Tokenizer.load(tmp_path))


@pytest.mark.skipif(not (PUBLIC / "gest").is_dir(), reason="GEST's own file is not there")
def test_gest_itself() -> None:
    content = (PUBLIC / "gest" / "gest.csv").read_bytes()
    assert {"gest.csv": hashlib.sha256(content).hexdigest()} == DATASET.files
    prompts = prompt_set("gest", data=PUBLIC).prompts
    assert len(prompts) == 3565 * 2 * (2 + 4)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("pythia", [" he", " she", " man", " woman"]),
        ("bert-base-uncased", ["he", "she", "man", "woman"] * 2),
        ("roberta-base", ["He", "She", " man", " woman", " he", " she", " man", " woman"]),
    ],
)
def test_words_are_single_tokens_of_real_vocabularies(
    tmp_path: Path, data: Path, name: str, words: list[str]
) -> None:
    tokenizer = real_tokenizer(name, tmp_path / name)
    found = tokenize(prompt_set("gest", data=data), tokenizer)
    first = found.table.filter(sentence_id=0)
    assert first["continuation"].to_list() == words
    assert len(found.queries) == len(SENTENCES) * len(words) // 2  # one for both versions


@pytest.mark.parametrize("masked", [False, True])
def test_two_versions_of_sentences_in_a_file(tmp_path: Path, masked: bool) -> None:
    """The score of a sentence is the difference of its versions, token by token."""
    suite = tmp_path / "suite" / "step0"
    make_checkpoint(suite, seed=0, architecture="bert" if masked else "gpt_neox")
    (write_masked_tokenizer if masked else write_tokenizer)(suite)
    path = tmp_path / "cs.csv"
    path.write_text(
        "GEST_ID,Masculine,Feminine,Stereotype\n1,he was tired,she was tired,8.0\n"
        "2,the nurse said he,the nurse said she,3\n"
    )
    made = prompt_set(f"gest:file={path}")
    assert made.name == "gest-cs"
    extract(
        tmp_path / "b.zarr", suites=str(tmp_path / "suite"), prompts=made, engine="transformers"
    )
    bank = Bank.open(tmp_path / "b.zarr")
    sums = (
        bank.scan(prompts="gest-cs")
        .group_by("sentence_id", "version")
        .agg(pl.col("logprob").mean() if masked else pl.col("logprob").sum())
        .collect()
    )
    by_version = {row[:2]: row[2] for row in sums.rows()}
    found = scores(tmp_path / "b.zarr")
    assert [row[:2] for row in found] == [(1, 0), (1, 1)]
    for _, i, score in found:
        assert score == pytest.approx(by_version[i, "male"] - by_version[i, "female"])
    path.write_text("masculine,feminine,stereotype\na,a,3\nb,c,17\n")
    with pytest.raises(PromptError, match=r"(?s)not two versions .*stereotype is '?17"):
        prompt_set(f"gest:file={path}")
