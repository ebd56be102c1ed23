"""Layers: against SciPy and NumPy on the states and the head that a bank was made of."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray
from scipy.special import log_softmax

import logitbank
from logitbank.analysis.drawing.figures import figures, interactive_figures, sheets_of
from logitbank.analysis.families.layers.asked import Asked
from logitbank.analysis.families.layers.message import layers_message
from logitbank.analysis.families.layers.metric import _settled, layers_metric
from logitbank.analysis.families.layers.study import layers
from logitbank.analysis.report.sections import planned
from logitbank.errors import AbsentError, KeepLevelError
from logitbank.store import Bank
from logitbank.store.format.schema import PROMPTS_SCHEMA
from tests.support.command import Call
from tests.support.hidden_banks import fill, head, hidden_bank, layer_states, true_logits
from tests.support.small_banks import QUERIES, QUERY_SET, new_bank, prompt_table

pytestmark = pytest.mark.numerical

KEPT, STEPS, YES, NO = (0, 2, 5), (0, 8), 1, 4


def small(path: Path) -> Bank:
    """Ten prompts of one position, whose answer is token 1 and other option token 4."""
    return hidden_bank(path, steps=STEPS, layers=KEPT)


def truth(step: int) -> NDArray[np.float64]:
    """Logits (layers, q, v)."""
    of = head(step + 1)
    return np.stack([true_logits(of, layer_states(layer, step)) for layer in KEPT])


def at(table: pl.DataFrame, step: int, name: str = "parity") -> pl.DataFrame:
    return table.filter(step=step, prompt_set=name)


@pytest.mark.parametrize("step", STEPS)
def test_the_right_option_is_followed_through_the_layers(tmp_path: Path, step: int) -> None:
    result = layers_metric(small(tmp_path / "b"), ["parity"])
    two = truth(step)[:, :, [YES, NO]]
    right = two[:, :, 0] > two[:, :, 1]
    rows = at(result.layers, step)
    assert rows["layer"].to_list() == list(KEPT)
    assert rows["prompts"].to_list() == [QUERIES] * 3
    assert rows["first"].to_list() == pytest.approx(right.mean(axis=1))
    expected = log_softmax(two, axis=2)[:, :, 0].mean(axis=1)
    np.testing.assert_allclose(rows["logprob"], expected, atol=1e-6)
    settles = [
        next(KEPT[i] for i in range(3) if right[i:, q].all()) for q in range(QUERIES) if right[2, q]
    ]
    (row,) = at(result.settled, step).iter_rows(named=True)
    assert row["settled"] == pytest.approx(right[2].mean())
    assert row["layer"] == np.median(settles)
    assert row["last"] == KEPT[-1]


def test_intervals_are_wilson_s(tmp_path: Path) -> None:
    rows = at(layers_metric(small(tmp_path / "b"), ["parity"]).layers, 0)
    for share, low, high in rows.select("first", "low", "high").iter_rows():
        z, n = 1.959963984540054, QUERIES
        middle = (share + z * z / (2 * n)) / (1 + z * z / n)
        half = z / (1 + z * z / n) * np.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
        assert (low, high) == pytest.approx((middle - half, middle + half))


def options(rows: list[tuple[str, str, int, int, int]], *, answer: str | None) -> pl.DataFrame:
    """Of (prompt, option, piece, token, row)."""
    table = [
        (name, None, piece, name, answer, label, label, token, None if answer is None else
         label == answer, QUERY_SET.name, row)
        for name, label, piece, token, row in rows
    ]  # fmt: skip
    return pl.DataFrame(table, schema=PROMPTS_SCHEMA, orient="row")


LONG = [("x", "a", 0, 1, 0), ("x", "a", 1, 2, 1), ("x", "b", 0, 3, 0), ("y", "a", 0, 5, 2),
        ("y", "b", 0, 0, 2)]  # fmt: skip


def test_options_of_several_tokens_are_sums_of_log_probabilities(tmp_path: Path) -> None:
    bank = small(tmp_path / "b")
    bank.add_prompts("long", options(LONG, answer="a"))
    result = layers_metric(bank, ["long"])
    logprob = log_softmax(truth(0), axis=2)
    a, b = logprob[:, 0, 1] + logprob[:, 1, 2], logprob[:, 0, 3]
    c, d = logprob[:, 2, 5], logprob[:, 2, 0]
    expected = (a - np.logaddexp(a, b) + c - np.logaddexp(c, d)) / 2
    rows = at(result.layers, 0, "long")
    np.testing.assert_allclose(rows["logprob"], expected, atol=1e-6)
    assert rows["first"].to_list() == [((a > b)[i] + (c > d)[i]) / 2 for i in range(3)]
    short = layers_metric(bank, ["long"], several_tokens=False)
    np.testing.assert_allclose(
        at(short.layers, 0, "long")["logprob"], c - np.logaddexp(c, d), atol=1e-6
    )
    assert at(short.checkpoints, 0, "long").select("prompts", "missing", "long").row(0) == (1, 0, 1)


def test_without_an_answer_the_first_option_is_followed(tmp_path: Path) -> None:
    bank = small(tmp_path / "b")
    bank.add_prompts("open", options([("p", "n", 0, NO, 3), ("p", "y", 0, YES, 3)], answer=None))
    study = layers(bank, prompts=["open"])
    rows = at(study.result.layers, 8, "open")
    two = truth(8)[:, 3, [NO, YES]]
    np.testing.assert_allclose(rows["logprob"], log_softmax(two, axis=1)[:, 0], atol=1e-6)
    assert any("No right answer is named by open" in note for note in study.summary.notes)


def test_orders_of_a_prompt_count_once(tmp_path: Path) -> None:
    bank = small(tmp_path / "b")
    rows = [("p", "y", 0, YES, row) for row in (0, 1)] + [("q", "y", 0, YES, 2)]
    table = options([(p, o, n, t, r) for p, _, n, _, r in rows for o, t in (("y", YES), ("n", NO))],
                    answer="y")  # fmt: skip
    bank.add_prompts("orders", table.with_columns(order_seed=pl.col("row") % 2))
    found = at(layers_metric(bank, ["orders"]).layers, 0, "orders")
    each = log_softmax(truth(0)[:, :, [YES, NO]], axis=2)[:, :, 0]
    np.testing.assert_allclose(
        found["logprob"], ((each[:, 0] + each[:, 1]) / 2 + each[:, 2]) / 2, atol=1e-6
    )
    assert found["prompts"].to_list() == [2, 2, 2]


def test_conditions_and_lone_options_are_left_out(tmp_path: Path) -> None:
    bank = small(tmp_path / "b")
    rows = [("asked", "a", 0, 2, 0), ("asked", "b", 0, 3, 0), ("lone", "a", 0, 2, 1)]
    rows += [("of", "a", 0, 1, 2), ("of", "b", 0, 4, 2)]
    condition = pl.when(prompt_id="asked").then(pl.lit("of"))
    bank.add_prompts("odd", options(rows, answer="a").with_columns(condition=condition))
    found = at(layers_metric(bank, ["odd"]).layers, 0, "odd")
    two = truth(0)[:, 0, [2, 3]]
    assert found["prompts"].to_list() == [1, 1, 1]
    np.testing.assert_allclose(found["logprob"], log_softmax(two, axis=1)[:, 0], atol=1e-6)
    assert found["first"].to_list() == (two[:, 0] > two[:, 1]).tolist()


def test_equal_logits_are_not_first_and_none_settles() -> None:
    table = options([("p", "a", 0, 1, 0), ("p", "b", 0, 2, 0)], answer="a")
    asked = Asked.of(table, several_tokens=True)
    values = np.array([[3.0, 2.0], [2.0, 2.0]])
    assert asked.first(values).tolist() == [[True], [False]]
    assert asked.logprob(values)[1].tolist() == pytest.approx([np.log(0.5)])
    assert _settled([0, 5], np.array([[True], [False]])) is None
    assert _settled([0, 2, 5], np.array([[True, False], [False, True], [True, True]])) == 3.5


def test_what_never_settles_has_no_layer(tmp_path: Path) -> None:
    bank = small(tmp_path / "b")
    last = [truth(step)[-1] for step in STEPS]
    never = [r for r in range(QUERIES) if all(each[r, YES] < each[r, NO] for each in last)]
    assert len(never) > 1
    rows = [(str(r), o, 0, t, r) for r in never for o, t in (("y", YES), ("n", NO))]
    bank.add_prompts("never", options(rows, answer="y"))
    (finding,) = layers(bank, prompts=["never"]).summary.findings
    assert finding.endswith(f"in 0.0% → 0.0% of {len(never)} prompts.")


def test_what_is_not_there_is_missing(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b")
    fill(bank, 0, layers=KEPT, blocks=range(1))  # four of ten rows
    fill(bank, 8)
    study = layers(bank)
    assert study.result.checkpoints.select("step", "prompts", "missing").rows() == [(0, 4, 6)]
    assert study.result.layers["low"].is_nan().all(), "four prompts are too few"
    assert "6 prompts missing at 1 checkpoint" in " ".join(study.summary.left_out)


def test_a_study_says_draws_and_writes_it(tmp_path: Path, call: Call) -> None:
    bank = small(tmp_path / "b")
    study = logitbank.layers(bank, out=tmp_path / "out")
    settled = at(study.result.settled, 8)
    (finding,) = study.summary.findings
    assert f"{settled['settled'][0]:.1%} of 10 prompts" in finding
    assert {p.name for p in (tmp_path / "out" / "tables").iterdir()} >= {
        "layers.csv", "settled.csv", "checkpoints.csv",
    }  # fmt: skip
    assert set(figures(study.result)) == set(interactive_figures(study.result)) == {"layers"}
    sheet = sheets_of(study.result)["layers"]
    assert len(sheet.panels) == 2
    assert [t.name for t in sheet.traces if t.name] == [f"layer {n}" for n in KEPT]
    message = layers_message(study.result)
    assert message is not None
    assert message.sentence.startswith("At step 8 the right option of parity is the first for")
    assert (message.figure, message.series) == ("layers", ("org/model", "main"))
    code, out, _ = call("analyze", "layers", bank.path, "--table", "settled", "--format", "csv")
    assert (code, len(out.splitlines())) == (0, 3)


def test_several_sets_have_a_panel_each_and_many_layers_some_lines(tmp_path: Path) -> None:
    bank = hidden_bank(tmp_path / "b", layers=tuple(range(13)))
    bank.add_prompts("again", prompt_table())
    sheet = sheets_of(layers(bank).result)["layers"]
    assert [panel.axis.title for panel in sheet.panels] == [
        "Right option first, again", "Right option first, parity",
    ]  # fmt: skip
    names = [trace.name for trace in sheet.traces if trace.name]
    assert names == [f"layer {n}" for n in (0, 2, 5, 7, 10, 12)]
    assert "Layers 0, 2, 5, 7, 10, 12 of 13. Intervals of all are in the table." in sheet.caption
    assert sheet.explained.endswith(" Bands: 95 % interval over prompts, after layer 12.")
    assert [trace.band for trace in sheet.traces if trace.name] == [False] * 5 + [True]


def test_a_report_has_layers_where_a_bank_keeps_them(tmp_path: Path) -> None:
    bank, plain = small(tmp_path / "b"), hidden_bank(tmp_path / "p")
    names = [plan.family for plan in planned(plain, ["parity"])]
    assert "layers" not in names
    (plan,) = (plan for plan in planned(bank, ["parity"]) if plan.family == "layers")
    bank.add_prompts("long", options(LONG[:3], answer="a"))
    assert "after layer 5" in plan.study().summary.findings[0]
    (plan,) = (p for p in planned(bank, ["parity", "long"]) if p.family == "layers")
    notes = plan.study().summary.notes
    assert any("1 prompt with options of several tokens" in note for note in notes)


def test_what_has_no_layers_is_refused_by_name(tmp_path: Path) -> None:
    plain = hidden_bank(tmp_path / "p")
    with pytest.raises(KeepLevelError, match="keeps no states of layers; extract again with"):
        layers(plain)
    bank = small(tmp_path / "b")
    with pytest.raises(AbsentError, match="'nothing' is not in"):
        layers(bank, prompts=["nothing"])
    bank.add_prompts("lone", options([("lone", "a", 0, 2, 1)], answer="a"))
    with pytest.raises(AbsentError, match="no prompt with two options or more"):
        layers(bank, prompts=["lone"])
