"""The filter's data, losses and training, against torch's own gradients and optimizer."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from logitbank.analysis.debias.answers import Objective, answers, bias, loss
from logitbank.analysis.debias.instances import Instances
from logitbank.analysis.debias.train import Start, Training, published, train
from logitbank.errors import UsageError
from logitbank.store.filter.filters import Filter, Mode

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.numerical


def drawn(n: int = 12, k: int = 5, seed: int = 0, *, outside: float = 0.2) -> Instances:
    """Instances whose subjects have two forms, some of them outside the k."""
    random = np.random.default_rng(seed)
    logits = -np.sort(-random.normal(size=(n, 4, k)) * 2, axis=2)
    slots = np.stack(
        [[random.permutation(k)[:4].reshape(2, 2) for _ in range(4)] for _ in range(n)]
    )
    slots[random.random(slots.shape) < outside] = -1
    mass = np.log(random.uniform(0.3, 0.9, size=(n, 4)))
    rest = random.uniform(0, 0.1, size=(n, 4, 2)) * (random.random((n, 4, 2)) < outside)
    names = pl.DataFrame({"instance": [f"i{i}" for i in range(n)]})
    return Instances(logits, mass, slots.astype(np.int16), rest, names)


def without_rounding(x: torch.Tensor) -> torch.Tensor:
    """Rounding has no sign here either; no real value is as small."""
    size = x.detach().abs()
    assert not ((size > 1e-12) & (size < 1e-8)).any(), "too near to rounding to be told from it"
    return torch.where(size < 1e-12, torch.zeros_like(x), x)


def torch_loss(
    drawn_instances: Instances,
    weight: torch.Tensor,
    intercept: torch.Tensor,
    mode: Mode,
    objective: str,
) -> torch.Tensor:
    """The objective as the paper writes it, one instance and one subject at a time."""
    rows = []
    for i in range(len(drawn_instances)):
        questions = []
        for j in range(4):
            q = torch.softmax(
                weight @ torch.tensor(drawn_instances.logits[i, j]) + intercept, dim=0
            )
            if mode == "keep_tail":
                q = q * float(np.exp(drawn_instances.log_mass[i, j]))
            pair = []
            for subject in range(2):
                forms = [q[s] for s in drawn_instances.slots[i, j, subject] if s >= 0]
                if mode == "keep_tail":
                    forms.append(torch.tensor(drawn_instances.rest[i, j, subject]))
                pair.append(torch.stack(forms).max() if forms else torch.zeros((), dtype=q.dtype))
            questions.append(torch.stack(pair))
        rows.append(torch.stack(questions))
    p = torch.stack(rows)
    b = [(p[:, 0, x] + p[:, 1, x]) / 2 - (p[:, 2, x] + p[:, 3, x]) / 2 for x in range(2)]
    c = without_rounding((b[0] - b[1]) / 2)
    if objective == "direct":
        return c.abs().mean()
    a = p / p.sum(dim=1, keepdim=True).clamp(min=1e-12)
    f = torch.stack(
        [
            torch.stack(
                [without_rounding(a[i] - a[j]).abs().sum(dim=1).mean() for j in range(len(a))]
            ).mean()
            for i in range(len(a))
        ]
    )
    return -(-c.abs().detach() * f.log()).mean()


@pytest.mark.parametrize("mode", ["truncate", "keep_tail"])
@pytest.mark.parametrize("objective", ["direct", "published"])
@pytest.mark.parametrize("start", ["ones", "identity", "drawn"])
def test_loss_and_gradient_are_torchs(mode: Mode, objective: Objective, start: str) -> None:
    drawn_instances = drawn()
    random = np.random.default_rng(5)
    by = {
        "ones": Filter.ones(5, mode),
        "identity": Filter.identity(5, mode),
        "drawn": Filter(random.normal(size=(5, 5)), random.normal(size=5), mode),
    }[start]
    weight, intercept = (torch.tensor(x, requires_grad=True) for x in (by.weight, by.bias))
    want = torch_loss(drawn_instances, weight, intercept, mode, objective)
    want.backward()
    found = loss(drawn_instances, by, objective)
    assert found.value == pytest.approx(want.item(), rel=1e-9)
    np.testing.assert_allclose(found.weight, weight.grad.numpy(), atol=1e-11)  # type: ignore[union-attr]
    np.testing.assert_allclose(found.bias, intercept.grad.numpy(), atol=1e-11)  # type: ignore[union-attr]


def alike(drawn_instances: Instances, number: int) -> Instances:
    """The first instances have subjects of the same ranks, and the same forms, in all questions."""
    drawn_instances.slots[:number] = drawn_instances.slots[:number, :1]
    return drawn_instances


@pytest.mark.parametrize("objective", ["direct", "published"])
def test_on_the_kink_the_gradient_is_torchs_where_torch_is_exact(objective: Objective) -> None:
    """Logits and a bias of eighths have exact sums in any order: torch's C is 0 there as well."""
    drawn_instances = alike(drawn(8, 4, 6, outside=0.0), 5)
    drawn_instances.logits[:] = -np.sort(-np.round(drawn_instances.logits * 8) / 8, axis=2)
    by = Filter(np.ones((4, 4)), np.array([0.25, -0.5, 0.375, 0.0]), "truncate")
    assert np.count_nonzero(answers(drawn_instances, by).bias == 0) == 5
    weight, intercept = (torch.tensor(x, requires_grad=True) for x in (by.weight, by.bias))
    want = torch_loss(drawn_instances, weight, intercept, "truncate", objective)
    want.backward()
    found = loss(drawn_instances, by, objective)
    assert found.value == pytest.approx(want.item(), rel=1e-12)
    np.testing.assert_allclose(found.weight, weight.grad.numpy(), atol=1e-14)  # type: ignore[union-attr]
    np.testing.assert_allclose(found.bias, intercept.grad.numpy(), atol=1e-14)  # type: ignore[union-attr]
    assert found.bias.any()


