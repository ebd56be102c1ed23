"""Bias against language modelling, over filters of several sizes and strengths, and baselines.

Filters are trained on one part, chosen on a second and reported on a third.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from logitbank.analysis.debias.answers import answers, measured
from logitbank.analysis.debias.compare import INTRA, overall, stereoset_sets
from logitbank.analysis.debias.instances import InstanceReader, Instances, instance_reader
from logitbank.analysis.debias.train import Training, train
from logitbank.analysis.families.stereoset.metric import bank_candidates, stereoset_metric
from logitbank.analysis.frames.expected import exclusion_notes, missing_note
from logitbank.analysis.results.tables import Result
from logitbank.analysis.study import Study
from logitbank.errors import UsageError
from logitbank.store import Bank
from logitbank.store.bank import open_unfiltered
from logitbank.store.filter.filters import Filter

_HOLD_OUT = 4
"""Every fourth attribute is held out of the training."""
_MEASURES = ("abs_c", "mu", "positional", "attributive", "coverage")
_SCORES = ("lms", "ss", "icat", "examples")


@dataclass(frozen=True, slots=True)
class DebiasSearch(Result):
    """Bias and language modelling of every point."""

    points: pl.DataFrame
    """One row for each point: `kind` (none, filter, untrained, temperature, prior), `k`,
    `regularisation`, `temperature`; for the choice, mean |C| on held-out attributes and lms on half
    of StereoSet's terms (`chosen_by`); for the report, `abs_c`, `mu`, `positional`, `attributive`
    and `coverage` on the test part, and `lms`, `ss` and `icat` on the other half of the terms, over
    `examples`. `front`: no other has both less |C| and more lms. `best`: the chosen point,
    `best_filter`: the best trained filter. A prior has no scores of StereoSet."""
    by: Filter
    """The best of the trained filters."""
    max_lms_loss: float
    """Maximum loss of lms of the choice, in points."""


class _Data(NamedTuple):
    """One checkpoint's instances, and its candidates of StereoSet."""

    reader: InstanceReader
    train: Instances
    held_out: Instances
    test: Instances
    stereoset: str
    """StereoSet's prompt set."""


class _Point(NamedTuple):
    kind: str
    filter: Filter | None
    regularisation: float | None = None
    temperature: float | None = None


def debias_search(
    bank: str | Path | Bank,
    *,
    prompts: str,
    sizes: Sequence[int] | None = None,
    regularisations: Sequence[float] | None = None,
    temperatures: Sequence[float] | None = None,
    max_lms_loss: float = 1.0,
    model: str | None = None,
    run: str | None = None,
    step: int | None = None,
    he_she: bool = False,
) -> Study[DebiasSearch]:
    """Train filters of many sizes and strengths, and compare their bias and language modelling.

    Filters are trained by the objective `direct` on three quarters of the attributes of the train
    part. The choice is the point with the smallest mean |C| on the other attributes, of those whose
    lms is at most `max_lms_loss` points below the model's own on half of StereoSet's terms. The
    measures of each point are from the test part (for gender other names, else other contexts and
    attributes) and from the other half of the terms. StereoSet's prompt set is `stereoset-intra`,
    or the only one without a prefix.

    Baselines: softmax of the k highest logits over a temperature; and the prior, which divides the
    probabilities of a question's two subjects by their average over attributes, and keeps their
    sum. That average is over the reported questions: the prior has more information than a filter.

    Parameters
    ----------
    prompts
        UnQover's prompt set with both parts.
    sizes, regularisations, temperatures
        Values to try; several by default.
    max_lms_loss
        Maximum loss of lms, in points.
    model, run, step
        The checkpoint; by default the only model and run, at its last step or its release.
    he_she
        Also count the pronoun of its gender as a mention of a name.

    Raises
    ------
    LogitbankError
        The bank does not contain the instances or StereoSet's scores.
    """
    from logitbank.analysis.debias.charts import search_charts
    from logitbank.analysis.debias.findings import search_findings

    opened = open_unfiltered(bank, rows=True)
    sizes = (4, 8, 16) if sizes is None else sizes
    strengths = (0.0, 1e-4, 1e-3, 1e-2, 1e-1) if regularisations is None else regularisations
    temperatures = (1.25, 1.5, 2.0, 3.0, 5.0) if temperatures is None else temperatures
    if (
        not sizes
        or not strengths
        or min(sizes) < 1
        or not all(0 < t < np.inf for t in temperatures)
    ):
        raise UsageError(
            "Name at least one size of 1 or more and one regularisation. Temperatures must be"
            " finite and above 0."
        )
    stereoset = _stereoset_set(opened)
    reader = instance_reader(
        opened, prompts, k=max(sizes), model=model, run=run, step=step, he_she=he_she
    )
    data = _read(reader, stereoset)
    points, rows = list[_Point](), list[dict[str, object]]()
    for point in _points(data.train, sizes, strengths, temperatures):
        points.append(point)
        rows.append(_row(data, point))  # the first needs no training, and reports missing scores
    rows.append(_prior_row(data))
    table, best = choose(pl.DataFrame(rows, infer_schema_length=None), max_lms_loss)
    filter_ = points[best].filter
    assert filter_ is not None, "only filters are chosen"
    filter_ = replace(filter_, about={**filter_.about, **reader.provenance("train")})
    result = DebiasSearch(table, filter_, max_lms_loss)
    missing = {"instance": data.train.missing + data.test.missing}
    missing["example"] = _missing_examples(data)
    checkpoint = reader.checkpoint
    excluded = exclusion_notes(
        [opened], [prompts, stereoset], [checkpoint.model], [checkpoint.step]
    )
    return Study(
        result=result,
        findings=tuple(search_findings(result)),
        missing=(*(missing_note(n, noun) for noun, n in missing.items() if n), *excluded),
        title=f"Bias against language modelling: {checkpoint.model}",
        description="Bias and language modelling after filters of many sizes and strengths.",
        banks=[opened],
        make_charts=search_charts,
    )


