"""Filters and a prefix side by side: bias, and the cost in language modelling.

One row per model, filter, prefix and language, with StereoSet's scores and UnQover's measures.
"""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import polars as pl

from logitbank.analysis.debias.charts import comparison_charts
from logitbank.analysis.debias.findings import COST, comparison_findings
from logitbank.analysis.debias.results import (
    ERASED,
    ERASED_FROM,
    FILTERS,
    NONE,
    REFERENCE,
    TRAINED,
    UNTRAINED,
    DebiasComparison,
    without_rounding,
)
from logitbank.analysis.families.stereoset.metric import stereoset_metric
from logitbank.analysis.families.unqover import FAMILY as UNQOVER
from logitbank.analysis.families.unqover.metric import unqover_metric, with_counts
from logitbank.analysis.families.unqover.tables import ALL, LIMITS
from logitbank.analysis.frames.banks import chosen_by, select_models
from logitbank.analysis.frames.batches import TOKEN_ROWS
from logitbank.analysis.frames.candidates import INTRA as INTRA_TASK
from logitbank.analysis.frames.candidates import PLAIN, read_candidates
from logitbank.analysis.frames.prompt_sums import CHECKPOINT, CHECKPOINT_SCHEMA
from logitbank.analysis.frames.reader import Scores
from logitbank.analysis.results.series import missing_sentences
from logitbank.analysis.study import Study
from logitbank.errors import UsageError
from logitbank.store import Bank, Deposit, open_bank
from logitbank.store.change.rewrite import new_bank
from logitbank.store.filter.apply import filterable, fitted, write_filtered
from logitbank.store.filter.filters import Filter
from logitbank.store.share.targets import Folder

