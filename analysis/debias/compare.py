"""What filters and a prefix do to a model, side by side: bias, and what it costs in language.

One row per model, filter, prefix and language, with StereoSet's scores and UnQover's measures.
"""

from collections.abc import Iterator, Sequence
from math import isfinite
from pathlib import Path
from typing import NamedTuple

import polars as pl

from logitbank.analysis.debias.compare_tables import (
    KEY,
    NO_STEREOSET,
    NONE,
    STEREOSET,
    TRAINED,
    UNTRAINED,
    joined,
    named,
    no_unqover,
)
from logitbank.analysis.debias.results import DebiasComparison
from logitbank.analysis.drawing.paper import PAPER, Paper
from logitbank.analysis.families.stereoset.files import concat_candidates
from logitbank.analysis.families.stereoset.metric import stereoset_metric
from logitbank.analysis.families.stereoset.scores import INTRA as INTRA_TASK
from logitbank.analysis.families.stereoset.scores import PLAIN
from logitbank.analysis.families.stereoset.sources import bank_candidates
from logitbank.analysis.families.unqover.metric import ALL, unqover_metric
from logitbank.analysis.families.unqover.study import PROMPTS, expected_instances
from logitbank.analysis.frames.apart import own_names
from logitbank.analysis.frames.batches import batches
from logitbank.analysis.frames.expected import missing_sentence
from logitbank.analysis.frames.sources import no_model
from logitbank.analysis.results.finish import finish
from logitbank.analysis.results.study import Study
from logitbank.analysis.results.words import Summary
from logitbank.errors import UsageError
from logitbank.store import Bank
from logitbank.store.bank import open_unfiltered
from logitbank.store.filter.filters import Filter
from logitbank.wording import step_name

INTRA = "stereoset-intra"
"""How the names of the prompt sets begin whose scores are compared."""


class _Source(NamedTuple):
    """A bank, filtered or not, and whose scores it contains."""

    bank: Bank
    model: str
    """As it is called there."""
    base: str
    filter: str
    label: str


def debias_compare(
    bank: str | Path | Bank,
    filters: Sequence[str | Path | Filter],
    *,
    models: Sequence[str] | None = None,
    step: int | None = None,
    bootstrap: int = 1000,
    out: str | Path | None = None,
    paper: Paper = PAPER,
) -> Study[DebiasComparison]:
    """A model without a filter, with untrained and trained filters, and with a prefix.

    Parameters
    ----------
    bank
        With StereoSet's or UnQover's prompt sets, or both; sets with the prefix
        (`stereoset-intra-prefix`) add its rows.
    filters
        Files, or filters. The untrained filter of each, with all weights 1, has rows of its own.
    models
        Only these.
    step
        Only this training step; all if None.
    out
        Folder for tables, the figure and the report.

    Raises
    ------
    LogitbankError
        A file or bank that is not there, a filter that does not fit, or no prompt set to judge by.
    """
    opened = open_unfiltered(bank, rows=True)
    sources = _sources(opened, filters, models)
    result = _compared(opened, sources, step=step, bootstrap=bootstrap)
    named = ", ".join(dict.fromkeys(source.base for source in sources))
    return finish(
        result,
        Summary(tuple(_summary(result)), left_out=tuple(_missing(result))),
        title=f"Debiasing: {named}",
        about="What filters and a prefix do to a model: bias, and what it costs in language.",
        out=out,
        paper=paper,
        banks=[opened],
        prompts=[*_of_stereoset(opened), *own_names(PROMPTS, [opened])],
        models=models,
        steps=None if step is None else [step],
    )


