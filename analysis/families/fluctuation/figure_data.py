"""The table behind each fluctuation figure. A figure draws its table and nothing else."""

import polars as pl

from logitbank.analysis.drawing.names import Tables, named_tables
from logitbank.analysis.families.fluctuation.cells import PRIOR
from logitbank.analysis.families.fluctuation.metric import Fluctuation

_SERIES = ["model", "run", "verb"]


def fluctuation_figure_data(result: Fluctuation) -> dict[str, pl.DataFrame]:
    """The table behind each figure, by the figure's name.

    Names are `trajectories`, `certainty_cv`, `checkpoint_pairs`, `run_pairs` and `frequencies`.
    Where a frame has several models, runs, verbs or plateaus, each has its own,
    `certainty_cv-<model>-<run>-<verb>-<plateau>`, with the parts that differ between figures of a
    kind. A table has one row per point, cell or bar drawn.
    """
    return named_tables({kind: tables(result) for kind, tables in _TABLES.items()})


def _trajectories(result: Fluctuation) -> Tables:
    start = _first_plateau(result)
    for table in result.trajectories.partition_by(_SERIES, maintain_order=True):
        yield _SERIES, table.join(start, on=_SERIES, how="left", maintain_order="left")


def _certainty_cv(result: Fluctuation) -> Tables:
    keys = [*_SERIES, "plateau"]
    columns = [*keys, "occupation", "prior", "measure", "certainty", "cv"]
    professions = result.professions.with_columns(prior=pl.lit(False))
    priors = result.plateaus.select(
        *keys,
        occupation=pl.lit(PRIOR),
        prior=pl.lit(True),
        certainty="prior_certainty",
        cv_r="prior_cv",
        cv_n="prior_cv",
    )
    both = [
        part.with_columns(measure=pl.lit(measure), cv=column).select(columns)
        for measure, column in (("R", "cv_r"), ("N", "cv_n"))
        for part in (professions, priors)
    ]
    r = result.correlations.filter(pl.col("x") == "certainty").select(
        *keys, pl.col("y").replace_strict({"cv_r": "R", "cv_n": "N"}).alias("measure"), "r"
    )
    points = pl.concat(both).filter(pl.col("certainty").is_finite() & pl.col("cv").is_finite())
    joined = points.join(r, on=[*keys, "measure"], how="left", maintain_order="left")
    for table in joined.partition_by(keys, maintain_order=True):
        if not table["prior"].all():
            yield keys, table


def _checkpoint_pairs(result: Fluctuation) -> Tables:
    start = _first_plateau(result)
    for pairs in result.checkpoint_pairs.partition_by(_SERIES, maintain_order=True):
        yield _SERIES, _square(pairs, "step_a", "step_b").join(start, on=_SERIES, how="left")


def _run_pairs(result: Fluctuation) -> Tables:
    keys = ["model", "verb", "plateau"]
    for pairs in result.run_pairs.partition_by(keys, maintain_order=True):
        yield keys, _square(pairs, "run_a", "run_b")


def _frequencies(result: Fluctuation) -> Tables:
    yield [], result.frequencies


_TABLES = {
    "trajectories": _trajectories,
    "certainty_cv": _certainty_cv,
    "checkpoint_pairs": _checkpoint_pairs,
    "run_pairs": _run_pairs,
    "frequencies": _frequencies,
}


def _square(pairs: pl.DataFrame, a: str, b: str) -> pl.DataFrame:
    """Both halves of a symmetric table; its diagonal is left to the reader."""
    turned = pairs.rename({a: b, b: a}).select(pairs.columns)
    return pl.concat([pairs, turned])


def _first_plateau(result: Fluctuation) -> pl.DataFrame:
    return result.plateaus.unique(_SERIES, keep="first").select(*_SERIES, "plateau", "first_step")
