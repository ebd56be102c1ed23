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
    """What is said of a set whose file holds this."""
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
def test_no_text_is_named_with_what_to_give(tmp_path: Path, name: str) -> None:
    sound = FILES[name][1].encode()
    remedy = r"; (give|write) [^;]+$"
    for content, expected in (
        (b"", "is empty"),
        (b"\n \n", "is empty"),
        (b"\xff\xfe" + sound * 9000, "is not UTF-8 text (invalid start byte at byte 0)"),
        (sound[:-1] + b"\n\0", ":2 is no text" if name != "crows-pairs" else ":3 is no text"),
    ):
        message = refused(tmp_path, name, content)
        assert expected in message
        assert re.search(remedy, message), message


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("lambada", '{"text": "They met a', ":1 is no passage of LAMBADA: line .* is broken JSON"),
        ("lambada", "null", ":1 is no passage of LAMBADA: None has no text; give LAMBADA"),
        ("lambada", '{"text": "word"}', ":1 is no passage of LAMBADA: 'word' has no last word"),
        ("crows-pairs", "a,b\n1,2\n", ":1: there is no column sent_more; give CrowS-Pairs'"),
        (
            "crows-pairs",
            FILES["crows-pairs"][1] + "a,b,foo,age\n",
            ":3 has the direction 'foo', and",
        ),
        ("crows-pairs", FILES["crows-pairs"][1].split("\n")[0] + "\n", "holds no pair; give"),
        ("crows-pairs", FILES["crows-pairs"][1] + "a,b,stereo,age,5", ":3 has more cells than"),
        ("crows-pairs", FILES["crows-pairs"][1] + '\na,"b', ":4 lacks stereo_antistereo; give"),
        ("stereoset-intra", "{", "is broken JSON .*line 1 column 2.*give StereoSet's own"),
        ("stereoset-intra", "[" * 100_000, "is broken JSON .nested too deeply"),
        ("stereoset-intra", "[]", "has no list of intrasentence examples under data"),
        ("stereoset-intra", '{"data": null}', "has no list of intrasentence examples under data"),
        (
            "stereoset-intra",
            '{"data": {"intrasentence": {"a": 1}}}',
            "has no list of intrasentence",
        ),
        ("professions", "<html>\n", ":1: '<html>' is no profession; write 'a nurse'"),
    ],
)
def test_another_content_is_named_with_its_line(
    tmp_path: Path, name: str, content: str, expected: str
) -> None:
    message = refused(tmp_path, name, content.encode())
    assert re.search(expected, message), message


def test_a_number_that_is_there_twice_is_named(tmp_path: Path) -> None:
    refused(tmp_path, "winobias:splits=dev", b"")
    (tmp_path / "winobias" / "male_occupations.txt").write_text("cook\n")
    with (tmp_path / "winobias" / "pro_stereotyped_type2.txt.dev").open("a") as file:
        file.write("\n1 The clerk met [the cook] and saw [him].\n")
    with pytest.raises(PromptError, match=r"type2.txt.dev:3: sentence 1 is in line 1 too; give"):
        prompt_sets(["winobias:splits=dev"], data=tmp_path)
