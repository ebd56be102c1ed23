"""Where the course of the gap between genders changes, and how sure that is."""

import polars as pl

from logitbank.analysis.families.fairness.baseline import draws_of
from logitbank.analysis.frames.expressions import scaled
from logitbank.analysis.stats.bootstrap import FEWEST_CLUSTERS
from logitbank.analysis.stats.change_points import CHANGE_COLUMNS, ChangeSearch
from logitbank.analysis.stats.significance import holm

SCHEMA = {"model": pl.String, "run": pl.String, **CHANGE_COLUMNS}


def change_point_table(
    gap: pl.DataFrame, *, from_step: int | None = None, seed: int = 0
) -> pl.DataFrame:
    """Change points of Δ in each run, scaled, from `change_points` over its steps.

    Releases are left out. `p_holm` adjusts `p_random_walk` for the number of runs.

    Parameters
    ----------
    gap
        The table of that name with the column `draws`.
    from_step
        First step of the search; by default the first one after the untrained phase.
    """
    search = ChangeSearch(from_step=from_step, seed=seed)
    rows = []
    steps = gap.filter(pl.col("step").is_not_null())
    for (model, run), part in steps.group_by("model", "run", maintain_order=True):
        draws = draws_of(part)
        few = (part["sentences"] < FEWEST_CLUSTERS).any()
        found = search.rows(
            part["step"].to_list(),
            scaled(part["delta_nats"].to_numpy()),
            scaled(draws[:0] if few else draws),
        )
        rows += [{"model": model, "run": run, **row} for row in found]
    return with_holm(pl.DataFrame(rows, schema=SCHEMA), ["model", "run"])


def with_holm(table: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    """The column `p_holm`, over the series of a table of changes."""
    tested = table.drop_nulls("p_random_walk").unique(keys, keep="first", maintain_order=True)
    adjusted = tested.select(*keys, p_holm=pl.Series(holm(tested["p_random_walk"])))
    return table.join(adjusted, on=keys, how="left", maintain_order="left")
