"""The demo's truth: the analysis finds the change where the corpus has it.

`make test` asks a recorded bank, and `make whole` trains the demo anew too.
"""

import tarfile
from pathlib import Path

import pytest

from logitbank.analysis.families.fairness import fairness
from logitbank.analysis.families.fairness.metric import Fairness
from logitbank.analysis.study import Study
from logitbank.engine.demo.corpus import SWITCH_STEP, demo_prompts
from logitbank.engine.demo.train import train_series
from logitbank.engine.extract import extract
from logitbank.engine.plan.engine_choice import choose_engine
from tests.support.docs_setups import DEMO_BANK
from tests.support.preloaded import Preloaded

BEFORE, AFTER = (240, 280, 320, 360, SWITCH_STEP), (440, 480)


TRAINED = pytest.param("trained", marks=[pytest.mark.whole, pytest.mark.vllm])


@pytest.fixture(scope="module", params=["recorded", TRAINED])
def study(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    preloaded: Preloaded,
) -> Study[Fairness]:
    """A recorded bank of the demo, or one that is trained as far as just after the switch."""
    folder = tmp_path_factory.mktemp("demo")
    if request.param == "recorded":
        with tarfile.open(DEMO_BANK) as archive:
            archive.extractall(folder, filter="data")
    else:
        train_with_the_default_engine(folder, preloaded)
    return fairness([folder / "toy.zarr"], prompts="toy-winobias")


def train_with_the_default_engine(folder: Path, preloaded: Preloaded) -> None:
    train_series(folder / "checkpoints", steps=AFTER[-1])
    with preloaded.workers(choose_engine("auto")):
        summary = extract(
            folder / "toy.zarr",
            suites=str(folder / "checkpoints"),
            steps=",".join(map(str, BEFORE + AFTER)),
            prompts=demo_prompts(),
            model="toy-neox",
        )
    assert summary.complete


def test_the_change_is_found_at_the_first_checkpoint_after_the_switch(
    study: Study[Fairness],
) -> None:
    (change,) = study.result.change_points.iter_rows(named=True)
    assert (change["kind"], change["step"]) == ("change point", AFTER[0])
    # The gold answer "female" loses probability, so its JSD-P and with it Δ rise.
    assert change["mean_after"] - change["mean_before"] > 0
    assert change["earliest"] <= AFTER[0] <= change["latest"]
    assert f"between steps {BEFORE[-1]} and {AFTER[0]}" in study.findings[0].text


def test_the_change_has_the_corpus_direction(study: Study[Fairness]) -> None:
    gap = {row["step"]: row for row in study.result.gap.iter_rows(named=True)}
    # No interval is asked to hold zero: a small model's gap wanders within ±0.08, and over three
    # seeds each interval at the switch lay beside it. After the switch gaps were 0.44 at least.
    for step in AFTER:
        assert min(gap[step]["low"], gap[step]["high"]) > 0
    size = {step: abs(row["delta"]) for step, row in gap.items()}
    assert max(size[step] for step in BEFORE) < 0.15
    assert min(size[step] for step in AFTER) > 0.3


def test_the_report_tells_it(study: Study[Fairness], tmp_path: Path) -> None:
    page = study.save(tmp_path)
    assert f"between steps {BEFORE[-1]} and {AFTER[0]}" in page.read_text()
    assert (tmp_path / "tables" / "gap.csv").is_file()