def _sources(
    bank: Bank, filters: Sequence[str | Path | Filter], models: Sequence[str] | None
) -> list[_Source]:
    available = sorted({d.checkpoint.model for d in bank.deposits()})
    if unknown := [model for model in models or () if model not in available]:
        raise UsageError(no_model(unknown[0], available, bank.address))
    sources = [
        _Source(bank, m, m, NONE, "no filter") for m in available if m in (models or available)
    ]
    seen: set[tuple[str, str]] = set()
    for given in filters:
        by = given if isinstance(given, Filter) else Filter.load(given)
        for kind, filter_ in ((UNTRAINED, untrained_like(by)), (TRAINED, by)):
            view = bank.filtered(filter_, name=None)
            assert view.filter is not None, "it is filtered"
            base = str(view.filter.about["model"])
            if (base, filter_.digest) in seen or (models and base not in models):
                continue
            seen.add((base, filter_.digest))
            label = f"{kind}, k = {filter_.k}, {filter_.mode}"
            if clash := sum(s.label == label and s.base == base for s in sources):
                label += f" ({clash + 1})"
            sources.append(
                _Source(
                    bank.filtered(filter_, name=f"{base}: {label}"),
                    f"{base}: {label}",
                    base,
                    kind,
                    label,
                )
            )
    return sources


def untrained_like(by: Filter) -> Filter:
    """The filter of the same size and mode with all weights 1, which training as published begins
    with: what it does to a model is no merit of training."""
    about = by.about
    seed = about.get("seed", 0)
    start = Filter.ones(by.k, by.mode, seed=seed if isinstance(seed, int) else 0)
    kept = {name: about[name] for name in ("model", "tokenizer") if name in about}
    return Filter(start.weight, start.bias, by.mode, {**start.about, **kept})


def _of_stereoset(bank: Bank) -> list[str]:
    return [name for name in bank.prompt_sets if name.startswith(INTRA)]


def _compared(
    bank: Bank, sources: Sequence[_Source], *, step: int | None, bootstrap: int
) -> DebiasComparison:
    stereo = _of_stereoset(bank)
    own_sets = own_names(PROMPTS, [bank])
    if not stereo and not own_sets:
        raise UsageError(
            f"{bank.address} has no prompts of StereoSet or UnQover to judge by; run `logitbank"
            " extract … --prompts stereoset-intra --prompts unqover-gender` first"
        )
    names = pl.DataFrame(
        [(s.model, s.base, s.filter, s.label) for s in sources],
        schema=["model", "base", "filter", "label"],
        orient="row",
    )
    scores = _stereoset(sources, stereo, step, bootstrap) if stereo else NO_STEREOSET
    measures = _unqover(sources, own_sets, step, bootstrap) if own_sets else no_unqover()
    measures = named(measures, names)
    if scores.is_empty() and measures.is_empty():
        raise UsageError(
            f"{bank.address} has no scores of {', '.join([*stereo, *own_sets])} by"
            f" {', '.join(dict.fromkeys(s.base for s in sources))}"
            f"{'' if step is None else f' at step {step}'}; run `logitbank extract` first"
        )
    return DebiasComparison(joined(scores, measures), measures)


def _stereoset(
    sources: Sequence[_Source], sets: Sequence[str], step: int | None, bootstrap: int
) -> pl.DataFrame:
    """Scores of each source under each condition, and what differs from the plain model in pairs.

    A filter is given to the metric as a condition of its model, so that its differences from the
    plain model are over the examples that both have.
    """
    steps = None if step is None else [step]
    parts = [
        bank_candidates(s.bank, prompts=sets, models=[s.model], steps=steps).with_columns(
            model=pl.lit(s.base),
            condition=pl.when(pl.lit(s.filter == NONE) & (pl.col("condition") == PLAIN))
            .then("condition")
            .otherwise(pl.format(f"{at} {{}}", "condition")),
        )
        for at, s in enumerate(sources)
        if any(_has(s, name) for name in sets)
    ]
    candidates = concat_candidates(parts)
    if candidates.is_empty():
        return NO_STEREOSET
    result, key = stereoset_metric(candidates, bootstrap=bootstrap), [*KEY, "language", "condition"]
    overall = (pl.col("domain") == "overall") & (pl.col("task") == INTRA_TASK)
    missing = result.tasks.filter(pl.col("task") == INTRA_TASK).select(*key, "missing")
    changes = result.differences.filter(overall)
    changes = changes.select(*key, icat_change="icat", common="examples")
    scores = result.scores.filter(overall).select(*key, *STEREOSET, "examples")
    for more in (missing, changes):
        scores = scores.join(more, on=key, how="left", nulls_equal=True, maintain_order="left")
    number = pl.col("condition").str.extract(r"^(\d+) ").cast(pl.Int64)
    unfiltered = pl.lit(NONE), pl.lit("no filter")
    about = [
        number.replace_strict(
            [*range(len(sources))], [getattr(s, name) for s in sources], default=None
        )
        .fill_null(plain)
        .alias(name)
        for name, plain in zip(("filter", "label"), unfiltered, strict=True)
    ]
    is_base = number.is_null()
    return scores.with_columns(
        *about,
        condition=pl.col("condition").str.replace(r"^\d+ ", ""),
        icat_change=pl.when(is_base).then(0.0).otherwise("icat_change"),
        common=pl.when(is_base).then("examples").otherwise("common"),
    ).select(NO_STEREOSET.columns)


