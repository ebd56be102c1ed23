"""Filters from a bank to a table: training, filtered banks and the comparison."""

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import logitbank
from logitbank.analysis.debias import compare
from logitbank.analysis.debias.answers import answers, bias
from logitbank.analysis.debias.compare import debias_compare, untrained_like
from logitbank.analysis.debias.instances import instance_reader
from logitbank.analysis.debias.train import Training, debias_train, train
from logitbank.analysis.families.fairness import fairness
from logitbank.analysis.families.stereoset import stereoset
from logitbank.analysis.families.stereotype import stereotype
from logitbank.analysis.families.unqover.metric import unqover_metric, with_counts
from logitbank.analysis.families.unqover.tables import unqover_instances
from logitbank.errors import AbsentError, BankError, KeepLevelError, UsageError
from logitbank.store import (
    Bank,
    BlockData,
    CheckpointId,
    Filter,
    Query,
    QuerySet,
    apply_filter,
)
from tests.support import unqover_cases
from tests.support.command import Call
from tests.support.evaluation_banks import add_lambada, add_stereotype, add_winobias
from tests.support.made_once import made_once
from tests.support.row_scores import scores_of
from tests.support.stereoset_cases import EXAMPLES, prompt_rows

pytestmark = pytest.mark.numerical

ATTRIBUTES = ("was a nurse", "was a pilot", "was a chef", "was a judge", "was rich", "was poor")


@pytest.fixture(autouse=True)
def _attributes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unqover_cases, "ATTRIBUTES", ATTRIBUTES)


def logits_of(rows: Sequence[unqover_cases.Row]) -> np.ndarray:
    """Names are likely, and more or less so by attribute: that is the bias."""
    random = np.random.default_rng(3)
    logits = random.normal(size=(len(rows), unqover_cases.VOCAB))
    for at, row in enumerate(rows):
        lean = 1.5 * (ATTRIBUTES.index(row["attribute"]) % 2 - 0.5) * (-1 if row["negated"] else 1)
        for name, sign in ((row["subject1"], 1), (row["subject2"], -1)):
            logits[at, unqover_cases.tokens()[name]] += 3 + sign * lean
    return logits.astype(np.float32)


@made_once
def make_bank(path: Path, *, keep: str = "topk:16", stereo: bool = True) -> Path:
    bank = Bank.create(path)
    queries, rows = unqover_cases.add_questions(bank)
    checkpoint = CheckpointId("toy", step=8)
    bank.deposit(logits_of(rows), checkpoint=checkpoint, query_set=queries.name, keep=keep)
    for number, (name, condition) in enumerate(
        (("stereoset-intra", "plain"), ("stereoset-intra-prefix", "prefix"))
    ):
        if not stereo:
            break
        own = QuerySet("ab" * 32, tuple(Query((number, i), 1) for i in range(len(EXAMPLES) * 6)))
        bank.add_query_set(own)
        bank.add_prompts(name, prompt_rows(own, kind="masked", task="i", condition=condition))
        bank.deposit(drawn(number, own), checkpoint=checkpoint, query_set=own.name, keep=keep)
    return path


def drawn(seed: int, queries: QuerySet) -> np.ndarray:
    logits = np.random.default_rng(seed).normal(size=(len(queries), unqover_cases.VOCAB))
    return logits.astype(np.float32)


def add(bank: Bank, queries: QuerySet, logits: np.ndarray, **tables: pl.DataFrame) -> Bank:
    """A query set with these prompt sets, and a deposit of it."""
    bank.add_query_set(queries)
    for name, table in tables.items():
        bank.add_prompts(name.replace("_", "-"), table)
    bank.deposit(
        logits, checkpoint=CheckpointId("toy", step=8), query_set=queries.name, keep="topk:16"
    )
    return bank


def filtered(bank: Bank, by: Filter, out: Path) -> Bank:
    apply_filter(bank, by, out)
    return Bank.open(out)


def test_instances_without_a_filter_are_those_of_the_analysis(tmp_path: Path) -> None:
    bank = Bank.open(make_bank(tmp_path / "b", stereo=False))
    for he_she in (False, True):
        reader = instance_reader(bank, "unqover-gender", k=5, he_she=he_she)
        given = reader.read()
        assert reader.checkpoint.step == 8
        table = unqover_instances(bank.scan("unqover-gender"), he_she=he_she)
        c = bias(answers(given, None).probabilities)
        ours = dict(zip(given.names["instance"], c, strict=True))
        theirs = dict(zip(table["instance"], table["c"], strict=True))
        assert ours == pytest.approx(theirs, abs=1e-7)
        few = instance_reader(bank, "unqover-gender", k=2, he_she=he_she).read()
        same = answers(few, None).probabilities
        np.testing.assert_allclose(same, answers(given, None).probabilities, atol=1e-7)
        assert few.coverage < given.coverage


