"""Minimal pairs from rows of pieces and files: which side is preferred, ties, groups, formats."""

import json
import math
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy import stats
from scipy.stats import binomtest

from logitbank.analysis.charts.chart import chart_caption
from logitbank.analysis.families.pairs import pairs
from logitbank.analysis.families.pairs.metric import family_of
from logitbank.analysis.finding import Finding
from logitbank.analysis.results import measured as common
from logitbank.analysis.results.measured import Measured
from logitbank.engine.extract import extract
from logitbank.engine.prompts.registry import prompt_set
from logitbank.engine.prompts.values import Encoder
from logitbank.engine.tokenizers.tokenizer import Tokenizer
from logitbank.errors import PromptError, UsageError
from tests.support.checkpoints import make_checkpoint, write_masked_tokenizer
from tests.support.piece_cases import pair_frame, piece_frame
from tests.support.preloaded import require_engine
from tests.support.row_scores import scores_of

pytestmark = pytest.mark.numerical


def measured(frame: pl.DataFrame, group_by: str | None = None) -> Measured:
    scores = scores_of(frame)
    return common.measure(family_of(scores, group_by), scores)


def findings(frame: pl.DataFrame) -> list[Finding]:
    find = family_of(scores_of(frame)).findings
    assert find is not None
    return find(measured(frame))


def overall(frame: pl.DataFrame, measure: str) -> dict[str, object]:
    """A measure of all groups at the first checkpoint."""
    return measured(frame).measures.filter(group="all", measure=measure).row(0, named=True)


PAIRS = (
    (-10.0, -12.0, "stereo", "gender"),  # the stereotype is preferred
    (-12.0, -10.0, "stereo", "gender"),
    (-8.0, -9.0, "stereo", "age"),  # preferred
    (-7.0, -9.0, "antistereo", "gender"),  # preferred: sent_more is the stereotyping one here too
    (-9.0, -7.0, "antistereo", "age"),
    (-5.0, -5.0, "antistereo", "age"),  # neutral
)


def rows(frame: pl.DataFrame, *columns: str) -> dict[str, tuple[object, ...]]:
    tables = measured(frame).further
    keys = ["model", "run", "step", "group"]
    table = tables["pairs"].join(tables["tests"], on=keys, maintain_order="left")
    return {r[0]: r[1:] for r in table.select("group", *columns).rows()}


def test_the_stereotyping_sentence_is_sent_more_in_both_directions() -> None:
    found = rows(pair_frame(*PAIRS), "score", "stereo_score", "antistereo_score")
    # 3 of 6 pairs; 2 of 3 stereo; 1 of 2 antistereo that are not neutral.
    assert found["all"] == (50, pytest.approx(200 / 3), 50)
    assert found["gender"] == (pytest.approx(200 / 3), 50, 100)
    assert found["age"] == (pytest.approx(100 / 3), 100, 0)
    assert list(found) == ["all", "age", "gender"]
    neutral = rows(pair_frame(*PAIRS), "pairs", "neutral")
    assert neutral == {"all": (6, 1), "age": (3, 1), "gender": (3, 0)}


def test_error_and_interval_are_those_of_a_share() -> None:
    row = overall(pair_frame(*PAIRS), "score")
    assert row["stderr"] == pytest.approx(100 * math.sqrt(0.25 / 5))
    assert measured(pair_frame(*PAIRS)).further["pairs"]["score_low"].is_nan().all()  # six pairs
    found = findings(pair_frame(*PAIRS))
    assert (found[1].value, found[1].interval, found[1].n) == (50, "", "6 pairs")
    assert str(found[1]).startswith(
        "Stereotype preferred at step 0: 50.0%, n = 6 pairs, baseline 50%"
    )
    table = measured(pair_frame(*PAIRS, *PAIRS)).further["pairs"]
    # Wilson of 6 in 12: ½ ± 1.96 √(1/48 + 1.96²/576) / (1 + 1.96²/12), in percent.
    half = 1.959964 * math.sqrt(1 / 48 + 1.959964**2 / 576) / (1 + 1.959964**2 / 12)
    assert table["score_low"][0] == pytest.approx(100 * (0.5 - half))
    assert table["score_high"][0] == pytest.approx(100 * (0.5 + half))
    assert table["score_low"].is_nan().to_list() == [False, True, True]


