"""Bias against language modelling, over filters of several sizes and strengths, and baselines.

Everything is fitted on one part, chosen on a second and reported on a third, which played no part.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from logitbank.analysis.debias.answers import answers, measured, measured_probabilities
from logitbank.analysis.debias.compare import INTRA
from logitbank.analysis.debias.instances import Instances, instances
from logitbank.analysis.debias.train import Training, about_of, train
from logitbank.analysis.families.stereoset.metric import bank_candidates, stereoset_metric
from logitbank.analysis.frames.expected import left_out_sentences, missing_sentence
from logitbank.analysis.results.tables import Result
from logitbank.analysis.study import Study
from logitbank.errors import UsageError
from logitbank.store import Bank, Deposit
from logitbank.store.bank import open_unfiltered
from logitbank.store.filter.filters import Filter, Mode

_SIZES = (4, 8, 16)
_REGULARISATIONS = (0.0, 1e-4, 1e-3, 1e-2, 1e-1)
_TEMPERATURES = (1.25, 1.5, 2.0, 3.0, 5.0)
_HELD = 4
"""Every fourth attribute is held out of the fit."""
_HALVES = (0, 1)
"""Of StereoSet's terms: those that choose, and those that tell."""


@dataclass(frozen=True, slots=True)
class DebiasSearch(Result):
    """What every point costs and gains."""

    points: pl.DataFrame
    """One row for each point: `kind` (none, filter, untrained, temperature, prior), `k`,
    `regularisation`, `temperature`; mean |C| on held-out attributes and lms on half of StereoSet's
    terms, which choose (`chosen_by`); and its measures: `abs_c`, `mu`, `positional`, `attributive`
    and `coverage` on the test part, `lms`, `ss` and `icat` on the other half of the terms, over
    `examples`. `front`: no other has both less |C| and more lms. `best`: the choice, `best_filter`:
    the best trained filter. A prior has no scores of StereoSet."""
    by: Filter
    """The best of the trained filters."""
    max_lms_loss: float
    """Points of lms that the choice may lose."""


class _Parts(NamedTuple):
    fit: Instances
    chosen: Instances
    reported: Instances
    deposit: Deposit
    reference: str
    """StereoSet's prompt set."""


class _Point(NamedTuple):
    kind: str
    by: Filter | None
    regularisation: float | None = None
    temperature: float | None = None


def debias_search(
    bank: str | Path | Bank,
    *,
    prompts: str,
    sizes: Sequence[int] | None = None,
    regularisations: Sequence[float] | None = None,
    temperatures: Sequence[float] | None = None,
    mode: Mode = "keep_tail",
    reference: str | None = None,
    max_lms_loss: float = 1.0,
    model: str | None = None,
    run: str | None = None,
    step: int | None = None,
    he_she: bool = False,
) -> Study[DebiasSearch]:
    """Train filters of many sizes and strengths, and compare what they gain and cost.

    Filters are trained by the objective `direct` on three quarters of the attributes of the train
    part. The choice is the point with the smallest mean |C| on the other attributes, of those whose
    lms is at most `max_lms_loss` points below the model's own on half of StereoSet's terms. The
    measures of each point are from the test part (for gender other names, else other contexts and
    attributes) and from the other half of the terms.

    Baselines: softmax of the k highest logits over a temperature; and the prior, which divides the
    probabilities of a question's two subjects by their average over attributes, and keeps their
    sum. That average is over the reported questions: the prior has more information than a filter.

    Parameters
    ----------
    prompts
        UnQover's prompt set with both parts; the bank needs `stereoset-intra` too.
    sizes, regularisations, temperatures
        Values to try; several by default.
    reference
        StereoSet's prompt set for lms, ss and iCAT; by default `stereoset-intra`, or the only one
        without a prefix.
    max_lms_loss
        Largest loss of lms, in points.
    model, run, step
        The checkpoint; by default the only model and run, at its last step or its release.

    Raises
    ------
    LogitbankError
        The bank lacks what is asked for.
    """
    from logitbank.analysis.debias.charts import search_charts
    from logitbank.analysis.debias.findings import search_findings

    opened = open_unfiltered(bank, rows=True)
    sizes = _SIZES if sizes is None else sizes
    regularisations = _REGULARISATIONS if regularisations is None else regularisations
    temperatures = _TEMPERATURES if temperatures is None else temperatures
    if not sizes or any(k < 1 for k in sizes):
        raise UsageError(f"sizes {list(sizes)} are none to try; give numbers of at least 1")
    if not regularisations:
        raise UsageError("there is no regularisation to try; give at least one, such as 0")
    if invalid := [t for t in temperatures if not 0 < t < np.inf]:
        raise UsageError(f"temperature {invalid[0]} cannot divide logits; give numbers above 0")
    reference = _reference(opened, reference)
    parts = _parts(
        opened,
        prompts,
        max(sizes),
        reference=reference,
        model=model,
        run=run,
        step=step,
        he_she=he_she,
    )
    points, rows = list[_Point](), list[dict[str, object]]()
    for point in _points(parts.fit, sizes, regularisations, temperatures, mode):
        points.append(point)
        rows.append(_row(opened, parts, point))  # the first needs no training, and says what lacks
    rows.append(_prior_row(parts))
    table, best = choose(pl.DataFrame(rows, infer_schema_length=None), max_lms_loss)
    by = points[best].by
    assert by is not None, "only filters are chosen"
    about = about_of(opened, parts.deposit, prompts, split="train", he_she=he_she)
    result = DebiasSearch(table, replace(by, about={**by.about, **about}), max_lms_loss)
    missing = {"instance": parts.fit.missing + parts.reported.missing}
    missing["example"] = _missing_examples(opened, parts)
    checkpoint = parts.deposit.checkpoint
    left_out = left_out_sentences(
        [opened], [prompts, reference], [checkpoint.model], [checkpoint.step]
    )
    return Study(
        result=result,
        findings=tuple(search_findings(result)),
        missing=(*(missing_sentence(n, noun) for noun, n in missing.items() if n), *left_out),
        title=f"Bias against language modelling: {checkpoint.model}",
        description="What filters of many sizes and strengths gain in bias and cost in language.",
        banks=[opened],
        make_charts=search_charts,
    )


