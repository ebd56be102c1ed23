"""Published checkpoint series that are known by name. The hub lists what is really there."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

PYTHIA_STEPS = (0, *(2**n for n in range(10)), *range(1000, 144_000, 1000))
"""The 154 steps at which each Pythia and PolyPythias run was saved."""
MULTIBERTS_STEPS = (*range(0, 200_001, 20_000), *range(300_000, 2_000_001, 100_000))
"""The 29 steps at which five of the MultiBERTs' runs were saved."""

_PYTHIA = ("14m", "31m", "70m", "160m", "410m", "1b", "1.4b", "2.8b", "6.9b", "12b")
_OLMO = {
    "OLMo, first generation": ("OLMo-1B-hf", "OLMo-7B-hf"),
    "OLMo 2; each stage is a run": (
        "OLMo-2-0425-1B",
        "OLMo-2-1124-7B",
        "OLMo-2-1124-13B",
        "OLMo-2-0325-32B",
    ),
    "Olmo 3; each stage is a run": ("Olmo-3-1025-7B", "Olmo-3-1125-32B"),
}
_ETTIN = ("17m", "32m", "68m", "150m", "400m", "1b")
_SMOLLM2 = ("135M", "360M", "1.7B")


class Member(NamedTuple):
    """One checkpoint that has a repository of its own."""

    repo: str
    run: str
    run_seed: int
    step: int


@dataclass(frozen=True, slots=True)
class KnownSuite:
    """A published series: its repository and the steps that it should contain."""

    name: str
    repo: str
    """`owner/name` on the hub."""
    description: str
    model: str
    run: str = "main"
    run_seed: int | None = None
    expected: tuple[int, ...] | None = None
    """Steps that its authors list, or None if they list none."""
    members: tuple[Member, ...] = ()
    """Its checkpoints, if each has a repository of its own."""
    release: str = ""
    """Repository of the final released model, if `repo` has only the steps before it."""


@cache
def known_suites() -> tuple[KnownSuite, ...]:
    """All suites known by name: Pythia and its variants, OLMo, Ettin, SmolLM, and MultiBERTs."""
    return (*_pythia(), *_polypythias(), *_olmo(), *_ettin(), *_smollm(), _multiberts())


def _pythia() -> Iterator[KnownSuite]:
    for sizes, suffix, data in (
        (_PYTHIA, "", "the Pile"),
        (_PYTHIA[2:], "-deduped", "the deduplicated Pile"),
    ):
        for size in sizes:
            name, text = f"pythia-{size}{suffix}", f"Pythia {size.upper()}, trained on {data}"
            yield KnownSuite(name, f"EleutherAI/{name}", text, name, expected=PYTHIA_STEPS)


def _polypythias() -> Iterator[KnownSuite]:
    runs: list[tuple[str, str, int | None, str]] = [
        (size, f"seed{n}", n, f"seed {n}") for size in _PYTHIA[:5] for n in range(1, 10)
    ]
    # The model cards list the decoupled runs for 160M only.
    runs += [
        ("160m", f"{kind}-seed{n}", None, f"{what} {n}, all else as pythia-160m")
        for kind, what in (("data", "data order"), ("weight", "weight initialisation"))
        for n in range(1, 4)
    ]
    for size, run, seed, what in runs:
        name, text = f"pythia-{size}-{run}", f"PolyPythias {size.upper()}, {what}"
        repo, model = f"EleutherAI/{name}", f"pythia-{size}"
        yield KnownSuite(name, repo, text, model, run, seed, PYTHIA_STEPS)


def _olmo() -> Iterator[KnownSuite]:
    for text, names in _OLMO.items():
        for name in names:
            yield KnownSuite(name, f"allenai/{name}", text, name)


def _ettin() -> Iterator[KnownSuite]:
    for kind in ("encoder", "decoder"):
        for size in _ETTIN:
            name = f"ettin-{kind}-{size}"
            text = f"Ettin {kind}, {size.upper()}; its extension and decay are runs"
            yield KnownSuite(name, f"jhu-clsp/{name}", text, name)


def _smollm() -> Iterator[KnownSuite]:
    for size in _SMOLLM2:
        name, text = f"SmolLM2-{size}", f"SmolLM2, {size}"
        repo = f"HuggingFaceTB/{name}-intermediate-checkpoints"
        yield KnownSuite(name, repo, text, name, release=f"HuggingFaceTB/{name}")
    name, text = "SmolLM3-3B-Base", "SmolLM3, 3B; each stage is a run"
    repo = "HuggingFaceTB/SmolLM3-3B-checkpoints"
    yield KnownSuite(name, repo, text, name, release=f"HuggingFaceTB/{name}")


def _multiberts() -> KnownSuite:
    members = tuple(
        Member(f"google/multiberts-seed_{seed}-step_{step // 1000}k", f"seed{seed}", seed, step)
        for seed in range(5)
        for step in MULTIBERTS_STEPS
    )
    text = "MultiBERTs, 5 runs of BERT base (uncased), 29 steps each"
    repo, name = "google/multiberts-seed_*-step_*", "multiberts"
    return KnownSuite(name, repo, text, name, expected=MULTIBERTS_STEPS, members=members)


def known_suite(spec: str) -> KnownSuite | None:
    """The series that a name or a repository stands for, if it is a known one."""
    return next((suite for suite in known_suites() if spec in (suite.name, suite.repo)), None)
