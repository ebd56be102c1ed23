"""Tables that show some measures of a table of measures side by side."""

from collections.abc import Sequence

import polars as pl

from logitbank.analysis.frames.prompt_sums import CHECKPOINT


def groups_of(measures: pl.DataFrame) -> list[str]:
    """The columns of groups of a table of measures."""
    return measures.columns[len(CHECKPOINT) : measures.columns.index("measure")]


def side_by_side(
    table: pl.DataFrame, measures: Sequence[tuple[str, str, str]], *, by: str = ""
) -> pl.DataFrame:
    """Some measures of a table of them: a row per checkpoint and group.

    Each of `measures` is a key, a name and a group. `by` names the column of the groups of the
    measures; "" if they have none. One measure has the columns of its rows, and its name for
    `value`. Several have NAME, NAME_low and NAME_high, and the items, clusters and missing items of
    the first; those without a row in the table have no columns. Nor has a group that is empty for
    these measures, and not for others.
    """
    keys, of_keys, groups = zip(*measures, strict=True)
    keyed, names = pl.DataFrame({"measure": keys, "name": of_keys}), list(dict.fromkeys(of_keys))
    keyed = keyed.with_columns(pl.Series(by or "by", groups))
    rows = table.join(keyed, on="measure", maintain_order="left")
    empty = [
        name
        for name in groups_of(table)
        if len(rows) and (rows[name] == "").all() and (table[name] != "").any()
    ]
    rows = rows.drop(empty)
    shown = [name for name in groups_of(table) if name not in empty]
    key = [*CHECKPOINT, *shown, *([by] if by else [])]
    if len(names) == 1:
        rest = rows.drop(*key, "measure", "name", "by", strict=False)
        return rows.select(*key, *rest.columns).rename({"value": names[0]})
    order = pl.col("measure").cast(pl.Enum([*dict.fromkeys(keys)]))
    counts = pl.col("items", "clusters", "missing").sort_by(order).first()
    first = rows.group_by(key, maintain_order=True).agg(counts)
    wide = first.select(key)
    for name in names:
        own = rows.filter(name=name)
        if own.is_empty() and len(rows):
            continue
        own = own.select(
            *key, pl.col("value").alias(name), pl.col("low", "high").name.prefix(f"{name}_")
        )
        wide = wide.join(own, on=key, how="left", nulls_equal=True, maintain_order="left")
    return wide.hstack(first.select("items", "clusters", "missing"))
