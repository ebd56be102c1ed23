"""Gold and prediction files: what is read, what is written back, and every kind of damage."""

import copy
import json
import math
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from logitbank.analysis.families.stereoset.metric import stereoset_metric
from logitbank.analysis.frames.stereoset_files import read_gold, read_predictions, write_predictions
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


def read(folder: Path, predictions: object, gold: object = GOLD) -> pl.DataFrame:
    path = write_json(folder / "gold.json", gold)
    return read_predictions(write_json(folder / "bert.json", predictions), read_gold(path))


def test_a_prediction_file_is_read_with_its_gold_file(tmp_path: Path) -> None:
    found = read(tmp_path, PREDICTIONS)
    assert found["model"].unique().to_list() == ["bert"]
    own = candidates(model="bert", language="", score_kind="file").sort("candidate")
    intra = found.filter(pl.col("task") == "intrasentence").sort("candidate")
    assert_frame_equal(intra, own.select(intra.columns))


def test_the_order_of_the_lists_means_nothing(tmp_path: Path) -> None:
    turned = {task: entries[::-1] for task, entries in reversed(PREDICTIONS.items())}
    assert_frame_equal(read(tmp_path, PREDICTIONS), read(tmp_path, turned))


def test_an_absent_or_empty_list_is_a_task_that_was_skipped(tmp_path: Path) -> None:
    for content in (
        {"intrasentence": PREDICTIONS["intrasentence"]},
        PREDICTIONS | {"intersentence": []},
    ):
        found = read(tmp_path, content)
        assert found["task"].unique().to_list() == ["intrasentence"]


def test_other_things_in_a_file_are_no_matter(tmp_path: Path) -> None:
    content = PREDICTIONS | {"model": "bert", "settings": {"a": 1}}
    assert_frame_equal(read(tmp_path, content), read(tmp_path, PREDICTIONS))


def changed(at: int, **values: object) -> dict[str, Any]:
    content = copy.deepcopy(PREDICTIONS)
    content["intrasentence"][at] |= values
    return content


INTRA = PREDICTIONS["intrasentence"]
FIRST = "intrasentence-0-stereotype"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (PREDICTIONS | {"intrasentence": INTRA[4:]},
         rf"intrasentence: ids of the gold file that are missing: 4 \({FIRST}, .*, …\); check"),
        (PREDICTIONS | {"intrasentence": INTRA + INTRA[:2]},
         rf"ids that are there twice: 2 \({FIRST}, intrasentence-0-anti-stereotype\); each has"),
        (changed(0, id="what"), r"ids that are not in the gold file: 1 \(what\); check"),
        (changed(0, id=7), r"intrasentence: ids that are no text: 1 \(7\)"),
        (changed(0, score="0.5"), rf"no finite numbers: 1 \({FIRST}\); the first is '0.5'"),
        (changed(0, score=None), rf"ids whose scores are no finite numbers: 1 \({FIRST}\)"),
        (changed(0, score=True), rf"ids whose scores are no finite numbers: 1 \({FIRST}\)"),
        (changed(0, score=math.nan), rf"ids whose scores are no finite numbers: 1 \({FIRST}\)"),
        (changed(0, score=-math.inf), rf"ids whose scores are no finite numbers: 1 \({FIRST}\)"),
        (changed(0, score=10**400), rf"ids whose scores are no finite numbers: 1 \({FIRST}\)"),
        ({"intrasentence": [1, {"id": "a"}, {"score": 2}, None]},
         r'entries that are no \{"id", "score"\}: 4 \(number 1, a, number 3, …\); every'),
        (PREDICTIONS | {"intersentence": {"a": 1}}, r'intersentence is no list of \{"id", "score"'),
        (PREDICTIONS | {"intrasentence": None}, r'intrasentence is no list of \{"id", "score"\}'),
        ({"intrasentences": PREDICTIONS["intrasentence"]}, "it has a list 'intrasentences' where"),
        ({}, "is no StereoSet prediction file: it has nothing where intrasentence and"),
        (GOLD, "is no StereoSet prediction file: it has nothing where intrasentence and"),
        ([1, 2], "is no prediction file: its JSON is no object"),
    ],
)  # fmt: skip
def test_damaged_predictions(tmp_path: Path, content: object, message: str) -> None:
    with pytest.raises(UsageError, match=message) as error:
        read(tmp_path, content)
    assert str(error.value).startswith(str(tmp_path / "bert.json"))
    assert "\n" not in str(error.value)


