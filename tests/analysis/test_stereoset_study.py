"""From banks and prediction files to sentences, files and figures, and the command."""

import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from logitbank.analysis.charts.chart import chart_caption, save_charts
from logitbank.analysis.families.stereoset import FAMILY, stereoset
from logitbank.analysis.families.stereoset.findings import findings
from logitbank.analysis.families.stereoset.metric import stereoset_metric
from logitbank.analysis.frames.candidates import read_candidates
from logitbank.analysis.frames.reader import Scores
from logitbank.errors import LogitbankError, SuiteError, UsageError
from logitbank.store import (
    Bank,
    BlockData,
    CheckpointId,
    DepositSpec,
    Keep,
    Layout,
    Query,
    QuerySet,
)
from logitbank.store.share.push import push
from tests.support.file_server import FileServer
from tests.support.stereoset_cases import (
    EXAMPLES,
    KINDS,
    VOCAB,
    Example,
    candidates,
    gold_data,
    make_bank,
    prediction_data,
    prompt_rows,
    write_json,
)


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """A prediction file and its gold file."""
    tasks = {"intrasentence": EXAMPLES, "intersentence": EXAMPLES}
    return (
        write_json(tmp_path / "bert.json", prediction_data(**tasks)),
        write_json(tmp_path / "gold.json", gold_data(**tasks)),
    )


def test_a_bank_gives_the_scores_of_its_pieces(tmp_path: Path) -> None:
    bank = Bank.open(make_bank(tmp_path / "b.zarr"))
    found = pl.concat(read_candidates(Scores([bank], tuple(KINDS))))
    assert len(found) == 2 * 2 * len(EXAMPLES) * 3
    assert set(found["term"]) == {"nurse", "guitarist", "Norwegian"}
    logits = np.random.default_rng((0, 8)).normal(size=(24, VOCAB)).astype(np.float32)
    p = np.exp(logits[:, 1].astype(np.float64)) / np.exp(logits.astype(np.float64)).sum(axis=1)
    own = found.filter((pl.col("step") == 8) & (pl.col("task") == "intrasentence"))
    assert set(own["example"]) == {f"intrasentence-{i}" for i in range(4)}
    first = own.filter(pl.col("candidate") == "intrasentence-0-stereotype")["value"][0]
    assert first == pytest.approx((p[0] + p[1]) / 2, rel=1e-6)
    second = own.filter(pl.col("candidate") == "intrasentence-1-anti-stereotype")["value"][0]
    assert second == pytest.approx((p[8] + p[9]) / 2, rel=1e-6)


def test_models_and_steps_are_chosen(tmp_path: Path) -> None:
    banks = [
        make_bank(tmp_path / "a.zarr", model="a", steps=[0, 8, None]),
        make_bank(tmp_path / "b.zarr", model="b", steps=[8]),
    ]
    every = stereoset(banks).result.scores
    assert every.unique(["model", "step"])["model"].sort().to_list() == ["a"] * 3 + ["b"]
    chosen = stereoset(banks, models=["a"], steps="0,release").result
    assert chosen.scores.select("model", "step").unique(maintain_order=True).rows() == [
        ("a", 0),
        ("a", None),
    ]
    banks.append(make_bank(tmp_path / "c.zarr", model="c", steps=[0]))
    last = stereoset(banks, steps="last").result.scores.select("model", "step").unique()
    assert {*last.rows()} == {("a", 8), ("b", 8), ("c", 0)}
    with pytest.raises(SuiteError, match="no step 0"):
        stereoset(banks, models=["b"], steps="0")
    with pytest.raises(UsageError, match="Steps 'first' are invalid"):
        stereoset(banks, steps="first")


