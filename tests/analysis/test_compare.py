from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy.special import log_softmax, rel_entr

from logitbank.analysis.comparison.compare import compare
from logitbank.analysis.comparison.findings import _metrics, findings
from logitbank.analysis.comparison.metrics import Comparison
from logitbank.analysis.comparison.rows import _kl
from logitbank.analysis.finding import Finding
from logitbank.errors import BankError, UsageError
from logitbank.store import Bank, CheckpointId, Query, QuerySet, shrink
from logitbank.store.format.schema import PROMPTS_SCHEMA, Dtype
from tests.support import unqover_cases
from tests.support.evaluation_banks import add_lambada
from tests.support.hidden_banks import hidden_bank
from tests.support.small_banks import (
    OPTIONS,
    QUERY_SET,
    block_data,
    logits,
    new_bank,
    prompt_table,
    spec,
)

pytestmark = pytest.mark.numerical

QUERIES = 10


def banked(
    path: Path,
    values: np.ndarray,
    *,
    step: int | None = 3,
    dtype: Dtype = "float32",
    keep: str = "full",
    **made: str | int,
) -> Bank:
    bank = Bank.open(path) if path.exists() else new_bank(path)
    bank.deposit(
        values,
        checkpoint=CheckpointId("m", step=step),
        query_set=QUERY_SET.name,
        dtype=dtype,
        keep=keep,
        provenance={"weights": "ab" * 32, **made},
    )
    return bank


def row(frame: pl.DataFrame, **wanted: object) -> dict[str, object]:
    for name, value in wanted.items():
        frame = frame.filter(pl.col(name).eq_missing(pl.lit(value)))
    (only,) = frame.to_dicts()
    return only


def find_finding(result: Comparison, text: str) -> Finding:
    (only,) = (each for each in findings(result) if text in each.text)
    return only


def test_values_worked_out_by_hand(tmp_path: Path) -> None:
    """A: ln of 1/2, 1/4, 1/8, 1/16, 1/32, 1/32. In B the first two of row 0 change places."""
    first = np.log(np.array([16, 8, 4, 2, 1, 1]) / 32)
    values = np.tile(first, (QUERIES, 1)).astype(np.float32)
    changed = values.copy()
    changed[0, :2] = values[0, 1::-1]
    a = banked(tmp_path / "a", values, engine="vllm")
    b = banked(tmp_path / "b", changed, engine="transformers", weights="cd" * 32)
    found = compare(a.path, b.path).result
    (d,) = found.logits.to_dicts()
    kl = 0.5 * np.log(2) - 0.25 * np.log(2)
    assert (d["model"], d["run"], d["step"], d["query_set"]) == ("m", "main", 3, QUERY_SET.name)
    assert (d["kept_a"], d["kept_b"]) == ("full float32", "full float32")
    assert (d["engine_a"], d["engine_b"], d["same_weights"]) == ("vllm", "transformers", False)
    assert (d["rows"], d["entries"]) == (10, 60)
    assert d["max_logit_difference"] == pytest.approx(np.log(2), abs=1e-6)
    assert d["mean_logit_difference"] == pytest.approx(2 * np.log(2) / 60, abs=1e-7)
    assert d["max_kl"] == pytest.approx(kl, abs=1e-6)
    assert d["mean_kl"] == pytest.approx(kl / 10, abs=1e-7)
    assert d["argmax_changed"] == 1
    # Options are tokens 1 and 4: the former's rank goes from 2 to 1 in row 0.
    assert (d["options"], d["ranks_changed"], d["max_rank_change"]) == (20, 1, 1)
    assert d["ranks_changed_share"] == 0.05
    assert d["inexact"] == 0
    assert len(found.only) == 0
    accuracy = row(found.metrics, metric="accuracy", prompts="parity")
    assert (accuracy["a"], accuracy["b"], accuracy["items"]) == (1.0, 1.0, 10)
    largest = find_finding(found, "Largest difference of a logit")
    assert (largest.value, largest.n) == (
        d["max_logit_difference"], "60 logits in 10 rows of 1 checkpoint × query set"
    )  # fmt: skip
    assert find_finding(found, "top-1 token differs").value == 0.1
    assert find_finding(found, "Options whose rank differs").value == 0.05
    assert (
        find_finding(found, "Weights differ").text
        == "Weights differ at 1 of 1 checkpoint × query set."
    )
    # Shares of the options of row 0: 1/4 and 1/32 in A, 1/2 and 1/32 in B.
    (prompt,) = found.prompts.to_dicts()
    assert (prompt["prompt_id"], prompt["measure"]) == ("p0", "option_probability")
    assert (prompt["a"], prompt["b"]) == (pytest.approx(8 / 9), pytest.approx(16 / 17))
    assert prompt["difference"] == pytest.approx(16 / 17 - 8 / 9)