def gold_with(**values: object) -> dict[str, Any]:
    """The gold file with another first sentence in its intra-sentence examples."""
    content = copy.deepcopy(GOLD)
    content["data"]["intrasentence"][0]["sentences"][0] |= values
    return content


def example_with(**values: object) -> dict[str, Any]:
    """The gold file with another first intra-sentence example."""
    content = copy.deepcopy(GOLD)
    content["data"]["intrasentence"][0] |= values
    return content


def gold_without(*names: str) -> dict[str, Any]:
    content = copy.deepcopy(GOLD)
    for name in names:
        del content["data"]["intrasentence"][0][name]
    return content


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (gold_with(gold_label="neutral"),
         rf"with another gold_label than stereotype, .*: 1 \({FIRST}\); the first is 'neutral'"),
        (gold_with(gold_label="unrelated"),
         r"examples without a candidate of each label: 1 \(intrasentence-0\); each"),
        (gold_with(id="intrasentence-1-unrelated"),
         r"candidates that are there twice: 1 \(intrasentence-1-unrelated\)"),
        (gold_with(gold_label=None),
         r"intrasentence: entries that are no example: 1 \(intrasentence-0\); one has the texts"),
        (gold_with(id=7), r"intrasentence: entries that are no example: 1 \(intrasentence-0\)"),
        (gold_without("target"), r"entries that are no example: 1 \(intrasentence-0\)"),
        (gold_without("sentences"), r"entries that are no example: 1 \(intrasentence-0\)"),
        (example_with(target=["nurse"]), r"entries that are no example: 1 \(intrasentence-0\)"),
        (example_with(target=""), r"entries that are no example: 1 \(intrasentence-0\)"),
        (example_with(bias_type=3), r"entries that are no example: 1 \(intrasentence-0\)"),
        (example_with(id=None), r"entries that are no example: 1 \(number 1\)"),
        (example_with(sentences=[]), r"entries that are no example: 1 \(intrasentence-0\)"),
        ({"data": {"intrasentence": ["x", *GOLD["data"]["intrasentence"], 7]}},
         r"intrasentence: entries that are no example: 2 \(number 1, number 6\)"),
        ({"data": GOLD["data"] | {"intersentence": "abc"}}, "it has no lists data.intrasentence"),
        ({"data": {"intrasentence": [], "intersentence": []}}, "it has no lists data.intrasen"),
        ({"data": []}, "is no StereoSet gold file: it has no lists data.intrasentence and"),
        (PREDICTIONS, "is no StereoSet gold file: it has no lists data.intrasentence and"),
    ],
)  # fmt: skip
def test_damaged_gold(tmp_path: Path, content: object, message: str) -> None:
    path = write_json(tmp_path / "gold.json", content)
    with pytest.raises(UsageError, match=message) as error:
        read_gold(path)
    assert str(error.value).startswith(str(path))


def test_a_domain_has_another_name_than_all_of_them() -> None:
    renamed = candidates().with_columns(domain=pl.col("domain").replace({"race": "overall"}))
    with pytest.raises(UsageError, match=r"the domain 'overall': 1 \(intrasentence-3\); that name"):
        stereoset_metric(renamed, bootstrap=0)