def _stereoset_set(bank: Bank) -> str:
    available = stereoset_sets(bank)
    plain = [name for name in available if "-prefix" not in name]
    if INTRA in available:
        return INTRA
    if len(plain) != 1:
        raise UsageError(
            f"{bank.address} has no {INTRA}, which measures language modelling. Run `logitbank"
            f" extract … --prompts {INTRA}` first."
        )
    return plain[0]


def _read(reader: InstanceReader, stereoset: str) -> _Data:
    train_part = reader.read("train")
    number = train_part.names["attribute"].rank("dense").to_numpy()
    held_out = number % _HOLD_OUT == 0
    if not held_out.any():
        raise UsageError(
            f"{reader.prompts} has fewer than {_HOLD_OUT} attributes to train on, and every fourth"
            " is held out. Extract more of them."
        )
    fit, chosen = (train_part.take(np.flatnonzero(part)) for part in (~held_out, held_out))
    return _Data(reader, fit, chosen, reader.read("test"), stereoset)


def _points(
    data: Instances,
    sizes: Sequence[int],
    strengths: Sequence[float],
    temperatures: Sequence[float],
) -> Iterator[_Point]:
    yield _Point("none", None)
    for k in sizes:
        narrowed = data.narrowed(k)
        yield _Point("untrained", Filter.ones(k, "keep_tail"))
        for strength in strengths:
            trained = train(narrowed, Training(regularisation=strength))
            yield _Point("filter", trained.filter, regularisation=strength)
    k = max(sizes)
    for temperature in temperatures:
        about = {"temperature": temperature}
        divided = Filter(np.eye(k) / temperature, np.zeros(k), "keep_tail", about)
        yield _Point("temperature", divided, temperature=temperature)


def _row(data: _Data, point: _Point) -> dict[str, object]:
    k = data.train.k if point.filter is None else point.filter.k
    first, second = _stereoset(data, point.filter)
    chosen, values = (
        measured(part.narrowed(k), answers(part.narrowed(k), point.filter).probabilities)
        for part in (data.held_out, data.test)
    )
    return {
        "kind": point.kind,
        "k": None if point.filter is None else k,
        "regularisation": point.regularisation,
        "temperature": point.temperature,
        "chosen_by_abs_c": chosen["abs_c"],
        "chosen_by_lms": first["lms"],
        **{name: values[name] for name in _MEASURES},
        **second,
    }