@given(
    arrays.arrays(np.float64, (2, 3, 7), elements=st.floats(-30, 30)),
)
def test_kl_is_scipy_s(z: np.ndarray) -> None:
    p, q = log_softmax(z, axis=-1)
    expected = rel_entr(np.exp(p), np.exp(q)).sum(axis=-1)
    np.testing.assert_allclose(_kl(z[0], z[1], z[0] - z[1]), expected, atol=1e-12, rtol=1e-9)
    np.testing.assert_array_equal(_kl(p, p, p - p), 0)


def test_full_rows_against_scipy(tmp_path: Path) -> None:
    one, two = logits(1), logits(2)
    a, b = banked(tmp_path / "a", one), banked(tmp_path / "b", two)
    (d,) = compare(a.path, b.path).result.logits.to_dicts()
    p, q = (np.exp(log_softmax(z.astype(np.float64), axis=1)) for z in (one, two))
    kl = rel_entr(p, q).sum(axis=1)
    assert d["max_kl"] == pytest.approx(kl.max(), rel=1e-5)
    assert d["mean_kl"] == pytest.approx(kl.mean(), rel=1e-5)
    assert d["max_logit_difference"] == pytest.approx(np.abs(one - two).max(), rel=1e-5)
    assert d["mean_logit_difference"] == pytest.approx(np.abs(one - two).mean(), rel=1e-5)
    assert d["argmax_changed"] == (one.argmax(1) != two.argmax(1)).sum()
    ranks = [(z[:, None, :] > z[:, [1, 4], None]).sum(2) for z in (one, two)]
    assert d["ranks_changed"] == (ranks[0] != ranks[1]).sum()
    assert d["max_rank_change"] == np.abs(ranks[0] - ranks[1]).max()


def test_rounding_is_reported_with_the_dtypes(tmp_path: Path) -> None:
    """Between 32 and 64 neighbours in float16 are 1/32 apart: rounding moves either by 1/64."""
    lowest = np.array([0, -40, -50, -33, -33, -33], np.float32)
    values = np.tile(lowest, (QUERIES, 1))
    made = {"engine": "vllm", "compute_dtype": "bfloat16"}
    a = banked(tmp_path / "a", values, dtype="float16", **made)
    b = banked(tmp_path / "b", values + np.float32(1 / 128), dtype="float16")
    found = compare(a.path, b.path).result
    (d,) = found.logits.to_dicts()
    assert d["rounding"] == 1 / 32
    assert (d["compute_a"], d["compute_b"]) == ("bfloat16", None)
    texts = [each.text for each in findings(found)]
    assert "A: engine vllm, computed in bfloat16, stores full float16." in texts
    assert "B: engine arrays, computed in unknown dtype, stores full float16." in texts
    largest = find_finding(found, "Largest difference of a logit")
    assert largest.baseline == "0.0312 explained by the dtypes of storage"
    assert not any("Rounding does not explain" in text for text in texts)
    c = banked(tmp_path / "c", values + np.float32(1 / 16), dtype="float16")
    beyond = find_finding(compare(a.path, c.path).result, "Rounding does not explain")
    assert "at 1 checkpoint" in beyond.text


