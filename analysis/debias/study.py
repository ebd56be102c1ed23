"""Train a filter on what a bank has, and say what it does to instances that it has not seen."""

from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path

import polars as pl

from logitbank.analysis.debias.data import instances
from logitbank.analysis.debias.instances import Instances
from logitbank.analysis.debias.measures import measured
from logitbank.analysis.debias.train import Preset, Trained, Training, published, train
from logitbank.analysis.frames.expected import missing_sentence
from logitbank.analysis.results.study import Study
from logitbank.analysis.results.tables import Result
from logitbank.analysis.results.words import Summary
from logitbank.errors import UsageError
from logitbank.store import Bank, Deposit
from logitbank.store.bank import open_unfiltered
from logitbank.store.filter.filters import Filter
from logitbank.store.tables import query_tables
from logitbank.version import __version__

FILTERS = ("none", "untrained", "trained")


@dataclass(frozen=True, slots=True)
class Debias(Result):
    """A trained filter, and what it does."""

    bias: pl.DataFrame
    """One row for each split × filter (none, untrained, trained): `mu`, `eta`, `abs_c`,
    `positional`, `attributive`, each with its 95 % interval, `coverage`, `instances`, and
    `missing` ones, of which the checkpoint has no score. A filter that truncates gives subjects
    outside its k the probability 0."""
    losses: pl.DataFrame
    """Loss before each step."""
    by: Filter
    untrained: Filter


def debias_train(
    bank: str | Path | Bank,
    *,
    prompts: str,
    k: int | None = None,
    training: Training = Training(),  # noqa: B008 (frozen)
    preset: Preset | None = None,
    split: str | None = "train",
    model: str | None = None,
    run: str | None = None,
    step: int | None = None,
    he_she: bool = False,
    bootstrap: int = 1000,
    out: str | Path | None = None,
) -> Study[Debias]:
    """Train a filter on UnQover's instances in a bank; the model is not loaded.

    Parameters
    ----------
    bank
        One that lists at least `k` highest tokens for each question (`--keep topk:64`).
    prompts
        Name of the prompt set, such as `unqover-gender`.
    k
        Logits that the filter sees; by default 10 with the preset for causal models, else 8, as
        published.
    preset
        Settings as published for such models and the set's category, in place of `training`.
    split
        Part that it is trained on; None for all. The other part tells what it learnt.
    model, run, step
        The checkpoint; by default the only model and run, at its last step or its release.
    he_she
        The pronoun stands for the name of its gender too.
    bootstrap
        Resamples for intervals; 0 for none.
    out
        File for the filter, in safetensors with its provenance.

    Raises
    ------
    LogitbankError
        The bank lacks what is asked for, or nothing can be learnt from it.

    References
    ----------
    Qureshi et al. 2024. Ours: the objective `direct`, the mode `keep_tail` and the identity start.
    """
    out = None if out is None else Path(out)
    if out is not None and out.exists():
        raise UsageError(f"{out} is there already; choose another name or remove it")
    k = k or (10 if preset == "causal" else 8)
    opened = open_unfiltered(bank, rows=True)
    given, deposit = instances(
        opened, prompts, k=k, split=split, model=model, run=run, step=step, he_she=he_she
    )
    if preset is not None:
        training = published(given.names["category"][0], preset)
    trained = train(given, training)
    about = {
        **trained.by.about,
        **about_of(opened, deposit, prompts, split=split, he_she=he_she),
        "instances": len(given),
        "coverage": given.coverage,
    }
    by = replace(trained.by, about=about)
    parts = {split or "all": given}
    if (other := {"train": "test", "test": "train"}.get(split or "")) is not None:
        parts |= _other(opened, prompts, deposit, k=k, split=other, he_she=he_she)
    result = _debias(parts, trained, by, bootstrap)
    if out is not None:
        by.save(out)
    left_out = [
        f"{name}: {missing_sentence(part.missing, 'instance')}"
        for name, part in parts.items()
        if part.missing
    ]
    return Study(result, Summary(tuple(_summary(result)), left_out=tuple(left_out)))


