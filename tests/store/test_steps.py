import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logitbank.engine.suites.catalogue import PYTHIA_STEPS
from logitbank.errors import SuiteError, UsageError
from logitbank.store.steps import parse_name, parse_steps, run_seed

STEPS = (0, 1, 2, 4, 1000, 2000, 3000)


def test_pythia_has_154_steps():
    assert len(PYTHIA_STEPS) == 154
    assert PYTHIA_STEPS[:12] == (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000)
    assert PYTHIA_STEPS[-2:] == (142000, 143000)


def test_log_on_pythia_follows_the_powers_of_two():
    expected = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
    expected += (1000, 2000, 4000, 8000, 16000, 33000, 66000, 131000, 143000)
    assert parse_steps("log").select(PYTHIA_STEPS) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("all", STEPS),
        ("log", (0, 1, 2, 4, 1000, 2000, 3000)),
        (":", STEPS),
        ("1:1000", (1, 2, 4, 1000)),
        ("1000:", (1000, 2000, 3000)),
        (":4", (0, 1, 2, 4)),
        ("0:3000:1000", (0, 1000, 2000, 3000)),
        ("::2", (0, 2, 4, 1000, 2000, 3000)),
        ("1000:3000:2000", (1000, 3000)),
        ("1000:2999:1000", (1000, 2000)),
        ("last", (3000,)),
        ("2000, 1,last,1", (1, 2000, 3000)),
        ("1k:0.003M:1k", (1000, 2000, 3000)),
        ("1k,2K", (1000, 2000)),
        ("release", (None,)),
        ("release,4", (4, None)),
        ([0, 2000], (0, 2000)),
        ((4, None), (4, None)),
        ([1, "last"], (1, 3000)),
        (np.arange(2), (0, 1)),
        (4, (4,)),
    ],
)
def test_selector_chooses(text, expected):
    assert parse_steps(text).select((*STEPS, None)) == expected


def test_log_of_coarse_steps_takes_each_once():
    assert parse_steps("log").select((10, 20, 30, 40, 50)) == (10, 20, 30, 50)


@pytest.mark.parametrize("text", ["all", "log"])
def test_the_release_is_chosen_if_it_is_the_only_checkpoint(text):
    assert parse_steps(text).select((None,)) == (None,)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("every", "'every'.* START:STOP:STRIDE"),
        ("", "''"),
        ("1,,2", "at ''"),
        ("1.5", r"at '1\.5'"),
        ("-5", "at '-5'"),
        ("-1:5", "at '-1'"),
        ("1:2:3:4", "'1:2:3:4'"),
        ("1:5:0", "stride"),
        ("9:5", "'9:5'"),
        ([], "''"),
        ([-1, 4], "at '-1'"),
    ],
)
def test_unreadable_steps_are_refused(text, message):
    with pytest.raises(UsageError, match=message):
        parse_steps(text)


@pytest.mark.parametrize(
    ("text", "available", "message"),
    [
        ("0,1800", STEPS, "toy has no step 1800, only 7 steps from 0 to 3000.* 2000"),
        ("3", STEPS, "toy has no step 3, .* 2"),
        ("5:900", STEPS, "toy .*'5:900', only 7 steps"),
        ("release", STEPS, "toy has no release, only 7 steps"),
        ("5", (None,), "toy has no step 5, only no steps, and a release"),
        ("last,release", (None,), "toy .*'last,release'"),
        ("all", (), "toy .*'all', only no steps"),
    ],
)
def test_steps_that_are_not_there_are_named(text, available, message):
    with pytest.raises(SuiteError, match=message):
        parse_steps(text).select(available, "toy")


@given(st.sets(st.integers(0, 10**6), min_size=1), st.sampled_from(["all", "log", "last", "0:"]))
def test_chosen_steps_are_available_ascending_and_distinct(available, text):
    chosen = parse_steps(text).select(available)
    assert set(chosen) <= available
    assert list(chosen) == sorted(set(chosen))
    assert max(available) in chosen


@pytest.mark.parametrize(
    ("name", "run", "step"),
    [
        ("step1000", "main", 1000),
        ("step-1000", "main", 1000),
        ("step_1000", "main", 1000),
        ("checkpoint-1000", "main", 1000),
        ("ckpt_100", "main", 100),
        ("global_step1000", "main", 1000),
        ("iter_0001000", "main", 1000),
        ("1000", "main", 1000),
        ("step_20k", "main", 20_000),
        ("chck_1M", "main", 1_000_000),
        ("step-50K-105b", "main", 50_000),
        ("16.78B", "main", 16_780_000_000),
        ("1.5T", "main", 1_500_000_000_000),
        ("step20000-tokens84B", "main", 20000),
        ("ext1000", "ext", 1000),
        ("decay100", "decay", 100),
        ("step1000-seed-large-1", "seed-large-1", 1000),
        ("step1000-seed3", "seed3", 1000),
        ("stage1-step10000-tokens21B", "stage1", 10000),
        ("stage2-ingredient1-step1000-tokens3B", "stage2-ingredient1", 1000),
        ("stage1-step1000", "stage1", 1000),
        ("epoch=0-step=500", "main", 500),
        ("epoch1_step500", "main", 500),
        ("seed1-epoch=3-step=500", "seed1", 500),
        ("ep0-ba500", "main", 500),
        ("step-001000-2BT", "main", 1000),
        ("checkpoint-1000step", "main", 1000),
        ("1000steps", "main", 1000),
        ("large-1000step", "large", 1000),
        ("iteration-1000", "main", 1000),
        ("step1000-hf", "main", 1000),
        ("step1000-tokens4B-unsharded-hf", "main", 1000),
        ("stage2-step1000-hf", "stage2", 1000),
        ("main", "main", None),
        ("release", "main", None),
        ("final", "main", None),
    ],
)
def test_names_tell_run_and_step(name, run, step):
    assert parse_name(name) == (run, step)


@pytest.mark.parametrize(
    "name",
    ["seed0", "seed_0", "llama-7", "llama-7B", "stepx", "v1.0", "logs", "step", "step1.5",
     "step1000-ema", "step1000-100", "epoch=3", "ep3", "ba500",
     "1.23456k", f"step{10**18}", "step1000000000B", "Main"],
)  # fmt: skip
def test_other_names_tell_nothing(name):
    assert parse_name(name) is None


@pytest.mark.parametrize(("run", "seed"), [("seed3", 3), ("seed-3", 3), ("data-seed1", None)])
def test_run_names_tell_seeds(run, seed):
    assert run_seed(run) == seed