@pytest.mark.parametrize("offset", [0.0, 3000.0])
@pytest.mark.parametrize("objective", ["direct", "published"])
def test_answers_that_are_all_alike_have_no_gradient_but_rounding(
    objective: Objective, offset: float
) -> None:
    drawn_instances = alike(drawn(30, 5, outside=0.0), 30)
    drawn_instances.logits[:] += offset
    found = loss(drawn_instances, Filter.ones(5), objective)
    assert found.value == 0
    assert not found.weight.any()
    assert not found.bias.any()


@pytest.mark.parametrize("mode", ["truncate", "keep_tail"])
@pytest.mark.parametrize("objective", ["direct", "published"])
def test_the_order_in_which_a_processor_adds_does_not_decide_the_gradient(
    mode: Mode, objective: Objective, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn_instances, by = alike(drawn(20, 5), 10), Filter.ones(5, mode)
    here = loss(drawn_instances, by, objective)

    def scores(self: Filter, logits: np.ndarray) -> np.ndarray:
        z = np.zeros_like(logits)
        for i in range(self.k):  # each row of the product adds up in another order
            for j in np.roll(np.arange(self.k), i):
                z[i] += self.weight[i, j] * logits[j]
        z += self.bias[:, None]
        return z - z.max(axis=0)

    monkeypatch.setattr(Filter, "_scores", scores)
    elsewhere = loss(drawn_instances, by, objective)
    assert elsewhere.value == pytest.approx(here.value, rel=1e-9)
    np.testing.assert_allclose(elsewhere.weight, here.weight, atol=1e-11)
    np.testing.assert_allclose(elsewhere.bias, here.bias, atol=1e-11)


def mean_bias(drawn_instances: Instances, by: Filter | None) -> float:
    """Mean |C| after a filter."""
    return float(np.abs(answers(drawn_instances, by).bias).mean())


def test_training_leaves_a_start_where_some_are_alike_and_refuses_one_where_all_are() -> None:
    ones = Training(start="ones", mode="truncate")
    drawn_instances = alike(drawn(300, 6, 1, outside=0.0), 100)
    some = train(drawn_instances, ones)
    assert some.filter.about["at_rest"] == pytest.approx(1 / 3, abs=0.02)
    assert mean_bias(drawn_instances, some.filter) < 0.01 * mean_bias(
        drawn_instances, some.untrained
    )
    with pytest.raises(UsageError, match=r"\|C\| is 0 in all 40 instances"):
        train(alike(drawn(40, 6, 1, outside=0.0), 40), ones)
    drawn_instances = alike(drawn(300, 6, 1, outside=0.0), 285)
    most = train(drawn_instances, ones)
    assert mean_bias(drawn_instances, most.filter) == pytest.approx(
        mean_bias(drawn_instances, most.untrained), rel=1e-9
    )
    identity = train(drawn_instances, replace(ones, start="identity"))
    assert identity.filter.about["at_rest"] == 0


@pytest.mark.parametrize("start", ["ones", "identity"])
@pytest.mark.parametrize("objective", ["direct", "published"])
def test_a_gradient_reaches_every_parameter(start: Start, objective: Objective) -> None:
    by = Training(start=start).begin(5)
    found = loss(drawn(), by, objective)
    assert np.all(found.weight)
    assert np.all(found.bias)


def test_a_step_of_adamw_is_torchs() -> None:
    """Five batches of all instances, in an order that plays no part; see `_batches`."""
    drawn_instances = drawn(9, 4)
    training = Training(
        objective="published", start="ones", mode="truncate", batch_size=9,
        mini_batch_size=9, epochs=5,
        learning_rate=1e-2,
    )  # fmt: skip
    trained = train(drawn_instances, training)
    start = training.begin(4)
    weight, intercept = (torch.nn.Parameter(torch.tensor(x)) for x in (start.weight, start.bias))
    optimizer = torch.optim.AdamW([weight, intercept], lr=1e-2)
    random = np.random.default_rng(0)
    for _ in range(5):
        chosen = random.permutation(9)[random.integers(9, size=9)]
        optimizer.zero_grad()
        torch_loss(
            drawn_instances.take(chosen), weight, intercept, "truncate", "published"
        ).backward()
        optimizer.step()
    np.testing.assert_allclose(trained.filter.weight, weight.detach().numpy(), atol=1e-9)
    np.testing.assert_allclose(trained.filter.bias, intercept.detach().numpy(), atol=1e-9)
    assert len(trained.losses) == 5


def test_direct_training_lowers_the_bias_and_regularisation_holds_it_back() -> None:
    drawn_instances = drawn(200, 6, 2)
    free, held = (train(drawn_instances, Training(regularisation=r)) for r in (0.0, 10.0))
    before, of_free, of_held = (
        mean_bias(drawn_instances, by) for by in (None, free.filter, held.filter)
    )
    assert of_free < 0.5 * before
    assert of_free < of_held <= before
    apart = [np.abs(t.filter.weight - np.eye(6)).max() for t in (free, held)]
    assert apart[1] < 0.01 < apart[0]


def test_published_rates_barely_move_the_filter_whose_start_flattens_already() -> None:
    drawn_instances = drawn(300, 8, 4)
    trained = train(drawn_instances, published("gender", "bert"))
    untrained = mean_bias(drawn_instances, trained.untrained)
    assert untrained < 0.5 * mean_bias(drawn_instances, None)
    assert mean_bias(drawn_instances, trained.filter) == pytest.approx(untrained, rel=1e-3)
    assert np.abs(trained.filter.weight - 1).max() < 1e-6
    assert trained.filter.about["learning_rate"] == 5e-9
    assert trained.filter.about["trained"] is True
    assert trained.untrained.about["trained"] is False


def test_subjects_outside_the_k_have_probability_0_and_are_counted() -> None:
    drawn_instances = drawn(2, 4, outside=0.0)
    drawn_instances.slots[0, 1, 0] = -1
    found = answers(drawn_instances, Filter.identity(4))
    assert found.probabilities[0, 1, 0] == 0
    assert drawn_instances.coverage == 15 / 16
    share = np.exp(drawn_instances.logits[0, 0]) / np.exp(drawn_instances.logits[0, 0]).sum()
    want = share[drawn_instances.slots[0, 0, 1]].max() * np.exp(drawn_instances.log_mass[0, 0])
    assert found.probabilities[0, 0, 1] == pytest.approx(want)
    np.testing.assert_allclose(answers(drawn_instances, None).probabilities, found.probabilities)


def test_bias_is_the_joint_comparison_by_hand() -> None:
    p = np.array([[[0.4, 0.1], [0.2, 0.3], [0.1, 0.1], [0.3, 0.5]]])
    b1, b2 = (0.4 + 0.2) / 2 - (0.1 + 0.3) / 2, (0.1 + 0.3) / 2 - (0.1 + 0.5) / 2
    assert bias(p)[0] == pytest.approx((b1 - b2) / 2)


@pytest.mark.parametrize(
    "change",
    [
        {"batch_size": 1}, {"epochs": 0}, {"learning_rate": -1.0}, {"regularisation": float("nan")},
        {"objective": "other"}, {"start": "zeros"},
    ],
)  # fmt: skip
def test_invalid_settings_are_refused(change: dict[str, object]) -> None:
    (name,) = change
    with pytest.raises(UsageError, match=name):
        Training(**change)  # type: ignore[arg-type]


def test_instances_must_have_a_gradient() -> None:
    with pytest.raises(UsageError, match="5 highest logits"):
        train(drawn(outside=1.0), Training())
    with pytest.raises(UsageError, match="at least 2 instances"):
        train(drawn(1), Training())
    with pytest.raises(UsageError, match="'age'"):
        published("age", "bert")
