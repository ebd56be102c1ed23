"""Train a filter on the instances of a bank, with NumPy and SciPy: no model is loaded."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
from scipy.optimize import minimize

from logitbank.analysis.debias.answers import answers
from logitbank.analysis.debias.instances import Instances
from logitbank.analysis.debias.loss import Loss, Objective, loss
from logitbank.errors import UsageError
from logitbank.store.filter.filters import Filter, Mode
from logitbank.store.format.schema import Json

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
    if training.objective == "direct":
        weight, intercept, losses = _by_lbfgs(given, start, training)
    else:
        weight, intercept, losses = _by_adamw(given, start, training)
    after = replace(start, weight=weight, bias=intercept)
    about = {**training.about, "trained": True, "k": given.k, "at_rest": at_rest}
    result = replace(after, about=about)
    flat = Filter.ones(given.k, training.mode, seed=training.seed)
    return Trained(result, flat, losses)


def _by_lbfgs(
    given: Instances, start: Filter, training: Training
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    k = given.k
    evaluated, losses = list[float](), list[float]()
    identity = _packed(np.eye(k), np.zeros(k))
    order = np.arange(len(given))
    chunks = [given.take(order[at : at + _CHUNK]) for at in range(0, len(given), _CHUNK)]

    def value(parameters: np.ndarray) -> tuple[float, np.ndarray]:
        at = replace(start, weight=parameters[: k * k].reshape(k, k), bias=parameters[k * k :])
        parts = [(len(c) / len(given), loss(c, at, "direct")) for c in chunks]
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
    return best.x[: k * k].reshape(k, k), best.x[k * k :], before


def _by_adamw(
    given: Instances, start: Filter, training: Training
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    k, losses = given.k, []
    parameters = _packed(start.weight, start.bias)
    first, second = np.zeros_like(parameters), np.zeros_like(parameters)
    decay_1, decay_2, least = _ADAM
    for step, chosen in enumerate(_batches(len(given), training), 1):
        at = replace(start, weight=parameters[: k * k].reshape(k, k), bias=parameters[k * k :])
        value = loss(given.take(chosen), at, "published")
        losses.append(value.value)
        gradient = _packed(value.weight, value.bias)
        first = decay_1 * first + (1 - decay_1) * gradient
        second = decay_2 * second + (1 - decay_2) * gradient**2
        moved = first / (1 - decay_1**step)
        spread = np.sqrt(second / (1 - decay_2**step)) + least
        parameters = parameters * (1 - training.learning_rate * _DECAY)
        parameters = parameters - training.learning_rate * moved / spread
    return parameters[: k * k].reshape(k, k), parameters[k * k :], np.array(losses)


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
            "--start identity, or the untrained filter as it is"
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