def _parts(
    bank: Bank,
    prompts: str,
    k: int,
    *,
    reference: str,
    model: str | None,
    run: str | None,
    step: int | None,
    he_she: bool,
) -> _Parts:
    train_part, deposit = instances(
        bank, prompts, k=k, split="train", model=model, run=run, step=step, he_she=he_she
    )
    checkpoint = deposit.checkpoint
    reported, _ = instances(
        bank, prompts, k=k, split="test", model=checkpoint.model, run=checkpoint.run,
        step=checkpoint.step, he_she=he_she,
    )  # fmt: skip
    number = train_part.names["attribute"].rank("dense").to_numpy()
    held_out = number % _HELD == 0
    if not held_out.any():
        raise UsageError(
            f"{prompts} has fewer than {_HELD} attributes to train on, and every fourth is held"
            " out; extract more of them"
        )
    fit, chosen = (train_part.take(np.flatnonzero(part)) for part in (~held_out, held_out))
    return _Parts(fit, chosen, reported, deposit, reference)


def _points(
    fit: Instances,
    sizes: Sequence[int],
    regularisations: Sequence[float],
    temperatures: Sequence[float],
    mode: Mode,
) -> Iterator[_Point]:
    yield _Point("none", None)
    for k in sizes:
        narrowed = fit.narrowed(k)
        yield _Point("untrained", Filter.ones(k, mode))
        for strength in regularisations:
            training = Training(mode=mode, regularisation=strength)
            yield _Point("filter", train(narrowed, training).by, regularisation=strength)
    for temperature in temperatures:
        k = max(sizes)
        cooled = Filter(np.eye(k) / temperature, np.zeros(k), mode, {"temperature": temperature})
        yield _Point("temperature", cooled, temperature=temperature)


def _reference(bank: Bank, requested: str | None) -> str:
    """StereoSet's prompt set: as asked, else the plain one, else the only one there is."""
    available = [name for name in bank.prompt_sets if name.startswith(INTRA)]
    plain = [name for name in available if "-prefix" not in name]
    wanted = requested or (INTRA if INTRA in available or len(plain) != 1 else plain[0])
    if wanted not in available:
        chosen = (
            f"it has {', '.join(available)}: name one with `reference` in Python"
            if available
            else (f"run `logitbank extract … --prompts {INTRA}` first")
        )
        raise UsageError(
            f"{bank.address} has no {wanted}, which measures what a filter costs; {chosen}"
        )
    return wanted


def _row(bank: Bank, parts: _Parts, point: _Point) -> dict[str, object]:
    k = parts.fit.k if point.by is None else point.by.k
    chosen = measured(parts.chosen.narrowed(k), point.by)["abs_c"]
    first, second = _stereoset(bank, parts, point.by)
    return {
        "kind": point.kind,
        "k": None if point.by is None else k,
        "regularisation": point.regularisation,
        "temperature": point.temperature,
        "chosen_by_abs_c": chosen,
        "chosen_by_lms": first["lms"],
        **_reported(measured(parts.reported.narrowed(k), point.by)),
        **second,
    }


