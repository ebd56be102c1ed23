"""Items: what an analysis averages, one value for each at every checkpoint.

Families turn scores into tidy rows. Everything with a mean is computed from arrays of these:
values, intervals, changes since the first checkpoint, runs, and comparisons of banks. Axis
letters: `c` checkpoints, `p` items.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from logitbank.analysis.frames.codes import Codes, distinct
from logitbank.analysis.frames.expressions import Floats, same_as
from logitbank.analysis.frames.prompt_sums import CHECKPOINT, CHECKPOINT_SCHEMA
from logitbank.analysis.stats.measure import Measure
from logitbank.errors import UsageError
from logitbank.wording import checkpoint_name

PARTS = ("part", "order", "cluster", "item")
"""Columns of an item: the part of a measure to which it belongs, its option order, what is
resampled as a whole, and its name. All other columns are groups."""
_KEYS = pl.Schema(CHECKPOINT_SCHEMA)
Flags = NDArray[np.bool_]


class Items(NamedTuple):
    """The values of all items."""

    checkpoints: pl.DataFrame
    """c rows: model, run, step; sorted, a release (null step) after the steps."""
    axes: pl.DataFrame
    """p rows of text: groups, then `PARTS`; sorted."""
    values: Floats
    """(c, p), NaN without a value."""
    expected: Mapping[str, Flags]
    """Whether the prompt set has each item for a model, (p,); keys are models."""

    @property
    def groups(self) -> list[str]:
        return [name for name in self.axes.columns if name not in PARTS]

    @property
    def scored(self) -> pl.Series:
        """(c,) whether a checkpoint has a value."""
        # The first value says it as a rule; and no array of all values is made.
        some = [not (np.isnan(row[:1]).all() and np.isnan(row).all()) for row in self.values]
        return pl.Series(some, dtype=pl.Boolean)

    @property
    def missing(self) -> Flags:
        """(c, p) expected items without a value."""
        expected = [self.expected[model] for model in self.checkpoints["model"]]
        missing: Flags = np.isnan(self.values)
        missing &= np.array(expected, bool).reshape(missing.shape)
        return missing

    def rows(self, checkpoints: Codes) -> pl.DataFrame:
        """Items with a value at the checkpoints with these numbers, as tidy rows of text."""
        c, p = np.nonzero(~np.isnan(self.values[checkpoints]))
        at = checkpoints[c]
        values = pl.Series("value", self.values[at, p])
        return self.checkpoints[at].hstack(self.axes[p]).hstack([values])

    def chosen(self, which: Codes) -> "Items":
        """The items with these numbers."""
        expected = {model: flags[which] for model, flags in self.expected.items()}
        return Items(self.checkpoints, self.axes[which], self.values[:, which], expected)

    def only(self, **columns: object) -> "Items":
        """The items with these values of columns."""
        same = self.axes.select(same_as(columns, columns)).to_series()
        return self.chosen(same.arg_true().to_numpy().astype(np.int64))

    def by_group(self, *pooled: str) -> Iterator[tuple[dict[str, str], Codes]]:
        """Each combination of groups without `pooled`, and the sorted numbers of its items."""
        axes, numbers = self.axes.drop(pooled), np.arange(len(self.axes))
        if pooled:
            axes = axes[numbers := _order(axes)]
        groups = [name for name in self.groups if name not in pooled]
        if not groups:
            yield {}, numbers
            return
        heads = axes.select(groups).unique(maintain_order=True)
        codes = _numbers(axes, heads)
        for at, group in enumerate(heads.iter_rows(named=True)):
            yield group, numbers[codes == at]

    def pooled(self, *groups: str) -> "Items":
        """The items without some of their groups: those of all groups together."""
        axes = self.axes.drop(groups, strict=False)
        numbers = _order(axes)
        return self.chosen(numbers)._replace(axes=axes[numbers])

    def at(self, rows: Codes) -> "Items":
        """The items at the checkpoints with these numbers."""
        return self._replace(checkpoints=self.checkpoints[rows], values=self.values[rows])

    def at_steps(self, steps: Collection[int | None]) -> "Items":
        """The items at the checkpoints of these steps; None is a release."""
        found = self.checkpoints["step"].is_in(
            pl.Series([*steps], dtype=pl.Int64), nulls_equal=True
        )
        return self.at(found.arg_true().to_numpy().astype(np.int64))

    def values_of(self, axes: pl.DataFrame) -> Floats:
        """(c, p) the values of the items that other axes name, NaN where there is none."""
        if axes.equals(self.axes):
            return self.values
        found = axes.join(
            self.axes.with_row_index("at"), on=axes.columns, how="left", nulls_equal=True,
            maintain_order="left",
        )["at"]  # fmt: skip
        values = np.full((len(self.values), len(axes)), np.nan)
        values[:, found.is_not_null().to_numpy()] = self.values[:, found.drop_nulls().to_numpy()]
        return values

    def renamed(self, models: Mapping[str, str], runs: Mapping[str, str]) -> "Items":
        """The items of these models and runs, under their new names."""
        own = self.checkpoints.with_columns(
            pl.col("model").replace(models), pl.col("run").replace(runs)
        )
        expected = {models.get(name, name): flags for name, flags in self.expected.items()}
        return self._replace(checkpoints=own, expected=expected)

    def among(self, checkpoints: pl.DataFrame) -> "Items":
        """The items at the checkpoints that a table names, in its order."""
        numbered = self.checkpoints.with_row_index("at")
        found = checkpoints.select(CHECKPOINT).join(
            numbered, on=CHECKPOINT, nulls_equal=True, maintain_order="left"
        )
        return self.at(found["at"].to_numpy().astype(np.int64))


def common_items(a: Items, b: Items) -> tuple[Items, Items]:
    """The items that both have at the checkpoints of both, at each of these."""
    sides = a.among(b.checkpoints), b.among(a.checkpoints)
    a, b = (side.among(_sorted(side.checkpoints)) for side in sides)
    on = a.axes.columns
    axes = a.axes.with_row_index("a").join(b.axes.with_row_index("b"), on=on, nulls_equal=True)
    axes = axes.sort(on, nulls_last=True)
    a, b = (
        side.chosen(axes[name].to_numpy().astype(np.int64)) for side, name in ((a, "a"), (b, "b"))
    )
    absent = np.isnan(a.values) | np.isnan(b.values)
    return (
        a._replace(values=np.where(absent, np.nan, a.values)),
        b._replace(values=np.where(absent, np.nan, b.values)),
    )


def array_items(checkpoints: pl.DataFrame, axes: pl.DataFrame, values: Floats) -> Items:
    """Items whose values are an array (c, p), NaN without one; all are expected of each model.

    `checkpoints` has model, run and step. `axes` has one row per item, with the other columns of
    tidy rows but `value`, as for `gather_items`.
    """
    axes, checkpoints = _axes(axes), checkpoints.select(CHECKPOINT).cast(_KEYS)
    rows, columns = _order(checkpoints), _order(axes)
    expected = dict.fromkeys(checkpoints["model"], np.ones(len(axes), bool))
    return Items(checkpoints[rows], axes[columns], values[rows][:, columns], expected)


def gather_items(parts: Iterable[pl.DataFrame | Items]) -> Items:
    """Items of a few checkpoints at a time, in one array.

    Parameters
    ----------
    parts
        Tidy rows: model, run, step, item, and value, which is null for an expected item without
        one. Optional are `part`, `order`, `cluster` (by default the item), and columns of groups.
        Or items, which have the same groups.

    Raises
    ------
    UsageError
        An item has two values at a checkpoint.
    """
    blocks = [part if isinstance(part, Items) else _dense(part) for part in parts]
    if not blocks:
        axes = pl.DataFrame(schema=dict.fromkeys(PARTS, pl.String))
        return Items(pl.DataFrame(schema=_KEYS), axes, np.zeros((0, 0)), {})
    axes = blocks[0].axes
    if any(not block.axes.equals(axes) for block in blocks):
        axes = _sorted(pl.concat(block.axes for block in blocks).unique())
    checkpoints = _sorted(pl.concat(block.checkpoints for block in blocks).unique())
    values = np.full((len(checkpoints), len(axes)), np.nan)
    expected: dict[str, Flags] = {}
    while blocks:  # each is let go when it is copied
        block = blocks.pop()
        rows, columns = _numbers(block.checkpoints, checkpoints), _numbers(block.axes, axes)
        place = rows[:, None], columns
        known = ~np.isnan(block.values)
        twice = known & ~np.isnan(values[place])
        if twice.any():
            c, p = (int(at[0]) for at in np.nonzero(twice))
            raise _two_values(
                {**block.axes.row(p, named=True), **block.checkpoints.row(c, named=True)},
                int(twice.sum()),
            )
        values[place] = np.where(known, block.values, values[place])
        for model, flags in block.expected.items():
            expected.setdefault(model, np.zeros(len(axes), bool))[columns[flags]] = True
    return Items(checkpoints, axes, values, expected)


def missing_items(items: Items, measures: Sequence[Measure]) -> pl.DataFrame:
    """How many expected items of the measures have no value, at every checkpoint: `missing`.

    An item that is in several parts counts once, or twice if the first measure is a difference of
    two of them.
    """
    parts = {part for each in measures for part in (*each.plus, *each.minus)}
    side = pl.col("part").is_in(measures[0].minus)
    axes = items.axes.with_row_index("at").filter(pl.col("part").is_in(parts))
    names = axes.select(*items.groups, "item", side=side)
    codes = distinct(names)[1]
    number = np.array([
        len(np.unique(codes[row])) for row in items.missing[:, axes["at"].to_numpy()]
    ], np.int64)  # fmt: skip
    return items.checkpoints.with_columns(missing=pl.Series(number))


def _dense(rows: pl.DataFrame) -> Items:
    """The items of one part."""
    checkpoints, row = _in_order(rows.select(CHECKPOINT), lambda table: table.cast(_KEYS))
    axes, column = _in_order(rows.drop(*CHECKPOINT, "value"), _axes)
    cell = row * len(axes) + column
    values = np.full((len(checkpoints), len(axes)), np.nan)
    number = np.bincount(cell, minlength=values.size)
    if (number > 1).any():
        twice = int(np.flatnonzero(number[cell] > 1)[0])
        about = axes.row(int(column[twice]), named=True)
        raise _two_values(
            about | checkpoints.row(int(row[twice]), named=True), int((number > 1).sum())
        )
    values.reshape(-1)[cell] = rows["value"].cast(pl.Float64).fill_null(np.nan).to_numpy()
    expected = dict[str, Flags]()
    for model in checkpoints["model"].unique():
        own = np.flatnonzero((checkpoints["model"] == model).to_numpy())
        expected[model] = np.asarray(number.reshape(values.shape)[own].any(axis=0))
    return Items(checkpoints, axes, values, expected)


def _in_order(
    table: pl.DataFrame, name: Callable[[pl.DataFrame], pl.DataFrame]
) -> tuple[pl.DataFrame, Codes]:
    """The distinct rows of a table, which `name` casts, sorted; and which of them each row is."""
    rows, codes = distinct(table)
    named = name(table[rows])
    order = _order(named)
    return named[order], np.argsort(order)[codes]


def _axes(rows: pl.DataFrame) -> pl.DataFrame:
    """The columns of `Items.axes`: groups, then `PARTS`, with their defaults."""
    defaults = {"part": pl.lit(""), "order": pl.lit(""), "cluster": pl.col("item")}
    rows = rows.with_columns(**{k: v for k, v in defaults.items() if k not in rows.columns})
    groups = [name for name in rows.columns if name not in PARTS]
    return rows.select(pl.col(*groups, *PARTS).cast(pl.String))


def _two_values(row: Mapping[str, Any], number: int) -> UsageError:
    return UsageError(
        f"{_item_name(row)} has two values at {checkpoint_name(row)} "
        f"({number:,} such items). Name each prompt set and file once."
    )


def _item_name(row: Mapping[str, Any]) -> str:
    """An item and its groups.

    >>> _item_name({"model": "m", "template": "1", "item": "7", "value": 0.5})
    "Item '7' (template 1)"
    """
    groups = [name for name in row if name not in (*CHECKPOINT, *PARTS, "value")]
    about = ", ".join(f"{name} {row[name]}" for name in groups)
    return f"Item {row['item']!r}" + (f" ({about})" if about else "")


def _sorted(table: pl.DataFrame) -> pl.DataFrame:
    return table.sort(table.columns, nulls_last=True)


def _order(table: pl.DataFrame) -> Codes:
    """The numbers of the rows in the order of `_sorted`."""
    order = table.select(pl.arg_sort_by(table.columns, nulls_last=True)).to_series()
    return order.to_numpy().astype(np.int64)


def _numbers(rows: pl.DataFrame, table: pl.DataFrame) -> Codes:
    """The row of a table that has the same values as each row."""
    found = rows.select(pl.col(n).cast(t) for n, t in table.schema.items()).join(
        table.with_row_index("at"), on=table.columns, how="left", nulls_equal=True,
        maintain_order="left",
    )  # fmt: skip
    return found["at"].to_numpy().astype(np.int64)
