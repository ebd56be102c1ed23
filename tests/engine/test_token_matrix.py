"""Every prompt set with tokenizers of every kind: the same sums as plain transformers gives, and
the same errors in `prompts check` and `extract`."""

import json
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from logitbank.engine.plan.prepare import Prepared
from logitbank.engine.prompts.check import prompts_check
from logitbank.engine.prompts.known.gest import word_in_text_tokens
from logitbank.engine.prompts.prompt_set import PromptSet
from logitbank.engine.prompts.registry import prompt_names, prompt_set
from logitbank.engine.prompts.tokenize import tokenize
from logitbank.engine.prompts.values import Prompt
from logitbank.engine.request import ExtractRequest
from logitbank.engine.suites.suites import resolve_suite
from logitbank.engine.tokenizers.tokenizer import Tokenizer
from logitbank.errors import PromptError
from tests.support.paths import PUBLIC
from tests.support.resolved import make_plan
from tests.support.scored_prompts import blank_word
from tests.support.shared import shared
from tests.support.token_cases import (
    TOKENIZERS,
    ImpossibleError,
    Sums,
    arithmetic,
    expected_sums,
    write_case,
)

pytestmark = pytest.mark.numerical

OWN = {
    "options": [
        {"text": "The nurse said that", "options": [" he", " she", " the elbow", " nurse"]},
        {"text": "Ａ café, the ﬁne elbow:", "options": {"a": " İt was", "b": " naïve"}},
        {"text": "The elbow", "options": ["s were", " of the nurse", "."]},
    ],
    "target": [
        {"text": "He met the", "target": " nurse"},
        {"text": "Her", "target": " elbow hurt"},
    ],
    "masks": [
        {"text": "The [MASK] said it.", "options": ["nurse", "elbow"]},
        {"text": "[MASK] said that [MASK] was here.", "mask": 1, "options": ["he", "she"]},
    ],
    "one-token-masks": [{"text": "[MASK] said it.", "options": ["he", "the"]}],
    "merged": [{"text": "The nurse said that the nu", "options": [" he", "rse is"]}],
    "space": [{"text": "The nurse said ", "options": ["he", "nurse"]}],
    "sentences": [{"sentence": "The nurse and her  elbow"}, {"sentence": " nurse"}],
    "apostrophe": [{"sentence": "The nurse’s elbow, and her naïve ＦＩＮＥ ﬁsh"}],
    "characters": [{"sentence": "elbow  elbow\nelbow 🙂 é é"}],
}
PAIRS = {
    "good-bad": {"sentence_good": "The nurse was tired", "sentence_bad": "The nurse were tired"},
    "more-less": {"sent_more": "The nurse hurt her elbow", "sent_less": "The elbow hurt his nurse"},
}
CELLS = 12
"""Prompts of a known set that a cell has, spread evenly."""
UNQOVER = ("unqover-gender", "unqover-gender-causal")


@cache
def known(name: str) -> PromptSet:
    """Some prompts of a known set. To make all takes a second."""
    return shared(f"known-{name}", lambda: some(name))