def _reported(values: dict[str, float]) -> dict[str, float]:
    names = ("abs_c", "mu", "positional", "attributive", "coverage")
    return {name: values[name] for name in names}


def _stereoset(
    bank: Bank, parts: _Parts, by: Filter | None
) -> tuple[dict[str, float], dict[str, float]]:
    """lms, ss and iCAT on either half of the terms."""
    checkpoint = parts.deposit.checkpoint
    source, name = bank, checkpoint.model
    if by is not None:
        named = Filter(by.weight, by.bias, by.mode, {"model": name})
        source = bank.filtered(named, name=f"{name} filtered")
        name = f"{name} filtered"
    rows = bank_candidates(
        source, prompts=[parts.reference], models=[name], steps=[checkpoint.step]
    )
    rows = rows.filter(pl.col("run") == checkpoint.run)
    if rows["term"].n_unique() < len(_HALVES):
        raise UsageError(
            f"{bank.address} has too few scores of {parts.reference} by {checkpoint} to measure"
            f" what a filter costs; run `logitbank extract … --prompts {INTRA}` for it"
        )
    half = pl.col("term").rank("dense") % 2
    found = []
    for number in _HALVES:
        scores = stereoset_metric(rows.filter(half == number), bootstrap=0).scores
        overall = scores.filter(
            (pl.col("domain") == "overall") & (pl.col("task") == "intrasentence")
        )
        found.append(overall.select("lms", "ss", "icat", "examples").row(0, named=True))
    return found[0], found[1]


def _missing_examples(bank: Bank, parts: _Parts) -> int:
    """Examples of StereoSet that the checkpoint was to answer and has no score of."""
    own = parts.deposit.checkpoint
    rows = bank_candidates(bank, prompts=[parts.reference], models=[own.model], steps=[own.step])
    short = rows.filter((pl.col("run") == own.run) & pl.col("value").is_null())
    return short.select("language", "condition", "example").n_unique()


def _prior_row(parts: _Parts) -> dict[str, object]:
    def calibrated(given: Instances) -> np.ndarray:
        """P of each subject over its average over attributes; the sum of the two is kept."""
        p = answers(given, None).probabilities
        prior = _prior(given, p)
        share = p / prior
        return np.asarray(share / share.sum(axis=2, keepdims=True) * p.sum(axis=2, keepdims=True))

    chosen = measured_probabilities(parts.chosen, calibrated(parts.chosen))["abs_c"]
    values = measured_probabilities(parts.reported, calibrated(parts.reported))
    return {"kind": "prior", "chosen_by_abs_c": chosen, **_reported(values)}


def _prior(given: Instances, p: np.ndarray) -> np.ndarray:
    """(n, 4, 2): geometric mean of P over the attributes of the same context, pair and order."""
    key = given.names.select(pl.struct("context", "subject1", "subject2").rank("dense") - 1)
    at = key.to_series().to_numpy()
    total = np.zeros((int(at.max()) + 1, 2, 2))
    count = np.bincount(at) * 2  # an attribute and its negation
    logs = np.log(np.maximum(p, np.finfo(np.float64).tiny))
    np.add.at(total, at, logs[:, :2] + logs[:, 2:])
    mean = np.exp(total / count[:, None, None])
    return np.asarray(np.concatenate([mean, mean], axis=1)[at])


def choose(rows: pl.DataFrame, max_lms_loss: float) -> tuple[pl.DataFrame, int]:
    """With `front` and `best`, and the row of the best trained filter."""
    floor = rows["chosen_by_lms"][0] - max_lms_loss
    allowed = rows.with_row_index("at").filter(pl.col("chosen_by_lms") >= floor)
    best = allowed.sort("chosen_by_abs_c", "at")["at"][0]
    filters = allowed.filter(pl.col("kind") == "filter")
    if filters.is_empty():
        filters = rows.with_row_index("at").filter(pl.col("kind") == "filter").sort(
            "chosen_by_lms", descending=True
        ).head(1)  # fmt: skip
    filter_ = filters.sort("chosen_by_abs_c", "at")["at"][0]
    bias, lms = rows["abs_c"].to_numpy(), rows["lms"].fill_null(float("nan")).to_numpy()
    beaten = (bias[None, :] <= bias[:, None]) & (lms[None, :] >= lms[:, None])
    beaten &= (bias[None, :] < bias[:, None]) | (lms[None, :] > lms[:, None])
    at = pl.int_range(pl.len())
    table = rows.with_columns(
        front=pl.Series(~beaten.any(axis=1) & ~np.isnan(lms)),
        best=at == best,
        best_filter=at == filter_,
    )
    return table, int(filter_)
