"""Filters and a prefix side by side: bias, and the cost in language modelling.

One row per model, filter, prefix and language, with StereoSet's scores and UnQover's measures.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import polars as pl

from logitbank.analysis.debias.charts import comparison_charts
from logitbank.analysis.debias.findings import COST, comparison_findings
from logitbank.analysis.debias.results import (
    FILTERS,
    NONE,
    TRAINED,
    UNTRAINED,
    DebiasComparison,
)
from logitbank.analysis.families.stereoset.metric import bank_candidates, stereoset_metric
from logitbank.analysis.families.unqover import FAMILY as UNQOVER
from logitbank.analysis.families.unqover.metric import ALL, expected_instances, unqover_metric
from logitbank.analysis.frames.banks import chosen_by, select_models
from logitbank.analysis.frames.batches import batches
from logitbank.analysis.frames.candidates import INTRA as INTRA_TASK
from logitbank.analysis.frames.candidates import PLAIN, concat_candidates
from logitbank.analysis.frames.expected import exclusion_notes
from logitbank.analysis.frames.prompt_sums import CHECKPOINT
from logitbank.analysis.results.series import missing_sentences
from logitbank.analysis.study import Study
from logitbank.errors import UsageError
from logitbank.store import Bank, Deposit
from logitbank.store.bank import open_unfiltered
from logitbank.store.filter.filters import Filter

INTRA = "stereoset-intra"
"""Prefix of the names of the prompt sets whose scores are compared."""
STEREOSET = tuple(f"{name}{end}" for name in ("lms", "ss", "icat") for end in ("", "_low", "_high"))
UNQOVER_MEASURES = ("mu", "eta", "abs_c", "positional", "attributive", "coverage_8", "coverage_10")
_ORDER = {name: number for number, name in enumerate(FILTERS)}
NO_STEREOSET = pl.DataFrame(
    schema={
        "model": pl.String,
        "run": pl.String,
        "step": pl.Int64,
        **dict.fromkeys(("filter", "label", "language", "condition"), pl.String),
        **dict.fromkeys(STEREOSET, pl.Float64),
        "examples": pl.Int64,
        "missing": pl.Int64,
        "icat_change": pl.Float64,
        "common": pl.Int64,
    }
)
"""Empty table of StereoSet's scores. `icat_change` is the difference from the plain model without a
filter, over the `common` examples of both."""


class _Source(NamedTuple):
    """A model in a bank, with or without a filter."""

    bank: Bank
    model: str
    """Name in the bank."""
    base: str
    """Name without a filter."""
    filter: str
    label: str


def debias_compare(
    bank: str | Path | Bank,
    filters: Sequence[str | Path | Filter],
    *,
    models: Sequence[str] | None = None,
    step: int | None = None,
    bootstrap: int = 1000,
) -> Study[DebiasComparison]:
    """A model without a filter, with untrained and trained filters, and with a prefix.

    Parameters
    ----------
    bank
        A bank with StereoSet's or UnQover's prompt sets, or both; sets with the prefix
        (`stereoset-intra-prefix`) add its rows.
    filters
        Files, or filters. The untrained filter of each, with all weights 1, has its own rows.
    models
        Only these.
    step
        Only this training step; all if None.

    Raises
    ------
    LogitbankError
        A missing file or bank, a filter that does not fit, or no prompt set to measure with.
    """
    opened = open_unfiltered(bank, rows=True)
    sources = _sources(opened, filters, models)
    steps = None if step is None else [step]
    stereoset, unqover = stereoset_sets(opened), chosen_by(UNQOVER.prompts, [opened])
    if not stereoset and not unqover:
        raise UsageError(
            f"{opened.address} has no prompts of StereoSet or UnQover. Run `logitbank extract …"
            " --prompts stereoset-intra --prompts unqover-gender` first."
        )
    scores = _stereoset(sources, stereoset, steps, bootstrap) if stereoset else NO_STEREOSET
    measures = _unqover(sources, unqover, steps, bootstrap) if unqover else _NO_UNQOVER
    measures = _with_filters(measures, sources)
    if scores.is_empty() and measures.is_empty():
        raise UsageError(
            f"{opened.address} has no scores of {', '.join([*stereoset, *unqover])} at these"
            " checkpoints. Run `logitbank extract` first."
        )
    result = DebiasComparison(_joined(scores, measures), measures)
    excluded = exclusion_notes([opened], [*stereoset, *unqover], models, steps)
    return Study(
        result=result,
        findings=tuple(comparison_findings(result)),
        missing=(*_missing(result), *excluded),
        cautions=(COST,),
        title=f"Debiasing: {', '.join(dict.fromkeys(source.base for source in sources))}",
        description="Filters and a prefix: bias, and the cost in language modelling.",
        banks=[opened],
        make_charts=comparison_charts,
    )


def _sources(
    bank: Bank, filters: Sequence[str | Path | Filter], models: Sequence[str] | None
) -> list[_Source]:
    (chosen,) = select_models([bank.models], models, bank.address)
    sources = [_Source(bank, m, m, NONE, "no filter") for m in chosen or bank.models]
    seen: set[tuple[str, str]] = set()
    for each in filters:
        trained = each if isinstance(each, Filter) else Filter.load(each)
        for kind, filter_ in ((UNTRAINED, untrained_like(trained)), (TRAINED, trained)):
            view = bank.filtered(filter_, name=None)
            assert view.filter is not None, "it is filtered"
            base = str(view.filter.about["model"])
            if (base, filter_.digest) in seen or (models and base not in models):
                continue
            seen.add((base, filter_.digest))
            label = f"{kind}, k = {filter_.k}, {filter_.mode}"
            if same := sum(s.label == label and s.base == base for s in sources):
                label += f" ({same + 1})"
            name = f"{base}: {label}"
            sources.append(_Source(bank.filtered(filter_, name=name), name, base, kind, label))
    return sources


def untrained_like(trained: Filter) -> Filter:
    """The filter of the same size and mode with all weights 1, the start of published training.

    Its effect on a model is not due to training.
    """
    about = trained.about
    seed = about.get("seed", 0)
    start = Filter.ones(trained.k, trained.mode, seed=seed if isinstance(seed, int) else 0)
    kept = {name: about[name] for name in ("model", "tokenizer") if name in about}
    return Filter(start.weight, start.bias, trained.mode, {**start.about, **kept})


def stereoset_sets(bank: Bank) -> list[str]:
    """The intra-sentence prompt sets of StereoSet in a bank."""
    return [name for name in bank.prompt_sets if name.startswith(INTRA)]


def overall(scores: pl.DataFrame) -> pl.DataFrame:
    """The rows over all domains of StereoSet's intra-sentence task."""
    return scores.filter(domain="overall", task=INTRA_TASK)


