"""Files of known prompt sets that are damaged or another's: one line that names file and remedy."""

import re
from pathlib import Path

import pytest

from logitbank.engine.prompts.registry import prompt_sets
from logitbank.errors import PromptError

FILES = {
    "lambada": ("lambada/lambada_test_openai.jsonl", '{"text": "They met a nurse"}\n'),
    "crows-pairs": (
        "crows-pairs/crows_pairs_anonymized.csv",
        "sent_more,sent_less,stereo_antistereo,bias_type\nShe is kind.,He is kind.,stereo,gender\n",
    ),
    "gest": ("gest/gest.csv", "sentence,stereotype\nI cook.,4\n"),
    "stereoset-intra": ("stereoset/dev-english.json", '{"data": {"intrasentence": []}}'),
    "professions": ("professions/923-professions.txt", "a nurse\n"),
    "winobias:splits=dev": ("winobias/male_occupations.txt", "cook\n"),
}
"""A file of each set, and what makes one that can be read, but for StereoSet's."""
WINOBIAS = {
    "female_occupations.txt": "clerk\n",
    "pro_stereotyped_type2.txt.dev": "1 The clerk met [the cook] and greeted [him].\n",
    "anti_stereotyped_type2.txt.dev": "1 The clerk met [the cook] and greeted [her].\n",
}


def refused(root: Path, name: str, content: bytes) -> str:
    """The error about a set whose file has this content."""
    path = root / FILES[name][0]
    path.parent.mkdir(exist_ok=True)
    if name.startswith("winobias"):
        for other, text in WINOBIAS.items():
            (path.parent / other).write_text(text)
    path.write_bytes(content)
    with pytest.raises(PromptError) as error:
        prompt_sets([name], data=root)
    message = str(error.value)
    assert str(path) in message
    assert "\n" not in message
    assert len(message) < 400 + len(str(path))
    return message


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_not_text_is_refused(tmp_path: Path, name: str) -> None:
    sound = FILES[name][1].encode()
    for content in (b"", b"\n \n", b"\xff\xfa" + sound * 9000, sound[:-1] + b"\n\0"):
        refused(tmp_path, name, content)


@pytest.mark.parametrize(
    ("name", "content", "line"),
    [
        ("lambada", '{"text": "They met a', ":1"),
        ("lambada", "null", ":1"),
        ("lambada", '{"text": "word"}', ":1"),
        ("crows-pairs", "a,b\n1,2\n", ":1"),
        ("crows-pairs", FILES["crows-pairs"][1] + "a,b,foo,age\n", ":3"),
        ("crows-pairs", FILES["crows-pairs"][1].split("\n")[0] + "\n", ""),
        ("crows-pairs", FILES["crows-pairs"][1] + "a,b,stereo,age,5", ":3"),
        ("crows-pairs", FILES["crows-pairs"][1] + '\na,"b', ":4"),
        ("gest", "a,b\n1,2\n", ":1"),
        ("gest", FILES["gest"][1] + "I run.,17\n", ":3"),
        ("gest", FILES["gest"][1] + "I run.,8,9\n", ":3"),
        ("gest", "sentence,stereotype\n", ""),
        ("stereoset-intra", "{", ""),
        ("stereoset-intra", "[" * 100_000, ""),
        ("stereoset-intra", "[]", ""),
        ("stereoset-intra", '{"data": null}', ""),
        ("stereoset-intra", '{"data": {"intrasentence": {"a": 1}}}', ""),
        ("professions", "<html>\n", ":1"),
    ],
)
def test_another_content_is_refused_with_its_line(
    tmp_path: Path, name: str, content: str, line: str
) -> None:
    assert f"{FILES[name][0]}{line}" in refused(tmp_path, name, content.encode())


BAD_ROWS = {
    "lambada": ('{"text": "They met a nurse"}', '{"text": "word"}', ".jsonl"),
    "crows-pairs": (FILES["crows-pairs"][1].strip(), "a,b,foo,age", ".csv"),
    "gest": ("sentence,stereotype\nI cook.,4", "I run.,17", ".csv"),
    "professions": ("a nurse", "nurse", ".txt"),
    "pairs": (
        '{"sentence_good": "a b", "sentence_bad": "a c"}', '{"sentence_good": "a"}', ".jsonl"
    ),
    "own": ('{"text": "a"}', '{"text": 3}', ".jsonl"),
}  # fmt: skip
"""Of each set a sound beginning, and a row that is not sound."""


@pytest.mark.parametrize("name", BAD_ROWS)
def test_thirty_bad_rows_are_one_error_with_their_lines(tmp_path: Path, name: str) -> None:
    sound, bad, ending = BAD_ROWS[name]
    path = tmp_path / FILES.get(name, (f"mine{ending}",))[0]
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join([sound, *[bad] * 30]))
    first = sound.count("\n") + 2
    spec = {"own": str(path), "pairs": f"pairs:file={path}"}.get(name, name)
    others = ", ".join(map(str, range(first + 1, first + 11)))
    expected = rf"^{re.escape(str(path))}:{first}: .*\(also in lines {others} and 19 more\)"
    with pytest.raises(PromptError, match=expected) as error:
        prompt_sets([spec], data=tmp_path)
    assert "\n" not in str(error.value)


def test_a_sentence_number_may_occur_once(tmp_path: Path) -> None:
    refused(tmp_path, "winobias:splits=dev", b"")
    (tmp_path / "winobias" / "male_occupations.txt").write_text("cook\n")
    with (tmp_path / "winobias" / "pro_stereotyped_type2.txt.dev").open("a") as file:
        file.write("\n1 The clerk met [the cook] and saw [him].\n")
    with pytest.raises(PromptError, match="'dev-pro-1-referred' .* is repeated"):
        prompt_sets(["winobias:splits=dev"], data=tmp_path)
