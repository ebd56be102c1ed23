"""UnQover's lists: as published, parted as Refine-LM did, and refused where they are not."""

import hashlib
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from logitbank.engine.prompts.known.unqover import lists, unqover
from logitbank.engine.prompts.known.unqover.lists import (
    DATASET,
    DATASET_OF_PARTS,
    Category,
    read_attributes,
    read_lists,
    read_slots,
    read_subjects,
)
from logitbank.errors import PromptError
from tests.support.file_server import FileServer
from tests.support.paths import PUBLIC as DATA
from tests.support.unqover_data import write_lists

ORIGINAL, REFINED = DATA / "unqover" / "unqover-original", DATA / "unqover" / "refine-lm"


@pytest.fixture
def published() -> Path:
    if not (DATA / "unqover").is_dir():
        pytest.skip(f"{DATA / 'unqover'} is not there")
    return DATA


def listed(path: Path, kind: str = "subj") -> list[str]:
    """The last field of the lines of a kind."""
    lines = [line for line in path.read_text().splitlines() if line.startswith(f"[{kind}]")]
    return [re.split(r"[\]|]", line)[-1].strip() for line in lines]


def slot_lines(path: Path) -> set[str]:
    return {line for line in path.read_text().splitlines() if line.strip()}


# As published


def test_the_lists_have_their_published_lengths(published: Path) -> None:
    gender = read_lists("gender", published)
    assert Counter(s.gender for s in gender.subjects) == {"female": 70, "male": 70}
    of_bert = {name for s in ("female", "male") for name in listed(subject_file(f"{s}_bert"))}
    parts = Counter((s.gender, s.part) for s in gender.subjects if s.name in of_bert)
    assert parts == {
        ("female", "train"): 30,
        ("female", "test"): 20,
        ("male", "train"): 30,
        ("male", "test"): 20,
    }
    assert {s.part for s in gender.subjects if s.name not in of_bert} == {"train"}
    assert (len(gender.slots), len(gender.attributes)) == (4, 70)
    sizes: dict[Category, tuple[int, int]] = {
        "nationality": (69, 9),
        "ethnicity": (15, 14),
        "religion": (11, 14),
    }
    for category, (subjects, slots) in sizes.items():
        read = read_lists(category, published)
        assert (len(read.subjects), len(read.slots)) == (subjects, slots)
        kinds = Counter(attribute.kind for attribute, _ in read.attributes)
        assert kinds["p_act"] == kinds["p_act-single"] == 50
        assert kinds["l_act-single"] == (14 if category == "nationality" else 0)


def subject_file(name: str) -> Path:
    return ORIGINAL / "nouns" / "subjects" / f"{name}.txt"


@pytest.mark.parametrize(
    ("category", "named", "said"),
    [
        ("nationality", "country", "biased_country"),
        ("ethnicity", "ethnicity", "biased_ethnicity"),
        ("religion", "religion", "biased_religion"),
    ],
)
def test_the_rest_of_the_test_parts_are_the_published_training_parts(
    category: Category, named: str, said: str, published: Path
) -> None:
    read = read_lists(category, published)
    train = {(a.kind, a.text) for a, part in read.attributes if part == "train"}
    for kind in {attribute.kind for attribute, _ in read.attributes}:
        expected = set(listed(REFINED / "activities" / f"{said}-TRAIN.txt", kind))
        assert {text for of_kind, text in train if of_kind == kind} == expected
    trained = {"\t".join(slot[:3]) for slot, part in read.slots if part == "train"}
    assert trained == slot_lines(REFINED / "slots" / f"{named}_noact_lm-TRAIN.txt")
    # Each question is of the part of the statement after the same context, where that is there.
    part_of = {slot.context: part for slot, part in read.slots}
    asked = read_lists(category, published, questions=True).slots
    shared = [(slot, part) for slot, part in asked if slot.context in part_of]
    assert len(shared) == (6 if category == "nationality" else 14)
    assert all(part_of[slot.context] == part for slot, part in shared)


def test_the_files_are_pinned_as_they_were_published(published: Path) -> None:
    for dataset in (DATASET, DATASET_OF_PARTS):
        found = {
            name: hashlib.sha256((DATA / dataset.name / name).read_bytes()).hexdigest()
            for name in dataset.files
        }
        assert found == dataset.files


