"""Train a filter on the instances of a bank, with NumPy and SciPy, and measure it on others."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import polars as pl
from scipy.optimize import minimize

from logitbank.analysis.debias.answers import Loss, Objective, answers, loss, measured
from logitbank.analysis.debias.instances import Instances, instances
from logitbank.analysis.frames.expected import missing_sentence
from logitbank.analysis.results.tables import Result
from logitbank.analysis.study import Study
from logitbank.errors import UsageError
from logitbank.store import Bank, Deposit
from logitbank.store.bank import open_unfiltered
from logitbank.store.filter.filters import Filter, Mode
from logitbank.store.format.schema import Json
from logitbank.store.tables import query_tables
from logitbank.version import __version__

FILTERS = ("none", "untrained", "trained")

Start = Literal["ones", "identity"]
Preset = Literal["bert", "roberta", "causal"]
"""Models for which there are published settings."""
_ADAM = (0.9, 0.999, 1e-8)
_DECAY = 0.01
_CHUNK = 2048
"""Instances whose arrays stay in a processor's cache: ten times as fast as all at once."""
_LOOK = 1000
"""Instances that are looked at before training: is there anything to learn?"""


@dataclass(frozen=True, slots=True)
class Training:
    """How a filter is trained."""

    objective: Objective = "direct"
    mode: Mode = "keep_tail"
    start: Start = "identity"
    regularisation: float = 0.0
    """Of `direct`: λ/2 times the squared distance from the identity filter."""
    learning_rate: float = 5e-5
    """Of `published`, as those that follow: AdamW with a weight decay of 0.01."""
    batch_size: int = 70
    mini_batch_size: int = 70
    """Drawn with replacement from each batch."""
    epochs: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        for name, kind in (("objective", Objective), ("mode", Mode), ("start", Start)):
            if getattr(self, name) not in get_args(kind):
                raise UsageError(
                    f"{name} {getattr(self, name)!r} is unknown; use {' or '.join(get_args(kind))}"
                )
        for name, least in (
            ("batch_size", 2),
            ("mini_batch_size", 2),
            ("epochs", 1),
            ("learning_rate", 0),
        ):
            if getattr(self, name) < least:
                raise UsageError(f"{name} {getattr(self, name)} is too low; use at least {least}")
        if not (np.isfinite(self.regularisation) and self.regularisation >= 0):
            raise UsageError(f"regularisation {self.regularisation} is no number of at least 0")

    def begin(self, k: int) -> Filter:
        """The filter before training."""
        if self.start == "ones":
            return Filter.ones(k, self.mode, seed=self.seed)
        return Filter.identity(k, self.mode)

    @property
    def about(self) -> dict[str, Json]:
        """What of it counts, for the filter's provenance."""
        said: dict[str, Json] = {"objective": self.objective, "start": self.start}
        said["seed"] = self.seed  # of the untrained filter's bias, so that it can be made again
        if self.objective == "direct":
            return {**said, "regularisation": self.regularisation, "optimizer": "L-BFGS"}
        return {
            **said, "optimizer": "AdamW", "weight_decay": _DECAY,
            "learning_rate": self.learning_rate, "batch_size": self.batch_size,
            "mini_batch_size": self.mini_batch_size, "epochs": self.epochs,
        }  # fmt: skip


# Category to batch and mini-batch; then the learning rate of BERT and DistilBERT, of RoBERTa.
_PUBLISHED = {
    "gender": (70, 70, 5e-9, 5e-5),
    "ethnicity": (10, 10, 5e-7, 5e-5),
    "religion": (20, 20, 5e-7, 5e-9),
    "nationality": (140, 70, 5e-9, 5e-7),
}


