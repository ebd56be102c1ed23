"""GEST's prompts, and the scores of a causal and a masked model against plain transformers."""

import hashlib
import json
from pathlib import Path

import polars as pl
import pytest
import torch

import logitbank
from logitbank.analysis.families.gest import gest
from logitbank.engine.extract import extract
from logitbank.engine.prompts.known.gest import DATASET
from logitbank.engine.prompts.prompt_set import PromptSet
from logitbank.engine.prompts.registry import prompt_set
from logitbank.engine.prompts.tokenize import tokenize
from logitbank.engine.prompts.values import Encoder
from logitbank.engine.tokenizers.tokenizer import Tokenizer
from logitbank.errors import PromptError, UsageError
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
    table = gest(bank).tables["sentences"].select("template", "sentence_id", "score")
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
    assert [row[:2] for row in found] == [(1, 1), (1, 2)]
    for _, i, score in found:
        assert score == pytest.approx(by_version[i, "male"] - by_version[i, "female"])
    path.write_text("masculine,feminine,stereotype\na,a,3\nb,c,17\n")
    with pytest.raises(PromptError, match=r"(?s)not two versions .*stereotype is '?17"):
        prompt_set(f"gest:file={path}")


EUROGEST = """,GEST_ID,Source,Neutral,Masculine,Feminine,Stereotype_ID
0,3,I am calm,,{0} calm he,{0} calm she,8.0
1,7,I sing,{0} sings.,,,5.0
2,9,I run,"{0} runs, fast!",,,16.0
"""
"""The layout of EuroGEST's files; the sentences are invented."""
SCAFFOLDS = """,German,Finnish
he said,sagte er,sanoi
she said,sagte sie,sanoi
the man said,sagte der Mann,mies sanoi
the woman said,sagte die Frau,nainen sanoi
"""


def euro_folder(folder: Path) -> Path:
    (folder / "euro").mkdir()
    for language in ("German", "Finnish"):
        (folder / "euro" / f"{language}.csv").write_text(EUROGEST.format(language.lower()))
    (folder / "prompt_scaffolds.csv").write_text(SCAFFOLDS)
    return folder / "euro"


def texts(made: PromptSet) -> dict[tuple[object, ...], str]:
    keys = ("language", "sentence_id", "stereotype_id", "template", "version")
    return {tuple((each.columns or {})[key] for key in keys): each.text for each in made.prompts}


def test_a_folder_of_eurogest_has_every_language_and_quotes_what_has_no_gender(
    tmp_path: Path,
) -> None:
    folder = euro_folder(tmp_path)
    (tmp_path / "punc_map.json").write_text('{"Finnish": ["«", "»"]}')
    found = texts(prompt_set(f"gest:file={folder},templates={tmp_path}/prompt_scaffolds.csv"))
    assert found["German", 3, 8, 1, "male"] == "german calm he"
    assert found["German", 3, 8, 1, "female"] == "german calm she"
    assert found["German", 7, 5, 2, "male"] == '"german sings", sagte er'
    assert found["German", 7, 5, 3, "female"] == '"german sings", sagte die Frau'
    assert found["German", 9, 16, 2, "female"] == '"german runs, fast", sagte sie'
    assert found["Finnish", 9, 16, 3, "male"] == "«finnish runs, fast» mies sanoi"
    by_template = {key[0]: [k[3] for k in found if k[0] == key[0]] for key in found}
    assert {name: sorted({*numbers}) for name, numbers in by_template.items()} == {
        "German": [1, 2, 3], "Finnish": [1, 3],  # in Finnish both pronouns are equal
    }  # fmt: skip
    as_json = {"he said": {"German": "er"}, "she said": {"German": "sie"},
               "the man said": {"German": "M"}, "the woman said": {"German": "F"}}  # fmt: skip
    (tmp_path / "own.json").write_text(json.dumps(as_json))
    one = texts(prompt_set(f"gest:file={folder}/German.csv,templates={tmp_path}/own.json"))
    assert one["German", 7, 5, 3, "male"] == '"german sings", M'
    with pytest.raises(PromptError, match="lacks phrases for Finnish"):
        prompt_set(f"gest:file={folder},templates={tmp_path}/own.json")