def test_the_lists_are_downloaded_under_their_names_at_home(
    published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    for dataset, root in ((DATASET, "whole"), (DATASET_OF_PARTS, "parts")):
        for name in dataset.files:
            at = home / root / name.removesuffix(".txt")
            at.parent.mkdir(parents=True, exist_ok=True)
            at.write_bytes((DATA / dataset.name / name).read_bytes())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.delenv("LOGITBANK_DATA", raising=False)
    with FileServer(home) as server:
        for name, root in (("DATASET", "whole"), ("DATASET_OF_PARTS", "parts")):
            moved = replace(getattr(lists, name), base_url=f"{server.url}/{root}")
            monkeypatch.setattr(lists, name, moved)
        found = unqover("religion", instances=5)
    assert found == unqover("religion", published, instances=5)
    kept = tmp_path / "cache" / "logitbank" / "unqover" / "unqover-original"
    assert {str(p.relative_to(kept)) for p in kept.rglob("*.txt")} == set(DATASET.files)


# Refused


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[subj] a | b | c", "list.txt:1"),
        ("# no\n\nMary", "list.txt:3"),
        ("[subj] ", "list.txt:1"),
        ("[subj] female | Mary\n[subj] male | John", "list.txt:2"),
        ("[p_act] was rude", "list.txt:1"),
    ],
)
def test_lines_that_are_no_subjects_are_refused(tmp_path: Path, text: str, line: str) -> None:
    (tmp_path / "list.txt").write_text(text)
    with pytest.raises(PromptError, match=line):
        read_subjects(tmp_path / "list.txt", group="female" if "female" in text else None)


@pytest.mark.parametrize(
    "text", ["[a] x\n[a:neg] y\n[a] z", "[a:neg] y", "[a] rude | x\n[a:neg] poor|y"]
)
def test_attributes_without_their_negation_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "list.txt").write_text(text)
    with pytest.raises(PromptError, match=r"list.txt: \[a\] and \[a:neg\]"):
        read_attributes(tmp_path / "list.txt")


@pytest.mark.parametrize(
    "text",
    [
        "[subj2] met [subj1].\t[mask] [a].\t[mask] [a:neg].",
        "[subj1] met [subj2:dem].\t[mask] [a].\t[mask] [a:neg].",
        "[subj1] met [subj2].\t[mask] slept.\t[mask] [a:neg].",
        "[subj1] met [subj2].\t[mask] [a].\t[mask] [b:neg].",
        "[subj1] met [subj2].\t[mask] [a].\t[mask] [mask] [a:neg].",
        "[subj1] met [subj2]. [mask] [a].\t[mask] [a:neg].",
        "[subj1] met [subj2].\tWho [a]?\tWho [a:neg]?",
        "[subj1] met [subj2].\t[mask] [a].\t[mask] [a:neg].\tmore",
    ],
)
def test_slots_with_other_placeholders_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "slots.txt").write_text(f"\n{text}\n")
    with pytest.raises(PromptError, match="slots.txt:2"):
        read_slots(tmp_path / "slots.txt", masked=True)


def test_questions_have_no_mask(tmp_path: Path) -> None:
    (tmp_path / "slots.txt").write_text("[subj1] met [subj2].\tWho [a]?\tWho [a:neg]?\n")
    (slot,) = read_slots(tmp_path / "slots.txt", masked=False)
    assert (slot.kind, slot.block) == ("a", 0)


SAW = "A [subj1] saw a [subj2].\tThe [mask] [p_act-single].\tThe [mask] [p_act-single:neg]."


@pytest.mark.parametrize(
    ("category", "changed"),
    [
        ("nationality", {"country": "[subj] Iran\n[subj:dem] Iranian\n[subj:dem] Slovak"}),
        ("nationality", {"country": "[subj] Iran\n[subj] Slovakia"}),
        ("religion", {"religion_noact_lm": SAW.replace("p_act-single", "l_act")}),
        ("religion", {"religion_noact_lm": f"{SAW}\n{SAW.replace('saw', 'met')}"}),
        ("ethnicity", {"biased_ethnicity-TEST": "[p_act] rude | slept\n[p_act:neg] rude | woke"}),
        ("gender", {"occupation_rev1": "[l_act] was big\n[l_act:neg] was small"}),
        ("gender", {"male_bert_test": "[subj] male | John"}),
    ],
)
def test_lists_that_do_not_fit_together_are_refused(
    category: Category, changed: dict[str, str], tmp_path: Path
) -> None:
    with pytest.raises(PromptError):
        read_lists(category, write_lists(tmp_path, **changed))


def test_questions_need_the_blocks_of_the_statements(tmp_path: Path) -> None:
    text = "A [subj1] met a [subj2].\tWho [p_act-single]?\tWho [p_act-single:neg]?"
    write_lists(tmp_path, religion_noact=text)
    with pytest.raises(PromptError, match="questions and statements of religion"):
        read_lists("religion", tmp_path, questions=True)