INTRA = "stereoset-intra"
"""Prefix of the names of the prompt sets whose scores are compared."""
STEREOSET = tuple(f"{name}{end}" for name in ("lms", "ss", "icat") for end in ("", "_low", "_high"))
UNQOVER_MEASURES = ("mu", "eta", "abs_c", "positional", "attributive")
UNQOVER_LANGUAGE = "en"
"""Its templates are English, whatever adapter a model used."""
SCREEN = (
    *("model", "label", "language", "condition", "icat", "abs_c", "lms", "ss"),
    *("candidates_in_k", "subjects_in_k"),
)
KEY = (*CHECKPOINT, "filter", "label", "k")
_ORDER = {name: number for number, name in enumerate(FILTERS)}
NO_STEREOSET = pl.DataFrame(
    schema={
        **CHECKPOINT_SCHEMA,
        **dict.fromkeys(("filter", "label"), pl.String),
        "k": pl.Int64,
        **dict.fromkeys(("language", "condition"), pl.String),
        **dict.fromkeys(STEREOSET, pl.Float64),
        "examples": pl.Int64,
        "missing": pl.Int64,
        "icat_change": pl.Float64,
        "common": pl.Int64,
        "candidates_in_k": pl.Float64,
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
    k: int | None
    """The filter's k; without a filter, that of the largest one compared."""
    file: str
    """The filter's file; named where others have the same size and mode."""


def debias_compare(
    bank: str | Path | Bank,
    filters: Sequence[str | Path | Filter],
    *,
    models: Sequence[str] | None = None,
    step: int | None = None,
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
    opened = open_bank(bank, rows=True)
    steps = None if step is None else [step]
    stereoset, unqover = stereoset_sets(opened), chosen_by(UNQOVER.prompts, [opened])
    if not stereoset and not unqover:
        raise UsageError(
            f"{opened.address} has no prompts of StereoSet or UnQover. Run `logitbank extract …"
            " --prompts stereoset-intra --prompts unqover-gender` first."
        )
    loaded = _by_file(filters)
    largest = max((each.k for _, each in loaded), default=LIMITS[0])
    with TemporaryDirectory(prefix="logitbank-debias-") as folder:
        sources = [
            *_unfiltered(opened, models, largest),
            *_filtered(opened, loaded, models, steps, [*stereoset, *unqover], Path(folder)),
        ]
        scores = _stereoset(sources, stereoset, steps) if stereoset else NO_STEREOSET
        measures = _unqover(sources, unqover, steps) if unqover else _NO_UNQOVER
    if scores.is_empty() and measures.is_empty():
        raise UsageError(
            f"{opened.address} has no scores of {', '.join([*stereoset, *unqover])} at these"
            " checkpoints. Run `logitbank extract` first."
        )
    result = DebiasComparison(_joined(scores, measures), measures)
    excluded = Scores([opened], (*stereoset, *unqover), models, steps=steps).excluded()
    return Study(
        result=result,
        findings=tuple(comparison_findings(result)),
        missing=(*_missing(result), *excluded),
        cautions=(COST, *_seen(loaded)) if len(measures) else (COST,),
        title=f"Debiasing: {', '.join(dict.fromkeys(source.base for source in sources))}",
        description="Filters and a prefix: bias, and the cost in language modelling.",
        banks=[opened],
        screen={"comparison": SCREEN},
        make_charts=comparison_charts,
    )


def _seen(loaded: Sequence[tuple[str, Filter]]) -> Iterator[str]:
    """A caution about each filter that was trained on the instances that measure it."""
    for name, each in loaded:
        if "split" in each.about and each.about["split"] is None:
            yield (
                f"Filter {name} was trained on all instances. Its mean |C| is of instances that it "
                "has seen. It is no measure of other instances."
            )


def _unfiltered(bank: Bank, models: Sequence[str] | None, k: int) -> list[_Source]:
    """The models without a filter, and those from which a concept was erased."""
    (chosen,) = select_models([bank.models], models, bank.address)
    erased = {
        deposit.checkpoint.model: about
        for deposit in bank.deposits()
        if isinstance(about := deposit.spec.provenance.get(ERASED_FROM), dict)
    }
    named = chosen or bank.models
    bases = sorted({str(erased[m]["model"]) if m in erased else m for m in named})
    sources = [_Source(bank, m, m, NONE, "no filter", k, "") for m in bases]
    for model, about in erased.items():
        base, label = str(about["model"]), f"without {about['label']}"
        if base in bases:
            sources.append(_Source(bank, model, base, ERASED, label, None, str(about["prompts"])))
    return sources


def _filtered(
    bank: Bank,
    filters: Sequence[tuple[str, Filter]],
    models: Sequence[str] | None,
    steps: Sequence[int] | None,
    names: Sequence[str],
    folder: Path,
) -> list[_Source]:
    """The models after untrained and trained filters, in a bank that is written into `folder`."""
    used = {d.path: d for name in names for d in bank.deposits(prompts=name)}
    chosen = [d for d in used.values() if steps is None or d.checkpoint.step in steps]
    target, sources = None, list[_Source]()
    seen: set[tuple[str, str]] = set()
    for file, trained in filters:
        for kind, each in ((UNTRAINED, untrained_like(trained)), (TRAINED, trained)):
            by, _ = fitted(each, bank, None)
            base = str(by.about["model"])
            if (base, by.digest) in seen or (models and base not in models):
                continue
            seen.add((base, by.digest))
            label, name = f"{kind}, k = {by.k}, {by.mode}", f"{base}: {len(sources):04}"
            target = target or new_bank(bank, Folder(folder / "filtered.zarr"), [])
            for deposit in filterable(chosen, by):
                write_filtered(deposit, target, by, name)
            sources.append(_Source(target, name, base, kind, label, by.k, file))
    same = Counter((s.base, s.label) for s in sources)
    return [
        s._replace(label=f"{s.label}, {s.file}") if same[s.base, s.label] > 1 else s
        for s in sources
    ]


def _by_file(filters: Sequence[str | Path | Filter]) -> list[tuple[str, Filter]]:
    """Filters by their paths below a common folder, without suffix; numbers of those without."""
    paths = {
        number: Path(each).absolute()
        for number, each in enumerate(filters)
        if not isinstance(each, Filter)
    }
    folder = os.path.commonpath([path.parent for path in paths.values()]) if paths else ""
    names = {n: path.relative_to(folder).as_posix() for n, path in paths.items()}
    return [
        (
            names.get(n, f"filter {n + 1}").removesuffix(".safetensors"),
            each if isinstance(each, Filter) else Filter.load(each),
        )
        for n, each in enumerate(filters)
    ]


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
    return scores.filter(domain=ALL, task=INTRA_TASK)


def _stereoset(
    sources: Sequence[_Source],
    names: Sequence[str],
    steps: Sequence[int] | None,
) -> pl.DataFrame:
    """Scores of each source under each condition, and paired differences from the plain model.

    The metric receives a filter as a condition of its model, so that its differences from the plain
    model are over the examples of both.
    """
    parts = [
        candidates.with_columns(
            model=pl.lit(s.base),
            condition=pl.when(pl.lit(s.filter == NONE) & (pl.col("condition") == PLAIN))
            .then("condition")
            .otherwise(pl.format(f"{number} {{}}", "condition")),
        )
        for number, s in enumerate(sources)
        if any(_is_chosen(d, s, steps) for name in names for d in s.bank.deposits(prompts=name))
        for candidates in read_candidates(_scores([s], names, steps))
    ]
    if not parts:
        return NO_STEREOSET
    # Together: a filter is a condition of its model.
    result, key = stereoset_metric([pl.concat(parts)]), [*CHECKPOINT, "language", "condition"]
    missing = result.tasks.filter(task=INTRA_TASK).select(*key, "missing")
    changes = overall(result.differences).filter(measure="icat")
    changes = changes.select(*key, icat_change="difference", common="examples")
    examples = overall(result.aggregations).select(*key, "examples")
    scores = overall(result.scores).select(*key, *STEREOSET)
    for more in (examples, missing, changes):
        scores = scores.join(more, on=key, how="left", nulls_equal=True, maintain_order="left")
    number = pl.col("condition").str.extract(r"^(\d+) ").cast(pl.Int64)
    plain = number.is_null()
    described = [
        pl.when(plain)
        .then(pl.lit(getattr(sources[0], name)))  # without a filter
        .otherwise(
            number.replace_strict(
                [*range(len(sources))], [getattr(s, name) for s in sources], default=None
            )
        )
        .alias(name)
        for name in ("filter", "label", "k")
    ]
    scores = scores.with_columns(
        *described,
        condition=pl.col("condition").str.replace(r"^\d+ ", ""),
        icat_change=pl.when(plain).then(0.0).otherwise("icat_change"),
        common=pl.when(plain).then("examples").otherwise("common"),
    )
    inside = _candidates_in_k(sources, names, steps)
    on = [*key, "k"]
    scores = scores.join(inside, on=on, how="left", nulls_equal=True, maintain_order="left")
    return scores.select(NO_STEREOSET.columns)


def _sizes(sources: Sequence[_Source]) -> list[int]:
    return sorted({source.k for source in sources if source.k is not None})


def _candidates_in_k(
    sources: Sequence[_Source], names: Sequence[str], steps: Sequence[int] | None
) -> pl.DataFrame:
    """Share of the candidates among the k highest logits, to which a filter gives a probability.

    One of a masked word is, if any of its tokens is: their probabilities are added. A sentence is,
    if all of its tokens are: their probabilities are multiplied.
    """
    sizes = _sizes(sources)
    rank, masked = pl.col("rank"), pl.col("score_kind").first() == "masked"
    key = [*CHECKPOINT, "language", "condition"]

    def shares(frame: pl.LazyFrame) -> pl.DataFrame:
        inside = frame.group_by(*key, "prompt_id").agg(
            pl.when(masked).then(rank.min() <= k).otherwise(rank.max() <= k).alias(str(k))
            for k in sizes
        )
        return inside.group_by(key).agg(pl.col(map(str, sizes)).mean()).collect()

    unfiltered = [s for s in sources if s.filter == NONE and s.model in s.bank.models]
    read = _scores(unfiltered, names, steps).map_frames(shares, rows=TOKEN_ROWS)
    long = pl.concat(read).unpivot(index=key, variable_name="k", value_name="candidates_in_k")
    return long.with_columns(pl.col("k").cast(pl.Int64))


def _scores(
    sources: Sequence[_Source], names: Sequence[str], steps: Sequence[int] | None
) -> Scores:
    """The scores of sources: those in the bank, and those after a filter."""
    banks = {source.bank.path: source.bank for source in sources}
    models = [source.model for source in sources]
    return Scores([*banks.values()], tuple(names), models, steps=steps)


def _is_chosen(deposit: Deposit, source: _Source, steps: Sequence[int] | None) -> bool:
    checkpoint = deposit.checkpoint
    return checkpoint.model == source.model and (steps is None or checkpoint.step in steps)


def _unqover(
    sources: Sequence[_Source],
    names: Sequence[str],
    steps: Sequence[int] | None,
) -> pl.DataFrame:
    deposits = [(d, s) for name in names for s in sources for d in s.bank.deposits(prompts=name)]
    if not any(_is_chosen(deposit, source, steps) for deposit, source in deposits):
        return _NO_UNQOVER
    scores = _scores(sources, names, steps)
    result = unqover_metric(scores)
    table = without_rounding(_with_filters(with_counts(result), sources))
    unfiltered = _scores([s for s in sources if s.filter == NONE], names, steps)
    key, inside = [*CHECKPOINT, "category", "split"], []
    for k in _sizes(sources):
        if k in LIMITS:  # counted already
            own, name = table.filter(filter=NONE), f"coverage_{k}"
        else:
            own, name = unqover_metric(unfiltered, topk=k).counts, "coverage"
        inside.append(own.select(*key, pl.lit(k, pl.Int64).alias("k"), subjects_in_k=name))
    return table.join(
        pl.concat(inside), on=[*key, "k"], how="left", nulls_equal=True, maintain_order="left"
    )


def _missing(result: DebiasComparison) -> Iterator[str]:
    instances = result.unqover.filter(pl.col("split") == ALL)
    for table, noun in ((instances, "instance"), (result.comparison, "example")):
        # The same are missing with filters.
        yield from missing_sentences(table.filter(filter=NONE), noun)


_NO_UNQOVER = pl.DataFrame(
    schema={
        **{name: NO_STEREOSET.schema[name] for name in KEY},
        **dict.fromkeys(("category", "split"), pl.String),
        **dict.fromkeys((*UNQOVER_MEASURES, "subjects_in_k"), pl.Float64),
        "missing": pl.Int64,
    }
)


def _with_filters(table: pl.DataFrame, sources: Sequence[_Source]) -> pl.DataFrame:
    """The table with the model's name without a filter, and with the filter's columns."""
    names = pl.DataFrame(
        [(s.model, s.base, s.filter, s.label, s.k) for s in sources],
        schema=["model", "base", "filter", "label", "k"],
        orient="row",
    )
    return (
        table.join(names, on="model", maintain_order="left")
        .with_columns(model="base")
        .select(*KEY, pl.exclude(*KEY, "base", "run_seed"))
    )


def _joined(scores: pl.DataFrame, measures: pl.DataFrame) -> pl.DataFrame:
    keys = KEY
    # Instances that no filter was trained on, if there are the published parts.
    unseen = (pl.col("split") == "test") | (
        (pl.col("split") == "all") & ~(pl.col("split") == "test").any().over(*keys, "category")
    )
    means = (
        measures.filter(unseen)
        .group_by(keys, maintain_order=True)
        .agg(pl.col(*UNQOVER_MEASURES, "subjects_in_k").mean())
        .with_columns(language=pl.lit(UNQOVER_LANGUAGE), condition=pl.lit(PLAIN))
    )
    on = [*keys, "language", "condition"]
    table = (
        scores.join(means, on=on, how="full", coalesce=True, nulls_equal=True)
        .with_columns(_order=pl.col("filter").replace_strict(_ORDER))
        .sort("model", "run", "step", "language", "_order", "label", "condition", nulls_last=True)
        .select(*NO_STEREOSET.columns, *UNQOVER_MEASURES, "subjects_in_k")
    )
    return pl.concat([table, _references(table)])


def _references(table: pl.DataFrame) -> pl.DataFrame:
    """The ideal and the random model."""
    rows = [
        {"model": name, "filter": NONE, "label": REFERENCE, "condition": "plain",
         "lms": lms, "ss": 50.0, "icat": lms}
        for name, lms in (("ideal model", 100.0), ("random model", 50.0))
    ]  # fmt: skip
    return pl.DataFrame(rows, schema=dict(table.schema))