def test_what_float16_does(tmp_path: Path) -> None:
    a = banked(tmp_path / "a", logits())
    shrink(a.path, tmp_path / "b", dtype="float16")
    (d,) = compare(a.path, tmp_path / "b").result.logits.to_dicts()
    assert d["kept_b"] == "full float16"
    assert 0 < d["max_logit_difference"] <= 2**-7  # half a ulp between 16 and 32
    assert 0 < d["max_kl"] < 2**-15
    assert d["ranks_changed"] == 0  # they were made before


def test_equal_highest_tokens_are_no_change(tmp_path: Path) -> None:
    """The full rows list one of them, a shrunk bank both, in another order."""
    values = logits()
    values[:, 2] = values[:, 5] = values.max() + 1
    a = banked(tmp_path / "a", values)
    shrink(a.path, tmp_path / "b", keep="topk:3")
    assert compare(a.path, tmp_path / "b").result.logits["argmax_changed"].to_list() == [0]
    b = banked(tmp_path / "c", values + np.float32([0, 0, -100, 0, 0, -100]))
    assert compare(a.path, b.path).result.logits["argmax_changed"].to_list() == [QUERIES]


@pytest.mark.parametrize("keep", ["full", "topk:3", "options"])
def test_a_highest_token_of_several_is_no_change_at_any_level(tmp_path: Path, keep: str) -> None:
    """Tokens 2 and 5 are equal in A; in B it is 5, or 3. Options do not tell which it is."""
    values = logits()
    values[:, 2] = values[:, 5] = values.max() + 1
    a = banked(tmp_path / "a", values, keep=keep)
    for token, changed in ((5, 0), (3, QUERIES)):
        other = values.copy()
        other[:, token] = values.max() + 2
        b = banked(tmp_path / f"b{token}", other, keep=keep)
        d = compare(a.path, b.path).result.logits
        unknown = QUERIES * (keep == "options")
        assert d["argmax_changed"].to_list() == [changed * (keep != "options")]
        assert d["argmax_unknown"].to_list() == [unknown]
        texts = [each.text for each in compare(a.path, b.path).findings]
        none = [text for text in texts if text.startswith("No row with a known top-1 token: 10")]
        assert len(none) == bool(unknown)


def test_rows_with_an_unknown_top_1_token_are_no_part_of_the_share(tmp_path: Path) -> None:
    """Tokens 2 and 5, which are no options, are equal in the first six rows of A."""
    values = logits()
    values[:, 2] = values.max() + 1
    other = values.copy() + np.float32(0.5)
    values[:6, 5] = values[:6, 2]
    other[:6, 3] = other[9, 3] = other.max() + 1
    a = banked(tmp_path / "a", values, keep="options")
    study = compare(a.path, banked(tmp_path / "b", other, keep="options").path)
    assert study.result.logits.select("argmax_changed", "argmax_unknown").row(0) == (1, 6)
    share = find_finding(study.result, "Rows whose top-1 token differs")
    assert (share.value, share.n) == (0.25, "4 rows")
    assert study.findings[0].text.endswith("the top-1 token changes in 25.0% of 4 known rows.")


def test_logits_are_the_same_only_if_all_are_compared(tmp_path: Path) -> None:
    values = logits()
    a = banked(tmp_path / "a", values)
    b = banked(tmp_path / "b", values, keep="options")
    assert compare(a.path, a.path).findings[0].text == "A and B have the same logits."
    assert (
        compare(a.path, b.path).findings[0].text == "All compared logits of A and B are the same."
    )
    banked(tmp_path / "c", values), banked(tmp_path / "c", values, step=4)
    more = compare(a.path, tmp_path / "c").findings
    assert more[0].text == "All compared logits of A and B are the same."
    assert "Only B has 10 rows, of 1 checkpoint × query set." in [each.text for each in more]


def test_without_a_common_token_no_logit_is_compared(tmp_path: Path) -> None:
    queries = QuerySet(QUERY_SET.tokenizer, QUERY_SET.queries)
    for name, token in (("a", 2), ("b", 3)):
        bank = Bank.create(tmp_path / name)
        bank.add_query_set(queries)
        values = logits()
        values[:, token] = 99
        bank.deposit(
            values, checkpoint=CheckpointId("m", step=3), query_set=queries.name, keep="topk:1"
        )
    texts = [each.text for each in compare(tmp_path / "a", tmp_path / "b").findings]
    assert texts[0] == "No token is listed in both A and B, so that no logit is compared."
    assert not any("difference of" in text for text in texts)


