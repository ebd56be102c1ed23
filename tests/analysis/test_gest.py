"""GEST from rows of pieces and released score files: means, the rate, intervals, refusals."""

import json
import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy import stats

from logitbank.analysis.charts.chart import chart_caption
from logitbank.analysis.families.gest import FAMILY, gest
from logitbank.analysis.families.gest.metric import Gest, gest_metric
from logitbank.analysis.results.series import CROWD
from logitbank.errors import BankError, UsageError
from tests.support.gest_cases import make_bank
from tests.support.paths import PUBLIC
from tests.support.piece_cases import piece_frame
from tests.support.row_scores import of_rows

pytestmark = pytest.mark.numerical
measured = of_rows(gest_metric)

LN10 = math.log(10)


def frame(
    scores: Mapping[tuple[int, int], float], *, step: int = 0, template: int = 1, pieces: int = 1
) -> pl.DataFrame:
    """The score of each sentence, named by number and stereotype, in nats."""
    prompts, columns = {}, {}
    for (sentence, stereotype), score in scores.items():
        for version, total in (("male", -3.0 + score), ("female", -3.0)):
            name = f"{sentence}-{template}-{version}"
            prompts[name] = [(total, 5, 0)] * pieces
            columns[name] = {
                "sentence_id": sentence, "stereotype_id": stereotype, "template": template,
                "version": version, "score_kind": "target" if pieces == 1 else "masked",
            }  # fmt: skip
    return piece_frame(prompts, step=step, columns=columns)


FIRST = {(0, 1): 0.1, (1, 1): 0.3, (2, 7): -0.5, (3, 8): 1.0, (4, 16): 2.0, (5, 16): 3.0}


def test_a_side_is_the_mean_of_its_stereotypes_and_the_rate_their_difference() -> None:
    result = measured(frame(FIRST))
    kinds = result.stereotypes.filter(template="1").select("stereotype", "part", "score")
    assert kinds.rows() == [
        ("emotional", "female", pytest.approx(0.2)), ("beautiful", "female", -0.5),
        ("tough", "male", 1.0), ("strong", "male", 2.5),
    ]  # fmt: skip
    rates = result.rates.filter(template="1").select("part", "score", "published", "sentences")
    assert rates.rows() == [
        ("female", pytest.approx(-0.15), pytest.approx(math.exp(-0.15 / LN10)), 3),
        ("male", 1.75, pytest.approx(math.exp(1.75 / LN10)), 3),
        ("rate", pytest.approx(1.9), pytest.approx(math.exp(1.9 / LN10)), 6),
    ]
    sentences = result.sentences.filter(template="1")
    assert sentences["score"].to_list() == pytest.approx([*FIRST.values()])
    assert (sentences["log10"] * LN10).to_list() == pytest.approx([*FIRST.values()])


def test_masked_versions_are_means_over_their_pieces_and_words_are_sums() -> None:
    masked = measured(frame(FIRST, pieces=4)).sentences
    assert masked.filter(template="1")["score"].to_list() == pytest.approx([*FIRST.values()])
    words = frame(FIRST, pieces=4).with_columns(score_kind=pl.lit("target"))
    summed = measured(words).sentences.filter(template="1")
    assert summed["score"].to_list() == pytest.approx([4 * score for score in FIRST.values()])


def test_all_is_the_mean_over_templates_of_sentences_that_have_each() -> None:
    second = {key: score + 1 for key, score in FIRST.items() if key != (0, 1)}
    result = measured(pl.concat([frame(FIRST), frame(second, template=2)]))
    overall = result.sentences.filter(template="all")
    assert overall["sentence_id"].to_list() == [1, 2, 3, 4, 5]
    assert overall["score"].to_list() == pytest.approx([0.8, 0.0, 1.5, 2.5, 3.5])
    assert result.rates["template"].unique().sort().to_list() == ["1", "2", "all"]