def some(name: str) -> PromptSet:
    made = prompt_set(name, data=PUBLIC)
    step = max(1, len(made.prompts) // CELLS)
    # The last ones of GEST are of masked models; an odd step has prompts of both kinds.
    return replace(made, prompts=made.prompts[:: step | 1])


def own_sets(folder: Path) -> Iterator[PromptSet]:
    for name, rows in OWN.items():
        path = folder / f"{name}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        yield prompt_set(str(path))
    yield replace(prompt_set(f"{folder / 'options.jsonl'}:add_special_tokens=true"), name="special")
    for name, row in PAIRS.items():
        path = folder / f"{name}.jsonl"
        path.write_text(json.dumps(row) + "\n")
        yield prompt_set(f"pairs:file={path}")


WORDS = ("nurse", "elbow", "thanked")


def word_sets() -> Iterator[PromptSet]:
    """Words that begin with the lone word mark in a Unigram vocabulary."""
    blanks = [
        blank_word(word, f"The {word} said it.", "The BLANK said it.", word) for word in WORDS
    ]
    hidden = [
        Prompt(
            word,
            f"The {word} said it.",
            scored=word_in_text_tokens,
            parts={"before": "The ", "word": word},
        )
        for word in WORDS
    ]
    yield PromptSet("blanks", tuple(blanks))
    yield PromptSet("hidden", tuple(hidden))


def known_names(*, whole: bool) -> list[str]:
    """Names without those of splits, whose prompts are some of the same, and of a user's files."""
    names = [name for name in prompt_names() if not re.search("^(pairs|bbq)$|-train|-test", name)]
    return [n for n in names if (n.startswith("unqover") and n not in UNQOVER) == whole]


def stored_sums(prepared: Prepared) -> Sums:
    """What a bank would give, if its engine computed `arithmetic`."""
    ((_, table),) = prepared.tables
    sums: dict[tuple[str, int | None, str], list[float]] = {}
    columns = ("prompt_id", "order_seed", "option", "token", "query_set", "row", "piece")
    for prompt, order, option, token, query_set, row, piece in table.select(columns).iter_rows():
        if token is None:
            continue
        query = prepared.query_sets[query_set].queries[row]
        ids = query.ids[: query.position + 1] if query.head == "next_token" else query.ids
        score = arithmetic((*ids, *query.segments), query.position, token)
        scores = sums.setdefault((prompt, order, option), [])
        assert prepared.config.task == "causal" or piece == len(scores)
        scores.append(score)
    return {key: (len(scores), math.fsum(scores)) for key, scores in sums.items()}


def compare(prompts: PromptSet, folder: Path, tokenizer: object, *, has_pairs: bool) -> str:
    """How one cell differs from plain transformers, or `scored`, or `refused` by both."""
    checked = prompts_check(prompts, tokenizer=folder)
    suite = resolve_suite(str(folder), steps="all", hub=None)
    request = ExtractRequest(suites=suite, prompts=prompts, engine="transformers")
    try:
        expected, reason = expected_sums(prompts, tokenizer, has_pairs=has_pairs), ""
    except ImpossibleError as error:
        expected, reason = {}, str(error)
    try:
        prepared = make_plan(request, None, folder)
    except PromptError as error:
        if not checked.failed or checked.lines != [f"error: {error}"]:
            return f"extract stops ({error}), and prompts check prints {checked.lines}"
        return "refused" if reason else f"only logitbank refuses: {error}"
    if checked.failed or reason:
        return f"extract takes it; prompts check: {checked.lines}; the other way: {reason}"
    stored = stored_sums(prepared)
    different = [key for key in stored | expected if stored.get(key) != expected.get(key)]
    values = [(key, stored.get(key), expected.get(key)) for key in different[:3]]
    return f"{len(different)} sums differ: {values}" if different else "scored"


@pytest.fixture(scope="module", params=TOKENIZERS)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("tokens") / "step0"
    return request.param, folder, write_case(request.param, folder)


def run_cells(case, sets: Iterator[PromptSet], monkeypatch) -> dict[str, bool]:
    """Whether the prompts of each set can be scored."""
    kind, folder, tokenizer = case
    loaded = Tokenizer.load(folder)
    loaded.lost("", ())  # its copies without a mask share what this computes
    monkeypatch.setattr(Tokenizer, "load", lambda _: loaded)  # once, not for every cell
    pairs = kind.startswith("wordpiece")
    cells = {s.name: compare(s, folder, tokenizer, has_pairs=pairs) for s in sets}
    differ = [f"{n}: {cell}" for n, cell in cells.items() if cell not in ("scored", "refused")]
    assert not differ, "\n".join(differ)
    return {name: cell == "scored" for name, cell in cells.items()}


def test_own_prompts(case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scored = run_cells(case, own_sets(tmp_path), monkeypatch)
    masked = case[2].mask_token is not None
    assert scored["sentences"]
    assert scored["good-bad"]
    if not masked:
        assert not scored["masks"], "the vocabulary has no mask"
        assert scored["target"]


def test_known_sets(case, monkeypatch: pytest.MonkeyPatch) -> None:
    if not (PUBLIC / "stereoset").is_dir():
        pytest.skip(f"{PUBLIC} is not there")
    scored = run_cells(case, map(known, known_names(whole=False)), monkeypatch)
    masked, begins = case[2].mask_token is not None, case[2].bos_token is not None
    for name in ("stereoset-intra", "stereoset-intra-de-prefix", "crows-pairs"):
        assert scored[name] == (masked or begins), name
    assert scored["stereoset-inter"] == case[0].startswith("wordpiece")


def test_words_that_begin_with_the_lone_word_mark(case, monkeypatch: pytest.MonkeyPatch) -> None:
    if case[2].mask_token is None:
        pytest.skip("no masked model has this tokenizer")
    scored = run_cells(case, word_sets(), monkeypatch)
    assert scored["blanks"]


@pytest.mark.parametrize("kind", ["unigram-spm.model", "unigram-sentencepiece.bpe.model"])
def test_a_token_is_numbered_by_its_place_in_the_word(kind: str, tmp_path: Path) -> None:
    """ "▁" and "n" have the same context, because the mark alone is no text."""
    plain = write_case(kind, tmp_path / "step0")
    words, hidden = (tokenize(s, Tokenizer.load(tmp_path / "step0")) for s in word_sets())
    rows = words.table.filter(prompt_id="nurse").select("piece", "token", "query").rows()
    assert plain.convert_ids_to_tokens([row[1] for row in rows]) == ["▁", "n", "ur", "se"]
    assert [(piece, query) for piece, _, query in rows] == [(0, 0), (1, 0), (2, 1), (3, 2)]
    rows = hidden.table.filter(prompt_id="nurse").select("piece", "token", "query").rows()
    assert plain.convert_ids_to_tokens([row[1] for row in rows]) == ["▁", "n", "ur", "se"]
    assert [piece for piece, _, _ in rows] == [0, 1, 2, 3]


@pytest.mark.whole
def test_the_other_sets_of_unqover(case, monkeypatch: pytest.MonkeyPatch) -> None:
    if not (PUBLIC / "unqover").is_dir():
        pytest.skip(f"{PUBLIC} is not there")
    run_cells(case, map(known, known_names(whole=True)), monkeypatch)