def _unqover(
    sources: Sequence[_Source], sets: Sequence[str], step: int | None, bootstrap: int
) -> pl.DataFrame:
    steps = None if step is None else [step]
    kinds = [
        [name for name in sets if name.endswith("-causal") == causal] for causal in (False, True)
    ]
    frames = [
        frame  # sets of a category together: parts of it may have been extracted apart
        for source in sources
        for own in kinds
        for frame in batches([source.bank], own, models=[source.model], steps=steps)
    ]
    if not frames:
        return no_unqover()
    expected = [
        expected_instances([source.bank], own).filter(pl.col("model") == source.model)
        for source in sources
        for own in kinds
        if own
    ]
    result = unqover_metric(frames, bootstrap=bootstrap, expected=pl.concat(expected).unique())
    return result.unqover.drop("run_seed", strict=False)


def _has(source: _Source, prompts: str) -> bool:
    return any(d.checkpoint.model == source.model for d in source.bank.deposits_of(prompts))


def _missing(result: DebiasComparison) -> Iterator[str]:
    instances = result.unqover.filter(pl.col("split") == ALL)
    for table, noun in ((instances, "instance"), (result.comparison, "example")):
        # With filters they are the same.
        incomplete = table.filter((pl.col("filter") == NONE) & (pl.col("missing") > 0))
        if len(incomplete):
            missing = int(incomplete["missing"].sum())
            yield missing_sentence(missing, noun, checkpoints=incomplete.select(KEY).n_unique())


def _summary(result: DebiasComparison) -> list[str]:
    lines = []
    table = result.comparison.filter(pl.col("label") != "reference")
    for row in table.iter_rows(named=True):
        parts = [row["model"], step_name(row["step"]), row["language"], row["label"]]
        parts += [] if row["condition"] == "plain" else [row["condition"]]
        said = []
        if row["icat"] is not None:
            change = row["icat_change"]
            interval = f" [{row['icat_low']:.1f} to {row['icat_high']:.1f}]"
            apart = change is not None and row["common"] < row["examples"]
            both = f" over {row['common']:,} common examples" if apart else ""
            said.append(
                f"iCAT {row['icat']:.1f}{interval if isfinite(row['icat_low']) else ''}"
                f"{'' if change is None else f' ({change:+.1f}{both})'}, lms {row['lms']:.1f}, ss"
                f" {row['ss']:.1f}, n = {row['examples']:,}"
            )
        if row["abs_c"] is not None:
            said.append(
                f"UnQover |C| {row['abs_c']:.4f}, μ {row['mu']:.4f}, positional error"
                f" {row['positional']:.4f}"
            )
        lines.append(f"{', '.join(p for p in parts if p)}: {'; '.join(said)}.")
    lines.append(
        "A filter is good where |C| falls and lms stays: one that flattens everything has no bias"
        " and no language either. ss is an average over terms; 50 also comes of opposite ones."
    )
    return lines