@pytest.mark.parametrize("mode", ["keep_tail", "truncate"])
def test_a_filtered_bank_measures_what_training_measured(tmp_path: Path, mode: str) -> None:
    bank = Bank.open(make_bank(tmp_path / "b", stereo=False))
    study = debias_train(
        bank,
        prompts="unqover-gender",
        training=Training(mode=mode, start="ones"),  # type: ignore[arg-type]
        split=None,
    )
    rows = {row["filter"]: row for row in study.result.bias.iter_rows(named=True)}
    for label, by in (("untrained", study.result.untrained), ("trained", study.result.by)):
        scan = filtered(bank, by, tmp_path / label).scan("unqover-gender")
        seen = with_counts(unqover_metric(scores_of(scan)))
        found = seen.filter(pl.col("split") == "all").row(0, named=True)
        for name in ("mu", "eta", "abs_c", "positional", "attributive"):
            assert found[name] == pytest.approx(rows[label][name], abs=1e-6), name
    assert rows["trained"]["abs_c"] < 0.5 * rows["none"]["abs_c"]


def test_a_filter_contains_its_provenance(tmp_path: Path) -> None:
    path = make_bank(tmp_path / "b", stereo=False)
    out = tmp_path / "f.safetensors"
    study = debias_train(path, prompts="unqover-gender", k=6, out=out)
    about = Filter.load(out).about
    assert about == study.result.by.about
    expected = {
        "model": "toy", "run": "main", "step": 8, "tokenizer": "ab" * 32, "split": "train",
        "prompts": "unqover-gender", "trained": True, "k": 6, "objective": "direct",
        "start": "identity", "optimizer": "L-BFGS", "he_she": False, "instances": 60,
    }  # fmt: skip
    assert {name: about[name] for name in expected} == expected
    assert study.result.bias["split"].to_list() == ["train"] * 3 + ["test"] * 3
    for row in study.result.bias.filter(filter="trained").to_dicts():
        (found,) = (f for f in study.findings if f.text.startswith(f"{row['split']}: mean |C|"))
        assert (found.value, found.low) == pytest.approx(
            (row["abs_c"], row["abs_c_low"]), nan_ok=True
        )
        assert found.n == f"{row['instances']} instances"
    with pytest.raises(UsageError, match=r"f\.safetensors exists already"):
        debias_train(path, prompts="unqover-gender", out=out)


def test_missing_inputs_of_training_are_refused(tmp_path: Path) -> None:
    path = make_bank(tmp_path / "b", keep="topk:4")
    train = partial(debias_train, path)
    for error, options in (
        (KeepLevelError, {}),
        (UsageError, {"prompts": "stereoset-intra"}),
        (UsageError, {"k": 4, "split": "dev"}),
        (UsageError, {"k": 4, "model": "toy", "step": 3}),
        (UsageError, {"k": 41}),
    ):
        with pytest.raises(error):
            train(**{"prompts": "unqover-gender", **options})  # type: ignore[arg-type]


def test_one_run_is_trained_on(tmp_path: Path) -> None:
    bank = Bank.open(make_bank(tmp_path / "b"))
    own = bank.scan("unqover-gender").select("query_set").collect()["query_set"][0]
    rows = unqover_cases.questions()
    bank.deposit(
        -logits_of(rows), checkpoint=CheckpointId("toy", "seed1", 8), query_set=own, keep="topk:16"
    )
    with pytest.raises(UsageError, match="several runs.*main, seed1"):
        debias_train(bank, prompts="unqover-gender")
    with pytest.raises(UsageError, match="run seed2.*main, seed1"):
        debias_train(bank, prompts="unqover-gender", run="seed2")
    found = debias_train(bank, prompts="unqover-gender", run="seed1").result
    assert found.by.about["run"] == "seed1"
    first = debias_train(bank, prompts="unqover-gender", run="main").result
    assert found.bias["abs_c"][0] != pytest.approx(first.bias["abs_c"][0], rel=0.01)


