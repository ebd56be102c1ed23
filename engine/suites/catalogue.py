"""Published checkpoint series that are known by name. The hub says what is really there."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

PYTHIA_STEPS = (0, *(2**n for n in range(10)), *range(1000, 144_000, 1000))
"""The 154 steps at which each Pythia and PolyPythias run was saved."""

_PYTHIA = ("14m", "31m", "70m", "160m", "410m", "1b", "1.4b", "2.8b", "6.9b", "12b")
_DEDUPED = _PYTHIA[2:]
_SEEDED = _PYTHIA[:5]
_OLMO = ("OLMo-1B-hf", "OLMo-7B-hf")
_OLMO2 = ("OLMo-2-0425-1B", "OLMo-2-1124-7B", "OLMo-2-1124-13B")


MULTIBERTS_STEPS = (*range(0, 200_001, 20_000), *range(300_000, 2_000_001, 100_000))
"""The 29 steps at which five of the MultiBERTs' runs were saved."""


class Member(NamedTuple):
    """One checkpoint that has a repository of its own."""

    repo: str
    run: str
    run_seed: int
    step: int


@dataclass(frozen=True, slots=True)
class KnownSuite:
    """A published series: where it is and what it should hold."""

    name: str
    repo: str
    """`owner/name` on the hub."""
    description: str
    model: str
    run: str = "main"
    run_seed: int | None = None
    expected: tuple[int, ...] | None = None
    """Steps that its authors list, or None where they list none."""
    members: tuple[Member, ...] = ()
    """Its checkpoints, where each has a repository of its own."""


@cache
def known_suites() -> tuple[KnownSuite, ...]:
    """All suites known by name: Pythia and its variants, OLMo, and MultiBERTs."""
    return (*_pythia(), *_polypythias(), *_olmo(), _multiberts())


def _pythia() -> Iterator[KnownSuite]:
    for sizes, suffix, data in (
        (_PYTHIA, "", "the Pile"),
        (_DEDUPED, "-deduped", "the deduplicated Pile"),
    ):
        for size in sizes:
            name, text = f"pythia-{size}{suffix}", f"Pythia {size.upper()}, trained on {data}"
            yield KnownSuite(name, f"EleutherAI/{name}", text, name, expected=PYTHIA_STEPS)


def _polypythias() -> Iterator[KnownSuite]:
    for size in _SEEDED:
        for seed in range(1, 10):
            text = f"PolyPythias {size.upper()}, seed {seed}"
            yield _polypythia(size, run=f"seed{seed}", seed=seed, text=text)
    # The model cards list the decoupled runs for 160M only.
    for kind, what in (("data", "data order"), ("weight", "weight initialisation")):
        for seed in range(1, 4):
            text = f"PolyPythias 160M, {what} {seed}, all else as pythia-160m"
            yield _polypythia("160m", run=f"{kind}-seed{seed}", seed=None, text=text)


def _polypythia(size: str, *, run: str, seed: int | None, text: str) -> KnownSuite:
    model = f"pythia-{size}"
    name = f"{model}-{run}"
    return KnownSuite(name, f"EleutherAI/{name}", text, model, run, seed, PYTHIA_STEPS)


def _olmo() -> Iterator[KnownSuite]:
    for name in _OLMO:
        yield KnownSuite(name, f"allenai/{name}", "OLMo, first generation", name)
    for name in _OLMO2:
        yield KnownSuite(name, f"allenai/{name}", "OLMo 2; each stage is a run", name)


def _multiberts() -> KnownSuite:
    members = (
        Member(f"google/multiberts-seed_{seed}-step_{step // 1000}k", f"seed{seed}", seed, step)
        for seed in range(5)
        for step in MULTIBERTS_STEPS
    )
    text = "MultiBERTs, 5 runs of BERT base (uncased), 29 steps each"
    return KnownSuite(
        "multiberts",
        "google/multiberts-seed_*-step_*",
        text,
        "multiberts",
        expected=MULTIBERTS_STEPS,
        members=tuple(members),
    )


def known_suite(spec: str) -> KnownSuite | None:
    """The series that a name or a repository stands for, if it is a known one."""
    return next((suite for suite in known_suites() if spec in (suite.name, suite.repo)), None)