def test_the_score_of_a_direction_has_the_interval_of_a_ratio() -> None:
    """Of 40 pairs 24 are preferred and 5 neutral: by the derivatives of 24/40 and 35/40."""
    values = [(-1.0, -2.0)] * 24 + [(-2.0, -1.0)] * 11 + [(-1.0, -1.0)] * 5
    row = overall(pair_frame(*[(*each, "stereo", "age") for each in values]), "stereo_score")
    preferred = np.array([float(more > less) for more, less in values])
    different = np.array([float(more != less) for more, less in values])
    influence = (preferred - 24 / 35 * different) / (35 / 40)
    half = stats.t.ppf(0.975, 39) * influence.std(ddof=1) / math.sqrt(40)
    assert row["value"] == pytest.approx(100 * 24 / 35)
    assert (row["low"], row["high"]) == pytest.approx(
        (100 * (24 / 35 - half), 100 * (24 / 35 + half))
    )


def test_the_size_of_the_differences_is_that_of_the_harness() -> None:
    table = measured(pair_frame(*PAIRS)).measures.filter(measure="likelihood_diff")
    found = {group: row for group, *row in table.select("group", "value", "stderr").rows()}
    # Sizes 2, 2, 1, 2, 2, 0: mean 3/2, deviation √(7/2/5); age 1, 2, 0; gender 2, 2, 2.
    assert found["all"] == [1.5, pytest.approx(math.sqrt(0.7 / 6))]
    assert found["age"] == [1, pytest.approx(1 / math.sqrt(3))]
    assert found["gender"] == [2, 0]
    assert math.isnan(overall(pair_frame(PAIRS[0]), "likelihood_diff")["stderr"])  # type: ignore[arg-type]


def test_sentences_of_the_same_values_tie_in_whatever_order_their_pieces_are() -> None:
    """40 pairs of sentences, each with the same 9 to 48 values, shuffled: no sum is greater."""
    random = np.random.default_rng(0)
    prompts, columns = {}, {}
    for number in range(40):
        values = -random.exponential(3, size=9 + number)
        for side in ("more", "less"):
            prompts[f"{number}-{side}"] = [(v, 5, 0) for v in random.permutation(values).tolist()]
            columns[f"{number}-{side}"] = {
                "pair": number, "side": side, "direction": "stereo", "bias_type": "age",
                "score_kind": "sentence",
            }  # fmt: skip
    found = rows(piece_frame(prompts, columns=columns), "score", "pairs", "neutral")
    assert found["all"] == (0, 40, 40)


def test_pairs_that_have_nothing_to_score_are_counted() -> None:
    """Two sentences without a token in common are no rows of a masked model."""

    def counts(frame: pl.DataFrame) -> list[tuple[int, ...]]:
        tables = measured(frame)
        missing = tables.measures.filter(group="all", measure="score").select("step", "missing")
        tests = tables.further["tests"].filter(group="all")
        return tests.join(missing, on="step").select("pairs", "missing", "unscored").rows()

    frame = pair_frame(*PAIRS, kind="masked")
    assert counts(frame) == [(6, 0, 0)]
    bare = frame.filter(~pl.col("pair").is_in([1, 3]))
    assert counts(bare) == [(4, 0, 2)]
    assert any("2 pairs without a token" in str(each) for each in findings(bare))
    part = pl.concat([bare, bare.filter(pl.col("pair") > 2).with_columns(step=pl.lit(8, pl.Int64))])
    assert counts(part) == [(4, 0, 2), (2, 2, 2)]
    named = bare.with_columns(pair=pl.format("p{}", "pair"))
    assert counts(named) == [(4, 0, None)]


def test_masked_and_causal_scores_are_kept_apart() -> None:
    turned = tuple((less, more, d, b) for more, less, d, b in PAIRS)
    frame = pl.concat(
        [
            pair_frame(*PAIRS).with_columns(model=pl.lit("gpt")),
            pair_frame(*turned, kind="masked").with_columns(model=pl.lit("bert")),
        ]
    )
    table = measured(frame).further["pairs"].filter(group="all")
    assert table.select("model", "stereo_score").rows() == [
        ("bert", pytest.approx(100 / 3)), ("gpt", pytest.approx(200 / 3)),
    ]  # fmt: skip


def test_pairs_that_are_there_in_part_are_left_out() -> None:
    whole, part = pair_frame(*PAIRS, step=0), pair_frame(*PAIRS, step=1)
    part = part.filter((pl.col("prompt_id") != "0-less") | (pl.col("piece") == 0))
    result = measured(pl.concat([whole, part]))
    table = result.further["pairs"].filter(group="all")
    assert table.select("items", "missing").rows() == [(6, 0), (5, 1)]
    (nothing,) = findings(whole.filter(side="more"))
    assert nothing.text == "There is no pair of Minimal pairs with a score."