@pytest.mark.parametrize("sizes", [(40, 288), (288, 40)])
def test_a_sample_and_a_larger_one_are_read_together(tmp_path: Path, sizes: Sequence[int]) -> None:
    whole = Bank.open(make_bank(tmp_path / "b", stereo=False))
    table, logits = whole.prompts("unqover-gender").collect(), logits_of(unqover_cases.questions())
    both = Bank.create(tmp_path / "c")
    for number, size in enumerate(sizes):
        some = QuerySet(
            "ab" * 32, tuple(Query((number, i, 1), 2, head="mask") for i in range(size))
        )
        both.add_query_set(some)
        both.add_prompts(
            "unqover-gender",
            table.filter(pl.col("row") < size).with_columns(query_set=pl.lit(some.name)),
        )
        both.deposit(
            logits[:size], checkpoint=CheckpointId("toy"), query_set=some.name, keep="topk:8"
        )
    one, two = (instance_reader(b, "unqover-gender", k=6).read() for b in (whole, both))
    assert one.names.equals(two.names)
    for name in ("logits", "log_mass", "slots", "rest"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name))


def test_options_without_a_score_are_refused(tmp_path: Path) -> None:
    whole = Bank.open(make_bank(tmp_path / "b", stereo=False))
    table, rows = whole.prompts("unqover-gender").collect(), unqover_cases.questions()
    queries = whole.query_set(table["query_set"][0])
    bank = add(Bank.create(tmp_path / "c"), queries, logits_of(rows))
    bank.add_prompts("unqover-gender", table)
    with pytest.raises(BankError, match="1,152 options of unqover-gender"):
        instance_reader(bank, "unqover-gender", k=4).read()


def test_the_untrained_filter_of_another_seed_is_made_again(tmp_path: Path) -> None:
    bank = Bank.open(make_bank(tmp_path / "b", stereo=False))
    given = instance_reader(bank, "unqover-gender", k=4).read()
    trained = train(given, Training(start="ones", seed=5))
    assert untrained_like(trained.filter).digest == trained.untrained.digest
    losses = trained.losses  # one a step, of which none goes up
    untrained, after = (
        np.abs(answers(given, by).bias).mean() for by in (trained.untrained, trained.filter)
    )
    assert losses[0] == pytest.approx(untrained)
    assert (np.diff(losses) < 0).all()
    assert losses[-1] >= after


def test_an_instance_without_one_of_its_questions_is_an_error(tmp_path: Path) -> None:
    bank = Bank.create(tmp_path / "b")
    queries, rows = unqover_cases.add_questions(bank)
    table = bank.prompts("unqover-gender").collect()
    cut = table.filter(~pl.col("prompt_id").str.ends_with("was a chef|21|neg"))
    other = add(Bank.create(tmp_path / "c"), queries, logits_of(rows), unqover_gender=cut)
    with pytest.raises(BankError, match=r"12 of 72 instances"):
        instance_reader(other, "unqover-gender", k=8).read()


def test_the_comparison_has_every_row(tmp_path: Path) -> None:
    path, out = make_bank(tmp_path / "b"), tmp_path / "f.safetensors"
    by = debias_train(path, prompts="unqover-gender", out=out).result.by
    study = debias_compare(path, [out])
    table = study.result.comparison
    labels = ["no filter", "untrained, k = 8, keep_tail", "trained, k = 8, keep_tail"]
    assert table["label"].to_list() == [x for x in labels for _ in range(2)] + ["reference"] * 2
    assert table["condition"].to_list() == ["plain", "prefix"] * 3 + ["plain"] * 2
    assert table["model"].to_list() == ["toy"] * 6 + ["ideal model", "random model"]
    assert table["icat_change"][0] == 0
    assert table["icat"].to_list()[-2:] == [100.0, 50.0]
    for name, each, row in (("u", untrained_like(by), 2), ("t", by, 4)):
        view = filtered(Bank.open(path), each, tmp_path / name)
        own = stereoset([view]).result.scores.filter(
            (pl.col("domain") == "all") & (pl.col("task") == "intrasentence")
        )
        assert own["icat"].to_list() == table["icat"].to_list()[row : row + 2]
        seen = with_counts(unqover_metric(scores_of(view.scan("unqover-gender"))))
        held = seen.filter(pl.col("split") == "test")
        assert held["abs_c"].item() == pytest.approx(table["abs_c"][row])
        assert table["abs_c"][row + 1] is None
    assert list(study.charts) == ["icat", "lms", "ss", "abs_c"]
    trained = table.row(4, named=True)
    icat, abs_c = (
        next(f for f in study.findings if f.figure == name and "trained, k = 8" in f.text
             and "untrained" not in f.text and f.value is not None)
        for name in ("icat", "abs_c")
    )  # fmt: skip
    assert (icat.value, icat.n, icat.interval) == (trained["icat"], "4 examples", "")
    assert (abs_c.value, abs_c.series) == (trained["abs_c"], ("toy", "main"))
    instances = held["instances"].item()
    assert abs_c.n == f"{instances} instances of the test part"
    assert not any("trained on all instances" in each for each in study.cautions)
    debias_train(path, prompts="unqover-gender", out=tmp_path / "all.safetensors", split=None)
    cautions = debias_compare(path, [out, tmp_path / "all.safetensors"]).cautions
    (caution,) = (each for each in cautions if "trained on all instances" in each)
    assert caution.startswith("Filter all was")
    few = Bank.create(tmp_path / "empty")
    with pytest.raises(UsageError, match="StereoSet or UnQover"):
        debias_compare(few, [])
    with pytest.raises(AbsentError, match="'x' is not in .*toy"):
        debias_compare(path, [], models=["x"])
    with pytest.raises(UsageError, match="no scores of stereoset-intra, "):
        debias_compare(path, [out], step=9)


