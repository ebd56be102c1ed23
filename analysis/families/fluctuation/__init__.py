"""Fluctuation: how pronoun scores of professions vary between checkpoints."""

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Annotated

from logitbank.analysis.families import register
from logitbank.analysis.family import Family, columns
from logitbank.analysis.frames.choose import with_columns
from logitbank.analysis.stats.measure import Measure

if TYPE_CHECKING:
    from logitbank.analysis.families.fluctuation.metric import Fluctuation as Fluctuation
    from logitbank.analysis.families.fluctuation.metric import (
        corpus_frequencies as corpus_frequencies,
    )
    from logitbank.analysis.families.fluctuation.metric import (
        fluctuation_metric as fluctuation_metric,
    )
    from logitbank.analysis.frames.banks import Banks
    from logitbank.analysis.study import Study


def fluctuation(
    banks: "Banks",
    *,
    prompts: str | None = None,
    models: Sequence[str] | None = None,
    plateaus: Annotated[
        Sequence[str] | None,
        "First training steps of the stable phase, which ends at the last step, for all models or "
        "for one: 500000,760000 or MODEL=500000; repeatable. Default: half of the last step.",
    ] = None,
    frequencies: Annotated[
        str | None, "Table of corpus frequencies of professions (CSV or Parquet)."
    ] = None,
    corpus_sizes: Annotated[
        str | None, "Table of total words per year, for frequencies by year."
    ] = None,
    scores: Annotated[
        str | None, "New file (.csv or .parquet) for all scores, in the published format."
    ] = None,
    professions: Annotated[
        Sequence[str] | None,
        "Profession to plot; repeatable. Default: those with the smallest and largest coefficient "
        "of variation.",
    ] = None,
    run: Annotated[Sequence[str] | None, "Run to include, such as seed0; repeatable."] = None,
    verb: Annotated[
        Sequence[str] | None, "Verb of the sentences to include, such as 'works as'; repeatable."
    ] = None,
) -> "Study[Fluctuation]":
    """Measure how pronoun scores of professions vary between checkpoints.

    Parameters
    ----------
    banks
        As for `logitbank.fairness`. Score tables in the published format (.csv or .parquet) may be
        among them.
    plateaus
        Steps for all models, or texts as `MODEL=500000,760000` for one.
    prompts
        Name of the banks' prompt set; by default `professions`, or the only one with its columns.
    frequencies, corpus_sizes
        Tables for the frequency correlation, as `corpus_frequencies` reads them.

    `docs/metrics.md` documents these tables. `models` are those of `logitbank.fairness`, and other
    parameters those of `logitbank.analysis.fluctuation_metric`.

    Raises
    ------
    LogitbankError
        A missing source, or what `fluctuation_metric` refuses.
    """
    from dataclasses import replace

    import polars as pl

    from logitbank.analysis.families.fluctuation import metric
    from logitbank.analysis.frames.banks import split_files
    from logitbank.analysis.frames.input_files import is_table_path
    from logitbank.analysis.frames.reader import read_scores
    from logitbank.analysis.results.series import missing_sentences
    from logitbank.analysis.results.studies import make_study

    words = metric.read_frequencies(frequencies, corpus_sizes)
    named, files = split_files(banks, is_table_path)
    tables = {path.name: metric.read_scores(path) for path in files}
    source = read_scores(named, prompts, models, family=FAMILY)
    frames = metric.source_frames(source, [*tables.values()])
    if scores is not None:
        metric.write_scores(frames, scores)
    result = metric.fluctuation_metric(
        frames, plateaus=plateaus, frequencies=words, professions=professions,
        run=run, verb=verb,
        expected=source.expected_rows(metric.COLUMNS) if source.banks else None,
    )  # fmt: skip
    of_c = result.headline.measures.filter(measure=CERTAINTY.key)
    # The mean over runs is over all verbs and runs.
    family = FAMILY if run is None and verb is None else replace(FAMILY, measures=())
    return make_study(
        family, result, source, missing=missing_sentences(of_c, FAMILY.item),
        files=[pl.DataFrame({"table": [n], "rows": [len(t)]}) for n, t in tables.items()],
    )  # fmt: skip


LN_R, LN_N, HE, CERTAINTY = MEASURES = (
    Measure(
        name="ln_r", text="Mean ln R", form="+.3f", plus=("ln_r",), reference=0.0,
        meaning="“he” and “she” equally probable",
    ),
    Measure(
        name="ln_n", text="Mean ln N", form="+.3f", plus=("ln_n",), reference=0.0,
        meaning="as in the prior",
    ),
    Measure(
        name="he", text="“He” more probable", form=".1%", plus=("he",), share=True, reference=0.5,
        meaning="no preference",
    ),
    Measure(name="c", text="Mean C", plus=("c",), limits=(0, 1)),
)  # fmt: skip


FAMILY: Family = Family(
    name="fluctuation",
    title="Fluctuation",
    order=2,
    description=(
        "Each prompt asks whether “he” or “she” comes before a profession. R is the ratio "
        "P(he) / P(she). Its coefficient of variation (CV) over the checkpoints of a plateau, the "
        "late part of training, measures how much R differs between checkpoints. If the CV is "
        "large, a single checkpoint is not representative."
    ),
    cautions=(
        "“He” and “she” in two English templates stand for gender; other pronouns are not "
        "measured. A profession is one word or phrase among many that could name it.",
        "Neighbouring checkpoints are not independent. A CV over them describes variation, not "
        "uncertainty, and has no confidence interval.",
    ),
    notes=(
        "N is R divided by the prior's R, that of the same sentence without a profession. C = "
        "P(he) + P(she), over the whole vocabulary; R compares the two pronouns however small C "
        "is.",
        "Intervals (95%) of means are over professions, pointwise: they do not allow for the "
        "number of checkpoints.",
        "Correlations are over professions. Their 95% intervals (Fisher) treat the professions as "
        "a random sample, which they are not; fewer than ten professions give no interval.",
        "CVs and correlations are over the professions with a finite value at every checkpoint of "
        "the plateau, without public releases.",
    ),
    prompts=with_columns("verb", "occupation", "prior"),
    example="professions",
    item="sentence",
    cluster="profession",
    measures=MEASURES,
    items=lambda scores: import_module(".metric", __name__).read_items(scores),
    screen={
        "checkpoints": columns("verb c ln_r ln_n he items missing"),
        "plateaus": columns("first_step checkpoints prior_cv prior_certainty"),
        "spread": columns("measure min max mean median n excluded"),
        "correlations": columns("x y case r n excluded"),
        "run_pairs": columns("measure run_a run_b r n excluded"),
        "frequencies": columns("case rank occupation frequency"),
    },
    charts=lambda result: import_module(".charts", __name__).charts(result),
    findings=lambda result: import_module(".findings", __name__).findings(result),
    analyze=fluctuation,
)
register(FAMILY)
