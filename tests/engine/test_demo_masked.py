"""The demo's masked truth: both runs learn the corpus's pronoun ratios, and the bank shows it.

`make test` asks a recorded bank, and `make whole` also trains the demo anew, for fewer steps.
"""

import tarfile
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from logitbank.analysis.families.fluctuation import fluctuation
from logitbank.analysis.study import Study
from logitbank.engine.demo import train
from logitbank.engine.demo.corpus import masked_demo_prompts, occupations
from logitbank.engine.extract import extract
from logitbank.engine.plan.engine_choice import choose_engine
from logitbank.store import Bank
from tests.support.docs_setups import DEMO_BANK
from tests.support.preloaded import Preloaded

PLATEAU_STEP, LAST_STEP = 80, 160
"""Step from which on the ratios are learnt, and up to which they are trained here."""
TRAINED = pytest.param("trained", marks=[pytest.mark.whole, pytest.mark.vllm])


@pytest.fixture(scope="module", params=["recorded", TRAINED])
def bank(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    preloaded: Preloaded,
) -> Path:
    """The demo's masked part, recorded or trained."""
    folder = tmp_path_factory.mktemp("demo-masked")
    if request.param == "recorded":
        with tarfile.open(DEMO_BANK) as archive:
            archive.extractall(folder, filter="data")
    else:
        train_with_the_default_engine(folder, preloaded)
    return folder / "toy.zarr"


def train_with_the_default_engine(folder: Path, preloaded: Preloaded) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train, "MASKED_STEPS", LAST_STEP)
        train.train_masked_series(folder / "masked")
    steps = [s for s in train.MASKED_CHECKPOINTS if s in (0, 20) or PLATEAU_STEP <= s <= LAST_STEP]
    with preloaded.workers(choose_engine("auto")):
        summary = extract(
            folder / "toy.zarr",
            suites=str(folder / "masked"),
            steps=",".join(map(str, steps)),
            prompts=masked_demo_prompts(),
            model="toy-bert",
        )
    assert summary.complete
    assert len(summary.done) == train.MASKED_RUNS * len(steps)


@pytest.fixture(scope="module")
def study(bank: Path) -> Study:
    return fluctuation([bank], prompts="toy-professions", plateaus=[PLATEAU_STEP])


def truth() -> pl.DataFrame:
    """The corpus's odds of "he" for each occupation."""
    shares = occupations()
    return pl.DataFrame(
        {"occupation": [*shares], "odds": [share / (1 - share) for share in shares.values()]}
    )


def test_the_default_engine_made_it_and_agrees_with_plain_transformers(bank: Path) -> None:
    opened = Bank.open(bank)
    assert set(opened.info().filter(model="toy-bert")["engine"]) == {"vllm"}
    checked = [d.spec.provenance.get("canary_difference") for d in opened.deposits()]
    differences = [d for d in checked if isinstance(d, float)]
    assert differences
    assert max(differences) < 1e-3


def test_every_run_has_the_ratios_of_the_corpus(study: Study) -> None:
    found = study.result.professions.join(truth(), on="occupation")
    assert set(found["run"]) == {"seed0", "seed1"}
    for (run, verb), rows in found.group_by("run", "verb"):
        r = np.corrcoef(rows["mean_r"].log(), rows["odds"].log())[0, 1]
        assert r > 0.9, f"{run} {verb}: {r}"
        assert rows["certainty"].min() > 0.9, "nothing but pronouns stands before the verb"


def test_the_runs_agree_with_each_other(study: Study) -> None:
    pairs = study.result.run_pairs
    assert set(pairs["measure"]) == {"mean_r", "mean_n"}
    assert pairs["r"].min() > 0.8