def _stereoset(
    sources: Sequence[_Source],
    names: Sequence[str],
    steps: Sequence[int] | None,
    bootstrap: int,
) -> pl.DataFrame:
    """Scores of each source under each condition, and paired differences from the plain model.

    The metric receives a filter as a condition of its model, so that its differences from the plain
    model are over the examples of both.
    """
    parts = [
        bank_candidates(s.bank, prompts=names, models=[s.model], steps=steps).with_columns(
            model=pl.lit(s.base),
            condition=pl.when(pl.lit(s.filter == NONE) & (pl.col("condition") == PLAIN))
            .then("condition")
            .otherwise(pl.format(f"{number} {{}}", "condition")),
        )
        for number, s in enumerate(sources)
        if any(_is_chosen(d, s, steps) for name in names for d in s.bank.deposits(prompts=name))
    ]
    candidates = concat_candidates(parts)
    if candidates.is_empty():
        return NO_STEREOSET
    result, key = (
        stereoset_metric(candidates, bootstrap=bootstrap),
        [*CHECKPOINT, "language", "condition"],
    )
    missing = result.tasks.filter(task=INTRA_TASK).select(*key, "missing")
    changes = overall(result.differences).select(*key, icat_change="icat", common="examples")
    scores = overall(result.scores).select(*key, *STEREOSET, "examples")
    for more in (missing, changes):
        scores = scores.join(more, on=key, how="left", nulls_equal=True, maintain_order="left")
    number = pl.col("condition").str.extract(r"^(\d+) ").cast(pl.Int64)
    plain = number.is_null()
    described = [
        number.replace_strict(
            [*range(len(sources))], [getattr(s, name) for s in sources], default=None
        )
        .fill_null(pl.lit(default))
        .alias(name)
        for name, default in (("filter", NONE), ("label", "no filter"))
    ]
    return scores.with_columns(
        *described,
        condition=pl.col("condition").str.replace(r"^\d+ ", ""),
        icat_change=pl.when(plain).then(0.0).otherwise("icat_change"),
        common=pl.when(plain).then("examples").otherwise("common"),
    ).select(NO_STEREOSET.columns)


