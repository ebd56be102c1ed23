"""Which filter of a search is chosen, and the sentences that say so."""

import numpy as np
import polars as pl


def judged(rows: pl.DataFrame, give_up: float) -> tuple[pl.DataFrame, int]:
    """With `front` and `best`, and the row of the best trained filter."""
    floor = rows["chosen_by_lms"][0] - give_up
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


def search_summary(table: pl.DataFrame, give_up: float) -> list[str]:
    none = table.row(0, named=True)
    best = table.filter("best").row(0, named=True)
    lines = [
        f"Without a filter: mean |C| {none['abs_c']:.4f}, iCAT {none['icat']:.1f}, lms"
        f" {none['lms']:.1f}, ss {none['ss']:.1f}.",
        f"Best by less |C| on attributes that were held out, giving up at most {give_up:g} points"
        f" of lms: {_name(best)}, with |C| {best['abs_c']:.4f}, iCAT {best['icat']:.1f}, lms"
        f" {best['lms']:.1f}, ss {best['ss']:.1f}, positional error {best['positional']:.4f} for"
        f" {none['positional']:.4f}.",
    ]
    chosen = table.filter("best_filter").row(0, named=True)
    least = none["chosen_by_lms"] - give_up
    rivals = table.filter(pl.col("kind") == "temperature")
    rival = rivals.filter(pl.col("chosen_by_lms") >= least).sort("chosen_by_abs_c")
    if chosen["chosen_by_lms"] < least:
        lines.append(
            f"No trained filter stays within {give_up:g} points of lms; the one that gives up least"
            f" is {_name(chosen)}, with |C| {chosen['abs_c']:.4f} and lms {chosen['lms']:.1f}."
        )
    elif len(rival):
        other = rival.row(0, named=True)
        verb = "beats" if chosen["abs_c"] < other["abs_c"] else "does not beat"
        lines.append(
            f"The best trained filter ({_name(chosen)}) {verb} a temperature, the simple baseline:"
            f" |C| {chosen['abs_c']:.4f} against {other['abs_c']:.4f} ({_name(other)})."
        )
    if len(rivals) and not len(rival):
        lines.append(f"No temperature stays within {give_up:g} points of lms.")
    prior = table.filter(pl.col("kind") == "prior").row(0, named=True)
    lines.append(
        f"Dividing by the prior gives |C| {prior['abs_c']:.4f}; it needs every attribute's"
        " questions and says nothing of StereoSet."
    )
    return lines


def _name(row: dict[str, object]) -> str:
    if row["kind"] == "filter":
        return f"a filter with k = {row['k']} and λ = {row['regularisation']:g}"
    if row["kind"] == "temperature":
        return f"temperature {row['temperature']:g}"
    return {"none": "no filter", "untrained": f"the untrained filter with k = {row['k']}"}.get(
        str(row["kind"]), str(row["kind"])
    )