def test_filtered_banks_of_a_comparison_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, folder = make_bank(tmp_path / "b"), tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    seen: list[bool] = []

    def interrupted(*_: object) -> None:
        seen.append(any(folder.rglob("scores/all.parquet")))
        raise KeyboardInterrupt

    debias_compare(path, [Filter.identity(3)])
    assert not any(folder.iterdir())
    with pytest.raises(KeepLevelError):
        debias_compare(path, [Filter.identity(3), Filter.identity(17)])
    assert not any(folder.iterdir())
    monkeypatch.setattr(compare, "stereoset_metric", interrupted)
    with pytest.raises(KeyboardInterrupt):
        debias_compare(path, [Filter.identity(3)])
    assert seen == [True]
    assert not any(folder.iterdir())


def is_highest(logits: np.ndarray, prompts: pl.DataFrame, k: int) -> pl.Series:
    """Whether each scored token is among the k highest logits of its query."""
    highest = np.argsort(-logits, axis=1)[:, :k]
    pairs = prompts.select("row", "token").iter_rows()
    return pl.Series([token in highest[row] for row, token in pairs])


@pytest.mark.parametrize("k", [5, 8])
def test_every_row_tells_how_much_is_among_the_highest_logits(tmp_path: Path, k: int) -> None:
    bank = Bank.open(make_bank(tmp_path / "b"))
    study = debias_compare(bank, [Filter.identity(k, "truncate")])
    rows = study.result.comparison.filter(pl.col("label") != "reference")
    assert rows["k"].to_list() == [k] * 6
    for number, name in enumerate(("stereoset-intra", "stereoset-intra-prefix")):
        prompts = bank.prompts(name).collect()
        logits = drawn(number, bank.query_set(prompts["query_set"][0]))
        inside = prompts.with_columns(inside=is_highest(logits, prompts, k))
        expected = inside.group_by("prompt_id").agg(pl.col("inside").any())["inside"].mean()
        condition = "prefix" if number else "plain"
        assert rows.filter(condition=condition)["candidates_in_k"].unique().item() == expected
    questions = bank.prompts("unqover-gender").filter(split="test").collect()
    inside = is_highest(logits_of(unqover_cases.questions()), questions, k)
    slots = questions.with_columns(inside=inside, form=pl.col("continuation").str.to_lowercase())
    shares = [
        pl.col("inside").filter(pl.col("form").str.strip_chars() == name).any()
        for name in (pl.col("subject1").str.to_lowercase(), pl.col("subject2").str.to_lowercase())
    ]
    found = slots.group_by("prompt_id").agg(pl.concat_list(shares).first().alias("x"))
    expected = found.explode("x")["x"].mean()
    plain = rows.filter(condition="plain")
    assert plain["subjects_in_k"].to_list() == pytest.approx([expected] * 3)
    assert rows.filter(condition="prefix")["subjects_in_k"].null_count() == 3
    lowest = rows["candidates_in_k"].min()
    text = f"{lowest:.1%} of StereoSet's candidates are among the {k} highest logits of toy,"
    (at,) = (i for i, finding in enumerate(study.findings) if text in finding.text)
    assert (at == 0, study.findings[at].text.startswith("Only ")) == (k == 5, k == 5)