def test_without_phrases_the_sentences_with_gender_are_read(tmp_path: Path) -> None:
    folder = euro_folder(tmp_path)
    made = prompt_set(f"gest:file={folder}")
    assert {key[3] for key in texts(made)} == {1}
    assert "4 sentences without grammatical gender left out" in made.warnings[-1]
    path = tmp_path / "Danish.csv"
    path.write_text("GEST_ID,Source,Neutral,Stereotype_ID\n3,I sing,jeg,8.0\n")
    with pytest.raises(PromptError, match="only 1 sentence without grammatical gender"):
        prompt_set(f"gest:file={path}")
    for text, message in (("language=de", "of a file"), (f"file={folder},language=de", "folder")):
        with pytest.raises(UsageError, match=message):
            prompt_set(f"gest:{text}")


def test_the_nine_languages_of_gest_are_in_one_file(tmp_path: Path) -> None:
    """Two translators who agree make one pair."""
    path = tmp_path / "gender_variants.csv"
    path.write_text(
        "translator,language,original,stereotype,male,female\n"
        "one,sk,I sing,5,spieval som,spievala som\ntwo,sk,I sing,5,spieval som,spievala som\n"
        "two,sk,I run,8,bezal som,bezala som\none,pl,I sing,5,spiewalem,spiewalam\n"
    )
    found = texts(prompt_set(f"gest:file={path}"))
    assert {key[:3]: text for key, text in found.items() if key[4] == "male"} == {
        ("sk", 0, 5): "spieval som", ("sk", 2, 8): "bezal som", ("pl", 3, 5): "spiewalem",
    }  # fmt: skip


@pytest.mark.parametrize("masked", [False, True])
def test_rates_of_languages_are_in_the_table_of_measures(tmp_path: Path, masked: bool) -> None:
    suite = tmp_path / "suite" / "step0"
    make_checkpoint(suite, seed=0, architecture="bert" if masked else "gpt_neox")
    (write_masked_tokenizer if masked else write_tokenizer)(suite)
    (tmp_path / "euro").mkdir()
    rows = [f"{at},,he was {a},she was {a},{k}" for at, (a, k) in
            enumerate([("the nurse", 3), ("tired", 8), ("the teacher", 16)])]  # fmt: skip
    for language in ("A", "B"):
        own = rows if language == "A" else rows[:2]
        text = "\n".join(["GEST_ID,Neutral,Masculine,Feminine,Stereotype_ID", *own, ""])
        (tmp_path / "euro" / f"{language}.csv").write_text(text)
    made = prompt_set(f"gest:file={tmp_path / 'euro'}")
    extract(
        tmp_path / "b.zarr", suites=str(tmp_path / "suite"), prompts=made, engine="transformers"
    )
    study = logitbank.gest(tmp_path / "b.zarr")
    by_sentence = {
        (row["language"], row["sentence_id"]): row["score"]
        for row in study.tables["sentences"].filter(template="all").to_dicts()
    }
    rates = study.tables["measures"].filter(measure="rate", template="all")
    found = {row["language"]: (row["value"], row["items"]) for row in rates.to_dicts()}
    s = by_sentence
    a = (s["A", 1] + s["A", 2]) / 2 - s["A", 0]
    b = s["B", 1] - s["B", 0]
    tired = (s["A", 1] + s["B", 1]) / 2
    women = (s["A", 0] + s["B", 0]) / 2
    assert found == {
        "all": (pytest.approx((tired + s["A", 2]) / 2 - women), 5),
        "A": (pytest.approx(a), 3), "B": (pytest.approx(b), 2),
    }  # fmt: skip
    assert set(study.charts) == {"measures", "by_template", "by_language", "stereotypes"}
    assert any("highest: " in str(each) for each in study.findings)
    assert {*study.tables["rates"]["language"]} == {"all", "A", "B"}
