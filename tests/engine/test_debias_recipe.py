"""`studies/stereoset-debias.sh` on all of StereoSet in two languages: its table, as it was recorded
and as plain transformers gives some of its rows."""

import json
import os
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.engine.test_studies import Study
from tests.support import stand_ins
from tests.support.paths import PUBLIC, ROOT

pytestmark = pytest.mark.long

EXPECTED = ROOT / "tests" / "data" / "stereoset-debias.csv"
KEY = ["model", "label", "language", "condition"]
POINTS = {"lms": 0.1, "ss": 0.2, "icat": 0.3, "icat_change": 0.3}
"""Largest differences: a tie within rounding moves a term of few examples by this much."""
SHARES = ["examples", "candidates_in_k", "subjects_in_k", "mu", "eta", "abs_c", "positional"]
WIDE = "trained, k = 32, keep_tail"
DATA = {"en": ("en_XX", "dev-english.json"), "de": ("de_CH", "dev-german.json")}
LIKELY = "▁ s t e r y o n a l ed er en ing ung"
"""Tokens with which many candidates begin or end."""


def make_models() -> dict[str, Path]:
    """With the same weights in every folder. Names, and tokens of many candidates, are likely."""
    torch.manual_seed(0)
    swissbert = stand_ins.xmod(Path("swissbert"), ("de_CH", "fr_CH"))
    file = swissbert / "model.safetensors"
    weights = load_file(file)
    content = json.loads((swissbert / "tokenizer.json").read_text())
    for token, (piece, score) in enumerate(content["model"]["vocab"]):
        weights["lm_head.bias"][token] += 7 * (piece in LIKELY.split()) + 4 * (score == -8)
    save_file(weights, file, metadata={"format": "pt"})
    return {
        "SUITE": swissbert,
        "ENGLISH": stand_ins.xmod(Path("xmod-base"), ("de_DE", "en_XX")),
        "BASELINE": stand_ins.bert(Path("bert")),
    }


def plain_transformers(rows: pl.DataFrame, models: dict[str, Path], by: Path) -> pl.DataFrame:
    """lms, ss and iCAT of these rows, computed in another process."""
    jobs = [
        {
            "model": str(models["SUITE" if row["model"] == "swissbert" else "BASELINE"]),
            "modules_from": str(models["ENGLISH"]),
            "language": DATA[row["language"]][0],
            "file": str(PUBLIC / "stereoset" / DATA[row["language"]][1]),
            "filter": str(by) if row["label"] == WIDE else "",
        }
        for row in rows.to_dicts()
    ]
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.stereoset_reference"],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        input=json.dumps(jobs),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return pl.DataFrame(json.loads(done.stdout))


def test_the_table_of_seven_kinds_of_rows_in_two_languages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    models = make_models()
    own = {name: str(path) for name, path in models.items()}
    study = Study("stereoset-debias.sh", tmp_path, **own)
    study.run()
    bank, wide, out = (study.out / name for name in ("bank.zarr", "wide.safetensors", "three"))
    files = [study.out / f"{name}.safetensors" for name in ("truncate", "keep_tail")]
    for command in (
        f"train {bank} --model swissbert --prompts unqover-gender@en_XX --k 32"
        f" --regularisation 0.1 --out {wide}",
        f"compare {bank} --out {out} " + " ".join(f"--filter {file}" for file in (*files, wide)),
    ):
        words = ["logitbank", "debias", *command.split()]
        subprocess.run(words, env=study.environment, check=True)
    table = study.table("three/comparison").select(*KEY, *SHARES, *POINTS)
    table.write_csv(tmp_path / EXPECTED.name, float_precision=4)

    chosen = table.filter(pl.col("label").is_in(["no filter", WIDE]), condition="plain")
    assert len(chosen) == 6
    expected = plain_transformers(chosen, models, wide)
    for name in ("lms", "ss", "icat"):
        assert chosen[name].to_list() == pytest.approx(expected[name].to_list(), abs=1e-6)

    golden = pl.read_csv(EXPECTED)
    assert table.select(KEY).equals(golden.select(KEY))
    for name in (*SHARES, *POINTS):
        # The weights are the same everywhere, but not the last bits of a training.
        close = {"abs": POINTS[name]} if name in POINTS else {"rel": 0.02, "abs": 1e-4}
        known = pytest.approx(values(golden, name), nan_ok=True, **close)
        assert values(table, name) == known, name


def values(table: pl.DataFrame, name: str) -> list[float]:
    return table[name].cast(pl.Float64).fill_null(float("nan")).to_list()