ONE = pair_frame(PAIRS[0])
LONGER = pair_frame(PAIRS[0], kind="masked", pieces=3)


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (ONE.with_columns(direction=pl.lit("x")), "x is an invalid direction.*2 such"),
        (ONE.with_columns(score_kind=pl.lit("x")), "x is an invalid score_kind.*2 such"),
        (pair_frame(PAIRS[0], PAIRS[1]).with_columns(pair=pl.lit(7)), "Pair 7 .*4 such"),
        (
            pl.concat([
                LONGER.filter(side="more"),
                pair_frame(PAIRS[0], kind="masked", pieces=2).filter(side="less"),
            ]),
            "3 against 2",
        ),
        (ONE.drop("side", "score_kind"), "side, score_kind"),
        (ONE.with_columns(pl.col("side").replace("less", "bad")), r"\['bad', 'more'\]"),
    ],
)  # fmt: skip
def test_frames_that_do_not_fit_are_refused(frame: pl.DataFrame, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        measured(frame)
    for column in ("colour", "side", "option"):
        with pytest.raises(UsageError, match=f"'{column}' is not a column.*It has no column"):
            measured(ONE, group_by=column)


def test_bias_types_are_adjusted_for_their_number() -> None:
    more, less = (-10.0, -12.0), (-12.0, -10.0)
    pairs = [(*more, "stereo", "age")] * 15 + [(*less, "stereo", "age")] * 3
    pairs += [(*more, "stereo", "gender")] * 10 + [(*less, "stereo", "gender")] * 8
    pairs += [(*more, "stereo", "race")] * 6 + [(-5.0, -5.0, "stereo", "race")] * 5
    found = rows(pair_frame(*pairs), "p", "p_bh")
    age, gender, race = (binomtest(*each).pvalue for each in ((15, 18), (10, 18), (6, 6)))
    assert [found[name][0] for name in ("age", "gender", "race")] == pytest.approx(
        [age, gender, race]
    )
    assert found["all"] == (pytest.approx(binomtest(31, 42).pvalue), None)
    # In order: race 0.031 · 3/2 and age 0.0075 · 3, of which none may exceed the next.
    assert [found[name][1] for name in ("age", "gender", "race")] == pytest.approx(
        [3 * age, gender, 1.5 * race]
    )
    apart = findings(pair_frame(*pairs))[-2]
    assert (apart.value, apart.n) == (2, "3 groups (age, race)")


def acceptable(
    *rows: tuple[float, float, str], step: int = 0, kind: str = "sentence"
) -> pl.DataFrame:
    """Each pair is the sums of the good and the bad sentence, and its phenomenon."""
    own = ((good, bad, "stereo", uid) for good, bad, uid in rows)
    frame = pair_frame(*own, kind=kind, step=step).drop("direction")
    return frame.rename({"bias_type": "UID"}).with_columns(
        side=pl.col("side").replace({"more": "good", "less": "bad"})
    )


def test_pairs_of_good_and_bad_sentences_have_an_accuracy_by_group() -> None:
    first = acceptable(*[(-9.0, -8.0, "agreement")] * 6, *[(-8.0, -9.0, "islands")] * 6)
    later = acceptable(
        *[(-8.0, -9.0, "agreement")] * 6, *[(-8.0, -8.0, "islands")] * 3,
        *[(-8.0, -9.0, "islands")] * 3, step=4,
    )  # fmt: skip
    frame = pl.concat([first, later])
    result = measured(frame)
    columns = ["group", "value", "from_baseline"]
    last = result.measures.filter(step=4, measure="score").select(columns).rows()
    assert last == [("all", 75, 25), ("agreement", 100, 100), ("islands", 50, -50)]
    assert "stereo_score" not in result.further["pairs"].columns
    assert result.further["tests"].filter(step=4)["neutral"].to_list() == [3, 0, 3]
    headline, accuracy, change, lowest, highest, apart, *_ = findings(frame)
    assert headline.text == "Accuracy 50.0% → 75.0% from step 0 to step 4."
    assert (accuracy.value, change.value, change.n) == (75, 25, "12 pairs")
    assert ("agreement" in highest.text, highest.value) == (True, 100)
    assert ("islands" in lowest.text, lowest.value, lowest.n) == (True, 50, "6 pairs")
    assert apart.value == 0  # p = 2/64 and 2/8; that of agreement, adjusted, is 4/64


@pytest.mark.parametrize(("groups", "names"), [(2, ["measures"]), (9, ["measures", "by_group"])])
def test_many_groups_have_a_chart_of_their_own(groups: int, names: list[str]) -> None:
    rows = [(-8.0, -9.0, f"phenomenon {at}") for at in range(groups) for _ in range(12)]
    scores = scores_of(pl.concat([acceptable(*rows), acceptable(*rows, step=4)]))
    family = family_of(scores)
    charts = common.charts(family, common.measure(family, scores))
    assert list(charts) == names
    drawn = json.dumps(charts[names[-1]].to_dict())
    assert all(f"phenomenon {at}" in drawn for at in range(groups))
    assert ("n = 12 pairs in a group" in chart_caption(charts[names[-1]])) == (groups > 8)


def test_masked_scores_of_whole_sentences_may_differ_in_length() -> None:
    frame = acceptable((-8.0, -9.0, "islands"), kind="masked")
    longer = frame.filter(side="bad").tail(1).with_columns(piece=pl.lit(2, pl.Int32))
    assert measured(pl.concat([frame, longer])).further["pairs"]["score"].to_list() == [100, 100]


BLIMP = [
    {"sentence_good": "the nurse was tired", "sentence_bad": "the nurse were tired",
     "UID": "agreement", "linguistics_term": "morphology", "pairID": "0"},
    {"sentence_good": "she said the clerk", "sentence_bad": "her said the clerk",
     "UID": "case", "linguistics_term": "morphology", "pairID": "0"},
]  # fmt: skip


def written(path: Path, *rows: object) -> Path:
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


@pytest.mark.usefixtures("quick_workers")
def test_a_file_of_blimp_has_the_accuracy_of_plain_transformers(tmp_path: Path) -> None:
    require_engine()
    import torch
    from transformers import AutoModelForCausalLM

    checkpoint = make_checkpoint(tmp_path / "series" / "step1", seed=1)
    path, bank = written(tmp_path / "blimp.jsonl", *BLIMP), tmp_path / "b.zarr"
    extract(
        bank, suites=str(checkpoint.parent), prompts=f"pairs:file={path}", engine="transformers"
    )
    tokenizer = Tokenizer.load(checkpoint)
    model = AutoModelForCausalLM.from_pretrained(checkpoint).eval()

    def logprob(text: str) -> float:
        ids = tokenizer.encode("<|endoftext|>") + tokenizer.encode(text)
        with torch.inference_mode():
            rows = model(torch.tensor([ids])).logits[0].double().log_softmax(dim=1)
        return sum(rows[at - 1, ids[at]].item() for at in range(1, len(ids)))

    sums = [[logprob(row["sentence_good"]), logprob(row["sentence_bad"])] for row in BLIMP]
    study = pairs(bank)
    table = study.tables["pairs"]
    assert table["group"].to_list() == ["all", "agreement", "case"]
    shares = [100.0 * (good > bad) for good, bad in sums]
    assert table["score"].to_list() == [sum(shares) / 2, *shares]
    sizes = [abs(good - bad) for good, bad in sums]
    assert table["likelihood_diff"][1:].to_list() == pytest.approx(sizes, abs=5e-3)
    grouped = pairs(bank, prompts="blimp", group_by="linguistics_term").tables["pairs"]
    assert grouped["group"].to_list() == ["all", "morphology"]


def test_files_of_pairs_mask_every_token_or_those_that_both_share(tmp_path: Path) -> None:
    require_engine()
    write_masked_tokenizer(tmp_path)
    tokenizer = Tokenizer.load(tmp_path)
    own = {"sent_more": "the nurse said", "sent_less": "the doctor said", "group": "jobs"}
    turned = {"sentence_good": "the nurse was tired", "sentence_bad": "tired was the nurse"}
    for row, counts in ((turned, [4, 4]), (own, [2, 2])):
        prompts = prompt_set(f"pairs:file={written(tmp_path / 'own.jsonl', row)}")
        assert prompts.name == "own"
        assert [
            len([*prompt.scored(prompt, Encoder(tokenizer))])
            for prompt in prompts.prompts
            if prompt.scored
        ] == counts
    assert dict(prompts.prompts[1].columns) == {"group": "jobs", "pair": 0, "side": "less"}


def test_a_folder_of_files_is_one_set(tmp_path: Path) -> None:
    for number, row in enumerate(BLIMP):
        written(tmp_path / f"{number}.jsonl", row)
    prompts = prompt_set(f"pairs:file={tmp_path}").prompts
    assert [(p.columns["pair"], p.columns["UID"]) for p in prompts[::2]] == [
        (0, "agreement"), (1, "case"),
    ]  # fmt: skip


def test_files_without_pairs_are_named(tmp_path: Path) -> None:
    for spec in ("pairs", f"pairs:file={tmp_path / 'none.jsonl'}"):
        with pytest.raises(UsageError, match="pairs:file=PATH"):
            prompt_set(spec)
    for row in ({"sentence_good": "a"}, ["a"], {"sentence_good": "a", "sentence_bad": 1}):
        path = written(tmp_path / "bad.jsonl", BLIMP[0], row)
        with pytest.raises(PromptError, match="bad.jsonl:2"):
            prompt_set(f"pairs:file={path}")
    path = written(tmp_path / "bad.jsonl", BLIMP[0] | {"pair": 7})
    with pytest.raises(PromptError, match="bad.jsonl:1.*pair"):
        prompt_set(f"pairs:file={path}")
