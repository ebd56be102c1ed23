"""Train a filter on the instances of a bank, with NumPy and SciPy, and measure it on others."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import polars as pl
from scipy.optimize import minimize

from logitbank.analysis.debias.answers import Objective, answers, loss, measured
from logitbank.analysis.debias.findings import TRAIN_NOTES, train_findings
from logitbank.analysis.debias.instances import Instances, instance_reader
from logitbank.analysis.debias.results import FILTERS, Debias, without_rounding
from logitbank.analysis.frames.expected import missing_note
from logitbank.analysis.frames.expressions import check_choice
from logitbank.analysis.study import Study
from logitbank.errors import UsageError
from logitbank.store import Bank
from logitbank.store.bank import open_bank
from logitbank.store.filter.filters import Filter, Mode
from logitbank.store.format.schema import Json

Start = Literal["ones", "identity"]
Preset = Literal["bert", "roberta", "causal"]
"""Kinds of models with published settings."""
_ADAM = (0.9, 0.999, 1e-8)
_DECAY = 0.01
_CHUNK = 2048
"""Instances whose arrays stay in a processor's cache: ten times as fast as all at once."""


@dataclass(frozen=True, slots=True)
class Training:
    """How a filter is trained."""

    objective: Objective = "direct"
    mode: Mode = "keep_tail"
    start: Start = "identity"
    regularisation: float = 0.0
    """For `direct`: λ/2 times the squared distance from the identity filter."""
    learning_rate: float = 5e-5
    """For `published`, as the fields below: AdamW with a weight decay of 0.01."""
    batch_size: int = 70
    mini_batch_size: int = 70
    """Instances drawn with replacement from each batch."""
    epochs: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        for name, choices in (("objective", Objective), ("mode", Mode), ("start", Start)):
            check_choice(name, getattr(self, name), get_args(choices))
        least = {"batch_size": 2, "mini_batch_size": 2, "epochs": 1, "learning_rate": 0}
        for name, lowest in {**least, "regularisation": 0}.items():
            if not lowest <= getattr(self, name) < np.inf:
                raise UsageError(f"{name} {getattr(self, name)} must be at least {lowest}.")

    def begin(self, k: int) -> Filter:
        """The filter before training."""
        if self.start == "ones":
            return Filter.ones(k, self.mode, seed=self.seed)
        return Filter.identity(k, self.mode)

    @property
    def provenance(self) -> dict[str, Json]:
        """The settings that matter, for the filter's provenance."""
        # The seed of the untrained filter's bias is kept so that the filter can be made again.
        common = {"objective": self.objective, "start": self.start, "seed": self.seed}
        if self.objective == "direct":
            return {**common, "regularisation": self.regularisation, "optimizer": "L-BFGS"}
        return {
            **common, "optimizer": "AdamW", "weight_decay": _DECAY,
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


def published(category: str, preset: Preset) -> Training:
    """The settings of Qureshi et al. 2024: all weights 1, truncated, one epoch.

    Raises
    ------
    UsageError
        Another category or preset.
    """
    check_choice("preset", preset, get_args(Preset))
    check_choice("category", category, tuple(_PUBLISHED))
    batch, mini_batch, bert, roberta = _PUBLISHED[category]
    rate = bert if preset == "bert" else roberta
    if preset == "causal":
        batch, mini_batch, rate = 256, 128, 2e-5
    return Training(
        objective="published", mode="truncate", start="ones", learning_rate=rate,
        batch_size=batch, mini_batch_size=mini_batch,
    )  # fmt: skip


@dataclass(frozen=True)
class Trained:
    """A trained filter and how it was found."""

    filter: Filter
    untrained: Filter
    """The filter with all weights 1, of the same size and mode."""
    losses: np.ndarray
    """(steps,): before each step."""


def train(data: Instances, training: Training) -> Trained:
    """Train a filter on instances.

    `direct` is minimised by L-BFGS over all instances at once; `published` by AdamW, as published:
    each batch is resampled with replacement, every instance of it is compared with every other.

    With the start `ones` and the mode `truncate`, instances whose subjects have the same ranks in
    all four questions have C = 0, the minimum of |C|, and the gradient 0. Only the others move the
    filter. AdamW follows them; L-BFGS stops at the start if every step raises the |C| of the first
    kind by more than it lowers the others' (in 24 sets of 300 drawn instances: always with 80 % or
    more at 0, never with less than 74 %). If all have C = 0, training is refused.

    Raises
    ------
    UsageError
        There are too few instances, no subject is among the k, or every C is 0 at the start.
    """
    if len(data) < 2:
        raise UsageError(f"Training needs at least 2 instances, not {len(data)}.")
    start = training.begin(data.k)
    if not data.coverage:
        raise UsageError(
            f"No subject is among the {data.k} highest logits of any question. Use a larger --k, or"
            " prompts that the model answers with names."
        )
    at_rest = float((answers(data, start).bias == 0).mean())
    if at_rest == 1:
        raise UsageError(
            f"|C| is 0 in all {len(data):,} instances before training ({start.mode}, start"
            f" {training.start}), so there is no gradient. Use `Training(start='identity')`, or"
            " instances with a bias."
        )
    minimized = _by_lbfgs if training.objective == "direct" else _by_adamw
    found, losses = minimized(data, start, training)
    about = {**training.provenance, "trained": True, "k": data.k, "at_rest": at_rest}
    untrained = Filter.ones(data.k, training.mode, seed=training.seed)
    return Trained(replace(found, about=about), untrained, losses)


def _by_lbfgs(data: Instances, start: Filter, training: Training) -> tuple[Filter, np.ndarray]:
    """The filter with the least loss, and the loss before each step."""
    evaluated, losses = list[float](), list[float]()
    identity = _packed(np.eye(data.k), np.zeros(data.k))
    order = np.arange(len(data))
    chunks = [data.take(order[first : first + _CHUNK]) for first in range(0, len(data), _CHUNK)]

    def value(parameters: np.ndarray) -> tuple[float, np.ndarray]:
        filter_ = _unpacked(parameters, start)
        parts = [(len(c) / len(data), loss(c, filter_, "direct")) for c in chunks]
        distance = parameters - identity
        total = sum(share * part.value for share, part in parts)
        total += training.regularisation / 2 * float(distance @ distance)
        evaluated.append(total)
        slope = sum(share * _packed(part.weight, part.bias) for share, part in parts)
        return total, slope + training.regularisation * distance

    best = minimize(
        value, _packed(start.weight, start.bias), jac=True, method="L-BFGS-B",
        options={"maxiter": 200, "ftol": 1e-7},
        callback=lambda _: losses.append(evaluated[-1]),  # after a step, which evaluates several
    )  # fmt: skip
    before = np.array([evaluated[0], *losses])[: len(losses)]
    return _unpacked(best.x, start), before


def _by_adamw(data: Instances, start: Filter, training: Training) -> tuple[Filter, np.ndarray]:
    """The filter after all epochs, and the loss before each step."""
    losses = []
    parameters = _packed(start.weight, start.bias)
    first, second = np.zeros_like(parameters), np.zeros_like(parameters)
    decay_1, decay_2, least = _ADAM
    for step, chosen in enumerate(_batches(len(data), training), 1):
        value = loss(data.take(chosen), _unpacked(parameters, start), "published")
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
    """Instances in a drawn order, in batches, each resampled; the last may be smaller."""
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


def debias_train(
    bank: str | Path | Bank,
    *,
    prompts: str,
    k: int | None = None,
    training: Training | None = None,
    preset: Preset | None = None,
    mode: Mode | None = None,
    split: str | None = "train",
    model: str | None = None,
    run: str | None = None,
    step: int | None = None,
    he_she: bool = False,
    out: str | Path | None = None,
) -> Study[Debias]:
    """Train a filter on UnQover's instances in a bank; the model is not loaded.

    Parameters
    ----------
    bank
        A bank that lists at least `k` highest tokens for each question (`--keep topk:64`).
    prompts
        Name of the prompt set, such as `unqover-gender`.
    k
        Number of logits that the filter reads; by default 10 with the preset for causal models,
        else 8, as published.
    training
        Settings; by default `Training()`.
    preset
        Published settings for such models and the set's category, instead of `training`.
    mode
        Probability of tokens beyond the k highest, instead of that of `training` or `preset`.
    split
        Part that the filter is trained on; None for all. It is also measured on the other part.
    model, run, step
        The checkpoint; by default the only model and run, at its last step or its release.
    he_she
        Also count the pronoun of its gender as a mention of a name.
    out
        File for the filter, in safetensors with its provenance.

    Raises
    ------
    LogitbankError
        The bank does not contain the instances, or they have no gradient; both `training` and
        `preset`.

    References
    ----------
    Qureshi et al. 2024. Not in the paper: the objective `direct`, the mode `keep_tail` and the
    identity start.
    """
    if out is not None and Path(out).exists():
        raise UsageError(f"{out} exists already. Choose another name or remove it.")
    if training is not None and preset is not None:
        raise UsageError(
            f"Preset {preset} has its own training settings. Use either a preset or training"
            " settings (--regularisation)."
        )
    opened = open_bank(bank, rows=True)
    reader = instance_reader(
        opened, prompts, k=k or (10 if preset == "causal" else 8), model=model, run=run, step=step,
        he_she=he_she,
    )  # fmt: skip
    parts = {split or "all": reader.read(split)}
    data = parts[split or "all"]
    if preset is not None:
        training = published(data.names["category"][0], preset)
    training = training or Training()
    training = replace(training, mode=mode or training.mode)
    trained = train(data, training)
    about = {**trained.filter.about, **reader.provenance(split)}
    about |= {"instances": len(data), "coverage": data.coverage}
    filter_ = replace(trained.filter, about=about)
    other = {"train": "test", "test": "train"}.get(split or "")
    splits = opened.prompts(prompts).select("split").unique().collect()["split"]
    if other is not None and other in splits:
        parts[other] = reader.read(other)
    filters = dict(zip(FILTERS[:3], (None, trained.untrained, filter_), strict=True))
    rows: list[Mapping[str, Any]] = [
        {"split": name, "filter": label,
         **measured(part, answers(part, each).probabilities),
         "missing": part.missing}
        for name, part in parts.items()
        for label, each in filters.items()
    ]  # fmt: skip
    losses = pl.DataFrame({"loss": trained.losses}).with_row_index("step")
    result = Debias(without_rounding(pl.DataFrame(rows)), losses, filter_, trained.untrained)
    if out is not None:
        filter_.save(Path(out))
    return Study(
        result=result,
        findings=tuple(train_findings(result)),
        missing=tuple(
            f"{name}: {missing_note(part.missing, 'instance')}"
            for name, part in parts.items()
            if part.missing
        ),
        notes=TRAIN_NOTES,
        title=f"Training of a filter: {about['model']}",
        description="UnQover's measures without a filter, with an untrained and a trained one.",
        banks=[opened],
    )