def test_filters_of_equal_size_are_told_apart_by_their_file(tmp_path: Path) -> None:
    path, files = make_bank(tmp_path / "b", stereo=False), []
    for name, strength in (("one", 0.0), ("in/two.x", 0.5)):
        files.append(tmp_path / f"{name}.safetensors")
        training = Training(regularisation=strength)
        debias_train(path, prompts="unqover-gender", training=training, out=files[-1])
    other = Filter.identity(8, "keep_tail")
    labels = debias_compare(path, [*files, other]).result.comparison["label"]
    trained = "trained, k = 8, keep_tail"
    assert set(labels.to_list()) == {
        "no filter", f"un{trained}", f"{trained}, one", f"{trained}, in/two.x",
        f"{trained}, filter 3", "reference",
    }  # fmt: skip


def test_a_filter_that_leaves_only_rounding_has_no_sign_of_bias(tmp_path: Path) -> None:
    path = make_bank(tmp_path / "b", stereo=False, keep="topk:40")
    flat, lean = (Filter(size * np.eye(40), np.zeros(40)) for size in (1e-5, 1e-3))
    study = debias_compare(path, [flat, lean])
    rows = study.result.comparison.filter(filter="trained")
    assert rows["abs_c"][0] == pytest.approx(1e-2 * rows["abs_c"][1], rel=0.01)
    assert (rows["eta"][0], rows["eta"][1] > 0.5) == (0, True)
    table = study.result.unqover.filter(filter="trained", split="all")
    assert np.isnan(table.filter(pl.col("abs_c") < 1e-6)["eta_low"].item())


def test_measures_of_unqover_are_in_rows_of_its_language_only(tmp_path: Path) -> None:
    path = make_bank(tmp_path / "b")
    own = QuerySet("ab" * 32, tuple(Query((9, i), 1) for i in range(len(EXAMPLES) * 6)))
    german = prompt_rows(own, kind="masked", task="i", language="de")
    add(Bank.open(path), own, drawn(9, own), stereoset_intra_de=german)
    by = debias_train(path, prompts="unqover-gender").result.by
    study = debias_compare(path, [by])
    rows = study.result.comparison.filter(condition="plain", model="toy")
    assert rows.select("language", "filter", pl.col("abs_c").is_null()).rows() == [
        (language, name, language == "de")
        for language in ("de", "en")
        for name in ("none", "untrained", "trained")
    ]
    icat = {row["language"]: row["icat"] for row in rows.filter(filter="trained").to_dicts()}
    before = {row["language"]: row["icat"] for row in rows.filter(filter="none").to_dicts()}
    english, german_change = (icat[name] - before[name] for name in ("en", "de"))
    (transfer,) = (f.text for f in study.findings if "trained on English" in f.text)
    assert transfer.endswith(
        f"changes iCAT in English by {english:+.1f}, in German by {german_change:+.1f}."
    )


def stopped_midway(path: Path, whole: Bank, *, blocks: int, name: str) -> Bank:
    """The same bank; of one StereoSet set only the first examples, six queries each, are scored."""
    bank = Bank.create(path)
    for own in ("stereoset-intra", "stereoset-intra-prefix"):
        table = whole.prompts(own).collect()
        queries = whole.query_set(table["query_set"][0])
        bank.add_query_set(queries)
        bank.add_prompts(own, table)
        (deposit,) = [d for d in whole.deposits() if d.query_set == queries.name]
        layout = replace(deposit.layout, block_rows=6)
        with bank.begin(replace(deposit.spec, layout=layout)) as writer:
            for block in range(blocks if own == name else layout.blocks):
                rows = pl.col("query").is_in(list(layout.rows(block)))
                writer.write(block, BlockData(None, deposit.scores().filter(rows).collect()))
    return bank


@pytest.mark.parametrize("name", ["stereoset-intra", "stereoset-intra-prefix"])
def test_a_bank_stopped_midway_is_compared_on_the_examples_that_both_sides_have(
    tmp_path: Path, name: str
) -> None:
    whole = Bank.open(make_bank(tmp_path / "b"))
    study = debias_compare(stopped_midway(tmp_path / "c", whole, blocks=2, name=name), [])
    rows = study.result.comparison.filter(pl.col("label") != "reference")
    expected = [4, 2] if name == "stereoset-intra-prefix" else [2, 4]
    assert rows["examples"].to_list() == expected
    assert rows["missing"].to_list() == [4 - n for n in expected]
    assert rows["common"].to_list()[1] == 2
    common = Bank.create(tmp_path / "common")  # with no other examples than the two
    for own in ("stereoset-intra", "stereoset-intra-prefix"):
        table = whole.prompts(own).collect()
        queries = whole.query_set(table["query_set"][0])
        logits = drawn(int(own.endswith("prefix")), queries)
        add(common, queries, logits, **{own: table.filter(pl.col("row") < 12)})
    scores = stereoset([common]).result.scores
    overall = scores.filter((pl.col("domain") == "all") & (pl.col("task") == "intrasentence"))
    plain, prefix = overall["icat"]
    assert rows["icat_change"].to_list() == [0, pytest.approx(prefix - plain)]
    if name == "stereoset-intra-prefix":  # as of the other, by chance, all four are
        assert rows["icat"][1] - rows["icat"][0] != pytest.approx(prefix - plain)
    text = "\n".join(study.summary)
    assert "over 2 common examples" in text
    assert "2 examples" in "\n".join(study.missing)


