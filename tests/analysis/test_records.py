"""Records of Every Eval Ever: their form, their numbers, and where these are from."""

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import polars as pl
import pytest

import logitbank
from logitbank.errors import UsageError
from logitbank.store import Bank, CheckpointId
from tests.analysis.test_missing import ask, new
from tests.support.command import Call
from tests.support.evaluation_banks import add_lambada, deposit, whole_bank

TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}
NUMBER = {"type": "number"}
BOUND = {"anyOf": [NUMBER, {"enum": ["Infinity", "-Infinity"]}]}


def of(required: dict[str, Any], optional: dict[str, Any] | None = None) -> dict[str, Any]:
    """An object that has these fields and no others."""
    properties = {**required, **(optional or {})}
    return {"type": "object", "required": [*required], "properties": properties,
            "additionalProperties": False}  # fmt: skip


TEXT = {"type": "string", "minLength": 1}
RESULT = of({
    "evaluation_result_id": TEXT, "evaluation_name": TEXT,
    "source_data": of({"dataset_name": TEXT, "source_type": {"const": "other"}},
                      {"additional_details": TEXTS}),
    "metric_config": of({
        "evaluation_description": TEXT, "metric_id": TEXT, "metric_name": TEXT,
        "metric_unit": TEXT, "lower_is_better": {"type": "boolean"},
        "score_type": {"const": "continuous"}, "min_score": BOUND, "max_score": BOUND,
    }, {"additional_details": TEXTS}),
    "score_details": of({"score": NUMBER, "details": TEXTS, "uncertainty": of(
        {"num_samples": {"type": "integer"}},
        {"standard_error": of({"value": NUMBER, "method": TEXT}),
         "confidence_interval": of({"lower": NUMBER, "upper": NUMBER, "method": TEXT,
                                    "confidence_level": {"const": 0.95}})},
    )}),
})  # fmt: skip
RECORD = of({
    "schema_version": {"const": "0.3.0"}, "evaluation_id": TEXT,
    "retrieved_timestamp": {"type": "string", "pattern": "^[0-9]+$"},
    "source_metadata": of({
        "source_name": TEXT, "source_type": {"enum": ["evaluation_run", "documentation"]},
        "source_organization_name": TEXT,
        "evaluator_relationship": {
            "enum": ["first_party", "third_party", "collaborative", "other"]
        },
        "additional_details": TEXTS,
    }),
    "eval_library": of({"name": TEXT, "version": TEXT}, {"additional_details": TEXTS}),
    "model_info": of(
        {"name": TEXT, "id": TEXT, "additional_details": {
            **TEXTS, "required": ["deployment_type", "model_availability"], "properties": {
                "deployment_type": {"enum": ["self_deployed", "externally_managed", "unknown"]},
                "model_availability": {"enum": ["open_weights", "closed_weights", "unknown"]}}}},
        {"developer": TEXT, "inference_engine": of({"name": TEXT, "version": TEXT})},
    ),
    "evaluation_results": {"type": "array", "minItems": 1, "items": RESULT},
}, {"evaluation_timestamp": {"type": "string", "pattern": "^[0-9]+$"}})  # fmt: skip
"""The rules of eval.schema.json 0.3.0 for the fields that we write, and no others are written."""
PLACE = re.compile(
    r"data/[^/]+/[^/]+/[^/]+/[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\.json"
)


def records(folder: Path) -> dict[str, dict[str, Any]]:
    """The records of a folder by their ids, each of which was looked at."""
    found = {}
    for path in folder.rglob("*.json"):
        record = json.loads(path.read_text(), parse_constant=pytest.fail)
        jsonschema.validate(record, RECORD)
        assert PLACE.fullmatch(path.relative_to(folder).as_posix())
        for result in record["evaluation_results"]:
            metric, score = result["metric_config"], result["score_details"]["score"]
            assert float(metric["min_score"]) <= score <= float(metric["max_score"])
        assert record["evaluation_id"] not in found
        found[record["evaluation_id"]] = record
    return found