def test_files_that_are_no_json_or_not_there(tmp_path: Path) -> None:
    text, deep = tmp_path / "text.json", tmp_path / "deep.json"
    text.write_bytes(b"\xff\xfe{")
    deep.write_text("[" * 100_000)
    for path in (text, deep):
        with pytest.raises(UsageError, match="is no JSON, as a gold file is"):
            read_gold(path)
    with pytest.raises(UsageError, match="there is no gold file .*nowhere.json; check the path"):
        read_gold(tmp_path / "nowhere.json")
    with pytest.raises(UsageError, match="there is no prediction file"):
        read_predictions(tmp_path, read_gold(write_json(tmp_path / "gold.json", GOLD)))


def test_predictions_of_the_other_language_name_what_does_not_fit() -> None:
    predictions = released("published/bert-base-cased-predictions.json")
    with pytest.raises(UsageError, match=r"intrasentence: ids that are not in the gold file: 9 \("):
        read_predictions(predictions, read_gold(released("dev-german.json")))
    german = released("published/bert-base-german-cased-predictions-german.json")
    with pytest.raises(UsageError, match=r"ids of the gold file that are missing: 9 \("):
        read_predictions(german, read_gold(released("dev-english.json")))


def test_what_was_written_reads_back_as_the_same_numbers(tmp_path: Path) -> None:
    path = released("published/bert-base-cased-predictions.json")
    gold = read_gold(released("dev-english.json"))
    first = read_predictions(path, gold, model="bert")
    (written,) = write_predictions(first.sample(fraction=1, shuffle=True), tmp_path / "bert.json")
    assert_frame_equal(read_predictions(written, gold), first, check_exact=True)


def test_the_causal_extension_is_written_under_its_own_name(tmp_path: Path) -> None:
    causal = candidates(task="intersentence").with_columns(task=pl.lit("intersentence_causal"))
    frame = pl.concat([candidates(), causal])
    (written,) = write_predictions(frame, tmp_path / "gpt.json")
    content = json.loads(written.read_text())
    assert list(content) == ["intrasentence", "intersentence_causal"]
    found = read_predictions(written, read_gold(write_json(tmp_path / "gold.json", GOLD)))
    assert (
        stereoset_metric(found, bootstrap=0)
        .scores["icat"]
        .equals(stereoset_metric(frame, bootstrap=0).scores["icat"])
    )


def test_a_folder_gets_a_file_for_each_set_of_scores(tmp_path: Path) -> None:
    frame = pl.concat(
        [
            candidates(model="org/m", step=0, language=""),
            candidates(model="org/m", step=512, language="de", condition="prefix"),
            candidates(model="org/m", step=None, run="seed1", language="", score="geometric"),
        ]
    )
    written = write_predictions(frame, tmp_path / "new" / "files")
    assert sorted(path.name for path in written) == [
        "predictions_org%2Fm-seed1-release-geometric_logitbank.json",
        "predictions_org%2Fm-step0_logitbank.json",
        "predictions_org%2Fm-step512-de-prefix_logitbank.json",
    ]
    assert all(path.is_file() for path in written)


def test_one_file_holds_one_set_of_scores(tmp_path: Path) -> None:
    frame = pl.concat([candidates(step=step, language="") for step in (0, 8, 16, 32)])
    path = tmp_path / "p.json"
    with pytest.raises(
        UsageError,
        match=r"would hold 4 sets of scores \(m-step0, m-step8, m-step16, …\); choose one",
    ):
        write_predictions(frame, path)
    assert not path.exists()


def test_scores_that_are_missing_are_not_written(tmp_path: Path) -> None:
    lacking = candidates(step=0).with_columns(
        value=pl.when(pl.col("candidate") == FIRST).then(None).otherwise("value")
    )
    with pytest.raises(
        UsageError, match=rf"m-step0-en: candidates without a finite score: 1 \({FIRST}\)"
    ):
        write_predictions(lacking, tmp_path / "p.json")
    infinite = candidates(step=0).with_columns(value=pl.lit(-math.inf))
    with pytest.raises(UsageError, match="without a finite score: 12 .*; no prediction file can"):
        write_predictions(infinite, tmp_path / "p.json")
    assert not list(tmp_path.iterdir())
