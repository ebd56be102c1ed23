"""The findings of a comparison: logits, divergence, ranks, metrics, and one-sided rows."""

from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from logitbank.analysis.comparison.metrics import Comparison
from logitbank.analysis.families import families
from logitbank.analysis.family import Family
from logitbank.analysis.finding import Finding
from logitbank.analysis.frames.expressions import same_as
from logitbank.analysis.results.measured import item_of
from logitbank.analysis.results.series import series_name
from logitbank.analysis.stats.correlation import pearson
from logitbank.wording import counted, number, step_name

FEWEST_CHECKPOINTS = 3
"""For a correlation over checkpoints."""
Names = Mapping[str, str]
"""`Comparison.names`."""


def findings(comparison: Comparison) -> list[Finding]:
    """A headline, numbers, metrics, and rows that are not compared."""
    d = comparison.logits
    if d.is_empty():  # only means over runs are compared
        return [*_limits(comparison)]
    names = comparison.names
    return [
        _headline(d, whole=comparison.only.is_empty()), *_logits(d), *_ranks(d),
        *_metrics(comparison.metrics, names, same=not _largest(d, "max_logit_difference")),
        *_prompts(comparison.prompts, names), *_origin(d, names), *_limits(comparison),
    ]  # fmt: skip


def _headline(d: pl.DataFrame, *, whole: bool) -> Finding:
    """The largest difference and changed top-1 tokens; `whole` if no side has rows of its own."""
    if not int(d["entries"].sum()):
        return Finding(text="No token is listed in both A and B, so that no logit is compared.")
    largest = _largest(d, "max_logit_difference")
    if not largest:
        if whole and not d["max_kl"].null_count():
            return Finding(text="A and B have the same logits.")
        return Finding(text="All compared logits of A and B are the same.")
    text = f"Logits differ by up to {number(largest)}"
    if known := int(d["rows"].sum()) - int(d["argmax_unknown"].sum()):
        share = int(d["argmax_changed"].sum()) / known
        of = "rows" if known == int(d["rows"].sum()) else f"{counted(known, 'known row')}"
        text += f"; the top-1 token changes in {share:.1%} of {of}"
    return Finding(text=f"{text}.")


def _logits(d: pl.DataFrame) -> Iterator[Finding]:
    rows, pairs = int(d["rows"].sum()), _pairs(len(d))
    n = f"{counted(int(d['entries'].sum()), 'logit')} in {counted(rows, 'row')} of {pairs}"
    full = d.drop_nulls("rounding")
    baseline = ""
    if len(full):
        baseline = f"{number(full['rounding'].max())} explained by the dtypes of storage"  # type: ignore[arg-type]
    if not int(d["entries"].sum()):
        return
    yield Finding(
        text="Largest difference of a logit", value=_largest(d, "max_logit_difference"),
        form=".3g", n=n, baseline=baseline,
    )  # fmt: skip
    yield Finding(
        text="Mean absolute difference of logits",
        value=_mean(d, "mean_logit_difference", "entries"), form=".3g", n=n,
    )  # fmt: skip
    if above := full.filter(pl.col("max_logit_difference") > pl.col("rounding")).height:
        yield Finding(text=f"Rounding does not explain the difference at {_pairs(above)}.")
    known = d.filter(pl.col("max_kl").is_not_null())
    if len(known):
        rows_text = counted(int(known["rows"].sum()), "full row")
        for text, value in (
            ("Largest KL(A‖B) of a row, nats", _largest(known, "max_kl")),
            ("Mean KL(A‖B), nats", _mean(known, "mean_kl", "rows")),
        ):
            yield Finding(text=text, value=value, form=".3g", n=rows_text)
    rest = d.filter(pl.col("max_kl").is_null())
    for (a, b), part in rest.group_by("kept_a", "kept_b", maintain_order=True):
        yield Finding(
            text=(
                f"No KL at {_pairs(len(part))}, which needs full rows of one vocabulary in both "
                f"(A stores {a}, B stores {b}). The logits in both lists are compared."
            )
        )


def _ranks(d: pl.DataFrame) -> Iterator[Finding]:
    unknown = int(d["argmax_unknown"].sum())
    unlisted = f"{counted(unknown, 'row')} excluded, with equal tokens that are not listed"
    if known := int(d["rows"].sum()) - unknown:
        yield Finding(
            text="Rows whose top-1 token differs", value=int(d["argmax_changed"].sum()) / known,
            form=".1%", n=counted(known, "row"), note=unlisted if unknown else "",
        )  # fmt: skip
    else:
        yield Finding(text=f"No row with a known top-1 token: {unlisted}.")
    if options := int(d["options"].sum()):
        most = max(d["max_rank_change"].drop_nulls())
        reach = f" (by up to {most:,})" if most else ""
        yield Finding(
            text=f"Options whose rank differs{reach}",
            value=int(d["ranks_changed"].sum()) / options, form=".2%",
            n=counted(options, "option"),
        )  # fmt: skip


