"""Curves over training, against SciPy and NumPy on the logits that a bank was made of."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from bokeh.models import Legend, Plot
from scipy.special import log_softmax
from scipy.stats import entropy as scipy_entropy
from scipy.stats import sem, t

from logitbank.analysis.drawing.figures import figures, interactive_figures, sheets_of
from logitbank.analysis.families.curves.entropy import entropies
from logitbank.analysis.families.curves.means import BOUNDS, means_of, with_intervals
from logitbank.analysis.families.curves.metric import curves_metric
from logitbank.analysis.families.curves.study import curves, curves_summary
from logitbank.analysis.report.sections import planned
from logitbank.errors import AbsentError, BankError
from logitbank.store import Bank, CheckpointId, Deposit
from tests.support.command import Call
from tests.support.evaluation_banks import VOCAB as WORDS
from tests.support.evaluation_banks import add_crows_pairs, add_pieces
from tests.support.evaluation_banks import deposit as deposit_pieces
from tests.support.small_banks import (
    QUERY_SET,
    block_data,
    logits,
    new_bank,
    prompt_table,
    recommit,
    spec,
)

pytestmark = pytest.mark.numerical

STEPS = (0, 8, None)
LIKE_THE_LAST = 6
"""Of ten rows of step 8, how many have the most probable token of the release."""


def rows_of(step: int | None) -> np.ndarray:
    """Logits of a checkpoint; of step 8, the first rows agree with those of the release."""
    values = logits(99 if step is None else step)
    if step == 8:
        best = logits(99).argmax(axis=1)
        for row, token in enumerate(best):
            values[row, token if row < LIKE_THE_LAST else (token + 1) % 6] = 20
    return values


def parity(path: Path, *, keep: str = "full") -> Bank:
    """Ten prompts of one position, whose answer is token 1, at two steps and a release."""
    bank = new_bank(path)
    for step in STEPS:
        bank.deposit(
            rows_of(step),
            checkpoint=CheckpointId("org/model", step=step),
            query_set=QUERY_SET.name,
            keep=keep,
        )
    return bank


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_an_answer_without_a_probability_is_refused(tmp_path: Path, value: float) -> None:
    bank = parity(tmp_path / "b")
    (part,) = bank.path.glob("*/main/8/*/scores/all.parquet")
    no_number = pl.when(pl.col("query") < 2).then(pl.lit(value, pl.Float32)).otherwise("logit")
    pl.read_parquet(part).with_columns(logit=no_number).write_parquet(part)
    recommit(part.parents[1], "scores/all.parquet")
    message = rf"parity has the probability {value} at org/model main step 8 \(2 such prompts"
    with pytest.raises(BankError, match=message):
        curves_metric(bank, ["parity"])


def values(table: pl.DataFrame, measure: str, name: str = "parity") -> list[float | None]:
    return table.filter(measure=measure, prompt_set=name)["value"].to_list()


def test_every_measure_is_that_of_scipy_and_numpy(tmp_path: Path) -> None:
    result = curves_metric(parity(tmp_path / "b"), ["parity"])
    assert result.checkpoints.rows() == [
        ("org/model", "main", step, "parity", 10, 0, 10, True) for step in STEPS
    ]
    for step in STEPS:
        row = rows_of(step).astype(np.float64)
        p = np.exp(log_softmax(row, axis=1))
        expected = {
            "entropy": scipy_entropy(p, axis=1),
            "probability": p[:, 1],
            "rank": 1 + (row > row[:, 1:2]).sum(axis=1),
            "agreement": row.argmax(axis=1) == rows_of(None).argmax(axis=1),
        }
        for measure, each in expected.items():
            (found,) = (
                result.curves.filter(measure=measure)
                .filter(pl.col("step").eq_missing(pl.lit(step, pl.Int64)))
                .iter_rows(named=True)
            )
            assert found["value"] == pytest.approx(each.mean(), rel=1e-6)
            assert found["prompts"] == 10
            half = 2.262157 * each.std(ddof=1) / np.sqrt(10)  # t of nine degrees of freedom
            if measure == "rank" or half == 0:
                assert np.isnan([found["low"], found["high"]]).all()
                continue
            least, most = 0, 1 if measure != "entropy" else 9
            assert found["low"] == pytest.approx(max(least, each.mean() - half), rel=1e-5)
            assert found["high"] == pytest.approx(min(most, each.mean() + half), rel=1e-5)
    assert values(result.curves, "agreement")[1:] == [LIKE_THE_LAST / 10, 1.0]


def test_prompts_of_one_sentence_are_one_draw() -> None:
    each = np.random.default_rng(1).uniform(size=12)
    twice = pl.DataFrame({"sentence": np.arange(24) // 2, "probability": np.repeat(each, 2)})
    prompts = twice.with_columns(
        pl.lit(None, pl.Float64).alias(m) for m in BOUNDS if m not in twice
    )
    table = with_intervals(means_of(prompts, {"model": "m", "prompt_set": "mine"}))
    row = table.filter(measure="probability").row(0, named=True)
    low, high = t.interval(0.95, 11, loc=each.mean(), scale=sem(each))
    assert (row["low"], row["high"]) == pytest.approx((low, high))
    assert row["prompts"] == 24


def test_entropy_by_hand() -> None:
    with np.errstate(divide="ignore"):
        rows = np.log([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0], [0.25, 0.25, 0.5]])
    assert entropies(rows) == pytest.approx([np.log(2), 0, 1.5 * np.log(2)])


@pytest.mark.parametrize("keep", ["options", "topk:2"])
def test_without_full_rows_only_entropy_is_lacking(tmp_path: Path, keep: str) -> None:
    full, kept = (parity(tmp_path / keep, keep=keep) for keep in ("full", keep))
    study = curves(kept)
    entropy = pl.col("measure") == "entropy"
    own, other = study.result.curves, curves_metric(full, ["parity"]).curves
    assert own.filter(~entropy).equals(other.filter(~entropy))
    assert own.filter(entropy).select("value", "prompts").rows() == [(None, 0)] * 3
    assert "Entropy needs full rows; not kept by 3 checkpoints." in study.summary.notes


def test_a_report_reads_no_full_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bank = parity(tmp_path / "b")

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a full row was read")

    monkeypatch.setattr(Deposit, "stored_logprobs", refuse)
    with pytest.raises(AssertionError, match="a full row was read"):
        curves(bank)
    (plan,) = (plan for plan in planned(bank, ["parity"]) if plan.family == "curves")
    found = plan.study()
    assert values(found.result.curves, "agreement")[-1] == 1
    assert found.summary.notes[1].startswith("Entropy takes full rows, which are not read here:")


def test_what_a_checkpoint_lacks_is_counted_and_not_averaged(tmp_path: Path) -> None:
    bank = new_bank(tmp_path / "b")
    for step, blocks in ((0, (0, 2)), (8, (0, 1))):  # of rows 0–3, 4–7 and 8–9
        with bank.begin(spec(step)) as writer:
            for block in blocks:
                writer.write(block, block_data(writer.layout, block, seed=step))
    study = curves(bank)
    counts = study.result.checkpoints.select("step", "prompts", "missing").rows()
    assert counts == [(0, 6, 4), (8, 8, 2)]
    entropy, _, _, agreement = study.result.curves.filter(step=0).iter_rows(named=True)
    there = [0, 1, 2, 3, 8, 9]
    p = np.exp(log_softmax(logits(0)[there].astype(np.float64), axis=1))
    assert entropy["value"] == pytest.approx(scipy_entropy(p, axis=1).mean(), rel=1e-6)
    assert np.isnan(entropy["low"])  # of six prompts
    both = logits(0)[:4].argmax(axis=1) == logits(8)[:4].argmax(axis=1)
    assert (agreement["value"], agreement["prompts"]) == (both.mean(), 4)
    assert (
        "6 prompts missing at 2 checkpoints, whose numbers are over what is there."
        in study.summary.left_out
    )


def test_option_orders_of_a_prompt_count_once(tmp_path: Path) -> None:
    bank = parity(tmp_path / "b")
    twice = [prompt_table().with_columns(order_seed=pl.lit(o, pl.Int32)) for o in (0, 1)]
    bank.add_prompts("orders", pl.concat(twice).head(30))  # p0 to p4 in two orders
    result = curves_metric(bank, ["orders", "parity"])
    assert result.checkpoints["prompts"].unique().to_list() == [10]
    for measure in ("entropy", "probability", "rank", "agreement"):
        once = values(result.curves, measure)
        assert values(result.curves, measure, "orders") == pytest.approx(once)


def test_a_target_of_several_tokens_has_a_probability_and_no_rank(tmp_path: Path) -> None:
    bank = Bank.create(tmp_path / "b")
    own = {"score_kind": "target"}
    prompts = [("long", (1, 2), own), ("short", (3,), own)]
    queries = add_pieces(bank, "words", prompts)
    drawn = np.random.default_rng(0).normal(size=(3, WORDS)).astype(np.float32)
    deposit_pieces(bank, queries, drawn, step=0)
    p = np.exp(log_softmax(drawn.astype(np.float64), axis=1))
    table = curves_metric(bank, ["words"]).curves
    long, short = p[0, 1] * p[1, 2], p[2, 3]
    assert values(table, "probability", "words") == pytest.approx([(long + short) / 2])
    rank = table.filter(measure="rank").select("value", "prompts").row(0)
    assert rank == (1 + (drawn[2] > drawn[2, 3]).sum(), 1)
    each = scipy_entropy(p, axis=1)
    mean = ((each[0] + each[1]) / 2 + each[2]) / 2
    assert values(table, "entropy", "words") == pytest.approx([mean])


def test_agreement_is_said_of_the_first_step_as_a_share(tmp_path: Path) -> None:
    """It is of the first one alone: the last agrees with itself."""
    result = curves_metric(parity(tmp_path / "b"), ["parity"])
    alike = int(10 * values(result.curves, "agreement")[0])  # type: ignore[operator]
    same = (rows_of(0).argmax(axis=1) == rows_of(None).argmax(axis=1)).sum()
    assert alike == same
    (finding,) = curves_summary(result).findings
    assert finding.endswith(
        f"; at step 0, {10 * same} % of the most probable tokens are those of the release."
    )


def test_prompts_without_an_answer_say_so(tmp_path: Path) -> None:
    bank = parity(tmp_path / "b")
    add_crows_pairs(bank, model="org/model")
    study = curves(bank)
    assert values(study.result.curves, "rank", "crows-pairs") == [None, None]
    assert values(study.result.curves, "agreement", "crows-pairs")[-1] == 1
    assert "No right answer is named by crows-pairs." in study.summary.notes
    crows = next(text for text in study.summary.findings if text.startswith("crows-pairs, "))
    assert "right answer" not in crows
    assert crows.startswith("crows-pairs, step 0 → step 8: entropy ")
    (sheet,) = sheets_of(curves_metric(bank, bank.prompt_sets, entropy=False)).values()
    named = [(trace.name, trace.panel) for trace in sheet.traces if trace.name]
    assert sorted(named) == [("crows-pairs", 2), ("parity", 0)]
    legends = [[item.label.value for item in each.items] for each in legends_of(bank)]
    assert legends == [["parity"], ["crows-pairs"]], "each above the first panel that has it"


def legends_of(bank: Bank) -> list[Legend]:
    """On a page, panel by panel."""
    result = curves_metric(bank, bank.prompt_sets, entropy=False)
    (page,) = interactive_figures(result).values()
    plots = [plot for plot in page.model.children if isinstance(plot, Plot)]
    return [each for plot in plots for each in plot.above if isinstance(each, Legend)]


def test_figures_have_a_panel_for_each_measure_that_there_is(tmp_path: Path) -> None:
    result = curves_metric(parity(tmp_path / "b", keep="options"), ["parity"])
    (sheet,) = sheets_of(result).values()
    assert [panel.axis.title.split(",")[0] for panel in sheet.panels] == [
        "Probability of the answer",
        "Rank of the answer",
        "Agreement with the end",
    ]
    (paper,) = figures(result).values()
    assert len(paper.axes) == 3
    (page,) = interactive_figures(result).values()
    drawn = {(trace.panel, trace.role) for trace in sheet.traces}
    assert drawn == {(panel, role) for panel in range(3) for role in ("line", "point")}
    assert {trace["group"] for trace in page.traces} == {""}


def test_prompt_sets_and_runs_are_told_apart(tmp_path: Path) -> None:
    bank = parity(tmp_path / "b")
    bank.add_prompts("more", prompt_table())
    colours = {
        trace.group: trace.colour
        for sheet in sheets_of(curves_metric(bank, ["more", "parity"], entropy=False)).values()
        for trace in sheet.traces
    }
    assert set(colours) == {"more", "parity"}
    assert len(set(colours.values())) == 2
    other = CheckpointId("org/model", "seed1", step=0)
    bank.deposit(rows_of(0), checkpoint=other, query_set=QUERY_SET.name)
    result = curves_metric(bank, ["parity"])
    assert set(sheets_of(result)) == {"curves-org%2Fmodel-main", "curves-org%2Fmodel-seed1"}
    (page,) = interactive_figures(result).values()
    assert {trace["series"] for trace in page.traces} == {"org/model main", "org/model seed1"}
    assert result.curves.filter(run="seed1", measure="agreement")["value"].to_list() == [1.0]


def test_the_command_prints_and_writes(tmp_path: Path, call: Call) -> None:
    bank = parity(tmp_path / "b").path
    code, out, error = call("analyze", "curves", bank, "--table", "curves", "--format", "csv")
    assert (code, error) == (0, "")
    assert out.splitlines()[0] == "model,run,step,prompt_set,measure,value,low,high,prompts"
    assert len(out.splitlines()) == 1 + 4 * len(STEPS)
    code, out, error = call(
        "analyze", "curves", bank, "--no-entropy", "--prompts", "parity", "--out", tmp_path / "o"
    )
    assert code == 0, error
    assert "parity, step 0 → release: probability of the right answer 0." in out
    assert {path.name for path in (tmp_path / "o" / "figures").iterdir()} == {
        f"curves.{suffix}" for suffix in ("pdf", "png", "svg", "txt")
    }


def test_what_is_not_in_the_bank_is_named(tmp_path: Path) -> None:
    bank = parity(tmp_path / "b")
    with pytest.raises(AbsentError, match=r"prompt set 'other' is not in .*; it has parity"):
        curves(bank, prompts=["other"])
    with pytest.raises(AbsentError, match=r"model 'b' is not in .*; there are org/model"):
        curves(bank, models=["b"])
    with pytest.raises(AbsentError, match=r"has no checkpoint of parity; run `logitbank extract`"):
        curves(new_bank(tmp_path / "empty"))