def test_every_analysis_has_a_record_of_each_checkpoint(tmp_path: Path) -> None:
    bank = whole_bank(tmp_path / "b.zarr")
    passages = logitbank.lambada(bank, save_records=tmp_path / "r").result.lambada
    crows = logitbank.crows_pairs(bank, save_records=tmp_path / "r").result.crows_pairs
    em = logitbank.stereotype(bank, save_records=tmp_path / "r").result.winobias_em
    found = records(tmp_path / "r")
    assert len(found) == 6 + 2 + 6
    for row in passages.iter_rows(named=True):
        acc, perplexity = found[f"lambada/toy/main/step{row['step']}"]["evaluation_results"]
        assert acc["score_details"] == {
            "score": row["acc"],
            "uncertainty": {
                "num_samples": 40,
                "standard_error": {"value": row["acc_stderr"], "method": "analytic"},
                "confidence_interval": {"lower": row["low"], "upper": row["high"],
                                        "confidence_level": 0.95, "method": "Wilson"},
            },
            "details": {"samples_asked": "40", "samples_missing": "0"},
        }  # fmt: skip
        assert perplexity["score_details"]["score"] == row["perplexity"]
        interval = perplexity["score_details"]["uncertainty"]["confidence_interval"]
        assert (interval["lower"], interval["upper"]) == (
            row["perplexity_low"],
            row["perplexity_high"],
        )
        assert perplexity["metric_config"]["max_score"] == "Infinity"
    share, size = found["crows-pairs/toy/main/step8"]["evaluation_results"][:2]
    (row,) = crows.filter(step=8, bias_type="all").to_dicts()
    interval = share["score_details"]["uncertainty"]["confidence_interval"]
    assert [share["score_details"]["score"], interval["lower"], interval["upper"]] == pytest.approx(
        [row["score"] / 100, row["low"] / 100, row["high"] / 100]
    )
    assert share["metric_config"]["additional_details"] == {"no_preference": "0.5"}
    assert "confidence_interval" not in size["score_details"]["uncertainty"]
    results = {
        result["evaluation_result_id"]: result["score_details"]["score"]
        for result in found["stereotype/toy/main/step8"]["evaluation_results"]
    }
    assert results["winobias_em.bias"] == em.filter(step=8)["bias"][0]
    assert set(results) == {"stereotype_accuracy.acc", "sa_gender.acc", "winobias_em.em_pro",
                            "winobias_em.em_anti", "winobias_em.bias"}  # fmt: skip


def test_a_record_says_what_was_run_on_what(tmp_path: Path) -> None:
    bank = Bank.create(tmp_path / "b.zarr")
    add_lambada(bank, {0: 3}, model="org/toy")
    (name,) = bank.query_sets()
    made = {
        "engine": "vllm", "engine_version": "0.32.0", "compute_dtype": "bfloat16", "host": "secret",
        "weights": "ab" * 32, "source": {"repository": "org/toy", "revision": "step8"},
        "time": "2026-11-22T00:00:00+00:00",
    }  # fmt: skip
    bank.deposit(
        np.random.default_rng(0).normal(size=(80, 12)).astype(np.float32), query_set=name,
        checkpoint=CheckpointId("org/toy", "seed1", 8), provenance=made,
    )  # fmt: skip
    logitbank.lambada(bank, save_records=tmp_path / "r")
    record = records(tmp_path / "r")["lambada/org/toy/seed1/step8/1795305600"]
    assert record["evaluation_timestamp"] == "1795305600"
    assert record["source_metadata"]["additional_details"] == {"bank": "b.zarr", "query_sets": name}
    assert record["eval_library"]["additional_details"]["compute_dtype"] == "bfloat16"
    model = record["model_info"]
    assert (model["id"], model["developer"]) == ("org/toy", "org")
    assert model["inference_engine"] == {"name": "vllm", "version": "0.32.0"}
    assert model["additional_details"] == {
        "deployment_type": "self_deployed", "model_availability": "unknown", "run": "seed1",
        "step": "8", "weights": "ab" * 32,
        "source": '{"repository": "org/toy", "revision": "step8"}',
    }  # fmt: skip
    assert "secret" not in json.dumps(record)
    assert {path.parent.name for path in (tmp_path / "r").rglob("*.json")} == {"toy"}


def test_the_same_again_replaces_and_a_release_is_written(tmp_path: Path, call: Call) -> None:
    bank = Bank.create(tmp_path / "b.zarr")
    add_lambada(bank, {0: 3, 8: 20})
    (queries,) = bank.query_sets().values()
    deposit(bank, queries, np.random.default_rng(1).normal(size=(80, 12)), step=None)
    command = ("analyze", "lambada", bank.path, "--save-records", tmp_path / "r")
    for _ in range(2):
        assert call(*command)[0] == 0
    assert set(records(tmp_path / "r")) == {
        "lambada/toy/main/step0", "lambada/toy/main/step8", "lambada/toy/main/release"
    }  # fmt: skip


def test_a_release_that_lacks_something_is_refused(tmp_path: Path) -> None:
    bank = Bank.create(tmp_path / "b.zarr")
    add_lambada(bank, {})
    (queries,) = bank.query_sets().values()
    deposit(bank, queries, np.random.default_rng(1).normal(size=(80, 12)), step=None)
    ask(bank, "lambada", pl.col("prompt_id") < "l07", prompt_id=new("prompt_id"))
    with pytest.raises(
        UsageError, match=r"40 of 47 samples are scored at toy main release \(1 of 1"
    ):
        logitbank.lambada(bank, save_records=tmp_path / "r")
    assert not (tmp_path / "r").exists()
    logitbank.lambada(bank, save_records=tmp_path / "r", partial=True)
    (result, _) = records(tmp_path / "r")["lambada/toy/main/release"]["evaluation_results"]
    assert result["score_details"]["uncertainty"]["num_samples"] == 40
    assert result["score_details"]["details"] == {"samples_asked": "47", "samples_missing": "7"}