def test_sentences_are_those_of_the_last_checkpoint_and_a_release_is_the_last() -> None:
    steps = [frame({key: score + step for key, score in FIRST.items()}, step=step)
             for step in (8, 0)]  # fmt: skip
    table = measured(pl.concat(steps)).sentences
    assert table["step"].unique().to_list() == [8]
    release = frame(FIRST).with_columns(step=pl.lit(None, pl.Int64))
    result = measured(pl.concat([*steps, release]))
    assert result.sentences["step"].unique().to_list() == [None]
    changed = result.rates.filter(pl.col("step").is_null(), part="male", template="all")
    assert changed.select("baseline_step", "from_baseline").row(0) == (0, pytest.approx(0))


def many(seed: int, stereotypes: tuple[int, ...], number: int) -> dict[tuple[int, int], float]:
    random = np.random.default_rng(seed)
    return {
        (1000 * kind + i, kind): float(random.normal(kind / 10, 1 + kind / 20))
        for kind in stereotypes
        for i in range(number + kind)
    }


def of_kind(scores: Mapping[tuple[int, int], float], kind: int) -> list[float]:
    return [score for (_, other), score in scores.items() if other == kind]


def test_intervals_of_a_stereotype_are_those_of_a_mean_and_few_sentences_have_none() -> None:
    scores = many(0, (2, 9), 8)
    table = measured(frame(scores)).stereotypes.filter(template="1")
    for kind, row in zip((2, 9), table.iter_rows(named=True), strict=True):
        values = of_kind(scores, kind)
        expected = stats.t.interval(0.95, len(values) - 1, np.mean(values), stats.sem(values))
        assert (row["low"], row["high"]) == pytest.approx(expected)
        assert row["published_low"] == pytest.approx(math.exp(expected[0] / LN10))
    few = measured(frame(many(0, (1, 9), 8))).stereotypes.filter(template="1")
    assert few["low"].is_nan().to_list() == [True, False]  # nine sentences, and seventeen


def test_intervals_of_the_rate_cover_as_often_as_they_claim() -> None:
    """Stratified by stereotype, of unequal sizes and variances: 95 ± 2 of 100."""
    kinds = (1, 4, 7, 8, 12, 16)
    truth = (8 + 12 + 16) / 30 - (1 + 4 + 7) / 30
    draws = [frame(many(seed, kinds, 6), step=seed) for seed in range(400)]
    rates = measured(pl.concat(draws)).rates.filter(template="1", part="rate")
    inside = rates.select(pl.lit(truth).is_between("low", "high"))
    assert 0.93 <= inside.to_series().mean() <= 0.97  # type: ignore[operator]


def test_changes_are_paired_over_the_sentences_of_both_checkpoints() -> None:
    before = many(1, (3, 10), 12)
    drift = np.random.default_rng(5).normal(0.5, 0.1, len(before))
    after = {
        key: score + change for (key, score), change in zip(before.items(), drift, strict=True)
    }
    dropped = next(iter(after))
    del after[dropped]
    result = measured(pl.concat([frame(before, step=4), frame(after, step=8)]))
    changes = {key: after[key] - before[key] for key in after}
    row = result.stereotypes.filter(template="1", step=8, stereotype_id=3).row(0, named=True)
    values = of_kind(changes, 3)
    low, high = stats.t.interval(0.95, len(values) - 1, np.mean(values), stats.sem(values))
    assert row["from_baseline"] == pytest.approx(np.mean(values))
    assert (row["from_baseline_low"], row["from_baseline_high"]) == pytest.approx((low, high))
    assert (row["baseline_step"], row["common"]) == (4, 14)
    rate = result.rates.filter(template="1", step=8, part="rate").row(0, named=True)
    assert rate["from_baseline"] == pytest.approx(
        np.mean(of_kind(changes, 10)) - np.mean(of_kind(changes, 3))
    )
    first = result.rates.filter(step=4)
    assert first["from_baseline"].is_nan().all()
    assert result.checkpoints["missing"].to_list() == [0, 2]


def test_every_frame_of_a_scan_counts() -> None:
    frames = [frame(many(step, (3, 10), 12), step=step).lazy() for step in (0, 4, 8)]
    whole = pl.concat(frames).collect()
    one, parts = measured(whole), measured(*frames)
    for name, table in one.tables().items():
        assert table.equals(parts.tables()[name], null_equal=True), name


