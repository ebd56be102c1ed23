"""Gold and prediction files: reading, and every kind of damage."""

import copy
import math
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from logitbank.analysis.families.stereoset.metric import stereoset_metric
from logitbank.analysis.frames.stereoset_files import (
    file_candidates,
    read_gold,
    read_predictions,
)
from logitbank.errors import UsageError
from tests.support.stereoset_cases import (
    EXAMPLES,
    candidates,
    gold_data,
    prediction_data,
    released,
    write_json,
)

GOLD = gold_data(intersentence=EXAMPLES, intrasentence=EXAMPLES)
PREDICTIONS = prediction_data(intrasentence=EXAMPLES, intersentence=EXAMPLES)
INTRA = PREDICTIONS["intrasentence"]
FIRST = "intrasentence-0-stereotype"


def read(folder: Path, predictions: object, gold: object = GOLD) -> pl.DataFrame:
    path = write_json(folder / "gold.json", gold)
    return read_predictions(write_json(folder / "bert.json", predictions), read_gold(path))


def test_a_prediction_file_is_read_with_its_gold_file(tmp_path: Path) -> None:
    found = read(tmp_path, PREDICTIONS)
    assert found["model"].unique().to_list() == ["bert"]
    own = candidates(model="bert", language="", score_kind="file").sort("candidate")
    intra = found.filter(pl.col("task") == "intrasentence").sort("candidate")
    assert_frame_equal(intra, own.select(intra.columns))
    turned = {task: entries[::-1] for task, entries in reversed(PREDICTIONS.items())}
    for same in (turned, PREDICTIONS | {"model": "bert", "settings": {"a": 1}}):
        assert_frame_equal(read(tmp_path, same), found)
    for skipped in ({"intrasentence": INTRA}, PREDICTIONS | {"intersentence": []}):
        assert read(tmp_path, skipped)["task"].unique().to_list() == ["intrasentence"]


def changed(**values: object) -> dict[str, Any]:
    """The predictions with another first entry."""
    content = copy.deepcopy(PREDICTIONS)
    content["intrasentence"][0] |= values
    return content


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (PREDICTIONS | {"intrasentence": INTRA[4:]}, rf"missing ids.*4 \({FIRST}, .*, …\)"),
        (PREDICTIONS | {"intrasentence": INTRA + INTRA[:2]}, rf"duplicate ids: 2 \({FIRST}, "),
        (changed(id="what"), r"ids that are not in the gold file: 1 \(what\)"),
        (changed(id=7), r"1 \(7\)"),
        *((changed(score=s), rf"finite numbers: 1 \({FIRST}\)")
          for s in ("0.5", None, True, math.nan, -math.inf, 10**400)),
        ({"intrasentence": [1, {"id": "a"}, {"score": 2}, None]}, 'an entry has no "id"'),
        *((content, "is not a StereoSet prediction file")
          for content in (PREDICTIONS | {"intersentence": {"a": 1}}, {},
                          PREDICTIONS | {"intrasentence": None}, {"intrasentences": INTRA}, GOLD)),
        ([1, 2], "contains no JSON object"),
    ],
)  # fmt: skip
def test_damaged_predictions(tmp_path: Path, content: object, message: str) -> None:
    with pytest.raises(UsageError, match=message) as error:
        read(tmp_path, content)
    assert str(error.value).startswith(str(tmp_path / "bert.json"))


def gold_with(sentence: dict[str, object] | None = None, **example: object) -> dict[str, Any]:
    """The gold file with another first intra-sentence example, or first sentence in it."""
    content = copy.deepcopy(GOLD)
    first = content["data"]["intrasentence"][0]
    first["sentences"][0] |= sentence or {}
    content["data"]["intrasentence"][0] = {
        name: value for name, value in {**first, **example}.items() if value != "absent"
    }
    return content


NOT_GOLD = "is not a StereoSet gold file"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (gold_with({"gold_label": "neutral"}), rf"gold_label other than .*: 1 \({FIRST}\)"),
        (gold_with({"gold_label": "unrelated"}), rf"incomplete examples: 3 \({FIRST}, "),
        (gold_with({"id": "intrasentence-1-unrelated"}), "occur twice: 1"),
        (gold_with(target=""), "empty text: 3"),
        *((content, NOT_GOLD) for content in (
            gold_with({"id": 7}), gold_with({"gold_label": None}), gold_with(id=None),
            gold_with(target="absent"), gold_with(sentences="absent"),
            gold_with(target=["nurse"]), gold_with(bias_type=3), {"data": []}, PREDICTIONS,
            {"data": {"intrasentence": ["x", *GOLD["data"]["intrasentence"], 7]}},
            {"data": GOLD["data"] | {"intersentence": "abc"}})),
        ({"data": {"intrasentence": [], "intersentence": []}}, "has no StereoSet examples"),
    ],
)  # fmt: skip
def test_damaged_gold(tmp_path: Path, content: object, message: str) -> None:
    path = write_json(tmp_path / "gold.json", content)
    with pytest.raises(UsageError, match=message) as error:
        read_gold(path)
    assert str(error.value).startswith(str(path))


def test_files_without_json_or_in_another_language_are_refused(tmp_path: Path) -> None:
    text, deep = tmp_path / "text.json", tmp_path / "deep.json"
    text.write_bytes(b"\xff\xfe{")
    deep.write_text("[" * 100_000)
    for path in (text, deep, tmp_path / "nowhere.json", tmp_path):
        with pytest.raises(UsageError, match=str(path)):
            read_gold(path)
    renamed = candidates().with_columns(domain=pl.col("domain").replace({"race": "all"}))
    with pytest.raises(UsageError, match="'all'"):
        stereoset_metric([renamed])
    for sources in (([], text), (["p.json"], None), (["a=p.json", "a=q.json"], text)):
        with pytest.raises(UsageError):
            file_candidates(*sources)
    predictions = released("published/bert-base-cased-predictions.json")
    with pytest.raises(UsageError, match=r"ids that are not in the gold file: 9 \("):
        read_predictions(predictions, read_gold(released("dev-german.json")))