def test_checkpoints_in_batches_give_what_all_together_give(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    banks = [
        Bank.open(make_bank(tmp_path / name, model=name, steps=steps))
        for name, steps in (("b", [0, 8, None]), ("a", [8, 2]))
    ]
    scores = Scores(banks, tuple(KINDS))
    whole = stereoset_metric([pl.concat(read_candidates(scores))])
    monkeypatch.setattr("logitbank.analysis.frames.candidates.ROWS", 1)
    assert len([*read_candidates(scores)]) == 5
    study = stereoset([bank.path for bank in banks])
    for name, table in whole.tables().items():
        assert_frame_equal(study.result.tables()[name], table)
    with pytest.raises(UsageError, match="b step 0 has scores of 'stereoset-inter' in both"):
        stereoset([banks[0].path, shutil.copytree(banks[0].path, tmp_path / "c")])
    with pytest.raises(UsageError, match="b is given twice"):
        stereoset([banks[0].path, banks[0].path])


def test_prompt_sets_of_another_language_are_found_by_their_names(tmp_path: Path) -> None:
    path = make_bank(tmp_path / "b.zarr", steps=[8])
    bank = Bank.open(path)
    queries = QuerySet("ab" * 32, tuple(Query((9, i), 1) for i in range(24)))
    bank.add_query_set(queries)
    bank.add_prompts(
        "stereoset-intra-de", prompt_rows(queries, kind="masked", task="x", language="de")
    )
    logits = np.random.default_rng(5).normal(size=(24, VOCAB)).astype(np.float32)
    bank.deposit(logits, checkpoint=CheckpointId("toy", step=8), query_set=queries.name)
    tasks = stereoset([path]).result.tasks
    german = tasks.filter(pl.col("language") == "de").select("task", "status").rows()
    assert german == [
        ("both", "skipped"),
        ("intersentence", "skipped"),
        ("intrasentence", "scored"),
    ]
    only = stereoset([path], prompts=["stereoset-inter"]).result
    assert only.scores["task"].unique().to_list() == ["intersentence"]


def test_absent_items_of_a_checkpoint_count_as_missing(tmp_path: Path) -> None:
    path = tmp_path / "b.zarr"
    bank = Bank.create(path)
    queries = QuerySet("ab" * 32, tuple(Query((0, i), 1) for i in range(24)))
    bank.add_query_set(queries)
    bank.add_prompts("stereoset-intra", prompt_rows(queries, kind="masked", task="x"))
    layout = Layout(24, VOCAB, "float32", Keep("options"), 8)
    spec = DepositSpec(
        CheckpointId("toy", step=0), queries.name, layout, VOCAB,
        {"weights": "ab" * 32, "tokenizer": "ab" * 32, "engine": "test"},
    )  # fmt: skip
    with bank.begin(spec) as writer:
        for block in (0, 1):  # the last example, and the last two candidates of the third, are not
            writer.write(block, _drawn(layout, block))
    study = stereoset([path])
    scored = study.result.tasks.filter(pl.col("task") == "intrasentence")
    assert scored.select("examples", "missing").row(0) == (2, 2)
    assert any("2 examples at 1 checkpoint" in s for s in study.missing)


def _drawn(layout: Layout, block: int) -> BlockData:
    from logitbank.store.format.schema import SCORES_SCHEMA

    values = np.random.default_rng(block).normal(size=8)
    rows = [
        (row, token, kind, value, 3.0, 1, 0, 0, 0, True)
        for row, value in zip(layout.rows(block), values, strict=True)
        for token, kind in ((1, "option"), (2, "top"))
    ]
    return BlockData(None, pl.DataFrame(rows, schema=SCORES_SCHEMA, orient="row", strict=False))


def test_calls_that_cannot_be_right(tmp_path: Path, files: tuple[Path, Path]) -> None:
    predictions, gold = files
    for arguments, message in (
        ({}, "StereoSet needs a bank, or prediction files"),
        ({"predictions": [str(predictions)]}, "--gold"),
        ({"gold": gold, "banks": [tmp_path]}, "--predictions"),
        (
            {"predictions": [str(predictions)], "gold": gold, "steps": "8"},
            "--steps chooses from a bank, and there is none. Leave it out",
        ),
        (
            {"predictions": [str(predictions)] * 2, "gold": gold},
            "'bert'",
        ),
    ):
        with pytest.raises(LogitbankError, match=message):
            stereoset(**arguments)  # type: ignore[arg-type]


charts = FAMILY.charts
assert charts is not None
PRO: Example = ("nurse", "gender", (3.0, 2.0, 1.0))
ANTI: Example = ("nurse", "gender", (2.0, 3.0, 1.0))


def terms(example: Example, count: int = 4) -> list[Example]:
    return [(f"{example[0]} {at}", *example[1:]) for at in range(count)]


def test_the_headline_is_the_stereotype_score_with_its_interval_and_n(
    tmp_path: Path, files: tuple[Path, Path]
) -> None:
    many = [(f"{at}", "gender", PRO[2] if at else ANTI[2]) for at in range(30)]
    result = stereoset_metric([candidates(many)])
    head, score, *_ = findings(result)
    row = result.scores.filter(domain="all").row(0, named=True)
    assert row["ss"] == pytest.approx(100 * 29 / 30)
    assert head.text == "Stereotype score is 96.7 at release."
    assert (score.value, score.low, score.n) == (row["ss"], row["ss_low"], "30 target terms")
    assert score.baseline == "50 (no preference)"
    predictions, gold = files
    both = stereoset(predictions=[str(predictions)], gold=f"fr={gold}")
    assert set(both.tables["scores"]["language"]) == {"fr"}
    values = {each.text.split(" at ")[0]: each.value for each in both.findings if each.value}
    # Terms: nurse ss 50, guitarist 100, Norwegian 0; lms 75, 0, 0.
    assert values["Stereotype score"] == pytest.approx(50)
    assert values["lms"] == values["iCAT"] == pytest.approx(25)


def test_findings_of_a_release_come_from_it_and_none_have_no_number() -> None:
    frame = pl.concat(candidates(terms(PRO), step=step) for step in (8, None))
    head = findings(stereoset_metric([frame]))[0]
    assert "100.0 at release" in head.text
    empty = pl.when(pl.col("step").is_null()).then(None).otherwise("value")
    found = findings(stereoset_metric([frame.with_columns(value=empty)]))
    assert "100.0 at step 8" in found[0].text
    assert not any("release" in each.text for each in found)
    nothing = stereoset_metric([frame.with_columns(value=pl.lit(None, pl.Float64))])
    assert findings(nothing)[0].text == "There is no target term of StereoSet with a score."
    assert charts(nothing) == {}
    assert not any("nan" in str(each) for each in (*found, *findings(nothing)))


def test_a_condition_is_compared_with_plain_and_only_on_examples_in_common() -> None:
    other = candidates(terms(ANTI), condition="a prefix")
    found = findings(stereoset_metric([pl.concat([candidates(terms(PRO)), other])]))
    (change,) = (each for each in found if "Stereotype score, a prefix minus plain" in each.text)
    assert (change.value, change.n) == (-100.0, "4 examples")
    last = candidates(terms(PRO), condition="a prefix").with_columns(value=pl.lit(None, pl.Float64))
    some = candidates(terms(PRO), condition="a prefix", step=8)
    frame = pl.concat([candidates(terms(PRO)), candidates(terms(PRO), step=8), some, last])
    found = findings(stereoset_metric([frame]))
    (none,) = (each.text for each in found if "No example" in each.text)
    assert none == "No example has scores of both, a prefix minus plain."
    assert not any("nan" in str(each) for each in found)


def test_charts_of_several_models_and_runs(tmp_path: Path) -> None:
    own: list[Example] = [(f"t{at}", "race", (at % 3, 1.0, 0.5)) for at in range(12)]
    tasks = ("intrasentence", "intersentence")
    frame = pl.concat(
        candidates(own, model=model, step=step, task=task)
        for model in ("a", "b") for step in (0, 8, None) for task in tasks
    )  # fmt: skip
    drawn = charts(stereoset_metric([frame]))
    assert list(drawn) == ["measures"]
    spec = drawn["measures"].to_dict()
    rows = [row for rows in spec["datasets"].values() for row in rows if "series" in row]
    assert {(row["series"], row["label"]) for row in rows} == {
        (model, domain) for model in ("a", "b") for domain in ("race", "all")
    }, "of both tasks"
    assert "n = 12 target terms" in chart_caption(drawn["measures"])
    save_charts(drawn, tmp_path)
    assert list(charts(stereoset_metric([candidates(own)]))) == ["measures"]


def test_only_scores_of_stereoset_are_copied_from_a_url(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("obstore")
    monkeypatch.setenv("LOGITBANK_CACHE", str(tmp_path / "cache"))
    bank = Bank.open(make_bank(tmp_path / "b.zarr"))
    other = QuerySet("ab" * 32, tuple(Query((7, i), 1) for i in range(24)))
    bank.add_query_set(other)
    bank.add_prompts("another", prompt_rows(other, kind="masked", task="x"))
    logits = np.zeros((24, VOCAB), np.float32)
    bank.deposit(logits, checkpoint=CheckpointId("toy", step=8), query_set=other.name)
    push(bank.path, tmp_path / "www" / "b")
    with FileServer(tmp_path / "www") as server:
        found = stereoset([f"{server.url}/b"]).result
        assert_frame_equal(found.scores, stereoset([bank]).result.scores)
        copied = {path.as_posix() for path in (tmp_path / "cache").rglob("scores/*")}
        assert copied
        assert not any(other.name in path for path in copied)
        only = stereoset([f"{server.url}/b"], prompts=["stereoset-inter"])
        assert only.result.scores["task"].unique().to_list() == ["intersentence"]