def _other(
    bank: Bank, prompts: str, deposit: Deposit, *, k: int, split: str, he_she: bool
) -> dict[str, Instances]:
    """The other part, where the bank has one."""
    splits = bank.prompts(prompts).select("split").unique().collect()["split"]
    if split not in splits:
        return {}
    checkpoint = deposit.checkpoint
    other_instances, _ = instances(
        bank, prompts, k=k, split=split, model=checkpoint.model, run=checkpoint.run,
        step=checkpoint.step, he_she=he_she,
    )  # fmt: skip
    return {split: other_instances}


def about_of(
    bank: Bank, deposit: Deposit, prompts: str, *, split: str | None, he_she: bool
) -> dict[str, str | int | bool | None]:
    checkpoint, weights = deposit.checkpoint, deposit.spec.provenance.get("weights")
    return {
        "model": checkpoint.model,
        "run": checkpoint.run,
        "step": checkpoint.step,
        "weights": None if weights is None else str(weights),
        "tokenizer": query_tables.tokenizer_of(bank.path, deposit.query_set),
        "prompts": prompts,
        "split": split,
        "he_she": he_she,
        "logitbank_version": __version__,
    }


def _debias(parts: dict[str, Instances], trained: Trained, by: Filter, bootstrap: int) -> Debias:
    rows = [
        {
            "split": name,
            "filter": label,
            **measured(given, filter_, bootstrap=bootstrap),
            "missing": given.missing,
        }
        for name, given in parts.items()
        for label, filter_ in zip(FILTERS, (None, trained.untrained, by), strict=True)
    ]
    losses = pl.DataFrame({"loss": trained.losses}).with_row_index("step")
    return Debias(pl.DataFrame(rows), losses, by, trained.untrained)


def _summary(result: Debias) -> list[str]:
    about, lines = result.by.about, []
    rest = "gives the others 0" if result.by.mode == "truncate" else "cannot move the others"
    lines.append(
        f"A filter of {result.by.k} logits ({result.by.mode}) for {about['model']}, trained on"
        f" {about['instances']:,} instances of {about['prompts']}; {about['coverage']:.1%} of the"
        f" subject slots are among them, and the filter {rest}."
    )
    for split in result.bias["split"].unique(maintain_order=True):
        rows = {row["filter"]: row for row in result.bias.iter_rows(named=True)
                if row["split"] == split}  # fmt: skip
        parts = []
        for label in FILTERS:
            row = rows[label]
            interval = (
                f" [{row['abs_c_low']:.4f} to {row['abs_c_high']:.4f}]"
                if isfinite(row.get("abs_c_low", float("nan")))
                else ""
            )
            parts.append(f"{row['abs_c']:.4f}{interval} {_LABELS[label]}")
        lines.append(
            f"{split}: mean |C| {', '.join(parts)}; positional error"
            f" {rows['none']['positional']:.4f}, {rows['untrained']['positional']:.4f} and"
            f" {rows['trained']['positional']:.4f}."
        )
    lines.append(
        "Untrained is the filter with all weights 1, with which the published training begins: it"
        " answers alike whatever the logits are, so that what it does to the bias is no merit of"
        " training."
    )
    lines += _start_line(result)
    last = result.bias.tail(len(FILTERS))
    if (after := last["abs_c"][2]) >= last["abs_c"][0]:
        lines.append(
            f"On {last['split'][0]}, the trained filter ({after:.4f}) is no better than none; train"
            " it on more instances, with --regularisation, or on prompts whose subjects are among"
            " the k."
        )
    lines.append(
        "Less bias alone is no success: `logitbank debias compare` shows what it costs in language"
        " modelling."
    )
    return lines


def _start_line(result: Debias) -> list[str]:
    """Where training from all weights 1 begins at the least of some |C|, and whether it left."""
    about, at_rest = result.by.about, result.by.about.get("at_rest")
    if about.get("start") != "ones" or not isinstance(at_rest, float) or not at_rest:
        return []
    line = (
        f"{at_rest:.1%} of the instances have C = 0 before training, where |C| is least and has no"
        " gradient; only the others move the filter."
    )
    _, untrained, trained = result.bias["abs_c"][: len(FILTERS)]
    if about["objective"] == "direct" and trained >= untrained * (1 - _NO_STEP):
        line += (
            " It did not leave its start, as every way from there raises |C| in the former;"
            " --start identity begins elsewhere."
        )
    return [line]


_NO_STEP = 1e-6
"""Relative change of mean |C| below which L-BFGS has stopped where it began."""
_LABELS = {"none": "without a filter", "untrained": "untrained", "trained": "trained"}