def test_findings_of_runs_name_the_rate_and_the_extreme_stereotypes(tmp_path: Path) -> None:
    study = gest(make_bank(tmp_path / "b.zarr"))
    assert study.findings[0].text == "toy seed1 follows the gender stereotypes of GEST at step 8."
    texts = [str(finding) for finding in study.findings if finding.series == ("toy", "seed1")]
    _, rate, change, *templates, lowest, highest, mean = texts
    assert mean.startswith("toy seed1: Stereotype rate, nats, mean over templates: +1.926")
    assert rate.startswith("toy seed1: Stereotype rate (nats) at step 8: +1.926")
    assert "baseline step 0, untrained model, paired" in change
    assert ["g_s as published, template 2" in text for text in templates] == [False, True]
    assert ("(female)" in lowest, "(male)" in highest) == (True, True)
    assert list(study.charts) == ["rate", "stereotypes"]
    with pytest.raises(BankError, match="No sentence"):
        measured(frame(FIRST).filter(version="male"))
    one_side = {key: score for key, score in FIRST.items() if key[1] < 8}
    assert [f.text for f in FAMILY.findings(measured(frame(one_side)))] == [
        "There is no sentence with all templates of both kinds."
    ]
    few = FAMILY.findings(measured(frame(FIRST)))
    assert few[0].text == "The model has no interval of the stereotype rate at step 0."