def test_items_have_the_name_that_their_measure_gives_them(tmp_path: Path) -> None:
    bank = unqover_cases.make_bank(tmp_path / "u")
    found = compare(bank, bank).result
    table = found.metrics.filter(metric="eta")
    moved = found.metrics.with_columns(difference=pl.lit(0.1))
    texts = [f"{each}" for each in _metrics(moved, {}, same=False)]
    assert any(f"{table['items'][0]} subject–attribute pairs" in text for text in texts)


def test_without_full_rows_listed_entries_are_compared(tmp_path: Path) -> None:
    values = logits()
    a = banked(tmp_path / "a", values)
    b = banked(tmp_path / "b", values + np.float32(0.5), keep="options")
    (d,) = compare(a.path, b.path).result.logits.to_dicts()
    assert (d["max_kl"], d["mean_kl"], d["kept_b"], d["rounding"]) == (None, None, "options", None)
    text = find_finding(compare(a.path, b.path).result, "KL").text
    assert text.startswith("No KL at 1 checkpoint × query set")
    assert "A stores full float32, B stores options" in text
    listed = {(q, t) for q, z in enumerate(values) for t in (1, 4, int(z.argmax()))}
    assert d["entries"] == len(listed)
    assert d["mean_logit_difference"] == pytest.approx(0.5, abs=1e-6)
    assert d["options"] == 20


def test_one_sided_rows_are_counted(tmp_path: Path) -> None:
    a, b = banked(tmp_path / "a", logits()), new_bank(tmp_path / "b")
    banked(a.path, logits(), step=None)
    with b.begin(spec()) as writer:
        writer.write(0, block_data(writer.layout, 0))
    with pytest.raises(BankError, match="No matching checkpoints: .*--match m=org/model"):
        compare(a.path, b.path)
    b.deposit(logits(), checkpoint=CheckpointId("m", step=3), query_set=QUERY_SET.name)
    found = compare(a.path, b.path).result
    assert found.logits["step"].to_list() == [3]
    rows = found.only.select("model", "step", "rows_a", "rows_b", "only_a", "only_b").rows()
    assert rows == [("m", None, 10, 0, 10, 0), ("org/model", 0, 0, 4, 0, 4)]
    assert found.logits["same_weights"].to_list() == [None]
    lines = [each.text for each in findings(found)]
    assert "Only A has 10 rows, of 1 checkpoint × query set." in lines
    assert "Only B has 4 rows, of 1 checkpoint × query set." in lines


def test_rows_that_both_have_committed_are_compared(tmp_path: Path) -> None:
    banks = [new_bank(tmp_path / name) for name in "ab"]
    for bank, blocks, rows in zip(banks, ((0, 1), (1, 0)), (4, 5), strict=True):
        with bank.begin(spec(block_rows=rows)) as writer:
            for block in blocks[: 1 if rows == 5 else 2]:
                writer.write(block, block_data(writer.layout, block))
    found = compare(banks[0].path, banks[1].path).result
    assert found.logits["rows"].to_list() == [3]  # 0 to 7, and 5 to 9
    assert found.only.select("only_a", "only_b").rows() == [(5, 2)]


def test_prompts_and_steps_choose(tmp_path: Path) -> None:
    a, b = banked(tmp_path / "a", logits()), banked(tmp_path / "b", logits(1))
    for bank in (a, b):
        banked(bank.path, logits(2), step=8)
        bank.add_prompts("few", prompt_table().filter(pl.col("row") < 3, option="yes"))
    found = compare(a.path, b.path, prompts="few", steps=[3]).result.logits
    assert found.select("step", "rows", "entries", "options").rows() == [(3, 3, 18, 3)]
    late = compare(a.path, b.path, steps="6:").result
    assert late.logits["step"].to_list() == [8]
    with pytest.raises(BankError, match="'none' is not in .*few, parity"):
        compare(a.path, b.path, prompts="none")
    with pytest.raises(BankError, match="No matching checkpoints among these steps"):
        compare(a.path, b.path, steps=[4])


