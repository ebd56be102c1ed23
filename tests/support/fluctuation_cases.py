"""Small tables of pronoun scores in the published format, and a bank of such sentences."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import ArrayLike

from logitbank.store import Bank, CheckpointId, Query, QuerySet
from logitbank.store.format.schema import PROMPTS_SCHEMA
from tests.support.made_once import made_once

JOBS = ("a nurse", "a judge", "an actor", "a cook", "a pilot", "a dean")


def published(
    scores: ArrayLike,
    prior: ArrayLike,
    *,
    steps: Sequence[int | None] | None = None,
    jobs: Sequence[str] = JOBS,
    verb: str = "is",
    model: str = "bert",
    seed: int = 0,
    mask: str = "[MASK]",
) -> pl.DataFrame:
    """`scores` is (m, t, 2) with P(he) and P(she), `prior` (m, 2); a step of None is a release."""
    cells = np.concatenate([np.asarray(scores, float), np.asarray(prior, float)[:, None]], axis=1)
    steps = range(len(cells)) if steps is None else steps
    rows = [
        (pronoun, cells[m, t, p], job, f"{mask} {verb} {job}.", f"{pronoun} {verb} {job}.", model,
         -1 if step is None else seed, step)
        for m, step in enumerate(steps)
        for t, job in enumerate((*jobs[: cells.shape[1] - 1], f"a {mask}"))
        for p, pronoun in enumerate(("he", "she"))
    ]  # fmt: skip
    names = {
        "pronoun": pl.String, "score": pl.Float64, "occupation": pl.String, "template": pl.String,
        "sentence": pl.String, "model": pl.String, "seed": pl.Int64, "checkpoint": pl.Int64,
    }  # fmt: skip
    return pl.DataFrame(rows, schema=names, orient="row")


def drawn(*shape: int, seed: int = 0) -> np.ndarray:
    """Probabilities between 0.01 and 0.5."""
    return np.random.default_rng(seed).uniform(0.01, 0.5, shape)


def random_table(*, checkpoints: int = 6, seed: int = 0, **options: object) -> pl.DataFrame:
    """Six professions over checkpoints 0, 1, 2, …"""
    scores = drawn(checkpoints, len(JOBS), 2, seed=seed)
    prior = drawn(checkpoints, 2, seed=seed + 1000)
    return published(scores, prior, **({"seed": seed} | options))  # type: ignore[arg-type]


def two_runs() -> pl.DataFrame:
    """Two verbs, two runs of six checkpoints, a public release in each run's rows."""
    parts = []
    for seed in (0, 1):
        for number, verb in enumerate(("is", "works as")):
            parts.append(random_table(seed=seed, verb=verb, model="bert"))
            release = published(
                drawn(1, 6, 2, seed=50 + number), drawn(1, 2, seed=60 + number),
                steps=[None], verb=verb,
            )  # fmt: skip
            parts.append(release)
    return pl.concat(parts)


TOKENS = {"he": 1, "she": 2}


SENTENCES = [
    (verb, occupation)
    for verb in ("is", "works as")
    for occupation in ("a nurse", "a judge", "an actor", "a cook", "a [MASK]")
]


STEPS, VOCAB = (0, 10, 20, 30), 9


@made_once
def professions_bank(path: Path, *, seeds: tuple[int, ...] = (0, 1), model: str = "toy") -> Path:
    """Two runs of four checkpoints and a release, over four professions and the priors."""
    queries = QuerySet("ab" * 32, tuple(Query((3, 4, i), 0, head="mask") for i in range(10)))
    rows = [
        (f"{verb}-{occupation}", None, 0, f"[MASK] {verb} {occupation}.", None, label, label,
         token, None, queries.name, row, occupation, verb, "MASK" in occupation)
        for row, (verb, occupation) in enumerate(SENTENCES)
        for label, token in TOKENS.items()
    ]  # fmt: skip
    own = {"occupation": pl.String, "verb": pl.String, "prior": pl.Boolean}
    table = pl.DataFrame(rows, schema=dict(PROMPTS_SCHEMA) | own, orient="row")
    bank = Bank.create(path)
    bank.add_query_set(queries)
    bank.add_prompts("professions", table)
    for checkpoint in [
        CheckpointId(model),
        *(CheckpointId(model, f"seed{s}", step, s) for s in seeds for step in STEPS),
    ]:
        bank.deposit(bank_logits(checkpoint), checkpoint=checkpoint, query_set=queries.name)
    return path


def bank_logits(checkpoint: CheckpointId) -> np.ndarray:
    key = (checkpoint.run_seed or 0, 0 if checkpoint.step is None else checkpoint.step + 1)
    return np.random.default_rng(key).normal(0, 1, (10, VOCAB)).astype(np.float32)
