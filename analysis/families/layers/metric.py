"""Layers: after which of them the right option is the first, by a logit lens, through training."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from logitbank.analysis.families.layers.asked import Asked
from logitbank.analysis.frames.expected import expected_query_sets
from logitbank.analysis.frames.pieces import together
from logitbank.analysis.results.tables import Result
from logitbank.analysis.stats.shares import with_wilson
from logitbank.store import Bank, Deposit
from logitbank.store.deposits.lens import lens_at

LAYERS = pl.Schema(
    {
        "model": pl.String(), "run": pl.String(), "step": pl.Int64(), "prompt_set": pl.String(),
        "layer": pl.Int64(), "prompts": pl.Int64(), "first": pl.Float64(), "low": pl.Float64(),
        "high": pl.Float64(), "logprob": pl.Float64(),
    }
)  # fmt: skip
SETTLED = pl.Schema(
    {
        "model": pl.String(), "run": pl.String(), "step": pl.Int64(), "prompt_set": pl.String(),
        "prompts": pl.Int64(), "settled": pl.Float64(), "layer": pl.Float64(), "last": pl.Int64(),
    }
)  # fmt: skip
CHECKPOINTS = pl.Schema(
    {
        "model": pl.String(), "run": pl.String(), "step": pl.Int64(), "prompt_set": pl.String(),
        "prompts": pl.Int64(), "missing": pl.Int64(), "answered": pl.Int64(), "long": pl.Int64(),
    }
)  # fmt: skip
Values = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Layers(Result):
    """What `layers_metric` found, over the prompts of which a checkpoint has every option."""

    layers: pl.DataFrame
    """One row per checkpoint, prompt set and layer: prompts; first, the share of them whose right
    option has more than every other, with its 95 % interval (Wilson; NaN for fewer than ten
    prompts); logprob, the mean log-probability of the right option among the options, nats."""
    settled: pl.DataFrame
    """One row per checkpoint and prompt set: prompts; settled, the share of them whose right option
    is the first after the last layer; layer, from which on it stays so, the median over these,
    null where there is none; last, the last layer that is kept."""
    checkpoints: pl.DataFrame
    """One row per checkpoint and prompt set: prompts, those missing, answered (that name a right
    option), and long: those left out as options of several tokens."""


def layers_metric(
    bank: Bank,
    prompts: Sequence[str],
    *,
    models: Collection[str] | None = None,
    several_tokens: bool = True,
) -> Layers:
    r"""How the right option fares after each layer that a bank keeps, at every checkpoint.

    With :math:`z_o` the logit of option *o*, as the head gives it of the state after a layer (of
    several tokens, the sum of their log-probabilities):

    ``first``
        Share of prompts with :math:`z_r > z_o` for every other option *o*; *r* is the right one.
    ``logprob``
        Mean of :math:`z_r - \ln\sum_o e^{z_o}`, nats.
    ``settled``, ``layer``
        Share of prompts with *r* first after the last layer, and the median, over these, of the
        first layer from which on it is so after every layer.

    The right option is the prompt's answer; a prompt without one is told by its first option. A
    prompt counts once: means over its option orders come first; ``layer`` is over prompts and
    orders. Prompts of one option, and those that only others need as their condition, are left
    out. Equal logits count as not first. Logits are float32 products, the rest is float64.

    Parameters
    ----------
    prompts
        Names of prompt sets. Those of which no chosen checkpoint keeps layers have no rows.
    models
        Only these; all if None.
    several_tokens
        Whether to ask prompts with options of several tokens, or at several positions, too: they
        take products with the whole head, of every layer of every checkpoint.

    Raises
    ------
    BankError
        A prompt set is not there.
    DamagedError
        Stored bytes are not what was committed, or a head is not there.

    References
    ----------
    nostalgebraist 2020, "interpreting GPT: the logit lens". Of a masked model the transform before
    its head comes first, as of the final norm of a causal one.
    """
    found: dict[str, list[pl.DataFrame]] = {
        "layers": [pl.DataFrame(schema=LAYERS)],
        "settled": [pl.DataFrame(schema=SETTLED)],
        "checkpoints": [pl.DataFrame(schema=CHECKPOINTS)],
    }
    for name in prompts:
        table = bank.prompts(name).collect()
        series = _series(bank, name, models)
        expected = expected_query_sets(bank, name)  # now: others may have begun a model before
        for (model, run), deposits in series.items():
            own = table.filter(pl.col("query_set").is_in(list(expected[model])))
            asked = Asked.of(own, several_tokens=several_tokens)
            results = [_tables(at_step, asked) for at_step in deposits.values()]
            for step, tables in zip(deposits, results, strict=True):
                head = {"model": model, "run": run, "step": step, "prompt_set": name}
                for kind, rows in tables.items():
                    where = [pl.lit(v, LAYERS[k]).alias(k) for k, v in head.items()]
                    found[kind].append(rows.select(*where, pl.all()))
    return Layers(**{kind: together(tables) for kind, tables in found.items()})


def _series(
    bank: Bank, prompts: str, models: Collection[str] | None
) -> dict[tuple[str, str], dict[int | None, list[Deposit]]]:
    """Deposits that keep layers, by model and run, and by step, the release last."""
    series: dict[tuple[str, str], dict[int | None, list[Deposit]]] = {}
    deposits = [d for d in bank.deposits_of(prompts) if d.layers]
    for deposit in sorted(deposits, key=lambda d: (d.checkpoint.step is None, d.checkpoint.step)):
        at = deposit.checkpoint
        if models is None or at.model in models:
            series.setdefault((at.model, at.run), {}).setdefault(at.step, []).append(deposit)
    return series


def _tables(deposits: Sequence[Deposit], asked: Asked) -> dict[str, pl.DataFrame]:
    """The rows of one checkpoint in each table, without what names it."""
    layers = sorted(set.intersection(*({*deposit.layers} for deposit in deposits)))
    options = _options(asked, deposits, layers)
    logprob, first = asked.logprob(options), asked.first(options)
    whole = ~np.isnan(logprob).any(axis=0)
    whole &= ~np.isin(asked.prompt_id, asked.prompt_id[~whole])  # every order of a prompt
    answered = np.unique(asked.prompt_id[asked.answered])
    prompts, every = np.unique(asked.prompt_id[whole]), np.unique(asked.prompt_id)
    about = {
        "prompts": len(prompts),
        "missing": len(every) - len(prompts),
        "answered": len(answered),
        "long": asked.long,
    }
    checkpoint = pl.DataFrame([about])
    if not len(prompts) or not layers:
        empty = {"layers": LAYERS, "settled": SETTLED}
        heads = ("model", "run", "step", "prompt_set")
        tables = {kind: pl.DataFrame(schema=schema) for kind, schema in empty.items()}
        return {kind: t.drop(heads) for kind, t in tables.items()} | {"checkpoints": checkpoint}
    by_layer = pl.concat(
        _by_layer(asked.prompt_id[whole], layers, first[:, whole], logprob[:, whole])
    )
    table = with_wilson(by_layer, "first", "prompts")
    shares = table.select("layer", "prompts", "first", "low", "high", "logprob")
    return {
        "layers": shares,
        "settled": pl.DataFrame(
            {
                "prompts": [len(prompts)],
                "settled": [by_layer["first"][-1]],
                "layer": [_settled(layers, first[:, whole])],
                "last": [layers[-1]],
            },
            schema_overrides={"layer": pl.Float64},
        ),
        "checkpoints": checkpoint,
    }


def _options(asked: Asked, deposits: Sequence[Deposit], layers: Sequence[int]) -> Values:
    """(l, o) sums over the pieces of each option after layers; NaN where one is not there."""
    pieces = np.full((len(layers), asked.pieces), np.nan)
    for deposit in deposits:
        for normalised, places in asked.places_in(deposit.query_set):
            block = places.row // deposit.layout.block_rows
            there = np.isin(block, list(deposit.committed()))
            row, token, piece = (each[there] for each in places)
            found = lens_at(deposit.kept, layers, row, token, normalised=normalised)
            pieces[:, piece] = found
    return np.add.reduceat(pieces, asked.first_piece, axis=1) if asked.pieces else pieces


def _by_layer(
    prompt_id: np.ndarray, layers: Sequence[int], first: NDArray[np.bool_], logprob: Values
) -> Iterator[pl.DataFrame]:
    """A row for each layer: means over prompts of means over their orders."""
    for at, layer in enumerate(layers):
        each = pl.DataFrame({"id": prompt_id, "first": first[at], "logprob": logprob[at]})
        # In the order of prompts, as the last bit of a mean depends on it.
        prompts = each.group_by("id").agg(pl.col("first", "logprob").mean()).sort("id")
        yield prompts.select(
            pl.lit(layer, pl.Int64).alias("layer"),
            pl.len().cast(pl.Int64).alias("prompts"),
            pl.col("first", "logprob").mean(),
        )


def _settled(layers: Sequence[int], first: NDArray[np.bool_]) -> float | None:
    """The median of the layers from which on prompts (l, p) are right; None where none ends so."""
    stays = np.logical_and.accumulate(first[::-1], axis=0)[::-1]
    ends = stays[-1]
    at = stays.argmax(axis=0)[ends]
    return float(np.median(np.asarray(layers)[at])) if len(at) else None
