"""GEST from rows of pieces and released score files: means, the rate, intervals, refusals."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy import stats

from logitbank.analysis.charts.chart import chart_caption
from logitbank.analysis.families.gest import FAMILY, NAMES, gest
from logitbank.analysis.families.gest.findings import findings
from logitbank.analysis.families.gest.metric import measure
from logitbank.analysis.results.measured import Measured
from logitbank.analysis.results.series import CROWD
from logitbank.errors import UsageError
from tests.support.gest_cases import make_bank
from tests.support.paths import PUBLIC
from tests.support.piece_cases import piece_frame
from tests.support.row_scores import of_rows

pytestmark = pytest.mark.numerical
measured = of_rows(measure)

LN10 = math.log(10)


def table(result: Measured, name: str, template: str = "1") -> pl.DataFrame:
    """The rows of a table in a template."""
    return result.tables()[name].filter(template=template)


def row(result: Measured, key: str, **place: object) -> dict[str, Any]:
    """The row of a measure in template 1."""
    return table(result, "measures").filter(measure=key, **place).row(0, named=True)


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
    kinds = table(result, "stereotypes").select("stereotype", "score", "published", "items")
    assert kinds.rows() == [
        (name, pytest.approx(score), pytest.approx(math.exp(score / LN10)), n)
        for name, score, n in (
            ("emotional", 0.2, 2), ("beautiful", -0.5, 1), ("tough", 1.0, 1), ("strong", 2.5, 2),
        )
    ]  # fmt: skip
    rates = table(result, "rates").row(0, named=True)
    for name, score in (("female", -0.15), ("male", 1.75), ("rate", 1.9)):
        assert rates[name] == pytest.approx(score)
        assert rates[f"published_{name}"] == pytest.approx(math.exp(score / LN10))
    assert rates["items"] == 6
    sentences = table(result, "sentences")
    assert sentences["score"].to_list() == pytest.approx([*FIRST.values()])
    assert (sentences["log10"] * LN10).to_list() == pytest.approx([*FIRST.values()])


def test_masked_versions_are_means_over_their_pieces_and_words_are_sums() -> None:
    masked = table(measured(frame(FIRST, pieces=4)), "sentences")
    assert masked["score"].to_list() == pytest.approx([*FIRST.values()])
    words = frame(FIRST, pieces=4).with_columns(score_kind=pl.lit("target"))
    summed = table(measured(words), "sentences")
    assert summed["score"].to_list() == pytest.approx([4 * score for score in FIRST.values()])


def test_all_is_the_mean_over_templates_of_sentences_that_have_each() -> None:
    second = {key: score + 1 for key, score in FIRST.items() if key != (0, 1)}
    result = measured(pl.concat([frame(FIRST), frame(second, template=2)]))
    overall = table(result, "sentences", "all")
    assert overall["sentence_id"].to_list() == [1, 2, 3, 4, 5]
    assert overall["score"].to_list() == pytest.approx([0.8, 0.0, 1.5, 2.5, 3.5])
    assert result.tables()["rates"]["template"].to_list() == ["1", "2", "all"]


def test_sentences_are_those_of_the_last_checkpoint_and_a_release_is_the_last() -> None:
    steps = [frame({key: score + step for key, score in FIRST.items()}, step=step)
             for step in (8, 0)]  # fmt: skip
    sentences = measured(pl.concat(steps)).further["sentences"]
    assert sentences["step"].unique().to_list() == [8]
    release = frame(FIRST).with_columns(step=pl.lit(None, pl.Int64))
    result = measured(pl.concat([*steps, release]))
    assert result.further["sentences"]["step"].unique().to_list() == [None]
    changed = table(result, "measures", "all").filter(pl.col("step").is_null(), measure="male")
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
    rows = table(measured(frame(scores)), "stereotypes")
    for kind, found in zip((2, 9), rows.iter_rows(named=True), strict=True):
        values = of_kind(scores, kind)
        expected = stats.t.interval(0.95, len(values) - 1, np.mean(values), stats.sem(values))
        assert (found["score_low"], found["score_high"]) == pytest.approx(expected)
        assert found["published_low"] == pytest.approx(math.exp(expected[0] / LN10))
    few = table(measured(frame(many(0, (1, 9), 8))), "stereotypes")
    assert few["score_low"].is_nan().to_list() == [True, False]  # nine sentences, and seventeen


def test_intervals_of_the_rate_cover_as_often_as_they_claim() -> None:
    """Stratified by stereotype, of unequal sizes and variances: 95 ± 2 of 100."""
    kinds = (1, 4, 7, 8, 12, 16)
    truth = (8 + 12 + 16) / 30 - (1 + 4 + 7) / 30
    draws = [frame(many(seed, kinds, 6), step=seed) for seed in range(400)]
    rates = table(measured(pl.concat(draws)), "rates")
    inside = rates.select(pl.lit(truth).is_between("rate_low", "rate_high"))
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
    found = row(result, "score, empathetic", step=8)
    values = of_kind(changes, 3)
    low, high = stats.t.interval(0.95, len(values) - 1, np.mean(values), stats.sem(values))
    assert found["from_baseline"] == pytest.approx(np.mean(values))
    assert (found["from_baseline_low"], found["from_baseline_high"]) == pytest.approx((low, high))
    assert (found["baseline_step"], found["common"]) == (4, 14)
    rate = row(result, "rate", step=8)
    assert rate["from_baseline"] == pytest.approx(
        np.mean(of_kind(changes, 10)) - np.mean(of_kind(changes, 3))
    )
    assert np.isnan(row(result, "rate", step=4)["from_baseline"])
    assert [row(result, "rate", step=step)["missing"] for step in (4, 8)] == [0, 1]


def test_every_frame_of_a_scan_counts() -> None:
    frames = [frame(many(step, (3, 10), 12), step=step).lazy() for step in (0, 4, 8)]
    whole = pl.concat(frames).collect()
    one, parts = measured(whole), measured(*frames)
    for name, whole_table in one.tables().items():
        assert whole_table.equals(parts.tables()[name], null_equal=True), name


def test_findings_of_runs_name_the_rate_and_the_extreme_stereotypes(tmp_path: Path) -> None:
    study = gest(make_bank(tmp_path / "b.zarr"))
    headline = "toy seed2: Stereotype rate (nats) −0.230 → +1.502 from step 0 to step 8."
    assert study.findings[0].text == headline
    texts = [str(each) for each in study.findings[1:] if each.series == ("toy", "seed1")]
    rate, change, *templates, lowest, highest, mean = texts
    assert mean.startswith(
        "toy seed1: Stereotype rate (nats), mean over templates at step 8: +1.926"
    )
    assert rate.startswith("toy seed1: Stereotype rate (nats) at step 8: +1.926")
    assert "baseline step 0, untrained model, paired" in change
    published = [text for text in templates if "g_s as published" in text]
    assert ["template 2" in text for text in published] == [False, False, True]
    assert published[0].endswith("baseline 1 (no stereotype).")
    assert ("(about women)" in lowest, "(about men)" in highest) == (True, True)
    assert [*study.charts] == ["measures", "stereotypes"]


def test_without_a_rate_findings_and_charts_are_of_one_kind_of_stereotypes() -> None:
    nothing = measured(frame(FIRST).filter(version="male"))
    assert [each.text for each in findings(nothing)] == [
        "There is no sentence of GEST with a score."
    ]
    assert not FAMILY.charts(nothing)
    women = measured(frame({key: score for key, score in FIRST.items() if key[1] < 8}))
    assert findings(women)[0].text == (
        "Score of stereotypes about women (nats) is −0.150 at step 0."
    )
    assert "about women" in json.dumps(FAMILY.charts(women)["measures"].to_dict())


def test_charts_are_lines_over_training_and_dots_of_one_checkpoint(tmp_path: Path) -> None:
    """Each template, in both units; of many runs their mean, and templates at one checkpoint."""

    def drawn(result: Measured) -> str:
        return json.dumps(FAMILY.charts(result)["measures"].to_dict(), ensure_ascii=False)

    one = drawn(measured(frame(FIRST)))
    both = drawn(measured(pl.concat([frame(FIRST), frame(FIRST, step=8)])))
    assert ("Training step" in one, "Training step" in both) == (False, True)
    for text in ("Stereotype rate (nats)", "g_s as published", '"template 1"', "n = 6 "):
        assert text in one, text
        assert text in both, text
    other = {key: score for key, score in FIRST.items() if key != (0, 1)}
    parts = pl.concat([frame(scores, template=number, step=step) for step in (0, 8)
                       for number, scores in ((1, FIRST), (2, other))])  # fmt: skip
    runs = pl.concat(parts.with_columns(run=pl.lit(f"seed{seed}")) for seed in range(3))
    charts = FAMILY.charts(measured(runs))
    assert [*charts] == ["measures", "by_template", "stereotypes"]
    assert chart_caption(charts["measures"]).endswith("n = 5 sentences.")
    turned = dict(reversed(FIRST.items()))
    in_order = table(measured(frame(turned)), "stereotypes")["stereotype"].to_list()
    assert in_order == ["emotional", "beautiful", "tough", "strong"]


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
    sentences = result.further["sentences"]
    assert sentences["model"].unique().sort().to_list() == ["bert", "mine"]
    own = sentences.filter(model="mine", template="1")
    assert own["log10"].to_list() == pytest.approx([0.5, -0.25, 0.001])
    assert own["score"].to_list() == pytest.approx([0.5 * LN10, -0.25 * LN10, 0.001 * LN10])
    assert own["stereotype"].to_list() == ["emotional", "strong", "strong"]
    many = gest(predictions=[f"m{at}={path}" for at in range(CROWD)], gold=gold)
    assert many.tables["sentences"]["model"].n_unique() == CROWD
    assert "model_differences" not in many.tables  # they are of the prompts of banks
    study = gest(make_bank(tmp_path / "b.zarr"), predictions=[path], gold=gold)
    assert study.tables["measures"]["model"].unique().sort().to_list() == ["bert", "toy"]
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
        stereotype=pl.col("stereotype").replace_strict(range(1, 17), NAMES),
    )  # fmt: skip
    short = pl.col("model").str.replace("-(uncased|v2)$", "")
    ours = result.further["stereotypes"].with_columns(model=short)
    both = published.join(ours, on=["model", "template", "stereotype"], validate="1:1")
    assert len(both) == 448
    assert both["published"].round(2).to_list() == both["mean"].to_list()
    for end in ("low", "high"):
        assert (both[f"published_{end}"].round(2) - both[end]).abs().max() < 0.0101
    pythia = pl.col("model") == "pythia-70m"
    rate = table(result, "rates").filter(pythia)["published_rate"].item()
    means = dict(both.filter(pythia, template="1").select("stereotype", "mean").rows())
    sides = [np.mean([math.log(means[name]) for name in kinds]) for kinds in (NAMES[:7], NAMES[7:])]
    assert rate == pytest.approx(math.exp(sides[1] - sides[0]), abs=0.01)