def published(category: str, family: Preset) -> Training:
    """The settings of Qureshi et al. 2024: all weights 1, truncated, one epoch.

    Raises
    ------
    UsageError
        Another category or family.
    """
    common: Mapping[str, object] = {"objective": "published", "mode": "truncate", "start": "ones"}
    if category not in _PUBLISHED or family not in get_args(Preset):
        raise UsageError(
            f"there are no published settings for {category!r} and {family!r}; there are some for"
            f" {', '.join(_PUBLISHED)} and {', '.join(get_args(Preset))}"
        )
    if family == "causal":
        return Training(learning_rate=2e-5, batch_size=256, mini_batch_size=128, **common)  # type: ignore[arg-type]
    batch, mini_batch, bert, roberta = _PUBLISHED[category]
    rate = bert if family == "bert" else roberta
    return Training(learning_rate=rate, batch_size=batch, mini_batch_size=mini_batch, **common)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Trained:
    """A filter, the one with all weights 1 of its size and mode, and its way."""

    by: Filter
    untrained: Filter
    losses: np.ndarray
    """(steps,): of each step, before it."""


def train(given: Instances, training: Training) -> Trained:
    """Train a filter on instances.

    `direct` is minimised by L-BFGS over all instances at once; `published` by AdamW, as published:
    each batch is resampled with replacement, every instance of it is compared with every other.

    With the start `ones` and the mode `truncate`, instances whose subjects have the same ranks in
    all four questions are answered alike in all of them: C is 0, the least of |C|, and the gradient
    is taken as 0. Only the others move the filter away from there. AdamW follows them; L-BFGS finds
    no way on where that raises the |C| of the former by more than it lowers theirs, and stops where
    it began (in 24 sets of 300 drawn instances: always with 80 % or more at 0, never with less than
    74 %). Where all are at 0, nothing can be learnt from that start, which is refused.

    Raises
    ------
    UsageError
        There are too few instances; no subject is among the k; a start where every C is 0 already;
        or a parameter has no gradient for another reason.
    """
    if len(given) < 2:
        raise UsageError(f"{len(given)} instance is too few to train on; use at least 2")
    start = training.begin(given.k)
    if not given.coverage:
        raise UsageError(
            f"no subject is among the {given.k} highest logits of any question, so nothing can be"
            " learnt; use a larger --k, or prompts that the model answers with names"
        )
    at_rest = _at_rest(given, start)
    _require_gradient(
        loss(given.take(np.arange(min(len(given), _LOOK))), start, training.objective)
    )
    minimized = _by_lbfgs if training.objective == "direct" else _by_adamw
    after, losses = minimized(given, start, training)
    about = {**training.about, "trained": True, "k": given.k, "at_rest": at_rest}
    result = replace(after, about=about)
    flat = Filter.ones(given.k, training.mode, seed=training.seed)
    return Trained(result, flat, losses)


def _by_lbfgs(given: Instances, start: Filter, training: Training) -> tuple[Filter, np.ndarray]:
    """The filter with the least loss, and the loss before each step."""
    evaluated, losses = list[float](), list[float]()
    identity = _packed(np.eye(given.k), np.zeros(given.k))
    order = np.arange(len(given))
    chunks = [given.take(order[at : at + _CHUNK]) for at in range(0, len(given), _CHUNK)]

    def value(parameters: np.ndarray) -> tuple[float, np.ndarray]:
        by = _unpacked(parameters, start)
        parts = [(len(c) / len(given), loss(c, by, "direct")) for c in chunks]
        apart = parameters - identity
        total = sum(share * part.value for share, part in parts)
        total += training.regularisation / 2 * float(apart @ apart)
        evaluated.append(total)
        slope = sum(share * _packed(part.weight, part.bias) for share, part in parts)
        return total, slope + training.regularisation * apart

    best = minimize(
        value, _packed(start.weight, start.bias), jac=True, method="L-BFGS-B",
        options={"maxiter": 200, "ftol": 1e-7},
        callback=lambda _: losses.append(evaluated[-1]),  # after a step, which evaluates several
    )  # fmt: skip
    before = np.array([evaluated[0], *losses])[: len(losses)]
    return _unpacked(best.x, start), before


def _by_adamw(given: Instances, start: Filter, training: Training) -> tuple[Filter, np.ndarray]:
    """The filter after all epochs, and the loss before each step."""
    losses = []
    parameters = _packed(start.weight, start.bias)
    first, second = np.zeros_like(parameters), np.zeros_like(parameters)
    decay_1, decay_2, least = _ADAM
    for step, chosen in enumerate(_batches(len(given), training), 1):
        value = loss(given.take(chosen), _unpacked(parameters, start), "published")
        losses.append(value.value)
        gradient = _packed(value.weight, value.bias)
        first = decay_1 * first + (1 - decay_1) * gradient
        second = decay_2 * second + (1 - decay_2) * gradient**2
        moved = first / (1 - decay_1**step)
        spread = np.sqrt(second / (1 - decay_2**step)) + least
        parameters = parameters * (1 - training.learning_rate * _DECAY)
        parameters = parameters - training.learning_rate * moved / spread
    return _unpacked(parameters, start), np.array(losses)