def test_a_bank_may_have_only_one_of_unqover_and_stereoset(tmp_path: Path) -> None:
    path = make_bank(tmp_path / "b", stereo=False)
    table = debias_compare(path, []).result.comparison
    assert table["abs_c"].null_count() == 2  # ideal and random model
    assert table["icat"].to_list() == [None, 100.0, 50.0]
    whole, prefix = Bank.open(make_bank(tmp_path / "c")), Bank.create(tmp_path / "d")
    rows = whole.prompts("stereoset-intra-prefix").collect()
    queries = whole.query_set(rows["query_set"][0])
    add(prefix, queries, drawn(1, queries), stereoset_intra_prefix=rows)
    (icat,) = (f for f in debias_compare(prefix, []).findings if f.figure == "icat")
    assert icat.text.startswith("toy, step 8, en, no filter, prefix: iCAT ")
    assert icat.interval == ""


def test_parts_may_be_separate_sets(tmp_path: Path) -> None:
    bank = Bank.open(make_bank(tmp_path / "b"))
    table = bank.prompts("unqover-gender").collect()
    parts = {f"unqover-gender-{p}": table.filter(split=p) for p in ("train", "test")}
    queries = bank.query_set(table["query_set"][0])
    logits = logits_of(unqover_cases.questions())
    separate = add(Bank.create(tmp_path / "c"), queries, logits, **parts)
    by = Filter.ones(8, "keep_tail")
    one, whole = (debias_compare(b, [by]).result.comparison for b in (separate, bank))
    values = whole.drop_nulls("abs_c")["abs_c"].to_list()
    assert one["abs_c"].to_list()[:2] == pytest.approx(values)
    assert one["icat"].to_list()[:2] == [None, None]


def test_a_filter_that_truncates_is_refused_by_other_analyses(tmp_path: Path) -> None:
    bank = Bank.create(tmp_path / "b")
    add_winobias(bank, steps=[0, 8], skew_from=8)
    add_lambada(bank, {0: 0, 8: 3}, words=4)
    add_stereotype(bank)
    truncated = filtered(bank, Filter.identity(3, "truncate"), tmp_path / "f")
    for study in (fairness, logitbank.lambada, stereotype):
        with pytest.raises(BankError, match="keep_tail"):
            study([truncated])  # type: ignore[operator]


def test_presets_are_the_published_settings(call: Call, tmp_path: Path) -> None:
    path, file = make_bank(tmp_path / "b", stereo=False), tmp_path / "f.safetensors"
    assert call("debias", "train", path, "--out", file, "--preset", "bert")[0] == 0
    found = Filter.load(file)
    assert found.mode == "truncate"
    assert (found.about["learning_rate"], found.about["batch_size"]) == (5e-9, 70)
    kept = tmp_path / "kept.safetensors"
    options = ("--preset", "bert", "--mode", "keep_tail")
    assert call("debias", "train", path, "--out", kept, *options)[0] == 0
    assert (Filter.load(kept).mode, Filter.load(kept).about) == ("keep_tail", found.about)
    code, _, errors = call(
        "debias", "train", path, "--out", tmp_path / "x", *options, "--regularisation", "1"
    )
    assert code != 0
    assert "either a preset or training settings (--regularisation)" in errors
    table = Bank.open(path).prompts("unqover-gender").collect()
    Bank.open(path).add_prompts("unqover-gender@en_XX", table)
    train = partial(debias_train, path, prompts="unqover-gender@en_XX")
    causal, roberta = (train(preset=preset).result.by for preset in ("causal", "roberta"))
    assert (causal.k, causal.about["batch_size"]) == (10, 256)
    assert roberta.about["objective"] == "published"
