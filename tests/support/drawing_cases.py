"""A result of every kind, each with a model of a given name."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from logitbank.analysis.debias.results import DebiasComparison, DebiasSearch
from logitbank.analysis.drawing.figures import Result
from logitbank.analysis.families.fairness.metric import Fairness, fairness_metric
from logitbank.analysis.families.fluctuation.metric import (
    Fluctuation,
    corpus_frequencies,
    fluctuation_metric,
)
from logitbank.analysis.families.lambada.study import lambada
from logitbank.analysis.families.options.curves import CHECKPOINTS, CURVES
from logitbank.analysis.families.options.metric import OptionScores
from logitbank.analysis.families.options.shares import ANSWERS, SHARES
from logitbank.analysis.families.pairs import pairs
from logitbank.analysis.families.stereoset.metric import StereoSet, stereoset_metric
from logitbank.analysis.families.stereotype import stereotype
from logitbank.analysis.families.tradeoff.metric import TradeOff, tradeoff_metric
from logitbank.analysis.families.unqover.metric import Unqover, unqover_metric
from logitbank.store.filter.filters import Filter
from tests.support import unqover_cases
from tests.support.evaluation_banks import whole_bank
from tests.support.fairness_cases import random_frame
from tests.support.fluctuation_cases import JOBS, drawn, published
from tests.support.stereoset_cases import candidates

HOSTILE = r"<b>$$\frac{1}{0}$$\(x\)@x"
"""So short that a title has it whole."""
JOB = f"a {HOSTILE}"
STEPS = [0, 1, 8, 64, 512, None]


def fair(*, model: str = "toy") -> Fairness:
    return fairness_metric(
        random_frame(sentences=10, skew_from=3, steps=STEPS, model=model), bootstrap=50
    )


def pronouns(*, model: str = "bert", runs: int = 1, job: str = JOB) -> Fluctuation:
    """A profession with a hostile name, and one release."""
    jobs = (*JOBS[:3], job)
    steps = [0, 1, 2, 3, None]
    table = pl.concat(
        published(
            drawn(5 - run, 4, 2, seed=run), drawn(5 - run, 2, seed=run), jobs=jobs, model=model,
            steps=steps[: 5 - run], seed=run,
        )
        for run in range(runs)
    )  # fmt: skip
    totals = pl.DataFrame({"occupation": job[2:], "case": "lower", "total": [7]})
    return fluctuation_metric(table, plateaus=[2], frequencies=corpus_frequencies(totals))


def stereotypes(
    *,
    steps: tuple[int | None, ...] = (0, 8, None),
    model: str = "m",
    domain: str = HOSTILE,
    **columns: str,
) -> StereoSet:
    rng = np.random.default_rng(0)
    names = [("nurse", domain), ("rapper", "gender"), ("guitarist", "profession")]
    frames = [
        candidates(
            [(*name, tuple(rng.normal([1, 0.6, 0]))) for name in names * 3],
            step=step, task=task, model=model, **columns,
        )
        for step in steps
        for task in ("intrasentence", "intersentence")
    ]  # fmt: skip
    return stereoset_metric(pl.concat(frames), bootstrap=50)


def asked(*, model: str = "m", name: str = HOSTILE) -> Unqover:
    """Attributes and a subject have hostile names."""
    rows = unqover_cases.questions("gender")
    for row in rows:
        row["attribute"] = row["attribute"].replace("was a nurse", name)
        row["subject1"] = row["subject1"].replace("Ann", name)
    chances = np.random.default_rng(0)
    p = {
        (row["prompt_id"], form): float(chances.uniform(0, 0.2))
        for row in rows
        for form in unqover_cases.forms(row)
    }
    frame = pl.concat(unqover_cases.scan_frame(rows, p, step=step) for step in (0, 8))
    return unqover_metric(frame.with_columns(model=pl.lit(model)), bootstrap=20)


def exchange(*, model: str = "m", **options: Any) -> TradeOff:
    steps = {"model": model, "step": [8, 16, 32]}
    return tradeoff_metric(
        pl.DataFrame({**steps, "value": [0.30, 0.48, 0.50]}),
        pl.DataFrame({**steps, "value": [0.10, 0.05, 0.73]}),
        **options,
    )


def options(*, single: bool = False, model: str = "m") -> OptionScores:
    head = {"model": model, "run": "main", "step": [0, 8, None], "prompt_set": "mine"}
    shares = pl.concat(
        pl.DataFrame(
            {**head, "option": name, "prompts": 2, "sentences": 2,
             "share": None if single else [p, p, p],
             "low": None if single else p - 0.1, "high": None if single else p + 0.1,
             "probability": [p / 2, p / 4, p / 8], "rank": 1.0, "missing": 0},
            schema=SHARES,
        )
        for name, p in (("yes", 0.25), ("no", 0.75))
    )  # fmt: skip
    answers = pl.DataFrame(
        {**head, "prompts": 2, "sentences": 2, "accuracy": [0.0, 0.5, 1.0], "low": [0, 0.1, 0.3],
         "high": [0.6, 0.9, 1.0], "tied": 0, "missing": 0},
        schema=ANSWERS,
    )  # fmt: skip
    about = pl.DataFrame(
        {**head, "prompts": 2, "missing": 0, "answered": 2, "full_rows": False}, schema=CHECKPOINTS
    )
    curves = pl.DataFrame(schema=CURVES)
    return OptionScores(shares, answers.clear() if single else answers, curves, about)


def compared(*, model: str = "m", name: str = HOSTILE) -> DebiasComparison:
    head = {"model": model, "run": "main", "step": 8, "language": "en"}
    rows = [
        {**head, "filter": kind, "label": f"{kind} {name}".strip(), "condition": condition,
         **{f"{name}{end}": at + 50.0 + off for name in ("lms", "ss", "icat")
            for end, off in (("", 0), ("_low", -2), ("_high", 2))},
         "abs_c": 0.1 * at if condition == "plain" else None}
        for at, kind in enumerate(("none", "untrained", "trained"))
        for condition in ("plain", "prefix")
    ]  # fmt: skip
    ideal = {**rows[0], "label": "reference", "model": "ideal model"}
    table = pl.DataFrame([*rows, ideal])
    return DebiasComparison(table, table.clear())


def searched(*, model: str = "m") -> DebiasSearch:
    kinds = ["none", "untrained", "filter", "filter", "temperature", "prior"]
    points = pl.DataFrame(
        {"kind": kinds, "k": [None, 4, 4, 8, None, None],
         "abs_c": [0.4, 0.5, 0.2, 0.1, 0.35, 0.3], "lms": [90.0, 80, 88, 85, 84, None],
         "front": [True, False, True, True, False, False],
         "best": [False, False, True, False, False, False]}
    )  # fmt: skip
    return DebiasSearch(points, Filter(np.eye(4), np.zeros(4), about={"model": model}))


def of_bank(study: Callable[..., Any], folder: Path, model: str) -> Result:
    path = folder / "b.zarr"
    result: Result = study([path if path.exists() else whole_bank(path, model=model)]).result
    return result


RESULTS: dict[str, Callable[[str, Path], Result]] = {
    "fairness": lambda model, _: fair(model=model),
    "fluctuation": lambda model, _: pronouns(model=model, runs=2),
    "stereoset": lambda model, _: stereotypes(model=model),
    "bars": lambda model, _: stereotypes(model=model, steps=(8,)),
    "unqover": lambda model, _: asked(model=model),
    "lambada": lambda model, folder: of_bank(lambada, folder, model),
    "stereotype": lambda model, folder: of_bank(stereotype, folder, model),
    "pairs": lambda model, folder: of_bank(pairs, folder, model),
    "tradeoff": lambda model, _: exchange(
        model=model, give_up=3.0, **({} if model == "m" else {"metric": model, "gap_name": model})
    ),
    "options": lambda model, _: options(model=model),
    "debias-compare": lambda model, _: compared(model=model),
    "debias-search": lambda model, _: searched(model=model),
}