def _batches(number: int, training: Training) -> Iterator[np.ndarray]:
    """Instances in a drawn order, in batches, each resampled; what is left at an end is one too."""
    random = np.random.default_rng(training.seed)
    for _ in range(training.epochs):
        order = random.permutation(number)
        for start in range(0, number, training.batch_size):
            batch = order[start : start + training.batch_size]
            yield batch[random.integers(len(batch), size=training.mini_batch_size)]


def _packed(weight: np.ndarray, intercept: np.ndarray) -> np.ndarray:
    return np.concatenate([weight.ravel(), intercept])


def _unpacked(parameters: np.ndarray, start: Filter) -> Filter:
    k = start.k
    return replace(start, weight=parameters[: k * k].reshape(k, k), bias=parameters[k * k :])


def _at_rest(given: Instances, start: Filter) -> float:
    """Share of the instances with C = 0 before training, where neither objective has a gradient."""
    share = float((answers(given, start).bias == 0).mean())
    if share < 1:
        return share
    raise UsageError(
        f"before training, |C| is 0 in all {len(given):,} instances, which is the least that it can"
        f" be, so nothing can be learnt from there ({start.mode}, start"
        f" {start.about['start']}); use "
        + (
            "`Training(start='identity')` in Python, or the untrained filter as it is"
            if start.about["start"] == "ones"
            else "instances that the model answers with a bias"
        )
    )


def _require_gradient(value: Loss) -> None:
    """A layer that is cut off from its loss learns nothing, and nobody notices."""
    if not (np.all(value.weight) and np.all(value.bias)):
        still = int((value.weight == 0).sum() + (value.bias == 0).sum())
        raise UsageError(
            f"{still} of the filter's parameters have no gradient at the first step, so they cannot"
            " be trained; use more instances, a larger batch, or another start"
        )


@dataclass(frozen=True, slots=True)
class Debias(Result):
    """A trained filter, and what it does."""

    bias: pl.DataFrame
    """One row for each split × filter (none, untrained, trained): `mu`, `eta`, `abs_c`,
    `positional`, `attributive`, each with its 95 % interval; `coverage`, `instances`, and `missing`
    instances, which have no score. A filter that truncates gives subjects outside its k the
    probability 0."""
    losses: pl.DataFrame
    """Loss before each step."""
    by: Filter
    untrained: Filter


def debias_train(
    bank: str | Path | Bank,
    *,
    prompts: str,
    k: int | None = None,
    training: Training = Training(),
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
        Part that it is trained on; None for all. It is measured on the other part as well.
    model, run, step
        The checkpoint; by default the only model and run, at its last step or its release.
    he_she
        Also count the pronoun of its gender as a mention of a name.
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
    Qureshi et al. 2024. Not in the paper: the objective `direct`, the mode `keep_tail` and the
    identity start.
    """
    from logitbank.analysis.debias.charts import train_charts
    from logitbank.analysis.debias.findings import TRAIN_NOTES, train_findings

    out = None if out is None else Path(out)
    if out is not None and out.exists():
        raise UsageError(f"{out} exists already. Choose another name or remove it.")
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
    return Study(
        result=result,
        findings=tuple(train_findings(result)),
        missing=tuple(
            f"{name}: {missing_sentence(part.missing, 'instance')}"
            for name, part in parts.items()
            if part.missing
        ),
        notes=TRAIN_NOTES,
        title=f"Training of a filter: {about['model']}",
        description="UnQover's measures without a filter, with an untrained and a trained one.",
        banks=[opened],
        make_charts=train_charts,
    )


def _other(
    bank: Bank, prompts: str, deposit: Deposit, *, k: int, split: str, he_she: bool
) -> dict[str, Instances]:
    """The other part, if the bank has one."""
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
