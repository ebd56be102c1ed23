"""The 923 professions as masked prompts, with the tokens that METRICS §7.1 lists."""

from pathlib import Path

import pytest

from logitbank.engine.prompts.known.professions import FILE, professions
from logitbank.engine.prompts.tokenize import tokenize
from logitbank.engine.tokenizers.tokenizer import Tokenizer
from logitbank.errors import PromptError
from logitbank.store.format.schema import Query
from tests.support.paths import PUBLIC as DATA
from tests.support.tokenizers import entries, real_tokenizer


@pytest.fixture(scope="module", params=["bert-base-uncased", "roberta-base"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a real tokenizer."""
    folder = tmp_path_factory.mktemp(request.param)
    real_tokenizer(request.param, folder)
    return folder


def listed(folder: Path, text: str) -> Path:
    (folder / "professions").mkdir(parents=True, exist_ok=True)
    (folder / "professions" / FILE).write_text(text)
    return folder


def test_both_pronouns_have_the_entries_of_the_source_and_the_first_mask_is_scored(
    model: Path,
) -> None:
    vocabulary = entries(model)
    uncased = "[MASK]" in vocabulary
    he, she = ("he", "she") if uncased else ("He", "She")
    found = tokenize(professions(DATA), Tokenizer.load(model))
    tokens = dict(found.table.select("option", "token").unique().rows())
    assert tokens == {"he": vocabulary[he], "she": vocabulary[she]}
    assert {q.position for q in found.queries} == {1}
    assert {q.head for q in found.queries} == {"mask"}
    assert len(found.queries) == 2 * 924
    words = ["[CLS]", "[MASK]", "is", "a", "[MASK]", ".", "[SEP]"]
    if not uncased:
        words = ["<s>", "<mask>", "Ġis", "Ġa", "<mask>", ".", "</s>"]
    (prior,) = found.table.filter(prior=True, verb="is", option="he")["query"]
    assert found.queries[prior] == Query(tuple(vocabulary[w] for w in words), 1, "mask")
    assert found.warnings == ()


def test_every_profession_has_both_verbs_and_the_priors_come_first() -> None:
    if not DATA.is_dir():
        pytest.skip(f"{DATA} is not there")
    prompts = professions(DATA).prompts
    assert len(prompts) == 2 * 924
    assert [p.text for p in prompts[:2]] == ["[MASK] is a [MASK].", "[MASK] is a legislator."]
    assert prompts[924].columns == {"occupation": "a [MASK]", "verb": "works as", "prior": True}
    assert prompts[-1].text == "[MASK] works as a dietitian."


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("a nurse\nnull\n", ":2: 'null'"),
        ("a nurse\n\nclerk\n", "923-professions.txt:3: 'clerk'"),
        ("a nurse\na clerk\na nurse\n", "'is: a nurse' is repeated"),
        ("a nurse \n", ":1: 'a nurse '"),
    ],
)
def test_other_lines_and_duplicates_are_refused(tmp_path: Path, text: str, named: str) -> None:
    with pytest.raises(PromptError, match=named):
        professions(listed(tmp_path, text))