def test_charts_are_lines_over_training_and_dots_of_one_checkpoint(tmp_path: Path) -> None:
    """Of several runs the mean of templates; of one run, or at one checkpoint, each template."""
    templates = {"template 1", "mean of templates"}

    def drawn(result: Gest) -> tuple[bool, set[str]]:
        chart = json.dumps(FAMILY.charts(result)["rate"].to_dict())
        return "Training step" in chart, {text for text in templates if text in chart}

    second = frame(FIRST, step=8)
    assert drawn(measured(frame(FIRST))) == (False, templates)
    assert drawn(measured(pl.concat([frame(FIRST), second]))) == (True, templates)
    runs = gest(make_bank(tmp_path / "b.zarr")).result
    assert drawn(runs) == (True, {"mean of templates"})  # in the caption
    other = {key: score for key, score in FIRST.items() if key != (0, 1)}
    parts = pl.concat([frame(scores, template=number, step=step) for step in (0, 8)
                       for number, scores in ((1, FIRST), (2, other))])  # fmt: skip
    both = measured(pl.concat([parts, parts.with_columns(run=pl.lit("seed1"))]))
    assert chart_caption(FAMILY.charts(both)["rate"]).endswith("n = 5 sentences.")
    turned = dict(reversed(FIRST.items()))
    in_order = measured(frame(turned)).stereotypes.filter(template="1")
    assert in_order["stereotype_id"].to_list() == [1, 7, 8, 16]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": pl.lit("x")}, "x is an invalid version .12 such"),
        ({"stereotype_id": pl.lit(17)}, "17 is an invalid stereotype_id"),
        ({"sentence_id": pl.lit(0)}, r"Item .0. .template 1. has two values"),
    ],
)
def test_rows_that_do_not_fit_are_refused(change: dict[str, pl.Expr], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        measured(frame(FIRST).with_columns(**change))
    with pytest.raises(UsageError, match="version"):
        measured(frame(FIRST).drop("version"))


# Released score files


def files(folder: Path, **contents: str) -> tuple[list[str], str]:
    (folder / "gest.csv").write_text('sentence,stereotype\n"a, b",1\nc,16\nd,16\n')
    paths = [folder / f"{name}_template-0.txt" for name in contents]
    for path, content in zip(paths, contents.values(), strict=True):
        path.write_text(content)
    return [*map(str, paths)], str(folder / "gest.csv")


def test_score_files_are_log10_and_named_by_model_and_template(tmp_path: Path) -> None:
    (path,), gold = files(tmp_path, bert="0.5\n-0.25\n1e-3")
    result = gest(predictions=[path, f"mine={path}"], gold=gold).result
    assert result.sentences["model"].unique().sort().to_list() == ["bert", "mine"]
    own = result.sentences.filter(model="mine", template="1")
    assert own["log10"].to_list() == pytest.approx([0.5, -0.25, 0.001])
    assert own["score"].to_list() == pytest.approx([0.5 * LN10, -0.25 * LN10, 0.001 * LN10])
    assert own["stereotype"].to_list() == ["emotional", "strong", "strong"]
    many = gest(predictions=[f"m{at}={path}" for at in range(CROWD)], gold=gold)
    assert many.result.sentences["model"].n_unique() == CROWD
    assert "model_differences" not in many.tables  # they are of the prompts of banks
    study = gest(make_bank(tmp_path / "b.zarr"), predictions=[path], gold=gold)
    assert study.result.checkpoints["model"].unique().sort().to_list() == ["bert", "toy"]
    page = study.save(tmp_path / "out").read_text()
    assert ("bert_template-0.txt" in page, "gest.csv" in page) == (True, True)
    with pytest.raises(UsageError, match="template 1. has two values"):
        gest(predictions=[path, path], gold=gold)


@pytest.mark.parametrize(
    ("content", "message"),
    [("1\n2\n", "3 sentences"), ("1\n2\nx\n", "x"), ("1\n\n3\n", "2 in 3 lines"),
     ("1\n2\ninf", "2 in 3 lines")],
)  # fmt: skip
def test_other_contents_are_refused(tmp_path: Path, content: str, message: str) -> None:
    paths, gold = files(tmp_path, bert=content)
    with pytest.raises(UsageError, match=message):
        gest(predictions=paths, gold=gold)


def test_files_go_together_and_have_their_names(tmp_path: Path) -> None:
    paths, gold = files(tmp_path, bert="1\n2\n3")
    bank = make_bank(tmp_path / "b.zarr")
    for given in ({"predictions": paths}, {"gold": gold}):
        with pytest.raises(UsageError, match="--predictions and --gold"):
            gest(bank, **given)
    with pytest.raises(UsageError, match="GEST needs a bank"):
        gest()
    for path, message in ((gold, "names no template"), (f"{paths[0]}_template-1", "Cannot read")):
        with pytest.raises(UsageError, match=message):
            gest(predictions=[path], gold=gold)
    for content, message in (("a\n1", "no column stereotype"), ("stereotype\n17", "1 to 16")):
        Path(gold).write_text(content)
        with pytest.raises(UsageError, match=message):
            gest(predictions=paths, gold=gold)


@pytest.mark.skipif(not (PUBLIC / "gest").is_dir(), reason="the released scores are not there")
def test_released_scores_have_the_published_means() -> None:
    """All 448 means, to two decimals; the ends of the bootstrap intervals are within 0.01."""
    folder = PUBLIC / "gest"
    predictions = [str(path) for path in sorted((folder / "predictions").glob("*.txt"))]
    result = gest(predictions=predictions, gold=str(folder / "gest.csv")).result
    published = pl.read_csv(folder / "published_means.csv").select(
        "model", pl.col("template").cast(pl.String), "low", "mean", "high",
        stereotype_id="stereotype",
    )  # fmt: skip
    ours = result.stereotypes.with_columns(model=pl.col("model").str.replace("-(uncased|v2)$", ""))
    both = published.join(
        ours, on=["model", "template", "stereotype_id"], suffix="_nats", validate="1:1"
    )
    assert len(both) == 448
    assert both["published"].round(2).to_list() == both["mean"].to_list()
    for end in ("low", "high"):
        assert (both[f"published_{end}"].round(2) - both[end]).abs().max() < 0.0101
    rate = result.rates.filter(model="pythia-70m", template="1", part="rate")["published"].item()
    means = {row["stereotype_id"]: math.log(row["mean"]) for row in both.filter(
        model="pythia-70m", template="1").iter_rows(named=True)}  # fmt: skip
    sides = [np.mean([means[k] for k in kinds]) for kinds in (range(1, 8), range(8, 17))]
    assert rate == pytest.approx(math.exp(sides[1] - sides[0]), abs=0.01)