def _stereoset(data: _Data, filter_: Filter | None) -> Sequence[dict[str, float]]:
    """lms, ss, iCAT and the number of examples on either half of the terms."""
    model = data.reader.checkpoint.model
    bank = data.reader.bank
    if filter_ is not None:
        of_model = Filter(filter_.weight, filter_.bias, filter_.mode, {"model": model})
        model = f"{model} filtered"
        bank = bank.filtered(of_model, name=model)
    rows = _candidates(data, bank, model)
    if rows["term"].n_unique() < 2:
        raise UsageError(
            f"{bank.address} has too few scores of {data.stereoset} by {data.reader.checkpoint} to"
            f" measure language modelling. Run `logitbank extract … --prompts {INTRA}`."
        )
    half = pl.col("term").rank("dense") % 2
    return [
        overall(stereoset_metric(rows.filter(half == number), bootstrap=0).scores)
        .select(_SCORES)
        .row(0, named=True)
        for number in (0, 1)
    ]


def _candidates(data: _Data, bank: Bank, model: str) -> pl.DataFrame:
    checkpoint = data.reader.checkpoint
    rows = bank_candidates(bank, prompts=[data.stereoset], models=[model], steps=[checkpoint.step])
    return rows.filter(pl.col("run") == checkpoint.run)


def _missing_examples(data: _Data) -> int:
    """Expected examples of StereoSet without a score."""
    rows = _candidates(data, data.reader.bank, data.reader.checkpoint.model)
    return (
        rows.filter(pl.col("value").is_null()).select("language", "condition", "example").n_unique()
    )


def _prior_row(data: _Data) -> dict[str, object]:
    def calibrated(part: Instances) -> np.ndarray:
        """P of each subject over its average over attributes; the sum of the two is kept."""
        p = answers(part, None).probabilities
        share = p / _prior(part, p)
        return np.asarray(share / share.sum(axis=2, keepdims=True) * p.sum(axis=2, keepdims=True))

    chosen, values = (measured(part, calibrated(part)) for part in (data.held_out, data.test))
    measures = {name: values[name] for name in _MEASURES}
    return {"kind": "prior", "chosen_by_abs_c": chosen["abs_c"], **measures}


def _prior(data: Instances, p: np.ndarray) -> np.ndarray:
    """(n, 4, 2): geometric mean of P over the attributes of the same context, pair and order."""
    key = data.names.select(pl.struct("context", "subject1", "subject2").rank("dense") - 1)
    group = key.to_series().to_numpy()
    total = np.zeros((int(group.max()) + 1, 2, 2))
    count = np.bincount(group) * 2  # an attribute and its negation
    logs = np.log(np.maximum(p, np.finfo(np.float64).tiny))
    np.add.at(total, group, logs[:, :2] + logs[:, 2:])
    mean = np.exp(total / count[:, None, None])
    return np.asarray(np.concatenate([mean, mean], axis=1)[group])


def choose(rows: pl.DataFrame, max_lms_loss: float) -> tuple[pl.DataFrame, int]:
    """The table with `front`, `best` and `best_filter`, and the row of the best trained filter."""
    floor = rows["chosen_by_lms"][0] - max_lms_loss
    numbered = rows.with_row_index("at").sort("chosen_by_abs_c", "at")
    allowed = numbered.filter(pl.col("chosen_by_lms") >= floor)
    filters = allowed.filter(kind="filter")
    if filters.is_empty():  # the one with the smallest loss
        filters = rows.with_row_index("at").filter(kind="filter")
        filters = filters.sort("chosen_by_lms", descending=True)
    best, best_filter = allowed["at"][0], filters["at"][0]
    bias, lms = rows["abs_c"].to_numpy(), rows["lms"].fill_null(float("nan")).to_numpy()
    beaten = (bias[None, :] <= bias[:, None]) & (lms[None, :] >= lms[:, None])
    beaten &= (bias[None, :] < bias[:, None]) | (lms[None, :] > lms[:, None])
    at = pl.int_range(pl.len())
    table = rows.with_columns(
        front=pl.Series(~beaten.any(axis=1) & ~np.isnan(lms)),
        best=at == best,
        best_filter=at == best_filter,
    )
    return table, int(best_filter)
