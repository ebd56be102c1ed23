"""What filters and a prefix do to a model, side by side: bias, and what it costs in language.

One row per model, filter, prefix and language, with StereoSet's scores and UnQover's measures.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import polars as pl

from logitbank.analysis.debias.train import FILTERS
from logitbank.analysis.families.stereoset.metric import bank_candidates, stereoset_metric
from logitbank.analysis.families.unqover import FAMILY as UNQOVER
from logitbank.analysis.families.unqover.metric import ALL, expected_instances, unqover_metric
from logitbank.analysis.frames.apart import own_names
from logitbank.analysis.frames.batches import batches
from logitbank.analysis.frames.candidates import INTRA as INTRA_TASK
from logitbank.analysis.frames.candidates import PLAIN as PLAIN
from logitbank.analysis.frames.candidates import concat_candidates
from logitbank.analysis.frames.expected import left_out_sentences, missing_sentence
from logitbank.analysis.frames.sources import no_model
from logitbank.analysis.results.tables import Result
from logitbank.analysis.study import Study
from logitbank.errors import UsageError
from logitbank.store import Bank
from logitbank.store.bank import open_unfiltered
from logitbank.store.filter.filters import Filter

INTRA = "stereoset-intra"
"""Start of the names of the prompt sets whose scores are compared."""
NONE, UNTRAINED, TRAINED = FILTERS
KEY = ("model", "run", "step")
STEREOSET = tuple(f"{name}{end}" for name in ("lms", "ss", "icat") for end in ("", "_low", "_high"))
UNQOVER_MEASURES = ("mu", "eta", "abs_c", "positional", "attributive", "coverage_8", "coverage_10")
_ORDER = {name: at for at, name in enumerate(FILTERS)}
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
"""StereoSet's scores without a row. Over `common` examples, which the plain model without a filter
has too, the iCAT is higher than its by `icat_change`."""


@dataclass(frozen=True, slots=True)
class DebiasComparison(Result):
    """Every row begins with model, run, step, filter (none, untrained, trained) and its `label`."""

    comparison: pl.DataFrame
    """Language and condition (plain, or with the prefix); StereoSet's intra-sentence lms, ss, iCAT
    with 95 % intervals, over so many `examples`, of which so many are `missing`; `icat_change`
    against the plain model without a filter, over the `common` examples that both have; UnQover's
    measures, means over the bank's categories (they know no prefix and no language: of plain rows
    only). The ideal and the random model stand at the end."""
    unqover: pl.DataFrame
    """UnQover's measures by category and split."""


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

    Raises
    ------
    LogitbankError
        A missing file or bank, a filter that does not fit, or no prompt set to measure with.
    """
    from logitbank.analysis.debias.charts import comparison_charts
    from logitbank.analysis.debias.findings import COST, comparison_findings

    opened = open_unfiltered(bank, rows=True)
    sources = _sources(opened, filters, models)
    result = _compared(opened, sources, step=step, bootstrap=bootstrap)
    prompts = [*_of_stereoset(opened), *own_names(UNQOVER.prompts, [opened])]
    steps = None if step is None else [step]
    return Study(
        result=result,
        findings=tuple(comparison_findings(result)),
        missing=(*_missing(result), *left_out_sentences([opened], prompts, models, steps)),
        cautions=(COST,),
        title=f"Debiasing: {', '.join(dict.fromkeys(source.base for source in sources))}",
        description="What filters and a prefix do to a model: bias, and what it costs in language.",
        banks=[opened],
        make_charts=comparison_charts,
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
    own_sets = own_names(UNQOVER.prompts, [bank])
    if not stereo and not own_sets:
        raise UsageError(
            f"{bank.address} has no prompts of StereoSet or UnQover; run `logitbank"
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


def no_unqover() -> pl.DataFrame:
    texts = dict.fromkeys(("model", "run"), pl.String) | {"step": pl.Int64}
    return pl.DataFrame(
        schema={
            **texts,
            **dict.fromkeys(("category", "split"), pl.String),
            **dict.fromkeys(UNQOVER_MEASURES, pl.Float64),
            "missing": pl.Int64,
        }
    )


def named(table: pl.DataFrame, names: pl.DataFrame) -> pl.DataFrame:
    """With the model's own name, and its filter."""
    return (
        table.join(names, on="model", maintain_order="left")
        .with_columns(model="base")
        .select(*KEY, "filter", "label", pl.exclude(*KEY, "filter", "label", "base"))
    )


def joined(scores: pl.DataFrame, measures: pl.DataFrame) -> pl.DataFrame:
    keys = (*KEY, "filter", "label")
    # Instances that no filter was trained on, where there are the published parts.
    unseen = (pl.col("split") == "test") | (
        (pl.col("split") == "all") & ~(pl.col("split") == "test").any().over(*keys, "category")
    )
    means = (
        measures.filter(unseen)
        .group_by(keys, maintain_order=True)
        .agg(pl.col(UNQOVER_MEASURES).mean())
    )
    scored = scores.filter(pl.col("condition") == "plain")
    lone = means.select(keys).join(scored, on=keys, how="anti", nulls_equal=True)
    scores = pl.concat([scores, lone.with_columns(condition=pl.lit("plain"))], how="diagonal")
    table = (
        scores.join(
            means.with_columns(condition=pl.lit("plain")),
            on=[*keys, "condition"],
            how="left",
            nulls_equal=True,
        )
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