def fairness_prompts() -> pl.DataFrame:
    """Two sentences, each with a prompt whose answer is male (0, 2) or female (1, 3)."""
    labels = ("male", "female", "not specified")
    rows = [
        (f"p{i}", 0, 0, "text", labels[i % 2], label, label, token, i % 2 == token,
         QUERY_SET.name, i)
        for i in range(4)
        for token, label in enumerate(labels)
    ]  # fmt: skip
    table = pl.DataFrame(rows, schema=PROMPTS_SCHEMA, orient="row")
    sentence = pl.concat_str(pl.lit("s"), pl.col("row") // 2)
    return table.with_columns(sentence_id=sentence, paired=pl.lit(True))


def test_metrics_of_fairness_are_compared(tmp_path: Path) -> None:
    """Six equal logits, but in B the female option is the highest where it is the answer."""
    even = np.zeros((QUERIES, 6), np.float32)
    sure = even.copy()
    sure[[1, 3], 1] = 50
    for name, values in (("a", even), ("b", sure)):
        bank = Bank.create(tmp_path / name)
        bank.add_query_set(QUERY_SET)
        bank.add_prompts("winobias", fairness_prompts())
        banked(bank.path, values)
    found = compare(tmp_path / "a", tmp_path / "b").result
    accuracy = row(found.metrics, metric="accuracy", group="female")
    assert (accuracy["a"], accuracy["b"], accuracy["difference"]) == (0.0, 1.0, 1.0)
    assert row(found.metrics, metric="accuracy", group="male")["difference"] == 0.0
    p = 1 / 3
    part = 0.5 * (np.log(2 / (1 + p)) + p * np.log(2 * p / (1 + p))) / (0.5 * np.log(2))
    gap = row(found.metrics, metric="delta")
    assert (gap["model"], gap["step"], gap["prompts"]) == ("m", 3, "winobias")
    assert gap["a"] == pytest.approx(0, abs=1e-12)
    assert gap["b"] == pytest.approx(-part, abs=1e-6)
    assert gap["difference"] == pytest.approx(-part, abs=1e-6)
    assert found.unmeasured == ()
    moved = find_finding(found, "winobias, Gender gap Δ")
    assert (moved.value, moved.baseline) == (pytest.approx(-part, abs=1e-6), "0 in A")
    assert "m at step 3" in moved.text


def test_metrics_are_over_common_prompts(tmp_path: Path) -> None:
    values = np.zeros((QUERIES, 6), np.float32)
    values[3, 1] = 50
    for name, prompts in (("a", fairness_prompts()), ("b", fairness_prompts().filter(row=0))):
        bank = Bank.create(tmp_path / name)
        bank.add_query_set(QUERY_SET)
        bank.add_prompts("winobias", prompts)
        banked(bank.path, values)
    found = compare(tmp_path / "a", tmp_path / "b").result.metrics
    assert found.filter(metric="accuracy", group="male").select("a", "b").rows() == [(0.0, 0.0)]


def test_metrics_are_those_of_every_family_and_of_matched_models(tmp_path: Path) -> None:
    """Prompts that only have a family's name have no metrics."""
    for name, hits, model in (("a", 5, "toy"), ("b", 7, "other")):
        bank = Bank.create(tmp_path / name)
        add_lambada(bank, {8: hits}, model=model)
        bank.add_prompts("crows-pairs", bank.prompts("lambada").collect())
    found = compare(tmp_path / "a", tmp_path / "b", match={"toy": "other"}).result
    accuracy = row(found.metrics, metric="acc")
    assert (accuracy["prompts"], accuracy["model"], accuracy["step"]) == ("lambada", "toy", 8)
    assert (accuracy["a"], accuracy["b"]) == (5 / 40, 7 / 40)
    perplexity = row(found.metrics, metric="perplexity")["difference"]
    assert isinstance(perplexity, float)
    assert perplexity < 0
    assert found.unmeasured == ("crows-pairs",)
    assert "No metrics of crows-pairs" in find_finding(found, "metrics").text


def test_what_rounding_of_states_explains_is_not_claimed(tmp_path: Path) -> None:
    dtypes: tuple[Dtype, ...] = ("float32", "float16")
    banks = [hidden_bank(tmp_path / dtype, dtype=dtype) for dtype in dtypes]
    assert compare(*banks).result.logits["rounding"].to_list() == [None]
    assert not any("Rounding" in each.text for each in findings(compare(*banks).result))
    assert compare(banks[0], banks[0]).result.logits["rounding"].null_count() == 0


def test_models_of_other_names_are_matched_in_two_banks_and_in_one(tmp_path: Path) -> None:
    one, other = logits(1), logits(2)
    a, b, both = (new_bank(tmp_path / name) for name in ("a", "b", "both"))
    for bank, name, values in (
        (a, "mine", one), (b, "theirs", other), (both, "mine", one), (both, "theirs", other)
    ):  # fmt: skip
        bank.deposit(
            values, checkpoint=CheckpointId(name, step=3), query_set=QUERY_SET.name,
            dtype="float32",
        )  # fmt: skip
    with pytest.raises(BankError) as refused:
        compare(a.path, b.path)
    assert str(refused.value) == (
        f'No matching checkpoints: {a.path} has model "mine", {b.path} has model "theirs". '
        "Fix: compare … --match mine=theirs"
    )
    c = new_bank(tmp_path / "c")
    c.deposit(one, checkpoint=CheckpointId("it's", "seed1", 3), query_set=QUERY_SET.name)
    for banks, match, fix in (
        ((a, c), None, """--match 'mine=it'"'"'s'"""),
        ((a, c), {"mine": "it's"}, """--match 'mine=it'"'"'s' --match main=seed1"""),
    ):
        with pytest.raises(BankError) as refused:
            compare(*banks, match=match)
        assert str(refused.value).endswith(f" Fix: compare … {fix}")
    apart = compare(a.path, b.path, match={"mine": "theirs"}).result
    alone = compare(both.path, match={"mine": "theirs"}).result
    assert apart.logits["model"].to_list() == ["mine"]
    assert find_finding(apart, "largest change of a prompt").text.endswith(
        "mine → theirs at step 3)"
    )
    assert apart.logits["max_logit_difference"].item() == pytest.approx(np.abs(one - other).max())
    for name, table in apart.tables().items():
        assert table.equals(alone.tables()[name], null_equal=True), name
    with pytest.raises(
        UsageError,
        match=r"--match: .* has no model or run 'x'. It has model \"mine\", and runs main\.",
    ):
        compare(a.path, b.path, match={"x": "theirs"})
    with pytest.raises(UsageError, match="Name two banks, or two models or runs of one"):
        compare(both.path)


def test_prompts_that_differ_most_are_those_of_numpy(tmp_path: Path) -> None:
    one, other = logits(1), logits(2)
    a, b = banked(tmp_path / "a", one), banked(tmp_path / "b", other)
    shares = [np.exp(v.astype(float))[:, 1] / np.exp(v.astype(float))[:, [1, 4]].sum(1)
              for v in (one, other)]  # fmt: skip
    difference = shares[1] - shares[0]
    found = compare(a.path, b.path, top=3).result.prompts
    order = np.argsort(-np.abs(difference))[:3]
    assert found["prompt_id"].to_list() == [f"p{row}" for row in order]
    assert found["difference"].abs().to_list() == pytest.approx(np.abs(difference[order]))


def test_two_runs_of_a_bank_are_compared_by_name(tmp_path: Path) -> None:
    """The share of the answer "yes" goes from 0.1 up in one run, and less in the other."""
    shares = {"seed1": (0.1, 0.3, 0.6), "seed2": (0.1, 0.2, 0.4)}
    bank = new_bank(tmp_path / "b")
    noise = np.linspace(-0.02, 0.02, 10)
    for run, values in shares.items():
        for step, share in enumerate(values):
            rows = np.full((10, 6), -30.0)
            rows[:, OPTIONS["yes"]] = np.log(share + noise)
            rows[:, OPTIONS["no"]] = np.log(1 - share - noise)
            bank.deposit(
                rows.astype(np.float32), checkpoint=CheckpointId("m", run, step),
                query_set=QUERY_SET.name, dtype="float32",
            )  # fmt: skip
    study = compare(bank, match={"seed1": "seed2"})
    table = study.result.metrics
    assert {*table["run"]} == {"seed1"}, "runs have their names in A"
    yes = table.filter(metric="option_probability", group="yes").sort("step")
    assert yes["a"].to_list() == pytest.approx(shares["seed1"])
    assert yes["b"].to_list() == pytest.approx(shares["seed2"])
    assert yes["difference"].to_list() == pytest.approx([0, -0.1, -0.2], abs=1e-6)
    assert table.filter(metric="accuracy", step=2)["difference"].to_list() == [-1.0]
    expected = np.corrcoef(*shares.values())[0, 1]
    (found,) = [f for f in study.findings if "Option probability of" in f.text]
    assert "correlation of A and B over checkpoints of m seed1 → m seed2" in found.text
    (prompt,) = [f.text for f in study.findings if "largest change of a prompt" in f.text]
    assert "of a prompt at the last checkpoint, option" in prompt
    assert prompt.endswith("(m seed1 → m seed2 at step 2)")
    assert [f.text[:11] for f in study.findings if "engine" in f.text] == [
        "A (seed1): ",
        "B (seed2): ",
    ]
    same = compare(bank, bank)
    assert same.findings[0].text == "A and B have the same logits."
    assert len(same.result.metrics)
    assert not any("largest change" in f.text or "correlation" in f.text for f in same.findings)
    assert found.value == pytest.approx(expected)
    assert study.result.logits["step"].to_list() == [0, 1, 2]
    last = study.result.prompts
    assert {*last["step"], *last["run"]} == {2, "seed1"}
    with pytest.raises(UsageError, match=r"no model or run 'seed3'. .* runs seed1, seed2\."):
        compare(bank, match={"seed1": "seed3"})
    with pytest.raises(UsageError, match="names one run of .* twice"):
        compare(bank, match={"seed1": "seed2", "seed2": "seed2"})


def test_no_match_is_proposed_where_nothing_is_in_common(tmp_path: Path) -> None:
    one, other = new_bank(tmp_path / "a"), Bank.create(tmp_path / "b")
    queries = QuerySet("7f" * 32, (Query((1, 2), 1),))
    other.add_query_set(queries)
    deposits = [(one, "m", QUERY_SET.name, 10), (other, "n", queries.name, 1)]
    for bank, model, name, rows in deposits:
        bank.deposit(
            np.zeros((rows, 6), np.float32), checkpoint=CheckpointId(model, step=1),
            query_set=name, dtype="float32",
        )  # fmt: skip
    with pytest.raises(BankError) as raised:
        compare(one, other)
    assert "--match" not in str(raised.value)
    assert "tokenizers or prompts differ" in str(raised.value)


def test_prompt_sets_of_models_that_are_not_compared_are_left_out(tmp_path: Path) -> None:
    """Another model of the bank has answered other prompts."""
    bank = new_bank(tmp_path / "b")
    queries = QuerySet("7f" * 32, (Query((1, 2), 1),))
    bank.add_query_set(queries)
    bank.add_prompts("other", prompt_table(queries))
    for run in ("seed1", "seed2"):
        bank.deposit(
            logits(len(run)), checkpoint=CheckpointId("m", run, 1), query_set=QUERY_SET.name,
            dtype="float32",
        )  # fmt: skip
    bank.deposit(
        np.zeros((1, 6), np.float32), checkpoint=CheckpointId("n", step=1), query_set=queries.name,
        dtype="float32",
    )  # fmt: skip
    found = compare(bank, match={"seed1": "seed2"}).result
    assert {*found.metrics["prompts"]} == {"parity"}
    assert found.unmeasured == ()