def _metrics(metrics: pl.DataFrame, names: Names, *, same: bool) -> Iterator[Finding]:
    """The largest difference of each metric; none of 0 if all logits are the `same`.

    Of all groups together, and of single groups.
    """
    for (prompts, family, metric), part in metrics.group_by(
        "prompts", "family", "metric", maintain_order=True
    ):
        name = _text(str(family), str(metric))
        known = part.filter(pl.col("difference").is_finite())
        if same and (known["difference"] == 0).all():
            continue
        own = families()[str(family)]
        measures = (each for each in own.measures if each.name == metric)
        whole = pl.col("group").is_in([each.group for each in measures])
        parts = [rows for rows in (known.filter(whole), known.filter(~whole)) if len(rows)]
        for moved, of in zip(parts, ("", " of groups"), strict=False):
            what = f"largest of {len(moved):,} changes{of}" if len(moved) > 1 else "change"
            row = moved.sort(pl.col("difference").abs(), descending=True).row(0, named=True)
            yield Finding(
                text=f"{prompts}, {name}: {what}, {_where(row, names)}",
                value=row["difference"], low=row["low"], high=row["high"], form="+.3g",
                baseline=f"{number(row['a'])} in A",
                n=counted(row["items"], _item(own, row)),
            )  # fmt: skip
            curve = moved.filter(same_as(row, ("model", "run", "group")))
            r = pearson(curve["a"], curve["b"]).r
            if len(curve) >= FEWEST_CHECKPOINTS and r == r:
                group = f" of {row['group']}" if row["group"] else ""
                yield Finding(
                    text=f"{prompts}, {name}{group}: correlation of A and B over"
                    f" checkpoints of {_compared(row, names)}",
                    value=r, form=".3f", n=counted(len(curve), "checkpoint"),
                )  # fmt: skip


def _item(family: Family, row: Mapping[str, Any]) -> str:
    """What an item of a measure is called; measures of one name differ in their group."""
    measures = [each for each in family.measures if each.name == row["metric"]]
    group = str(row["group"])
    best = max(measures, key=lambda each: len(each.group) if group.startswith(each.group) else -1)
    return item_of(family, best.key)


def _text(family: str, metric: str) -> str:
    """The text of the measures of one name, up to where they differ."""
    texts = [each.text for each in families()[family].measures if each.name == metric]
    return texts[0] if len(texts) == 1 else texts[0].partition(",")[0]


def _prompts(prompts: pl.DataFrame, names: Names) -> Iterator[Finding]:
    """The prompt with the largest difference of each prompt set."""
    for (name,), part in prompts.group_by("prompts", maintain_order=True):
        row = part.sort(pl.col("difference").abs(), descending=True).row(0, named=True)
        yield Finding(
            text=(
                f"{name}: largest change of a prompt at the last checkpoint, option "
                f"“{str(row['option']).strip()}” of {row['prompt_id']} "
                f"({_where({**row, 'group': ''}, names)})"
            ),
            value=row["difference"], form="+.3f", baseline=f"{row['a']:.3f} in A",
        )  # fmt: skip


def _origin(d: pl.DataFrame, names: Names) -> Iterator[Finding]:
    """Engines, compute dtypes, storage levels and weights; the names of A and B if one differs."""
    pair = next(iter(names.items())) if len(names) == 1 else ("", "")
    for side, name in zip(("a", "b"), pair, strict=True):
        columns = [f"{name}_{side}" for name in ("engine", "compute", "kept")]
        kinds = d.select(columns).unique(maintain_order=True)
        text = "; ".join(
            f"engine {engine or 'unknown'}, computed in {compute or 'unknown dtype'}, stores {kept}"
            for engine, compute, kept in kinds.iter_rows()
        )
        yield Finding(text=f"{side.upper()}{f' ({name})' if name else ''}: {text}.")
    if unequal := d.filter(~pl.col("same_weights")).height:
        yield Finding(text=f"Weights differ at {unequal:,} of {_pairs(len(d))}.")


def _limits(comparison: Comparison) -> Iterator[Finding]:
    for side in ("a", "b"):
        only = comparison.only.filter(pl.col(f"only_{side}") > 0)
        if len(only):
            rows = counted(int(only[f"only_{side}"].sum()), "row")
            yield Finding(text=f"Only {side.upper()} has {rows}, of {_pairs(len(only))}.")
    if comparison.unmeasured:
        known = ", ".join(name for name, family in families().items() if family.items)
        yield Finding(
            text=f"No metrics of {', '.join(comparison.unmeasured)} (supported: {known})."
        )


def _pairs(count: int) -> str:
    return counted(count, "checkpoint × query set", "checkpoints × query sets")


def _largest(d: pl.DataFrame, column: str) -> float:
    return float(d[column].max() or 0)  # type: ignore[arg-type]


def _mean(frame: pl.DataFrame, value: str, weight: str) -> float:
    part = frame.drop_nulls(value)
    return float((part[value] * part[weight]).sum()) / max(int(part[weight].sum()), 1)


def _compared(row: Mapping[str, Any], names: Names) -> str:
    """The model and run in A, and those in B if they have other names."""
    other = {key: names.get(row[key], row[key]) for key in ("model", "run")}
    return " → ".join(dict.fromkeys([series_name(row), series_name(other)]))


def _where(row: Mapping[str, Any], names: Names) -> str:
    group = f", {row['group']}" if row["group"] else ""
    return f"{_compared(row, names)} at {step_name(row['step'])}{group}"