def _is_chosen(deposit: Deposit, source: _Source, steps: Sequence[int] | None) -> bool:
    checkpoint = deposit.checkpoint
    return checkpoint.model == source.model and (steps is None or checkpoint.step in steps)


def _unqover(
    sources: Sequence[_Source],
    names: Sequence[str],
    steps: Sequence[int] | None,
    bootstrap: int,
) -> pl.DataFrame:
    kinds = [
        [name for name in names if name.endswith("-causal") == causal] for causal in (False, True)
    ]
    pairs = [(source, kind) for source in sources for kind in kinds if kind]
    # Sets of a category together: its parts may have been extracted separately.
    frames = [
        frame
        for source, kind in pairs
        for frame in batches([source.bank], kind, models=[source.model], steps=steps)
    ]
    if not frames:
        return _NO_UNQOVER
    expected = [
        expected_instances([source.bank], kind).filter(pl.col("model") == source.model)
        for source, kind in pairs
    ]
    result = unqover_metric(frames, bootstrap=bootstrap, expected=pl.concat(expected).unique())
    return result.unqover.drop("run_seed", strict=False)


def _missing(result: DebiasComparison) -> Iterator[str]:
    instances = result.unqover.filter(pl.col("split") == ALL)
    for table, noun in ((instances, "instance"), (result.comparison, "example")):
        # The same are missing with filters.
        yield from missing_sentences(table.filter(filter=NONE), noun)


_NO_UNQOVER = pl.DataFrame(
    schema={
        **dict.fromkeys(("model", "run"), pl.String),
        "step": pl.Int64,
        **dict.fromkeys(("category", "split"), pl.String),
        **dict.fromkeys(UNQOVER_MEASURES, pl.Float64),
        "missing": pl.Int64,
    }
)


def _with_filters(table: pl.DataFrame, sources: Sequence[_Source]) -> pl.DataFrame:
    """The table with the model's name without a filter, and with the filter's columns."""
    names = pl.DataFrame(
        [(s.model, s.base, s.filter, s.label) for s in sources],
        schema=["model", "base", "filter", "label"],
        orient="row",
    )
    return (
        table.join(names, on="model", maintain_order="left")
        .with_columns(model="base")
        .select(*CHECKPOINT, "filter", "label", pl.exclude(*CHECKPOINT, "filter", "label", "base"))
    )


def _joined(scores: pl.DataFrame, measures: pl.DataFrame) -> pl.DataFrame:
    keys = (*CHECKPOINT, "filter", "label")
    # Instances that no filter was trained on, if there are the published parts.
    unseen = (pl.col("split") == "test") | (
        (pl.col("split") == "all") & ~(pl.col("split") == "test").any().over(*keys, "category")
    )
    means = (
        measures.filter(unseen)
        .group_by(keys, maintain_order=True)
        .agg(pl.col(UNQOVER_MEASURES).mean())
        .with_columns(condition=pl.lit(PLAIN))
    )
    scored = scores.filter(pl.col("condition") == PLAIN)
    alone = means.select(*keys, "condition").join(scored, on=keys, how="anti", nulls_equal=True)
    table = (
        pl.concat([scores, alone], how="diagonal")
        .join(means, on=[*keys, "condition"], how="left", nulls_equal=True)
        .with_columns(_order=pl.col("filter").replace_strict(_ORDER))
        .sort("model", "run", "step", "language", "_order", "label", "condition", nulls_last=True)
        .select(*NO_STEREOSET.columns, *UNQOVER_MEASURES)
    )
    return pl.concat([table, _references(table)])


def _references(table: pl.DataFrame) -> pl.DataFrame:
    """The ideal and the random model."""
    rows = [
        {"model": name, "filter": NONE, "label": "reference", "condition": "plain",
         "lms": lms, "ss": 50.0, "icat": lms}
        for name, lms in (("ideal model", 100.0), ("random model", 50.0))
    ]  # fmt: skip
    return pl.DataFrame(rows, schema=dict(table.schema))
